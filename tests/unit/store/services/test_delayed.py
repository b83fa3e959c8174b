"""Delayed delivery without threads: a schedule topic made of lists, and a clock that stands still."""

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from embermq.errors import AppendRefused, BodyTooLarge, StoreClosed
from embermq.files import RealFiles
from embermq.format.queue_entry import ENTRY_DTYPE
from embermq.model.hosts import Host, pack_host
from embermq.model.message import Message, Receipt, StoredMessage
from embermq.model.properties import HALF_TOPIC, encode_properties
from embermq.model.status import PutStatus
from embermq.store.services import delayed
from embermq.store.services.delayed import DelayedMessages, Parked
from embermq.store.tables import DELAY_OFFSETS, ConfigTable
from embermq.testing.clock import ManualClock
from embermq.testing.faulty_files import FaultyFiles

BORN, STORE = Host("10.0.0.1", 5000), Host("10.0.0.2", 10911)
DELAY_MS = (1000, 5000, 10_000)


class ScheduleTopic:
    """Queues of parked messages in memory, and what came out of them."""

    def __init__(self, tmp_path: Path, delay_ms: tuple[int, ...] = DELAY_MS) -> None:
        self.clock = ManualClock()
        self.queues: dict[int, list[tuple[int, int, int]]] = {}
        self.minimum: dict[int, int] = {}
        self.records: dict[int, StoredMessage] = {}
        self.appended: list[Message] = []
        self.answers: Iterator[PutStatus | Exception] = iter(())
        self.calls: Counter[str] = Counter()  # How often which part of the schedule topic was looked at.
        self.flushes = 0
        self.durable = 2**60
        self.files = FaultyFiles(RealFiles())
        self.path = tmp_path / "config" / "delayOffset.json"
        self.delay_ms = delay_ms
        self.delayed = self.open()

    def open(self) -> DelayedMessages:
        return DelayedMessages(
            Parked(self.queue_ids, self.bounds, self.entries, lambda at, _size: self.records.get(at)),
            self.append,
            self.flush,
            ConfigTable(self.files, self.path.parent.parent, DELAY_OFFSETS, self.clock),
            delay_ms=self.delay_ms,
            log_file_bytes=1 << 20,
            clock=self.clock,
        )

    def park(self, level: int, body: bytes = b"x", *, due_ms: int | None = None, **properties: str) -> int:
        """Park a message now; its place in the log."""
        now_ms = self.clock.now_ms()
        queue = self.queues.setdefault(level - 1, [])
        physical_offset = 100 * (1 + len(self.records))
        if due_ms is None:
            due_ms = now_ms + self.delay_ms[level - 1]
        given = {"DELAY": str(level), "REAL_TOPIC": "orders", "REAL_QID": "3", "WAIT": "true"} | properties
        self.records[physical_offset] = StoredMessage(
            physical_offset,
            100,
            0,
            level - 1,
            7,
            len(queue),
            0,
            1234,
            pack_host(BORN),
            now_ms,
            pack_host(STORE),
            2,
            0,
            body,
            "SCHEDULE_TOPIC_XXXX",
            encode_properties({name: value for name, value in given.items() if value}),
        )
        queue.append((physical_offset, 100, due_ms))
        return physical_offset

    def queue_ids(self) -> list[int]:
        self.calls["queue_ids"] += 1
        return list(self.queues)

    def bounds(self, queue_id: int) -> tuple[int, int] | None:
        self.calls["bounds"] += 1
        queue = self.queues.get(queue_id)
        return None if queue is None else (self.minimum.get(queue_id, 0), len(queue))

    def entries(self, queue_id: int, start: int) -> npt.NDArray[np.void]:
        self.calls["entries"] += 1
        return np.array(self.queues[queue_id][start : start + 4], dtype=ENTRY_DTYPE)

    def append(self, messages: Sequence[Message]) -> list[Receipt]:
        """All or none; one answer for all."""
        answer = next(self.answers, PutStatus.PUT_OK)
        if isinstance(answer, Exception):
            raise answer
        self.appended += messages
        return [Receipt(answer, 5000 + 100 * len(self.appended), 100, 0, 0, STORE) for _ in messages]

    def flush(self) -> int:
        self.flushes += 1
        return self.durable

    def deliver(self) -> int | None:
        return self.delayed.deliver_due(self.clock.now_ms())

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.appended]


