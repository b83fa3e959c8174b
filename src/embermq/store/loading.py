"""Loading lines of JSON into a store: the inverse of dump.py.

What a line says of a message is stored as it is: topic and queue, body, properties in their order, flags, born time
and host, store host, counters. Nothing is done to it that an append would do: a message with a delay level is not
parked (a dump has both the parked and the delivered one), and light queues are left as they are written down.
The store gives each message its place: physical offset and queue offset, in the order of the lines. A complete raw
dump loaded into an empty store with the same file sizes gives the same log, byte for byte.

Store times are kept in a store that was empty; where messages lie already, they would run backwards, which nobody
expects who searches by time, so the messages are stored with the time of loading (`times` decides otherwise).

Delayed messages: those that are parked in the dump and delivered later in it count as delivered, so that they do not
come again. The rest are delivered by whoever opens the store, when due.

One thread.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from embermq.clock import SystemClock, stamp_of
from embermq.errors import AppendRefused, InputInvalid, MessageRejected
from embermq.files.files import Files, RealFiles
from embermq.model.message import Message, Receipt
from embermq.model.properties import DELAY, REAL_TOPIC, SCHEDULE_TOPIC, decode_properties
from embermq.settings import StoreSettings
from embermq.store import directory
from embermq.store.delayed import ProgressFile
from embermq.store.json_input import LineInvalid, Loaded, decode_line
from embermq.store.message_store import MessageStore

LINE_BYTES_MAX = 128 << 20
_READ_BYTES = 1 << 20
_DELAY_OFFSETS = "delayOffset.json"


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


class LoadingStore(MessageStore):
    """A store that takes messages as they are given."""

    def append_as_given(self, message: Message) -> Receipt:
        """Store a message without parking or splitting it up, and without waiting for the disk."""
        return self._append_delivered(message)


def load_messages(
    path: Path, settings: StoreSettings, source: Source, *, times: Times = Times.AUTO,
    progress: Callable[[LoadReport], None] = lambda _report: None, files: Files | None = None,
) -> LoadReport:  # fmt: skip
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


@dataclass(slots=True)
class _Parked:
    """Messages parked in the store being loaded, and how far they are known to be delivered."""

    waiting: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # digest -> level, queue offset
    delivered: dict[int, int] = field(default_factory=dict)  # level -> next queue offset
    count: int = 0

    def note(self, message: Message, receipt: Receipt) -> None:
        encoded = message.encoded_properties or b""
        if f"{DELAY}\x01".encode() not in encoded:
            return
        if message.topic == SCHEDULE_TOPIC:
            self.waiting[_digest(message)] = message.queue_id + 1, receipt.queue_offset
        elif decode_properties(encoded).get(REAL_TOPIC) == message.topic:
            level, queue_offset = self.waiting.pop(_digest(message), (0, 0))
            if level:
                self.delivered[level] = max(self.delivered.get(level, 0), queue_offset + 1)
                self.count += 1


def _digest(message: Message) -> bytes:
    """A delivered message has the body and the property string of the parked one."""
    digest = hashlib.blake2b(message.encoded_properties or b"", digest_size=16)
    digest.update(message.body)
    return digest.digest()


class _Loading:
    """One loading; its steps share these parts."""

    def __init__(
        self, path: Path, settings: StoreSettings, source: Source, times: Times,
        progress: Callable[[LoadReport], None], files: Files,
    ) -> None:  # fmt: skip
        self.path, self.source, self.times, self.progress, self.files = path, source, times, progress, files
        # Parked messages stay parked until all is there, and plugins are for messages that come in for the first time.
        self.settings = settings.replace(delayed_delivery=False, plugins=())
        self.clock = ReplayClock()
        self.parked = _Parked()
        self.report = LoadReport()
        self._shown_at = 0.0

    def run(self) -> LoadReport:
        lines = _lines(self.source)
        first = next(lines, None)
        message = None if first is None else self._decode(*first)
        store = LoadingStore.open(self.path, self.settings, clock=self.clock, files=self.files)
        assert isinstance(store, LoadingStore)
        with store:
            ends = self._levels(store)
            empty = store.max_physical == store.min_physical
            self.report.kept_times = self.times is Times.KEEP or (self.times is Times.AUTO and empty)
            self.report.start = self.report.end = store.max_physical
            try:
                if first is not None and message is not None:
                    self._store(store, first[0], message)
                for number, line in lines:
                    self._store(store, number, self._decode(number, line))
                    self._show_progress()
            finally:
                self.clock.time_ms = None
        self._save_delivered(ends)
        return self.report

    def _decode(self, number: int, line: bytes) -> Loaded:
        self.report.bytes_read += len(line) + 1
        try:
            return decode_line(line, text_bodies=self.source.text_bodies)
        except LineInvalid as problem:
            raise self._invalid(number, problem.column, problem.reason) from None

    def _invalid(self, number: int, column: int, reason: str) -> InputInvalid:
        count = self.report.messages
        before = f"; {count:,} messages before it are loaded" if count else "; nothing was loaded"
        return InputInvalid(self.source.name, number, column, reason + before)

    def _store(self, store: LoadingStore, number: int, loaded: Loaded) -> None:
        self.clock.time_ms = loaded.store_timestamp if self.report.kept_times else None
        try:
            receipt = store.append_as_given(loaded.message)
        except MessageRejected as problem:
            raise self._invalid(number, 1, str(problem)) from problem
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

    def _levels(self, store: LoadingStore) -> dict[int, int]:
        """How far each level was delivered, for levels of which nothing was waiting before."""
        known = self._progress_file().load()
        ends = {}
        for level in range(1, len(self.settings.delay_ms) + 1):
            end = store.max_offset(SCHEDULE_TOPIC, level - 1)
            if known.get(level, 0) == end:
                ends[level] = end
        return ends

    def _save_delivered(self, ends: dict[int, int]) -> None:
        """After the store is closed: what progress vouches for is durable then."""
        reached = {level: after for level, after in self.parked.delivered.items() if level in ends}
        self.report.counted_as_delivered = self.parked.count if reached else 0
        if reached:
            file = self._progress_file()
            file.save(file.load() | reached)

    def _progress_file(self) -> ProgressFile:
        return ProgressFile(self.files, self.path / directory.CONFIG / _DELAY_OFFSETS)


def open_source(path: str, stdin: BinaryIO) -> tuple[BinaryIO, int | None]:
    """The lines of a file, or of standard input for `-`; and their length if it is known. OSError if there are none."""
    if path == "-":
        return stdin, None
    file = open(path, "rb")  # noqa: SIM115 - closed by whoever reads it
    return file, Path(path).stat().st_size
