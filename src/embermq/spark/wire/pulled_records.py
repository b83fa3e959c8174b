"""Answers of pulls as rows of numbers: the records of one queue, one behind another, as the broker has stored them.

They lie side by side here and not in the log, so a record's place is the one written inside it (C_STORED_PHYSICAL).
What does not add up (a checksum, a length) is damage: its place, its size and why. Pure; in tasks, one thread.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from embermq.columns import C_QUEUE_ID, C_QUEUE_OFFSET, RecordColumns, new_rows, scan_for
from embermq.format.frame import ScanStop, TornReason

_NO_DELAYS = np.empty(0, np.int64)
_SIZE = struct.Struct(">i")
_PLACE = struct.Struct(">q")
_PLACE_AT = 28
_RECORD_BYTES_MIN = 91


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """Bytes of an answer that are no record: [start, end) of the broker's log, as far as that is known."""

    start: int
    end: int
    reason: str


class RecordReader:
    """Reads answers of pulls. The rows it lends are valid until the next call."""

    def __init__(self, *, rows_max: int, verify_crc: bool) -> None:
        self._rows = new_rows(rows_max)
        self._verify_crc = verify_crc
        self._seen_bytes = 0

    def read(self, records: bytes) -> Iterator[RecordColumns | DamagedRecord]:
        """Records in order, in portions, and what is damaged between them."""
        data = np.frombuffer(records, np.uint8)
        self._seen_bytes += len(data)
        scan = scan_for(self._seen_bytes)
        at = 0
        while at < len(data):
            count, at, code = scan(data, 0, at, len(data), self._rows, _NO_DELAYS, self._verify_crc, False)
            if count:
                yield RecordColumns(data, 0, self._rows[:count])
            if code in (ScanStop.ROWS_FULL, ScanStop.BUFFER_END):
                continue
            damage = _damage(records, at, code)
            yield damage
            at += damage.end - damage.start


def _damage(records: bytes, at: int, code: int) -> DamagedRecord:
    """The record that cannot be read; all the rest, if not even its size can."""
    left = len(records) - at
    size = _SIZE.unpack_from(records, at)[0] if left >= _SIZE.size else 0
    if not _RECORD_BYTES_MIN <= size <= left:
        size = left
    place = _PLACE.unpack_from(records, at + _PLACE_AT)[0] if left >= _PLACE_AT + _PLACE.size else 0
    known = {one.value: one.name.lower().replace("_", " ") for one in (*TornReason, *ScanStop)}
    return DamagedRecord(place, place + size, known.get(code, str(code)))


def is_run_of(records: RecordColumns, queue_id: int, start: int) -> bool:
    """Whether these are the records of a queue from `start` on, none left out."""
    expected = np.arange(start, start + len(records))
    return bool((records.column(C_QUEUE_ID) == queue_id).all() and (records.column(C_QUEUE_OFFSET) == expected).all())


def within(records: RecordColumns, end: int) -> NDArray[np.int64] | None:
    """The rows before an offset; None for all."""
    early = records.column(C_QUEUE_OFFSET) < end
    return None if early.all() else np.flatnonzero(early)
