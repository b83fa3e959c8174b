"""Arbitrary delivery times through a whole store, by a clock that stands still."""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from embermq import Message, MessageBatch, MessageStore, StoreSettings
from embermq.errors import BatchInvalid, DeliveryTimeInvalid, PropertyInvalid
from embermq.model.message import BatchItem, StoredMessage
from embermq.model.properties import SCHEDULE_TOPIC, TIMER_TOPIC, encode_properties
from embermq.settings import BrokerRole, FlushDisk
from embermq.store.append import is_closed_to_clients
from embermq.store.services import timers
from embermq.store.services.timers import Timers
from embermq.testing.clock import ManualClock
from tests.support.waiting import wait_until

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SMALL = StoreSettings(
    segment_bytes=1 << 20,
    queue_file_bytes=2000,
    index_slots_max=100,
    index_entries_max=400,
    disk_full_percent=100,
    disk_clean_percent=100,
)


def timed(body: bytes = b"x", *, topic: str = "orders", queue_id: int = 0, **properties: object) -> Message:
    """A message with a delivery time: `after_ms`, `after_sec` or `at_ms`; other names are properties."""
    names = {"after_ms": "TIMER_DELAY_MS", "after_sec": "TIMER_DELAY_SEC", "at_ms": "TIMER_DELIVER_MS"}
    named = {names.get(name, name): str(value) for name, value in properties.items()}
    return Message(topic, body, queue_id=queue_id, properties=named)


def cancelling(key: str, at_ms: int, topic: str = "orders") -> Message:
    return timed(b"", topic=topic, at_ms=at_ms, TIMER_DEL_UNIQKEY=key)


