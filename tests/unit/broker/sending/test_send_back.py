"""Retries and dead letters from end to end: raw requests to a broker whose clock stands still.

What a client does when a message fails: a concurrent consumer gives it back (36), an orderly one keeps it and, after
its own limit, sends it to the retry topic itself.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from embermq.model.message import StoredMessage
from embermq.model.names import dead_letter_topic, retry_topic
from embermq.model.properties import SCHEDULE_TOPIC
from embermq.remoting import Command, RequestCode, write_json
from embermq.settings import StoreSettings
from embermq.testing.clock import ManualClock
from tests.support.brokers import RunningBroker, consumer, play, subscription
from tests.support.waiting import wait_until

GROUP = "g"
RETRY, DEAD = retry_topic(GROUP), dead_letter_topic(GROUP)
# RocketMQ's table: the n-th retry waits for level n + 2.
DELAYS_S = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


async def give_back(broker: RunningBroker, message: StoredMessage, level: int = 0, **more: Any) -> Command:
    version = more.pop("version", 401)
    ext = {"offset": message.physical_offset, "group": GROUP, "delayLevel": level, "originTopic": "T"} | more
    return await broker.call(RequestCode.CONSUMER_SEND_MSG_BACK, ext, version=version)


async def first_message(broker: RunningBroker, properties: str = "TAGS\x01a\x02UNIQ_KEY\x01u1") -> StoredMessage:
    """A message of topic T, and a group that consumes it."""
    await broker.heartbeat("c1", [consumer(GROUP, subscription("T"))])
    assert (await broker.send("T", b"fails", properties)).code == 0
    [message] = await broker.stored("T")
    return message


async def configure(broker: RunningBroker, **fields: Any) -> None:
    body = write_json({"groupName": GROUP, "consumeEnable": True} | fields)
    assert (await broker.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)).code == 0


async def delivered(broker: RunningBroker, topic: str, count: int) -> None:
    """Wait until so many messages are in the first queue of a topic."""
    delayed = broker.store.engine.services.delayed
    assert delayed is not None
    delayed.wake()
    await asyncio.to_thread(wait_until, lambda: broker.store.max_offset(topic, 0) == count)


async def parked_by(broker: RunningBroker) -> list[tuple[int, int]]:
    """Delay level and number of every parked message."""
    await asyncio.to_thread(broker.store.wait_for_dispatch)
    ids = broker.store.topics().get(SCHEDULE_TOPIC, [])
    return [(queue_id + 1, broker.store.max_offset(SCHEDULE_TOPIC, queue_id)) for queue_id in ids]


def test_sixteen_attempts_with_their_delays_then_the_dead_letters(tmp_path: Path) -> None:
    clock = ManualClock()
    assert [ms // 1000 for ms in StoreSettings().delay_ms[2:]] == DELAYS_S

    async def scenario(broker: RunningBroker) -> None:
        first = message = await first_message(broker)
        for attempt, delay_s in enumerate(DELAYS_S):
            given_back_ms = clock.now_ms()
            assert (await give_back(broker, message)).code == 0
            assert (attempt + 3, 1) in await parked_by(broker)
            clock.advance(ms=delay_s * 1000 - 1)
            assert broker.store.max_offset(RETRY, 0) == attempt
            clock.advance(ms=1)
            await delivered(broker, RETRY, attempt + 1)
            message = (await broker.stored(RETRY))[-1]
            assert message.reconsume_times == attempt + 1
            assert message.store_timestamp == given_back_ms + delay_s * 1000
            assert message.properties["RETRY_TOPIC"] == "T"
            assert message.properties["ORIGIN_MESSAGE_ID"] == first.message_id
            assert (message.body, message.unique_key, message.tags) == (b"fails", "u1", "a")
            assert (message.born_timestamp, message.store_host) == (first.born_timestamp, first.store_host)
        assert await broker.stored(DEAD) == []
        assert (await give_back(broker, message)).code == 0
        [dead] = await broker.stored(DEAD)
        assert (dead.body, dead.reconsume_times) == (b"fails", 17)
        assert dead.properties["ORIGIN_MESSAGE_ID"] == first.message_id
        assert broker.store.max_offset(RETRY, 0) == 16

    play(scenario, tmp_path, clock=clock)


@pytest.mark.slow(seconds=4)
def test_a_restart_in_the_middle_of_a_wait(tmp_path: Path) -> None:
    clock = ManualClock()

    async def before(broker: RunningBroker) -> None:
        assert (await give_back(broker, await first_message(broker))).code == 0

    async def after(broker: RunningBroker) -> None:
        assert broker.store.max_offset(RETRY, 0) == 0
        clock.advance(ms=4000)
        await delivered(broker, RETRY, 1)

    play(before, tmp_path, clock=clock)
    clock.advance(ms=6000)
    play(after, tmp_path, clock=clock)


@pytest.mark.parametrize(("most", "attempts"), [(0, 0), (1, 1), (3, 3)])
def test_a_groups_own_limit(tmp_path: Path, most: int, attempts: int) -> None:
    clock = ManualClock()

    async def scenario(broker: RunningBroker) -> None:
        await configure(broker, retryMaxTimes=most, retryQueueNums=1)
        message = await first_message(broker)
        for attempt in range(attempts):
            assert (await give_back(broker, message)).code == 0
            clock.advance(ms=DELAYS_S[attempt] * 1000)
            await delivered(broker, RETRY, attempt + 1)
            message = (await broker.stored(RETRY))[-1]
        assert (await give_back(broker, message)).code == 0
        assert [one.reconsume_times for one in await broker.stored(DEAD)] == [attempts + 1]

    play(scenario, tmp_path, clock=clock)


@pytest.mark.parametrize(("version", "topic"), [(121, DEAD), (120, SCHEDULE_TOPIC)])
def test_a_consumers_own_limit_counts_since_version_121(tmp_path: Path, version: int, topic: str) -> None:
    async def scenario(broker: RunningBroker) -> None:
        message = await first_message(broker)
        assert (await give_back(broker, message, maxReconsumeTimes=0, version=version)).code == 0
        assert len(await broker.stored(topic, 2 if topic == SCHEDULE_TOPIC else 0)) == 1

    play(scenario, tmp_path, clock=ManualClock())


def test_a_level_of_the_consumers_choice(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        message = await first_message(broker)
        assert (await give_back(broker, message, 7)).code == 0
        assert (await give_back(broker, message, 99)).code == 0
        assert await parked_by(broker) == [(7, 1), (18, 1)]
        assert (await give_back(broker, message, -1)).code == 0
        assert len(await broker.stored(DEAD)) == 1

    play(scenario, tmp_path, clock=ManualClock())


def test_retry_queues_of_a_group(tmp_path: Path) -> None:
    """Spread over all of them; a group with none keeps nothing."""

    async def scenario(broker: RunningBroker) -> None:
        await configure(broker, retryMaxTimes=16, retryQueueNums=3)
        message = await first_message(broker)
        for _ in range(40):
            assert (await give_back(broker, message, 1)).code == 0
        parked = await broker.stored(SCHEDULE_TOPIC)
        assert {one.properties["REAL_QID"] for one in parked} == {"0", "1", "2"}
        config = broker.broker.topics.find(RETRY)
        assert config is not None
        assert config.write_queue_nums >= 1
        await configure(broker, retryMaxTimes=16, retryQueueNums=0)
        assert (await give_back(broker, message, 1)).code == 0
        assert len(await broker.stored(SCHEDULE_TOPIC)) == 40

    play(scenario, tmp_path, clock=ManualClock())


def test_an_orderly_consumer_sends_to_the_retry_topic_itself(tmp_path: Path) -> None:
    """It names the times it has tried, its own limit and the level; past the limit it is a dead letter, not delayed."""
    clock = ManualClock()

    async def scenario(broker: RunningBroker) -> None:
        await broker.heartbeat("c1", [consumer(GROUP, subscription("T"))])
        properties = "RETRY_TOPIC\x01T\x02DELAY\x015\x02MAX_RECONSUME_TIMES\x013"
        assert (await broker.send(RETRY, b"again", properties, j=2, l=3, d=1)).code == 0
        assert await parked_by(broker) == [(5, 1)]
        clock.advance(ms=60_000)
        await delivered(broker, RETRY, 1)
        [again] = await broker.stored(RETRY)
        assert (again.body, again.reconsume_times) == (b"again", 2)
        assert (await broker.send(RETRY, b"enough", properties, j=3, l=3, d=1)).code == 0
        [dead] = await broker.stored(DEAD)
        assert (dead.body, dead.reconsume_times) == (b"enough", 3)
        assert await parked_by(broker) == [(5, 1)]

    play(scenario, tmp_path, clock=clock)


def test_retries_of_one_group_are_not_those_of_another(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(broker: RunningBroker) -> None:
        message = await first_message(broker)
        await broker.heartbeat("c2", [consumer("other", subscription("T"))])
        assert (await give_back(broker, message, 1)).code == 0
        assert (await give_back(broker, message, 1, group="other")).code == 0
        assert (await give_back(broker, message, -1, group="other")).code == 0
        clock.advance(ms=1000)
        for topic in (RETRY, retry_topic("other"), dead_letter_topic("other")):
            await delivered(broker, topic, 1)
        assert await broker.stored(DEAD) == []

    play(scenario, tmp_path, clock=clock)