@pytest.fixture
def topic(tmp_path: Path) -> ScheduleTopic:
    return ScheduleTopic(tmp_path)


def test_nothing_parked_is_idle(topic: ScheduleTopic) -> None:
    assert topic.deliver() is None


def test_delivered_at_its_time_and_not_before(topic: ScheduleTopic) -> None:
    topic.park(1)
    due_ms = topic.clock.now_ms() + 1000
    assert topic.deliver() == due_ms
    topic.clock.advance(ms=999)
    assert topic.deliver() == due_ms
    assert topic.appended == []
    topic.clock.advance(ms=1)
    assert topic.deliver() is None
    assert topic.bodies() == [b"x"]
    assert topic.deliver() is None
    assert topic.bodies() == [b"x"]


def test_the_earliest_level_says_when_to_look_again(topic: ScheduleTopic) -> None:
    topic.park(3)
    topic.park(2)
    assert topic.deliver() == topic.clock.now_ms() + 5000


def test_a_look_costs_what_the_levels_cost(topic: ScheduleTopic) -> None:
    for level in (1, 2, 3):
        for _ in range(50):
            topic.park(level)
    topic.calls.clear()
    topic.deliver()
    assert topic.calls == {"queue_ids": 1, "bounds": 3, "entries": 3}


def test_what_is_delivered_is_the_parked_record_with_its_own_destination(topic: ScheduleTopic) -> None:
    parked = topic.records[topic.park(1, b"body", TAGS="paid", KEYS="order-1")]
    topic.clock.advance(s=1)
    topic.deliver()
    [message] = topic.appended
    assert (message.topic, message.queue_id, message.body) == ("orders", 3, b"body")
    assert message.encoded_properties == parked.property_bytes
    assert message.property_bytes() == parked.property_bytes
    assert (message.flag, message.reconsume_times, message.born_timestamp) == (7, 2, 1234)
    assert (message.born_host, message.store_host) == (BORN, STORE)
    assert not message.wait_for_store


def test_order_is_kept_within_a_level(topic: ScheduleTopic) -> None:
    for number in range(50):
        topic.park(1, str(number).encode())
    topic.clock.advance(s=1)
    assert topic.deliver() is None
    assert topic.bodies() == [str(number).encode() for number in range(50)]


def test_levels_take_turns(topic: ScheduleTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed, "TURN_MESSAGES_MAX", 3)
    for number in range(4):
        topic.park(1, b"a%d" % number)
        topic.park(2, b"b%d" % number)
    topic.clock.advance(s=5)
    assert topic.deliver() == topic.clock.now_ms()
    assert topic.bodies() == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
    assert topic.deliver() is None
    assert topic.bodies()[6:] == [b"a3", b"b3"]


def test_a_burst_of_one_level_gives_way_after_a_run_without_kernels(topic: ScheduleTopic) -> None:
    for number in range(1000):
        topic.park(1, b"a%d" % number)
    topic.park(2, b"b")
    topic.park(3, b"c")
    topic.clock.advance(s=10)
    assert topic.deliver() == topic.clock.now_ms()
    assert topic.bodies() == [b"a%d" % number for number in range(256)] + [b"b", b"c"]
    while topic.deliver() is not None:
        pass
    assert topic.bodies()[258:] == [b"a%d" % number for number in range(256, 1000)]


def test_a_clock_set_back_does_not_hold_a_message_for_ever(topic: ScheduleTopic) -> None:
    topic.park(1)
    topic.clock.jump(ms=-3_600_000)
    assert topic.deliver() is None
    assert topic.bodies() == [b"x"]