class Bench:
    """A store whose timers a test moves by hand: no thread delivers beside it."""

    def __init__(self, store: MessageStore, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        timers = store.engine.services.timers
        assert timers is not None
        self.timers: Timers = timers
        self.timers.stop()
        self.timers._thread.is_stopping = False

    def look(self) -> int | None:
        """Deliver all that is due now; when to look again."""
        while True:
            assert self.store.wait_for_dispatch(20)
            look = self.timers.deliver_due(self.clock.now_ms())
            if look is None or look > self.clock.now_ms():
                assert self.store.wait_for_dispatch(20)
                return look

    def advance(self, *, ms: int) -> int | None:
        self.clock.advance(ms=ms)
        return self.look()

    def bodies(self, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
        return [one.body for one in messages_of(self.store, topic, queue_id)]


def messages_of(store: MessageStore, topic: str, queue_id: int = 0) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    at = store.min_offset(topic, queue_id)
    while more := store.fetch(topic, queue_id, at + len(found)).messages:
        found += more
    return found


@contextmanager
def opened(path: Path, clock: ManualClock, settings: StoreSettings = SMALL) -> Iterator[Bench]:
    with MessageStore.open(path / "store", settings, clock=clock) as store:
        yield Bench(store, clock)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.mark.parametrize("name", ["after_ms", "after_sec", "at_ms"])
def test_delivered_at_its_time_and_not_before(tmp_path: Path, clock: ManualClock, name: str) -> None:
    due_ms = clock.now_ms() + 7000
    value = {"after_ms": 7000, "after_sec": 7, "at_ms": due_ms}[name]
    with opened(tmp_path, clock) as bench:
        property_name = {"after_ms": "TIMER_DELAY_MS", "after_sec": "TIMER_DELAY_SEC", "at_ms": "TIMER_DELIVER_MS"}[
            name
        ]
        properties = {property_name: str(value)}
        message = Message("orders", b"later", tags="paid", keys=["o-1"], queue_id=2, properties=properties)
        assert bench.store.append(message).ok
        assert bench.look() == due_ms
        [parked] = bench.store.fetch(TIMER_TOPIC, 0, 0).messages
        assert (parked.properties["TIMER_OUT_MS"], parked.properties["REAL_QID"]) == (str(due_ms), "2")
        assert bench.advance(ms=6999) == due_ms
        assert bench.bodies(queue_id=2) == []
        assert bench.advance(ms=1) is None
        [delivered] = messages_of(bench.store, "orders", 2)
        assert (delivered.body, delivered.tags, delivered.keys) == (b"later", "paid", ["o-1"])
        assert delivered.property_bytes == parked.property_bytes
        assert (delivered.born_timestamp, delivered.store_timestamp) == (parked.born_timestamp, due_ms)
        assert bench.advance(ms=DAY_MS) is None
        assert bench.bodies(queue_id=2) == [b"later"]
        assert [one.body for one in bench.store.find("orders", "o-1")] == [b"later"]


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_the_thread_of_an_open_store_delivers(tmp_path: Path, clock: ManualClock, flush: FlushDisk) -> None:
    with MessageStore.open(tmp_path / "store", SMALL.replace(flush=flush), clock=clock) as store:
        store.append(timed(after_ms=250))
        assert store.wait_for_dispatch(10)
        clock.advance(ms=250)
        wait_until(lambda: len(store.fetch("orders", 0, 0).messages) == 1)
        wait_until(lambda: store.runtime_info()["timerMessageOffset"] == "1,1")  # Saved after the delivery.


def test_times_are_kept_apart_to_the_millisecond(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as bench:
        start_ms = clock.now_ms()
        for late in (300, 100, 200, 101, 100):
            bench.store.append(timed(b"%d" % late, after_ms=late))
        for _ in range(301):
            bench.advance(ms=1)
        found = messages_of(bench.store, "orders")
        assert [one.body for one in found] == [b"100", b"100", b"101", b"200", b"300"]
        assert [one.store_timestamp - start_ms for one in found] == [int(one.body) for one in found]


def test_a_time_that_has_come_is_no_delay(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as bench:
        for message in (timed(b"a", at_ms=clock.now_ms()), timed(b"b", at_ms=1), timed(b"c", after_ms=0)):
            assert bench.store.append(message).ok
        assert bench.bodies() == [b"a", b"b", b"c"]
        assert bench.store.topics().keys() == {"orders"}


def test_forty_days_and_no_longer(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as bench:
        assert bench.store.append(timed(b"far", after_ms=40 * DAY_MS)).ok
        with pytest.raises(DeliveryTimeInvalid, match="40 days"):
            bench.store.append(timed(after_ms=40 * DAY_MS + 1))
        with pytest.raises(DeliveryTimeInvalid, match="timerMaxDelaySec"):
            bench.store.append_many([timed(after_ms=5), timed(at_ms=clock.now_ms() + 41 * DAY_MS)])
        assert bench.store.max_offset(TIMER_TOPIC, 0) == 1


@pytest.mark.parametrize("text", ["soon", "-5", "1.5", "", " 5", "９", "1" * 19])
def test_a_time_that_is_no_number_is_refused(tmp_path: Path, clock: ManualClock, text: str) -> None:
    with opened(tmp_path, clock) as bench:
        for name in ("TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"):
            with pytest.raises(PropertyInvalid):
                bench.store.append(Message("orders", b"x", properties={name: text}))
        assert bench.store.topics() == {}


def test_seconds_win_over_milliseconds_and_a_level_over_both(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as bench:
        bench.store.append(timed(b"a", after_sec=2, after_ms=1, at_ms=5))
        bench.store.append(timed(b"b", after_sec=2, DELAY=1))
        assert bench.look() == clock.now_ms() + 2000
        assert [one.body for one in messages_of(bench.store, SCHEDULE_TOPIC)] == [b"b"]


def test_switched_off_the_properties_mean_nothing(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock, SMALL.replace(timers=False)) as bench:
        bench.store.append(timed(b"a", after_sec=2))
        bench.store.append(timed(b"b", after_sec="never"))
        assert bench.bodies() == [b"a", b"b"]


def test_what_was_delivered_is_not_parked_again(tmp_path: Path, clock: ManualClock) -> None:
    """A consumer's retry copies the properties."""
    with opened(tmp_path, clock) as bench:
        bench.store.append(timed(after_ms=10))
        bench.advance(ms=10)
        [delivered] = messages_of(bench.store, "orders")
        bench.store.append(Message("again", b"x", properties=delivered.properties))
        assert bench.bodies("again") == [b"x"]


def test_a_batch_cannot_have_a_delivery_time(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as bench, pytest.raises(BatchInvalid):
        bench.store.append_batch(MessageBatch(timed(after_ms=5), [BatchItem(b"x")]))


def test_every_way_of_appending_parks(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as bench:
        bench.store.append_many([timed(b"m%d" % n, after_ms=5) for n in range(100)])
        given = encode_properties({"TIMER_DELAY_MS": "5"})
        bench.store.append_many([Message("orders", b"e%d" % n, encoded_properties=given) for n in range(100)])
        bench.look()
        assert bench.bodies() == []
        bench.advance(ms=5)
        assert len(bench.bodies()) == 200


# -- cancelling ---------------------------------------------------------------------------------------------


def test_a_cancelled_message_is_not_delivered(tmp_path: Path, clock: ManualClock) -> None:
    due_ms = clock.now_ms() + 5000
    with opened(tmp_path, clock) as bench:
        for key in ("a", "b", "c"):
            bench.store.append(timed(key.encode(), at_ms=due_ms, UNIQ_KEY=key))
        bench.look()
        bench.store.append(cancelling("b", due_ms))
        bench.advance(ms=5000)
        assert bench.bodies() == [b"a", b"c"]
        assert (bench.timers.cancelled, bench.timers.delivered) == (1, 2)
        assert bench.timers.first_parked() is None


def test_a_cancel_names_key_and_time(tmp_path: Path, clock: ManualClock) -> None:
    due_ms = clock.now_ms() + 5000
    with opened(tmp_path, clock) as bench:
        bench.store.append(timed(b"a", at_ms=due_ms, UNIQ_KEY="a"))
        bench.store.append(cancelling("a", due_ms + 1))
        bench.store.append(cancelling("A", due_ms))
        bench.advance(ms=6000)
        assert bench.bodies() == [b"a"]


def test_a_cancel_outlives_a_restart_and_comes_with_its_window(tmp_path: Path, clock: ManualClock) -> None:
    due_ms = clock.now_ms() + DAY_MS
    with opened(tmp_path, clock) as bench:
        bench.store.append(timed(b"a", at_ms=due_ms, UNIQ_KEY="a"))
        bench.store.append(timed(b"b", at_ms=due_ms, UNIQ_KEY="b"))
        bench.store.append(cancelling("a", due_ms))
        bench.look()
    with opened(tmp_path, clock) as bench:
        bench.advance(ms=DAY_MS)
        assert bench.bodies() == [b"b"]


def test_too_late_to_cancel(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as bench, pytest.raises(DeliveryTimeInvalid, match="was due then"):
        bench.store.append(cancelling("a", clock.now_ms()))


# -- restarts, clocks ---------------------------------------------------------------------------------------


def test_a_restart_delivers_what_is_left_and_nothing_twice(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as bench:
        for number in range(300):
            bench.store.append(timed(b"%d" % number, after_ms=1 + number * 37 % 300))
        bench.advance(ms=120)
        assert len(bench.bodies()) == 120
    clock.advance(ms=60)
    with opened(tmp_path, clock) as bench:
        bench.look()
        assert len(bench.bodies()) == 180
        bench.advance(ms=200)
    with opened(tmp_path, clock) as bench:
        assert bench.look() is None
        assert Counter(bench.bodies()) == Counter(b"%d" % number for number in range(300))


def test_a_lost_progress_delivers_again_and_loses_nothing(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as bench:
        bench.store.append(timed(b"a", after_ms=10))
        bench.store.append(timed(b"b", after_ms=DAY_MS))
        bench.advance(ms=10)
    for file in (tmp_path / "store" / "config").glob("timerOffset.json*"):
        file.unlink()
    with opened(tmp_path, clock) as bench:
        bench.look()
        assert bench.bodies() == [b"a", b"a"]
        bench.advance(ms=DAY_MS)
        assert bench.bodies() == [b"a", b"a", b"b"]


def test_clock_jumps_in_the_middle_of_a_wait(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as bench:
        bench.store.append(timed(b"hour", after_ms=HOUR_MS))
        bench.store.append(timed(b"week", after_ms=7 * DAY_MS))
        bench.look()
        clock.jump(ms=-DAY_MS)
        assert bench.look() is not None
        bench.store.append(timed(b"minute", after_ms=60_000))
        bench.advance(ms=60_000)
        assert bench.bodies() == [b"minute"]
        clock.jump(ms=DAY_MS + HOUR_MS)
        bench.look()
        assert bench.bodies() == [b"minute", b"hour"]
        clock.jump(ms=7 * DAY_MS)
        assert bench.look() is None
        clock.jump(ms=-8 * DAY_MS)
        bench.store.append(timed(b"after", after_ms=1000))
        assert bench.look() is not None
        assert bench.bodies() == [b"minute", b"hour", b"week"]
        bench.advance(ms=1000)
        assert bench.bodies() == [b"minute", b"hour", b"week", b"after"]


def test_entries_as_rocketmq_makes_them_are_understood(tmp_path: Path, clock: ManualClock) -> None:
    """Its dispatcher knows no delivery times: after its recovery the entries have the hash of the tag."""
    with opened(tmp_path, clock) as bench:
        for number in range(5):
            bench.store.append(Message("orders", b"%d" % number, tags="t", properties={"TIMER_DELAY_MS": "9"}))
        assert bench.store.wait_for_dispatch(10)
    [file] = (tmp_path / "store" / "consumequeue" / TIMER_TOPIC / "0").iterdir()
    data = bytearray(file.read_bytes())
    entries = np.frombuffer(data, np.dtype([("at", ">i8"), ("size", ">i4"), ("tag", ">i8")]))[:5]
    entries["tag"] = 116
    file.write_bytes(data)
    with opened(tmp_path, clock) as bench:
        bench.look()
        assert bench.bodies() == []
        bench.advance(ms=9)
        assert len(bench.bodies()) == 5


def test_a_slave_delivers_when_it_becomes_a_master(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as bench:
        bench.store.append(timed(after_ms=10))
    clock.advance(ms=10)
    with MessageStore.open(tmp_path / "store", SMALL.replace(role=BrokerRole.SLAVE), clock=clock) as store:
        assert store.fetch("orders", 0, 0).messages == []
        store.set_role(BrokerRole.ASYNC_MASTER)
        wait_until(lambda: len(store.fetch("orders", 0, 0).messages) == 1)


# -- messages that wait long --------------------------------------------------------------------------------


def test_what_waits_long_is_stored_again_and_delivered_once(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as bench:
        bench.store.append(timed(b"far", after_ms=39 * DAY_MS, UNIQ_KEY="far"))
        bench.store.append(timed(b"near", after_ms=HOUR_MS))
        bench.look()
        first = bench.timers.first_parked()
        assert first is not None
        bench.advance(ms=35 * HOUR_MS)
        assert (bench.timers.stored_again, bench.timers.first_parked()) == (0, first)
        bench.advance(ms=HOUR_MS)
        assert bench.timers.stored_again == 1
        held = bench.timers.first_parked()
        assert held is not None
        assert held > first
        [before, _, after] = messages_of(bench.store, TIMER_TOPIC)
        assert (after.body, after.property_bytes) == (b"far", before.property_bytes)
        assert (after.born_timestamp, after.born_host) == (before.born_timestamp, before.born_host)
    with opened(tmp_path, clock) as bench:
        for _ in range(60):
            bench.advance(ms=18 * HOUR_MS)
        assert bench.timers.stored_again >= 20
        assert bench.bodies() == [b"near", b"far"]
        assert bench.look() is None


def test_a_cancelled_message_is_not_stored_again(tmp_path: Path, clock: ManualClock) -> None:
    due_ms = clock.now_ms() + 10 * DAY_MS
    with opened(tmp_path, clock) as bench:
        bench.store.append(timed(b"a", at_ms=due_ms, UNIQ_KEY="a"))
        bench.store.append(timed(b"b", at_ms=due_ms, UNIQ_KEY="b"))
        bench.store.append(cancelling("a", due_ms))
        bench.advance(ms=2 * DAY_MS)
        assert (bench.timers.stored_again, bench.timers.cancelled) == (1, 1)
        bench.advance(ms=8 * DAY_MS)
        assert bench.bodies() == [b"b"]


def test_more_old_messages_than_one_look_moves(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "TURN_MESSAGES_MAX", 3)
    with opened(tmp_path, clock) as bench:
        bench.store.append_many([timed(b"%d" % n, after_ms=5 * DAY_MS) for n in range(10)])
        bench.advance(ms=2 * DAY_MS)
        assert bench.timers.stored_again == 10
        bench.advance(ms=3 * DAY_MS)
        assert bench.bodies() == [b"%d" % n for n in range(10)]


def test_a_deleted_part_of_the_queue_is_said(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, clock) as bench:
        bench.store.append_many([timed(b"%d" % n, after_ms=1000 + n) for n in range(10)])
        assert bench.store.wait_for_dispatch(10)
        bounds = bench.timers._topic.bounds
        object.__setattr__(bench.timers._topic, "bounds", lambda queue: (4, 10) if queue == 0 else bounds(queue))
        with caplog.at_level(logging.WARNING):
            bench.advance(ms=2000)
        assert "timers.lost messages=4" in caplog.text
        assert len(bench.bodies()) == 6


def test_a_message_that_can_never_be_stored_holds_up_no_other(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, clock) as bench:
        bench.store.append_many([timed(b"y" * size, after_ms=5) for size in (10, 900, 20)])
    with opened(tmp_path, clock, SMALL.replace(message_bytes_max=500)) as bench, caplog.at_level(logging.ERROR):
        bench.advance(ms=5)
        assert [len(body) for body in bench.bodies()] == [10, 20]
        assert bench.timers.skipped == 1
        assert "timers.skipped topic=rmq_sys_wheel_timer queue_id=0 queue_offset=1" in caplog.text


def test_clients_may_not_write_to_the_timer_topic() -> None:
    assert is_closed_to_clients(TIMER_TOPIC)


@pytest.mark.slow(seconds=8)
def test_many_due_in_one_second_among_many_that_wait(tmp_path: Path, clock: ManualClock) -> None:
    """All in one second, among as many that are due much later: delivered once each, in order of their time."""
    roomy = SMALL.replace(segment_bytes=64 << 20, queue_file_bytes=20 * 50_000, index=False)
    with opened(tmp_path, clock, roomy) as bench:
        for start in range(0, 20_000, 1000):
            bench.store.append_many(
                [timed(b"%d" % n, at_ms=clock.now_ms() + 1000 + n % 1000) for n in range(start, start + 1000)]
                + [timed(b"far", at_ms=clock.now_ms() + 20 * DAY_MS + n) for n in range(start, start + 1000)]
            )
        bench.look()
        assert len(bench.timers._plan) == 20_000
        bench.advance(ms=2000)
        bodies = [int(body) for body in bench.bodies()]
        assert bodies == sorted(range(20_000), key=lambda n: (n % 1000, n))
