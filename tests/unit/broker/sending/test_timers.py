"""Delivery times through a broker: raw requests, a clock that stands still."""

import asyncio
from pathlib import Path

from embermq.model.properties import TIMER_TOPIC
from embermq.remoting import ResponseCode
from embermq.testing.clock import ManualClock
from tests.support.brokers import RunningBroker, play
from tests.support.waiting import wait_until


def test_sent_with_a_time_and_delivered_then(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(broker: RunningBroker) -> None:
        due_ms = clock.now_ms() + 90_000
        sent = await broker.send("T", b"later", f"TIMER_DELIVER_MS\x01{due_ms}\x02UNIQ_KEY\x01k1\x02")
        assert sent.code == 0
        for key in ("k2", "k3"):
            assert (await broker.send("T", key.encode(), f"TIMER_DELAY_SEC\x01120\x02UNIQ_KEY\x01{key}")).code == 0
        cancelled = f"TIMER_DELIVER_MS\x01{clock.now_ms() + 120_000}\x02TIMER_DEL_UNIQKEY\x01k2"
        assert (await broker.send("T", b"", cancelled)).code == 0
        assert await broker.stored("T") == []
        parked = await broker.stored(TIMER_TOPIC)
        assert [one.body for one in parked] == [b"later", b"k2", b"k3"]
        assert parked[0].properties["TIMER_OUT_MS"] == str(due_ms)
        config = broker.broker.topics.find(TIMER_TOPIC)
        assert config is not None
        assert config.write_queue_nums == 2
        clock.advance(ms=90_000)
        await asyncio.to_thread(wait_until, lambda: broker.store.max_offset("T", 0) == 1)
        [delivered] = await broker.stored("T")
        assert (delivered.body, delivered.unique_key) == (b"later", "k1")
        clock.advance(ms=30_000)
        await asyncio.to_thread(wait_until, lambda: broker.store.max_offset("T", 0) == 2)
        assert [one.body for one in await broker.stored("T")] == [b"later", b"k3"]

    play(scenario, tmp_path, clock=clock)


def test_what_cannot_be_delivered_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        for properties in ("TIMER_DELAY_MS\x01soon", f"TIMER_DELAY_SEC\x01{41 * 86_400}"):
            refused = await broker.send("T", b"x", properties)
            assert refused.code == ResponseCode.MESSAGE_ILLEGAL
            assert "TIMER_DELAY_MS" in str(refused.remark) or "40 days" in str(refused.remark)
        assert (await broker.send(TIMER_TOPIC, b"x")).code != 0
        assert broker.store.max_physical == 0

    play(scenario, tmp_path)
