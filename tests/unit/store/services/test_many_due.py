"""Many messages that are due: by kernels and without, the same records in the same places, or the same refusal."""

import logging
from pathlib import Path

import msgspec
import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.errors import AppendRefused
from embermq.model.hosts import Host
from embermq.model.message import StoredMessage
from embermq.model.properties import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from embermq.settings import FlushDisk, KernelUse
from embermq.store.append.parked import ParkedReader
from embermq.store.services.delayed import DelayedMessages
from embermq.store.services.timers import Timers
from embermq.testing.clock import ManualClock

SMALL = StoreSettings(
    segment_bytes=64 << 10,
    queue_file_bytes=2000,
    index_slots_max=100,
    index_entries_max=4000,
    disk_full_percent=100,
    disk_clean_percent=100,
    message_bytes_max=4000,
)
PATIENCE_SECONDS = 120  # Kernels may have to be compiled first.
BY = pytest.mark.parametrize("by", ["level", "time"])


def waiting(body: bytes, by: str, *, topic: str = "orders", key: str = "", **fields: object) -> Message:
    given: dict[str, object] = {"topic": topic, "body": body, **fields}
    if by == "level":
        return Message(**given, delay_level=1)  # type: ignore[arg-type]
    properties = {"TIMER_DELAY_SEC": "1"} | ({"UNIQ_KEY": key} if key else {})
    return Message(**given, properties=properties)  # type: ignore[arg-type]


def of_all_kinds(by: str, count: int = 300) -> list[Message]:
    """Ordinary messages, and some of every other kind between them."""
    return [
        waiting(b"%d" % number * (1 + number % 40), by, topic=f"orders-{number % 5}", queue_id=number % 3, flag=number)
        if number % 37
        else waiting(b"odd", by, store_host=Host("10.0.0.9", 1), born_host=Host("2001:db8::1", 2))
        for number in range(count)
    ]


def delivering(store: MessageStore, by: str) -> DelayedMessages | Timers:
    """Without its thread: the test looks."""
    services = store.engine.services
    for one in (services.delayed, services.timers):
        assert one is not None
        one.stop()
        one._thread.is_stopping = False
    found = services.delayed if by == "level" else services.timers
    assert found is not None
    return found


def look(store: MessageStore, one: DelayedMessages | Timers, clock: ManualClock) -> None:
    while True:
        store.flush()
        assert store.wait_for_dispatch(PATIENCE_SECONDS)
        again = one.deliver_due(clock.now_ms())
        if again is None or again > clock.now_ms():
            break
    store.flush()
    assert store.wait_for_dispatch(PATIENCE_SECONDS)


def bodies_of(store: MessageStore, topic: str = "orders") -> list[bytes]:
    found: list[bytes] = []
    while more := store.fetch(topic, 0, len(found)).messages:
        found += [message.body for message in more]
    return found


def whole_log(store: MessageStore) -> list[StoredMessage]:
    """All but the places: what is appended together lies in one log file, and runs are of other lengths."""
    return [msgspec.structs.replace(message, physical_offset=0) for message in store.scan()]


