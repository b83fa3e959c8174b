"""Scanning log files from outside: records as columns in log order, and damage as a value.

Needs nothing but (path, start, size) of the files, so that a process which knows only these can scan: no
directory is listed, no lock is taken, nothing is written, no thread is started. The files may be written
meanwhile; a caller who stays below the end a survey gave him sees whole records only.

Bytes are read into a window of a few MiB and not mapped: a bad disk is an OSError then and not a signal, and
memory stays flat over any length of log. One thread per iterator.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embermq.columns import RecordColumns, Rows, new_rows, resync_for, scan_for
from embermq.files import Files, OpenFile, RealFiles
from embermq.format import frame
from embermq.format.frame import (
    BLANK_BYTES,
    FIXED_BYTES,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    Frame,
    ScanStop,
    TornReason,
)
from embermq.settings import StoreSettings

ROWS_MAX = 16_384
WINDOW_BYTES = 1 << 20  # With 4 MiB a scan is a tenth slower, with 8 MiB half as fast: memory is new every time.
FIRST_WINDOW_BYTES = 64 << 10
MISSING = "log file missing"
ZEROS = "zeros where records should be"
_SEARCH_BYTES = 4 << 20
_MAGIC_STEM = MESSAGE_MAGIC.to_bytes(4, "big", signed=True)[:3]  # What both magics begin with.
DEFAULT_DELAY_MS: NDArray[np.int64] = np.array(StoreSettings().delay_ms, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class LogSegment:
    """A log file: where it lies, the physical offset of its first byte, and its length."""

    path: Path
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """A range of the log that holds no readable record."""

    start: int
    end: int
    reason: str


Scanned = RecordColumns | DamagedRange


class ScanSettings(NamedTuple):
    """How records are read: into which rows, with checksums or not, how much at a time, with which delay levels."""

    rows: Rows
    check_crc: bool = True
    window_bytes: int = WINDOW_BYTES
    delay_ms: NDArray[np.int64] = DEFAULT_DELAY_MS


class ScanEnd(NamedTuple):
    """Where records of a file end, and why: a ScanStop or TornReason code."""

    at: int
    code: int

    @property
    def reason(self) -> str:
        if self.code < min(TornReason):
            return ZEROS
        return TornReason(self.code).name.lower().replace("_", " ")


def scan_segments(
    segments: Sequence[LogSegment],
    start: int,
    end: int,
    *,
    check_crc: bool = True,
    rows_max: int = ROWS_MAX,
    files: Files | None = None,
    window_bytes: int = WINDOW_BYTES,
    delay_ms: Sequence[int] | None = None,
) -> Iterator[Scanned]:
    """Every record that begins in [start, end), in log order, and every range without one.

    `start` is where a record begins (find one with `next_record`); a record that begins before `end` is given
    whole. Columns are valid until the next step: their bytes and rows are used again. `delay_ms` are the delay levels
    of the store, for the tag codes of parked messages; nothing else depends on them.
    """
    files = files or RealFiles()
    delays = DEFAULT_DELAY_MS if delay_ms is None else np.array(delay_ms, dtype=np.int64)
    how = ScanSettings(new_rows(rows_max), check_crc, window_bytes, delays)
    at = start
    while at < end:
        segment = segment_at(segments, at)
        if segment is None:
            onward = min(_next_start(segments, at, end), end)
            yield DamagedRange(at, onward, MISSING)
            at = onward
        else:
            yield from _scan_file(files, segment, at, min(end, segment.end), how)
            at = segment.end


def segment_at(segments: Sequence[LogSegment], physical_offset: int) -> LogSegment | None:
    """The file that holds a place, or None in a gap."""
    number = bisect_right(segments, physical_offset, key=lambda segment: segment.start) - 1
    return segments[number] if number >= 0 and physical_offset < segments[number].end else None


def _next_start(segments: Sequence[LogSegment], physical_offset: int, otherwise: int) -> int:
    number = bisect_right(segments, physical_offset, key=lambda segment: segment.start)
    return segments[number].start if number < len(segments) else otherwise


def _scan_file(files: Files, segment: LogSegment, at: int, end: int, how: ScanSettings) -> Iterator[Scanned]:
    try:
        file = files.open(segment.path, False)
    except FileNotFoundError:
        yield DamagedRange(at, end, MISSING)
        return
    try:
        while at < end:
            stop = yield from records_of(file, segment, at, end, how)
            if stop.at >= end or stop.code == ScanStop.BLANK:
                return
            at = min(_next_good(file, segment, stop), end)
            yield DamagedRange(stop.at, at, stop.reason)
    finally:
        file.close()


def records_of(
    file: OpenFile, segment: LogSegment, at: int, end: int, how: ScanSettings
) -> Generator[RecordColumns, None, ScanEnd]:
    """The records of one file that begin in [at, end), up to the first place without one; answers that place."""
    begun, window_bytes = at, FIRST_WINDOW_BYTES
    while at < end:
        want = min(at + window_bytes, end)
        data = np.frombuffer(file.pread(want - at, at - segment.start), np.uint8)
        here, short = 0, len(data) < want - at
        scan = scan_for(at - begun + len(data))
        while True:
            count, here, code = scan(data, at, here, len(data), how.rows, how.delay_ms, how.check_crc, True)
            if count:
                yield RecordColumns(data, at, how.rows[:count])
            if code != ScanStop.ROWS_FULL:
                break
        stop = ScanEnd(at + here, code)
        if stop.at >= end:
            return stop
        if short or not _is_cut(data, here, code):
            return stop
        if here == 0:
            stop = yield from _one_record(file, segment, stop, how)
            if stop.code != ScanStop.ROWS_FULL:
                return stop
        at = stop.at
        window_bytes = min(2 * window_bytes, how.window_bytes)
    return ScanEnd(at, ScanStop.BUFFER_END)


def _is_cut(data: NDArray[np.uint8], here: int, code: int) -> bool:
    """Did the scan stop only because the window ends?"""
    if code == ScanStop.BUFFER_END or len(data) - here < BLANK_BYTES:
        return True
    if code != TornReason.BAD_SIZE:
        return False
    return _int_at(data, here) > len(data) - here


def _one_record(
    file: OpenFile, segment: LogSegment, stop: ScanEnd, how: ScanSettings
) -> Generator[RecordColumns, None, ScanEnd]:
    """A record that is longer than the window it was read into; answers with ROWS_FULL if there was one."""
    place = stop.at - segment.start
    head = np.frombuffer(file.pread(BLANK_BYTES, place), np.uint8)
    size = _int_at(head, 0) if len(head) == BLANK_BYTES else BLANK_BYTES
    size = max(size, BLANK_BYTES)
    if place + size > segment.size:
        return ScanEnd(stop.at, TornReason.BAD_SIZE if len(head) == BLANK_BYTES else ScanStop.NOTHING)
    data = np.frombuffer(file.pread(size, place), np.uint8)
    rows = how.rows[:1]
    count, here, code = scan_for(size)(data, stop.at, 0, len(data), rows, how.delay_ms, how.check_crc, True)
    if not count:
        return ScanEnd(stop.at, code)
    yield RecordColumns(data, stop.at, rows)
    return ScanEnd(stop.at + here, ScanStop.ROWS_FULL)


def _int_at(data: NDArray[np.uint8], at: int) -> int:
    return int.from_bytes(data[at : at + 4].tobytes(), "big", signed=True)


def _next_good(file: OpenFile, segment: LogSegment, stop: ScanEnd) -> int:
    """Where the next good record of this file begins after a bad place; its end if there is none.

    The bad record's own size is tried first: a body may hold bytes that look like a record.
    """
    found = _after_own_size(file, segment, stop)
    if found is None:
        found = next_record(file, segment, stop.at + 1)
    return segment.end if found is None else found


def _after_own_size(file: OpenFile, segment: LogSegment, stop: ScanEnd) -> int | None:
    if stop.code < min(TornReason) or stop.code in (TornReason.BAD_MAGIC, TornReason.BAD_SIZE):
        return None
    head = file.pread(4, stop.at - segment.start)
    after = stop.at + int.from_bytes(head, "big", signed=True)
    return after if after > stop.at and is_record(file, segment, after) else None


def is_record(file: OpenFile, segment: LogSegment, physical_offset: int) -> bool:
    """Does a whole record begin here, checksum and place included?"""
    return frame_at(file, segment, physical_offset) is not None


def frame_at(file: OpenFile, segment: LogSegment, physical_offset: int) -> Frame | None:
    """The record that begins at a place of this file, if it is whole."""
    place = physical_offset - segment.start
    head = file.pread(BLANK_BYTES, place) if 0 <= place < segment.size else b""
    size, magic = frame.size_and_magic(head, 0) if len(head) == BLANK_BYTES else (0, 0)
    # The magic first: noise may claim any size, and would be read for nothing.
    if magic not in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2) or not FIXED_BYTES <= size <= segment.size - place:
        return None
    data = file.pread(size, place)
    if len(data) < size:
        return None
    found = frame.decode(data, 0, size, physical_offset=physical_offset, check_crc=True)
    return found if isinstance(found, Frame) else None


def next_record(file: OpenFile, segment: LogSegment, physical_offset: int, limit: int | None = None) -> int | None:
    """Where the first record at or after a place of this file begins; None if none ends before `limit`.

    Only what was ever written is looked at: a log file is mostly hole where it was not written yet.
    """
    at = physical_offset - segment.start
    size = min(segment.size, file.size)
    end = size if limit is None else min(size, limit - segment.start)
    end = min(file.data_end(at), end) if at < end else at
    resync, window_bytes = resync_for(end - at), FIRST_WINDOW_BYTES
    while end - at >= BLANK_BYTES:
        data = np.frombuffer(file.pread(min(window_bytes, end - at), at), np.uint8)
        is_blank = not data[: len(data) & -8].view(np.int64).any() and not data[-8:].any()  # A file made ahead is.
        found = -1 if is_blank else resync(data, segment.start + at, 0, len(data))
        if not is_blank and at + len(data) < end:
            found = _cut_record(file, segment, at, data, end, found)
        if found >= 0:
            return segment.start + at + found
        if len(data) < BLANK_BYTES:  # The file was cut meanwhile.
            return None
        at += len(data) - BLANK_BYTES + 1  # A head that the window cuts is looked at again.
        window_bytes = min(2 * window_bytes, _SEARCH_BYTES)
    return None


def _cut_record(file: OpenFile, segment: LogSegment, at: int, data: NDArray[np.uint8], end: int, known: int) -> int:
    """The first record that begins in a window at `at` of the file and ends behind it, though not behind `end`; or
    the one that is known, if it comes first."""
    raw = data.tobytes()
    stop = len(raw) if known < 0 else known
    found = raw.find(_MAGIC_STEM, 4, stop)
    while found >= 0:
        size = int.from_bytes(raw[found - 4 : found], "big", signed=True)
        place = found - 4
        if len(raw) - place < size <= end - at - place and is_record(file, segment, segment.start + at + place):
            return place
        found = raw.find(_MAGIC_STEM, found + 1, stop)
    return known