def test_a_level_the_settings_no_longer_have_is_delivered_at_its_own_time(topic: ScheduleTopic) -> None:
    due_ms = topic.clock.now_ms() + 7_200_000
    topic.park(18, due_ms=due_ms)
    assert topic.deliver() == due_ms
    topic.clock.advance(s=7200)
    assert topic.deliver() is None
    assert topic.bodies() == [b"x"]


def test_an_extension_address_is_no_time(topic: ScheduleTopic) -> None:
    topic.park(2, due_ms=-(2**63) + 64)
    due_ms = topic.clock.now_ms() + 5000
    assert topic.deliver() == due_ms
    topic.clock.advance(s=5)
    assert topic.deliver() is None
    assert topic.bodies() == [b"x"]


@pytest.mark.parametrize("failure", [PutStatus.OS_PAGECACHE_BUSY, AppendRefused("disk full")])
def test_a_failed_append_is_tried_again(topic: ScheduleTopic, failure: PutStatus | Exception) -> None:
    topic.park(1, b"first")
    topic.park(1, b"second")
    topic.answers = iter([failure, failure])
    topic.clock.advance(s=1)
    for _ in range(2):
        assert topic.deliver() == topic.clock.now_ms() + 100
        assert topic.delayed.progress() == {}
        topic.appended.clear()
        topic.clock.advance(ms=100)
    assert topic.deliver() is None
    assert topic.bodies() == [b"first", b"second"]
    assert topic.delayed.progress() == {1: 2}


def test_repeated_failure_is_logged_once(topic: ScheduleTopic, caplog: pytest.LogCaptureFixture) -> None:
    topic.park(1)
    topic.clock.advance(s=1)
    topic.answers = iter([AppendRefused("disk full")] * 3)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            topic.deliver()
    assert [record.getMessage() for record in caplog.records] == [
        "delayed.retry level=1 queue_offset=0 reason=disk full"
    ]


def test_one_failing_level_does_not_hold_up_another(topic: ScheduleTopic) -> None:
    topic.park(1, b"fails")
    topic.park(2, b"goes")
    topic.clock.advance(s=5)
    topic.answers = iter([AppendRefused("busy")])
    assert topic.deliver() == topic.clock.now_ms() + 100
    assert topic.bodies() == [b"goes"]


def test_records_that_cannot_be_delivered_are_skipped_and_said(
    topic: ScheduleTopic, caplog: pytest.LogCaptureFixture
) -> None:
    del topic.records[topic.park(1, b"unreadable")]
    topic.park(1, b"half", REAL_TOPIC=HALF_TOPIC)
    topic.park(1, b"nowhere", REAL_TOPIC="")
    topic.park(1, b"no queue", REAL_QID="-1")
    topic.park(1, b"too large")
    topic.park(1, b"good")
    topic.answers = iter([BodyTooLarge(9, 8), BodyTooLarge(9, 8)])  # Of the run, then of the one.
    topic.clock.advance(s=1)
    with caplog.at_level(logging.ERROR):
        assert topic.deliver() is None
    assert topic.bodies() == [b"good"]
    assert topic.delayed.progress() == {1: 6}
    assert (topic.delayed.delivered, topic.delayed.skipped) == (1, 5)
    reasons = [record.getMessage().partition("reason=")[2] for record in caplog.records]
    assert reasons[0] == "the parked record cannot be read"
    assert HALF_TOPIC in reasons[1]
    assert "REAL_TOPIC" in reasons[2]
    assert "'-1'" in reasons[3]
    assert "maxMessageSize" in reasons[4]


def test_an_entry_that_only_fills_a_hole_is_not_delivered_twice(topic: ScheduleTopic) -> None:
    topic.park(1, b"lost")
    topic.park(1, b"kept")
    topic.queues[0][0] = topic.queues[0][1]
    topic.clock.advance(s=1)
    topic.deliver()
    assert topic.bodies() == [b"kept"]