@BY
@pytest.mark.parametrize("flush", list(FlushDisk))
def test_kernels_give_the_same_log(tmp_path: Path, by: str, flush: FlushDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    read = ParkedReader.read

    def counted(reader: ParkedReader, *asked: object) -> object:
        run = read(reader, *asked)  # type: ignore[arg-type]
        runs.append(0 if run is None else len(run.rows))
        return run

    monkeypatch.setattr(ParkedReader, "read", counted)
    logs: dict[KernelUse, list[StoredMessage]] = {}
    for use in (KernelUse.NEVER, KernelUse.ALWAYS):
        clock = ManualClock()
        settings = SMALL.replace(kernels=use, flush=flush)
        with MessageStore.open(tmp_path / use.name, settings, clock=clock) as store:
            one = delivering(store, by)
            for message in of_all_kinds(by):
                assert store.append(message).ok
            clock.advance(s=1)
            look(store, one, clock)
            assert (one.delivered, one.skipped, one.first_parked()) == (300, 0, None)
            assert len(bodies_of(store)) == 9
            logs[use] = whole_log(store)
    assert logs[KernelUse.ALWAYS] == logs[KernelUse.NEVER]
    assert len(logs[KernelUse.ALWAYS]) == 600
    assert sum(runs) > 100


@BY
def test_what_cannot_be_delivered_is_skipped_as_without_kernels(
    tmp_path: Path, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    with MessageStore.open(tmp_path / "store", SMALL.replace(kernels=KernelUse.ALWAYS), clock=clock) as store:
        delivering(store, by)
        for number in range(10):
            store.append(waiting(b"x" * (3000 if number == 4 else 10), by))
        parked = SCHEDULE_TOPIC if by == "level" else TIMER_TOPIC
        [model] = store.fetch(parked, 0, 0, max_messages=1).messages
        text = model.property_bytes.replace(b"REAL_TOPIC\x01orders", b"REAL_TOPIC\x01" + HALF_TOPIC.encode())
        wrong = model.property_bytes.replace(b"REAL_TOPIC\x01orders", b"REAL_TOPIC\x01or/ders")
        for properties in (text, wrong):
            store.engine.internal.append(Message(parked, b"odd", encoded_properties=properties))
        store.append(waiting(b"last", by))
    lower = SMALL.replace(kernels=KernelUse.ALWAYS, message_bytes_max=2000)
    with MessageStore.open(tmp_path / "store", lower, clock=clock) as store, caplog.at_level(logging.ERROR):
        one = delivering(store, by)
        clock.advance(s=1)
        look(store, one, clock)
        assert (one.delivered, one.skipped, one.first_parked()) == (10, 3, None)
        assert bodies_of(store) == [b"x" * 10] * 9 + [b"last"]
    for reason in ("maxMessageSize", HALF_TOPIC, "or/ders"):
        assert reason in caplog.text


@BY
def test_a_refusal_is_tried_again_and_nothing_comes_twice(
    tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    with MessageStore.open(tmp_path / "store", SMALL.replace(kernels=KernelUse.ALWAYS), clock=clock) as store:
        one = delivering(store, by)
        store.append_many([waiting(b"%d" % number, by) for number in range(100)])
        clock.advance(s=1)
        assert store.wait_for_dispatch(PATIENCE_SECONDS)
        writer, answers = store.engine.writer, iter([AppendRefused("busy"), AppendRefused("busy")])
        append_run = writer.append_run

        def refusing(run: object) -> int:
            for refusal in answers:
                raise refusal
            return append_run(run)  # type: ignore[arg-type]

        monkeypatch.setattr(writer, "append_run", refusing)
        for _ in range(2):
            assert one.deliver_due(clock.now_ms()) == clock.now_ms() + 100
            assert one.delivered == 0
        look(store, one, clock)
        assert bodies_of(store) == [b"%d" % number for number in range(100)]


def test_levels_hold_each_other_up_for_one_run_without_kernels(tmp_path: Path) -> None:
    """A burst of one level that is due: a message of another level waits for 256 of them, and not for all."""
    clock = ManualClock()
    with MessageStore.open(tmp_path / "store", SMALL.replace(kernels=KernelUse.NEVER), clock=clock) as store:
        one = delivering(store, "level")
        store.append(Message("orders", b"five seconds", delay_level=2))
        clock.advance(s=4)
        store.append_many([waiting(b"one second", "level") for _ in range(1500)])
        clock.advance(s=1)
        look(store, one, clock)
        bodies = bodies_of(store)
        assert len(bodies) == 1501
        assert bodies.index(b"five seconds") == 256


def test_cancelled_ones_are_left_out_of_a_run(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.open(tmp_path / "store", SMALL.replace(kernels=KernelUse.ALWAYS), clock=clock) as store:
        one = delivering(store, "time")
        due_ms = clock.now_ms() + 1000
        for number in range(60):
            store.append(waiting(b"%d" % number, "time", key=f"k{number}"))
            if number % 20 == 10:
                clock.advance(ms=1)
        for key, at_ms in (("k5", due_ms), ("k15", due_ms + 1), ("k16", due_ms)):
            named = {"TIMER_DELIVER_MS": str(at_ms), "TIMER_DEL_UNIQKEY": key}
            assert store.append(Message("orders", b"", properties=named)).ok
        clock.advance(s=2)
        look(store, one, clock)
        assert bodies_of(store) == [b"%d" % number for number in range(60) if number not in (5, 15)]
        assert isinstance(one, Timers)
        assert (one.delivered, one.cancelled) == (58, 2)


@BY
def test_few_messages_load_no_kernels(tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embermq.store.append.parked.pays", lambda kind, work, use: work >= 8000)
    clock = ManualClock()
    with MessageStore.open(tmp_path / "store", SMALL, clock=clock) as store:
        one = delivering(store, by)
        store.append_many([waiting(b"x", by) for _ in range(20)])
        clock.advance(s=1)
        look(store, one, clock)
        assert one.delivered == 20
        assert not store.engine.writer.parked.is_ready(7999)
