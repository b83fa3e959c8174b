"""Records of a stretch of one log file through a map: no copy, and as many in one step as there are rows for.

A map of a bad disk is a signal when it is looked at. So its pages are read in beforehand, by a call that answers
instead (MADV_POPULATE_READ); where that is not to be had, or says no, the caller reads with pread. The file is not
to be cut meanwhile: log files never are, they are unlinked, and what is mapped stays. Any thread.
"""

from collections.abc import Generator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embermq import kernels
from embermq.files import memory
from embermq.files.files import Files
from embermq.format.columns import RecordColumns, Rows
from embermq.format.frame import BLANK_BYTES, ScanStop, TornReason
from embermq.settings import StoreSettings
from embermq.store.survey_scan import LogSegment

_DELAY_MS: NDArray[np.int64] = np.array(StoreSettings().delay_ms, dtype=np.int64)


class Scanned(NamedTuple):
    """The place up to which records were given; `is_done`: there is nothing to look at from there on."""

    place: int
    is_done: bool


def mapped_records(
    files: Files, segment: LogSegment, start: int, end: int, rows: Rows
) -> Generator[RecordColumns, None, Scanned]:
    """The records that begin in [start, end), up to the first place without one. Columns are valid until the next
    step."""
    try:
        file = files.open(segment.path, False)
        size = min(segment.size, file.size)
        view = file.map(False, size)
        file.close()
    except OSError:
        return Scanned(start, False)
    first, last = start - segment.start, min(end - segment.start, size)
    if not memory.populate_for_reading(view, first, last):
        return Scanned(start, False)
    data = np.frombuffer(view, np.uint8)
    scan = kernels.load("scan").scan
    at, limit, code = first, last, ScanStop.ROWS_FULL
    try:
        while at < last:
            count, at, code = scan(data, segment.start, at, limit, rows, _DELAY_MS, True, True)
            if count:
                yield RecordColumns(data, segment.start, rows[:count])
            is_cut = code == TornReason.BAD_SIZE or last - at < BLANK_BYTES
            if at < last and is_cut and limit == last < size:
                # Perhaps the last record only reaches past this stretch.
                head_end = min(at + BLANK_BYTES, size)
                if not memory.populate_for_reading(view, last, head_end):
                    break
                limit = min(max(at + _size_at(data, at), head_end), size)
                if not memory.populate_for_reading(view, last, limit):
                    break
                rows = rows[:1]
            elif code != ScanStop.ROWS_FULL:
                break
    finally:
        memory.drop(view, first, limit)
    is_done = at >= last or code == ScanStop.BLANK
    return Scanned(segment.start + at if at >= last else (segment.end if is_done else segment.start + at), is_done)


def _size_at(data: NDArray[np.uint8], at: int) -> int:
    return int.from_bytes(data[at : at + 4].tobytes(), "big", signed=True)
