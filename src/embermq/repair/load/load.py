"""Loading lines of JSON into a store: the inverse of dump.py.

What a line says of a message is stored as it is: topic and queue, body, properties in their order, flags, born time
and host, store host, counters. Nothing is done to it that an append would do: a message with a delay level is not
parked (a dump has both the parked and the delivered one), and light queues are left as they are written down.
The store gives each message its place: physical offset and queue offset, in the order of the lines. A complete raw
dump loaded into an empty store with the same file sizes gives the same log, byte for byte.

Store times are kept in a store that was empty; where messages lie already, they would run backwards, which no one
expects who searches by time, so the messages are stored with the time of loading (`times` decides otherwise).

Delayed messages: those that are parked in the dump and delivered later in it count as delivered, so that they do not
come again, also where loading ended at a line that is no message and went on behind it. The rest are delivered by
the open store, when due.

One thread.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, count
from pathlib import Path
from typing import BinaryIO

import numpy as np

from embermq.clock import SystemClock, stamp_of
from embermq.errors import (
    AppendRefused,
    BodyTooLarge,
    InputInvalid,
    MessageRejected,
    PropertiesTooLarge,
    PropertyInvalid,
    QueueIdInvalid,
    RecordTooLarge,
    TopicNameInvalid,
)
from embermq.files import Files, RealFiles
from embermq.model.hosts import Host
from embermq.model.message import Message, Receipt, StoredMessage
from embermq.model.properties import DELAY, REAL_TOPIC, SCHEDULE_TOPIC, TIMER_DUE_MS, TIMER_TOPIC, decode_properties
from embermq.repair.load.json_input import LineInvalid, Loaded, column_of, decode_line
from embermq.settings import StoreSettings
from embermq.store import MessageStore, open_for_maintenance
from embermq.store.append import Admission
from embermq.store.layout import was_closed_cleanly
from embermq.store.services import load_done_bits
from embermq.store.tables import DELAY_OFFSETS, TIMER_OFFSETS, ConfigTable, load_entries

LINE_BYTES_MAX = 128 << 20
_READ_BYTES = 1 << 20
# What a store objects to, and where that stands in a line.
_KEYS_OF = {
    TopicNameInvalid: ("topic",),
    QueueIdInvalid: ("queueId",),
    BodyTooLarge: ("body", "bodyBase64"),
    PropertiesTooLarge: ("properties", "propertiesBase64"),
    PropertyInvalid: ("properties", "propertiesBase64"),
}


class Times(StrEnum):
    """Which store time a loaded message gets."""

    AUTO = "auto"  # its own in an empty store, the time of loading otherwise
    KEEP = "keep"
    NEW = "new"


@dataclass(slots=True)
class LoadReport:
    """What was loaded so far."""

    messages: int = 0
    bytes_read: int = 0
    kept_times: bool = False
    start: int = 0  # Physical offset of the first message.
    end: int = 0
    counted_as_delivered: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """Lines, and what to call them when something is wrong with one."""

    lines: BinaryIO
    name: str
    first_line: int = 1  # Earlier ones are passed over.
    text_bodies: bool = False


class ReplayClock(SystemClock):
    """The machine's clock, but for the time of day, which may be set."""

    __slots__ = ("time_ms",)

    def __init__(self) -> None:
        self.time_ms: int | None = None

    def now_ms(self) -> int:
        return super().now_ms() if self.time_ms is None else self.time_ms

    def local_stamp(self, ms: int) -> str:
        return stamp_of(ms)


def load_messages(
    path: Path,
    settings: StoreSettings,
    source: Source,
    *,
    times: Times = Times.AUTO,
    progress: Callable[[LoadReport], None] = lambda _report: None,
    files: Files | None = None,
) -> LoadReport:
    """Store the messages of `source` in the store at `path`, which is made if need be.

    InputInvalid for a line that is no message; what came before it is stored. Nothing is made or changed when
    already the first line is wrong.
    """
    return _Loading(path, settings, source, times, progress, files or RealFiles()).run()


def _lines(source: Source) -> Iterator[tuple[int, bytes]]:
    """Number and text of each line that holds something."""
    for number, line in enumerate(_split_lines(source.lines), start=1):
        if len(line) > LINE_BYTES_MAX:
            reason = f"a line of more than {LINE_BYTES_MAX >> 20} MiB is no message"
            raise InputInvalid(source.name, number, LINE_BYTES_MAX, reason)
        if number >= source.first_line and line.strip():
            yield number, line