def test_a_deleted_part_of_the_queue_is_passed_over(topic: ScheduleTopic) -> None:
    for number in range(5):
        topic.park(1, b"%d" % number)
    topic.minimum[0] = 3
    topic.clock.advance(s=1)
    topic.deliver()
    assert topic.bodies() == [b"3", b"4"]


# -- progress on disk ----------------------------------------------------------------------------------


def test_progress_is_written_in_rocketmqs_layout_after_the_log_is_durable(topic: ScheduleTopic) -> None:
    for level in (1, 1, 2, 3):
        topic.park(level)
    topic.clock.advance(s=5)
    topic.deliver()
    topic.delayed.persist()
    assert topic.flushes == 1
    assert topic.path.read_bytes() == b'{\n\t"offsetTable":{1:2,2:1\n\t}\n}'


def test_progress_never_counts_what_is_not_durable(topic: ScheduleTopic, caplog: pytest.LogCaptureFixture) -> None:
    topic.park(1)
    topic.clock.advance(s=1)
    topic.deliver()
    topic.durable = 5199
    topic.delayed.stop()
    assert "durable only up to 5199" in caplog.text
    assert not topic.path.exists()
    topic.durable = 5200
    topic.delayed.stop()
    assert topic.path.exists()


def test_unchanged_progress_is_not_written_again(topic: ScheduleTopic) -> None:
    topic.delayed.persist()
    assert not topic.path.exists()
    topic.park(1)
    topic.clock.advance(s=1)
    topic.deliver()
    topic.delayed.persist()
    steps = len(topic.files.steps)
    topic.delayed.persist()
    assert len(topic.files.steps) == steps


def test_the_version_before_becomes_the_backup(topic: ScheduleTopic) -> None:
    for _ in range(3):
        topic.park(1)
        topic.clock.advance(s=1)
        topic.deliver()
        topic.delayed.persist()
    backup = topic.path.with_name("delayOffset.json.bak")
    assert b"{1:2\n" in backup.read_bytes()
    assert b"{1:3\n" in topic.path.read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        '{\n\t"offsetTable":{1:2\n\t}\n}',
        '{"offsetTable":{"1":2},"dataVersion":{"counter":3}}',
        '{"offsetTable":{1 : 2}}',
    ],
)
def test_a_new_run_goes_on_where_the_last_one_stopped(topic: ScheduleTopic, text: str) -> None:
    for number in range(3):
        topic.park(1, b"%d" % number)
    topic.path.parent.mkdir()
    topic.path.write_text(text)
    topic.delayed.load()
    topic.clock.advance(s=1)
    topic.deliver()
    assert topic.bodies() == [b"2"]


