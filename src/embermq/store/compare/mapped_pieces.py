"""Records of a stretch of one log file through a map: no copy, and as many in one step as there are rows for.

A map of a bad disk is a signal when it is looked at. So its pages are read in beforehand, by a call that answers
instead (MADV_POPULATE_READ); where that is not to be had, or says no, the caller reads with pread. The file is not
to be cut meanwhile: log files never are, they are unlinked, and what is mapped stays. Any thread.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embermq.columns import RecordColumns, Rows, compiled_scan
from embermq.files import Files, drop, populate_for_reading
from embermq.format.frame import BLANK_BYTES, ScanStop, TornReason
from embermq.store.log.file_scan import DEFAULT_DELAY_MS, LogSegment


class MappedScan(NamedTuple):
    """The place up to which records were given; `is_done`: there is nothing to look at from there on."""

    place: int
    is_done: bool


class MappedStretch:
    """Bytes [start, end) of a log file, in memory; `data` is the whole file, and more of it is read in on demand."""

    def __init__(self, view: memoryview, segment: LogSegment, start: int, end: int) -> None:
        self._view = view
        self.segment, self.start, self.end = segment, start, end
        self.limit = end  # Bytes before this are in memory.
        self.data = np.frombuffer(view, np.uint8)

    def lengthen(self, at: int, code: int) -> bool:
        """A scan of everything up to `limit` stopped at `at`: does the last record only reach past the stretch? Then
        `limit` is where it ends. That may be tried once."""
        is_cut = code == TornReason.BAD_SIZE or self.end - at < BLANK_BYTES
        if not (at < self.end and is_cut and self.limit == self.end < len(self.data)):
            return False
        head_end = min(at + BLANK_BYTES, len(self.data))
        if not populate_for_reading(self._view, self.end, head_end):
            return False
        limit = min(max(at + _size_at(self.data, at), head_end), len(self.data))
        if not populate_for_reading(self._view, self.end, limit):
            return False
        self.limit = limit
        return True

    def outcome(self, at: int, code: int) -> MappedScan:
        """What it means that a scan ended here."""
        place = self.segment.start + at
        if at >= self.end:
            return MappedScan(place, True)
        return MappedScan(self.segment.end, True) if code == ScanStop.BLANK else MappedScan(place, False)


@contextmanager
def mapped(files: Files, segment: LogSegment, start: int, end: int) -> Iterator[MappedStretch | None]:
    """The places [start, end) of a log file; None if they cannot be had this way."""
    try:
        file = files.open(segment.path, False)
        size = min(segment.size, file.size)
        view = file.map(False, size)
        file.close()
    except OSError:
        yield None
        return
    first, last = start - segment.start, min(end - segment.start, size)
    if not populate_for_reading(view, first, last):
        yield None
        return
    stretch = MappedStretch(view, segment, first, last)
    try:
        yield stretch
    finally:
        drop(view, first, stretch.limit)


def mapped_records(
    files: Files, segment: LogSegment, start: int, end: int, rows: Rows
) -> Generator[RecordColumns, None, MappedScan]:
    """The records that begin in [start, end), up to the first place without one. Columns are valid until the next
    step."""
    with mapped(files, segment, start, end) as stretch:
        if stretch is None:
            return MappedScan(start, False)
        scan = compiled_scan()
        at, code, data = stretch.start, int(ScanStop.ROWS_FULL), stretch.data
        while at < stretch.end:
            count, at, code = scan(data, segment.start, at, stretch.limit, rows, DEFAULT_DELAY_MS, True, True)
            if count:
                yield RecordColumns(data, segment.start, rows[:count])
            if stretch.lengthen(at, code):
                rows = rows[:1]
            elif code != ScanStop.ROWS_FULL:
                break
        return stretch.outcome(at, code)


def _size_at(data: NDArray[np.uint8], at: int) -> int:
    return int.from_bytes(data[at : at + 4].tobytes(), "big", signed=True)