def _split_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, as they come in; of one that is too long only a beginning that is too long."""
    read = getattr(file, "read1", file.read)  # Of a pipe: what is there, instead of waiting for more.
    begun: list[bytes] = []
    length = 0
    while chunk := read(_READ_BYTES):
        first, newline, rest = chunk.partition(b"\n")
        begun.append(first)
        length += len(first)
        if length > LINE_BYTES_MAX:
            break
        if newline:
            yield b"".join(begun)
            *whole, last = rest.split(b"\n")
            yield from whole
            begun, length = [last], len(last)
    if length:
        yield b"".join(begun)


_TIMERS = 0  # What the timer topic has for a level.


@dataclass(slots=True)
class _Parked:
    """Messages parked in the store being loaded, and which of them are known to be delivered."""

    waiting: dict[bytes, list[tuple[int, int]]] = field(default_factory=dict)  # digest -> level, offset; oldest first
    delivered: dict[int, int] = field(default_factory=dict)  # level -> queue offset after the last one
    counts: Counter[int] = field(default_factory=Counter)  # level -> how many
    begun: dict[int, int] = field(default_factory=dict)  # level -> from where on messages waited before
    scattered: dict[int, set[int]] = field(default_factory=dict)  # of such a level: queue offsets that are delivered

    timers: set[int] = field(default_factory=set)  # queue offsets of the timer topic that are delivered

    def expect(self, level: int, queue_offset: int, message: Message) -> None:
        """Parked, and not delivered so far. Twins are delivered in the order they were parked in."""
        self.waiting.setdefault(_digest(message), []).append((level, queue_offset))

    def note(self, message: Message, receipt: Receipt) -> None:
        """This message was stored."""
        encoded = message.encoded_properties or b""
        if f"{DELAY}\x01".encode() not in encoded and f"{TIMER_DUE_MS}\x01".encode() not in encoded:
            return
        if message.topic == SCHEDULE_TOPIC:
            self.expect(message.queue_id + 1, receipt.queue_offset, message)
        elif message.topic == TIMER_TOPIC:
            if message.queue_id == 0:
                self.expect(_TIMERS, receipt.queue_offset, message)
        elif decode_properties(encoded).get(REAL_TOPIC) == message.topic:
            self._deliver(_digest(message))

    def _deliver(self, digest: bytes) -> None:
        twins = self.waiting.get(digest)
        if not twins:
            return
        level, queue_offset = twins.pop(0)
        if not twins:
            del self.waiting[digest]
        if level == _TIMERS:
            self.timers.add(queue_offset)
            return
        self.counts[level] += 1
        self.delivered[level] = max(self.delivered.get(level, 0), queue_offset + 1)
        if level in self.begun:
            self.scattered.setdefault(level, set()).add(queue_offset)

    def reached(self) -> dict[int, int]:
        """How far each level is delivered now. Where messages waited before: as far as there is none among them that
        is not delivered. Elsewhere up to the last one: one that was passed over in the dump will be here, too."""
        found = dict(self.delivered)
        for level, done in self.scattered.items():
            found[level] = next(offset for offset in count(self.begun[level]) if offset not in done)
        return found

    def counted(self, level: int, reached: int) -> int:
        """How many messages of a level come no more, if it goes on at `reached`."""
        return reached - self.begun[level] if level in self.begun else self.counts[level]


def _digest(message: Message) -> bytes:
    """A delivered message has the body, the property string and the time of birth of the parked one."""
    digest = hashlib.blake2b(message.encoded_properties or b"", digest_size=16)
    digest.update(b"%d;" % (message.born_timestamp or 0))
    digest.update(message.body)
    return digest.digest()


class _Loading:
    """One loading; its steps share these parts."""

    def __init__(
        self,
        path: Path,
        settings: StoreSettings,
        source: Source,
        times: Times,
        progress: Callable[[LoadReport], None],
        files: Files,
    ) -> None:
        self.path, self.source, self.times, self.progress, self.files = path, source, times, progress, files
        self.settings = settings.replace(plugins=())  # Which are for messages that come in for the first time.
        self.clock = ReplayClock()
        self.parked = _Parked()
        self.unknown_levels: set[int] = set()  # Of which something was waiting before.
        self.report = LoadReport()
        self._shown_at = 0.0

    def run(self) -> LoadReport:
        lines = _lines(self.source)
        first = next(lines, None)
        if first is not None:
            self._check(*first)
            lines = chain([first], lines)
        store = open_for_maintenance(self.path, self.settings, clock=self.clock, files=self.files)
        try:
            with store:
                self._store_all(store, lines)
        finally:
            # Whatever ended it, what came before stays. What the progress file counts must be durable.
            if was_closed_cleanly(self.files, self.path):
                self._save_delivered()
        return self.report

    def _check(self, number: int, line: bytes) -> None:
        """InputInvalid for a line that no store takes."""
        message = self._decode(number, line).message
        settings = self.settings
        try:
            Admission(settings, settings.segment_bytes, Host(*settings.store_host)).admit_as_is(message)
        except RecordTooLarge as problem:
            if not self.files.exists(self.path):  # Files that are there may be longer than the settings say.
                raise self._rejected(number, line, problem) from problem
        except MessageRejected as problem:
            raise self._rejected(number, line, problem) from problem

    def _store_all(self, store: MessageStore, lines: Iterator[tuple[int, bytes]]) -> None:
        self._look_at_levels(store)
        empty = store.max_physical == store.min_physical
        self.report.kept_times = self.times is Times.KEEP or (self.times is Times.AUTO and empty)
        self.report.start = self.report.end = store.max_physical
        try:
            for number, line in lines:
                self._store(store, number, line)
                self._show_progress()
        finally:
            self.clock.time_ms = None

    def _decode(self, number: int, line: bytes) -> Loaded:
        try:
            return decode_line(line, text_bodies=self.source.text_bodies)
        except LineInvalid as problem:
            raise self._invalid(number, problem.column, problem.reason) from None

    def _rejected(self, number: int, line: bytes, problem: MessageRejected) -> InputInvalid:
        columns = [column_of(line, key) for key in _KEYS_OF.get(type(problem), ())]
        return self._invalid(number, max(columns, default=1), str(problem))

    def _invalid(self, number: int, column: int, reason: str) -> InputInvalid:
        loaded = self.report.messages
        before = f"; {loaded:,} messages before it are loaded" if loaded else "; nothing was loaded"
        return InputInvalid(self.source.name, number, column, reason + before)

    def _store(self, store: MessageStore, number: int, line: bytes) -> None:
        self.report.bytes_read += len(line) + 1
        loaded = self._decode(number, line)
        self.clock.time_ms = loaded.store_timestamp if self.report.kept_times else None
        try:
            receipt = store.internal.append(loaded.message, although_full=True)
        except MessageRejected as problem:
            raise self._rejected(number, line, problem) from problem
        except AppendRefused as problem:
            where = f"{self.source.name}:{number}"
            raise AppendRefused(
                f"{problem} (at {where}; {self.report.messages:,} messages before it are loaded)", problem.status
            ) from problem
        self.report.messages += 1
        self.report.end = receipt.physical_offset + receipt.size
        self.parked.note(loaded.message, receipt)

    def _show_progress(self) -> None:
        now = time.monotonic()
        if now - self._shown_at >= 0.1:
            self._shown_at = now
            self.progress(self.report)

    # -- delayed messages ----------------------------------------------------------------------------------

    def _look_at_levels(self, store: MessageStore) -> None:
        """What is waiting before anything is loaded. One who goes on behind a line (--start-line) may have loaded it
        himself, and deliveries of it may come now; otherwise such a level is left as it is."""
        known = load_entries(self.files, self.path, DELAY_OFFSETS)
        for level in {*known, *(queue_id + 1 for queue_id in store.topics().get(SCHEDULE_TOPIC, []))}:
            start, end = known.get(level, 0), store.max_offset(SCHEDULE_TOPIC, level - 1)
            if start < end and self.source.first_line > 1:
                self._expect_waiting(store, level, start, end)
            elif start != end:
                self.unknown_levels.add(level)

    def _expect_waiting(self, store: MessageStore, level: int, start: int, end: int) -> None:
        self.parked.begun[level] = at = max(start, store.min_offset(SCHEDULE_TOPIC, level - 1))
        while at < end:
            outcome = store.fetch(SCHEDULE_TOPIC, level - 1, at, max_messages=1024)
            for stored in outcome.messages:
                self.parked.expect(level, stored.queue_offset, _as_given(stored))
            at = max(outcome.next_offset, at + 1)

    def _save_delivered(self) -> None:
        """After the store is closed: what the progress file counts is durable then."""
        reached = {level: at for level, at in self.parked.reached().items() if level not in self.unknown_levels}
        self.report.counted_as_delivered = sum(self.parked.counted(level, at) for level, at in reached.items())
        if self.parked.timers:
            self.report.counted_as_delivered += len(self.parked.timers)
            done = load_done_bits(self.files, self.path)
            done.mark(np.array(sorted(self.parked.timers), np.int64))
            timers = ConfigTable(self.files, self.path, TIMER_OFFSETS, SystemClock())
            timers.load()
            timers.assign(done.as_entries())
            timers.save()
        if reached:
            table = ConfigTable(self.files, self.path, DELAY_OFFSETS, SystemClock())
            table.load()
            table.put_all(reached)
            table.save()


def _as_given(stored: StoredMessage) -> Message:
    return Message(
        stored.topic,
        stored.body,
        queue_id=stored.queue_id,
        born_timestamp=stored.born_timestamp,
        encoded_properties=stored.property_bytes,
    )


def open_source(path: str, stdin: BinaryIO) -> tuple[BinaryIO, int | None]:
    """The lines of a file, or of standard input for `-`; and their length if it is known. OSError if there are none."""
    if path == "-":
        return stdin, None
    file = open(path, "rb")  # noqa: SIM115 - closed by the reader
    return file, Path(path).stat().st_size