@pytest.mark.parametrize(("saved", "minimum", "expected"), [(9, 0, 3), (0, 2, 2), (2, 0, 2)])
def test_loaded_offsets_are_brought_into_the_queue(
    topic: ScheduleTopic, saved: int, minimum: int, expected: int
) -> None:
    for _ in range(3):
        topic.park(1)
    topic.minimum[0] = minimum
    topic.path.parent.mkdir()
    topic.path.write_text(f'{{"offsetTable":{{1:{saved},5:4}}}}')
    topic.delayed.load()
    assert topic.delayed.progress() == {1: expected, 5: 0}


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"\x00" * 40,
        b'{"offsetTable":{1:-2}}',
        b'{"offsetTable":{"a":2}}',
        b"[]",
        b"\xff",
        b'{"offsetTable":{1:"2"}}',
        b'{"offsetTable":[]}',
    ],
)
def test_a_damaged_file_falls_back_to_its_backup_and_then_to_the_start(
    topic: ScheduleTopic, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        topic.park(1)
    backup = topic.path.with_name("delayOffset.json.bak")
    topic.path.parent.mkdir()
    topic.path.write_bytes(damage)
    backup.write_text('{"offsetTable":{1:4}}')
    topic.delayed.load()
    assert topic.delayed.progress() == {1: 4}
    assert "damaged" in caplog.text

    backup.write_bytes(damage)
    again = topic.open()
    again.load()
    assert again.progress() == {}
    topic.delayed = again
    topic.clock.advance(s=1)
    topic.deliver()
    again.persist()
    assert backup.read_bytes() == damage, "a damaged file never replaces the backup"
    assert topic.path.read_bytes() == b'{\n\t"offsetTable":{1:5\n\t}\n}'


def test_a_progress_that_cannot_be_written_is_kept_and_written_later(
    topic: ScheduleTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic.park(1)
    topic.clock.advance(s=1)
    topic.deliver()
    topic.files.fail("sync")
    topic.delayed.stop()
    assert "not written" in caplog.text
    assert not topic.path.exists()
    topic.delayed.stop()
    assert topic.path.exists()


def test_runtime_info_shows_delivered_and_parked(topic: ScheduleTopic) -> None:
    topic.park(2)
    topic.clock.advance(s=5)
    topic.park(2)
    topic.deliver()
    assert topic.delayed.runtime_info() == {"scheduleMessageOffset_2": "1,2"}


# -- the thread ----------------------------------------------------------------------------------------


def test_the_thread_delivers_and_stopping_writes_progress(topic: ScheduleTopic) -> None:
    delivered = threading.Event()
    inner = topic.append

    def append(messages: Sequence[Message]) -> list[Receipt]:
        receipt = inner(messages)
        delivered.set()
        return receipt

    topic.append = append  # type: ignore[method-assign]
    topic.delayed = topic.open()
    topic.park(1)
    topic.clock.advance(s=1)
    topic.delayed.start()
    topic.delayed.wake()
    assert delivered.wait(10)
    topic.delayed.stop()
    assert topic.path.read_bytes() == b'{\n\t"offsetTable":{1:1\n\t}\n}'


def test_the_thread_ends_by_itself_when_the_store_is_closed(topic: ScheduleTopic) -> None:
    topic.park(1)
    topic.clock.advance(s=1)
    go = threading.Event()

    def closed() -> Iterator[Exception]:
        assert go.wait(10)
        yield StoreClosed(topic.path)

    topic.answers = closed()
    topic.delayed.start()
    thread = next(thread for thread in threading.enumerate() if thread.name == "embermq-delayed")
    go.set()
    thread.join(10)
    assert not thread.is_alive()
    topic.delayed.stop()


def test_the_thread_survives_a_surprise(topic: ScheduleTopic, caplog: pytest.LogCaptureFixture) -> None:
    topic.park(1)
    topic.clock.advance(s=1)
    topic.answers = iter([RuntimeError("surprise")])
    failed, went_on = threading.Event(), threading.Event()
    inner = topic.append

    def append(messages: Sequence[Message]) -> list[Receipt]:
        (went_on if failed.is_set() else failed).set()
        return inner(messages)

    topic.append = append  # type: ignore[method-assign]
    topic.delayed = topic.open()
    topic.delayed.start()
    assert failed.wait(10)
    while not went_on.wait(0.01):
        topic.delayed.wake()
    topic.delayed.stop()
    assert "surprise" in caplog.text
    assert topic.bodies() == [b"x"]


def test_stopping_in_the_middle_of_much_delivers_no_more(topic: ScheduleTopic) -> None:
    for _ in range(10):
        topic.park(1)
    topic.clock.advance(s=1)
    inner = topic.append

    def append(messages: Sequence[Message]) -> list[Receipt]:
        topic.delayed.stop()
        return inner(messages)

    topic.append = append  # type: ignore[method-assign]
    topic.delayed = topic.open()
    topic.deliver()
    assert len(topic.appended) == 4  # One run.
    assert topic.delayed.progress() == {1: 4}
