"""Damage in the log: where records should be and are not.

RocketMQ cuts its log at the first bad record and loses all that follows. Here a damaged range in the
middle is copied to `quarantine/`, reported, and closed by a filler, so that the records after it stay in
place, for us and for RocketMQ:

    up to the next good record      one rolled-back record of the topic EMBERMQ_DAMAGED, which reaches no queue
    up to the end of the segment    a blank
    a whole missing segment         a segment that is one blank

Recovery decides; this file only does. Recovery's thread.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from embermq.clock import Clock
from embermq.files import Files, NotRegular, Segment
from embermq.format.frame import BLANK_BYTES, FIXED_BYTES, encode, encode_blank
from embermq.format.names import segment_name
from embermq.model.flags import ROLLBACK
from embermq.model.hosts import Host
from embermq.store.layout.directory import QUARANTINE, QUARANTINE_REPORT

log = logging.getLogger(__name__)

FILLER_TOPIC = "EMBERMQ_DAMAGED"
FILLER_BYTES_MIN = FIXED_BYTES + 1
_NO_HOST = Host("127.0.0.1", 0)
_COPY_BYTES = 1 << 20


class Damage(msgspec.Struct, frozen=True):
    """One bad range of the log, and what was done about it."""

    physical_offset: int
    length: int
    reason: str
    action: str
    kept_in: str | None = None
    filled: bool = False  # Records after it stayed in place.


class Quarantine:
    """Keeps copies of damaged ranges, and closes the holes. Read-only stores only report."""

    def __init__(self, files: Files, root: Path, clock: Clock, *, read_only: bool) -> None:
        self._files, self._directory, self._clock, self._read_only = (
            files,
            root / QUARANTINE,
            clock,
            read_only,
        )
        self.damages: list[Damage] = []

    @property
    def has_filled(self) -> bool:
        """Was damage found that good records follow?"""
        return any(damage.filled for damage in self.damages)

    def note(
        self,
        physical_offset: int,
        length: int,
        reason: str,
        action: str,
        *,
        kept_in: str | None = None,
        filled: bool = False,
    ) -> Damage:
        """Report without touching anything."""
        damage = Damage(physical_offset, length, reason, action, kept_in, filled)
        self.damages.append(damage)
        log.error(
            "log damaged physical_offset=%d length=%d reason=%s action=%s", physical_offset, length, reason, action
        )
        if not self._read_only:
            self._write_report(damage)
        return damage

    def keep(self, segment: Segment, start: int, end: int, reason: str, action: str, *, filled: bool = False) -> Damage:
        """Copy bytes [start, end) of a segment aside and report them. Trailing zeros are not copied."""
        physical_offset = segment.start + start
        if self._read_only:
            return self.note(physical_offset, end - start, reason, action, filled=filled)
        name = f"{segment_name(physical_offset)}-{end - start}.bad"
        data_end = _data_end(segment, start, end)
        if data_end > start:
            self._files.make_directory(self._directory)
            self._copy(segment, start, data_end, self._directory / name)
        kept_in = f"{QUARANTINE}/{name}" if data_end > start else None
        return self.note(physical_offset, end - start, reason, action, kept_in=kept_in, filled=filled)

    def _copy(self, segment: Segment, start: int, end: int, path: Path) -> None:
        """Copy piece by piece, for a file may be large; whole or not at all."""
        aside = path.with_name(path.name + ".tmp")
        with suppress(FileNotFoundError):  # left by a crash
            self._files.remove(aside)
        copy = self._files.create(aside, 0, fallocate=False)
        try:
            for at, piece in _pieces(segment, start, end):
                copy.pwrite(piece, at - start)
            copy.sync()
        finally:
            copy.close()
        self._files.rename(aside, path)
        self._files.sync_directory(self._directory)

    def _write_report(self, damage: Damage) -> None:
        self._files.make_directory(self._directory)
        path = self._directory / QUARANTINE_REPORT
        line = msgspec.json.encode({"time_ms": self._clock.now_ms(), **msgspec.structs.asdict(damage)}) + b"\n"
        try:
            file = self._files.open(path, True)
        except (FileNotFoundError, NotRegular):  # What is no report of ours is replaced by one.
            self._files.replace_file(path, line)
            return
        # Added to and not written anew: there may be thousands of lines.
        try:
            end = file.size
            is_cut = end > 0 and file.pread(1, end - 1) != b"\n"  # A crash may have cut the last line.
            file.pwrite(b"\n" + line if is_cut else line, end)
            file.sync()
        finally:
            file.close()


def repaired_ranges(files: Files, root: Path) -> list[tuple[int, int]]:
    """Start and end of the damaged ranges that were closed by fillers, from the report; none if it cannot be read."""
    path = root / QUARANTINE / QUARANTINE_REPORT
    try:
        lines = files.read_all(path).splitlines() if files.exists(path) else []
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            damage = msgspec.json.decode(line, type=Damage)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if damage.filled:
            found.append((damage.physical_offset, damage.physical_offset + damage.length))
    return found


def _pieces(segment: Segment, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Bytes [start, end) of a segment; zeros where the file is shorter."""
    for at in range(start, end, _COPY_BYTES):
        count = min(_COPY_BYTES, end - at)
        yield at, segment.read(at, count).ljust(count, b"\0")


def _data_end(segment: Segment, start: int, end: int) -> int:
    """Where only zeros follow up to `end`. Most of a log file that is torn was never written, and is not read."""
    if segment.file is not None:
        end = min(end, segment.file.data_end(start))
    data_end = start
    for at, piece in _pieces(segment, start, end):
        if stripped := piece.rstrip(b"\0"):
            data_end = at + len(stripped)
    return data_end


def fill_with_record(segment: Segment, start: int, end: int, store_timestamp: int) -> None:
    """Close [start, end) of a segment by one record that no consumer gets. Durable when this returns."""
    length = end - start
    assert length >= FILLER_BYTES_MIN, length
    topic = FILLER_TOPIC[: length - FIXED_BYTES]
    record = encode(
        physical_offset=segment.start + start,
        queue_id=0,
        queue_offset=0,
        topic=topic,
        body=bytes(length - FIXED_BYTES - len(topic)),
        properties=b"",
        born_timestamp=store_timestamp,
        born_host=_NO_HOST,
        store_timestamp=store_timestamp,
        store_host=_NO_HOST,
        sys_flag=ROLLBACK,
    )
    assert len(record) == length
    _store(segment, start, record)


def fill_with_blank(segment: Segment, start: int) -> None:
    """Close a segment from `start` on. Durable when this returns."""
    assert segment.size - start >= BLANK_BYTES
    _store(segment, start, encode_blank(segment.size - start))


def _store(segment: Segment, at: int, data: bytes) -> None:
    assert not segment.is_active
    assert segment.file is not None
    segment.file.pwrite(data, at)
    segment.file.sync()
