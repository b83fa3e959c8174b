"""Bytes of another store's log, cut anywhere: which of them are whole records, and are they sound?

A master sends its log as it is. A frame may begin and end inside a record, and never holds bytes of two log files;
nothing here relies on either. Bytes are split into pieces that can be stored at once:

    records   one or more whole records, in one log file
    blank     the unused end of a log file, whole: its first 8 bytes, and whatever follows them there

What is left at the end is the beginning of a record or blank whose rest has not come yet. Pure.
"""

from typing import NamedTuple

import numpy as np

from embermq.columns import C_STORE_TIME, RecordColumns, Rows, compiled_scan, new_rows, pays, scan_rows
from embermq.errors import RawBytesInvalid
from embermq.format.frame import (
    BLANK_BYTES,
    BLANK_MAGIC,
    FIXED_BYTES,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    ScanStop,
    TornReason,
    size_and_magic,
)
from embermq.settings import KernelUse

_ROWS = 512
_NO_DELAYS = np.zeros(0, np.int64)


class RawPiece(NamedTuple):
    """data[start:end], to be stored at once. `store_timestamp` is the last record's; 0 for a blank."""

    start: int
    end: int
    is_blank: bool
    store_timestamp: int


class RawSplit(NamedTuple):
    """The pieces of some bytes; from `rest` on they are not complete before there are `needed` of them."""

    pieces: list[RawPiece]
    rest: int
    needed: int


class RawSplitter:
    """Splits and checks the bytes for a log whose files have `segment_bytes`. One thread at a time."""

    def __init__(self, segment_bytes: int, use: KernelUse) -> None:
        self._segment_bytes, self._use = segment_bytes, use
        self._rows: Rows = new_rows(_ROWS)
        self._checked_bytes = 0

    def split(self, data: bytes | bytearray, base: int) -> RawSplit:
        """`data` begins at physical offset `base`, where a record begins. RawBytesInvalid if it holds anything else
        than records and blanks that belong there; their checksums are compared."""
        pieces: list[RawPiece] = []
        at = 0
        while len(data) - at >= BLANK_BYTES:
            room = self._segment_bytes - (base + at) % self._segment_bytes
            # Most are sound records with room for a blank behind them; what the scan stops at is looked at by itself.
            at = self._scan(pieces, data, base, at, min(len(data), at + room - BLANK_BYTES), is_certain=False)
            if len(data) - at < BLANK_BYTES:
                break
            size, magic = size_and_magic(data, at)
            room = self._segment_bytes - (base + at) % self._segment_bytes
            is_blank = magic == BLANK_MAGIC
            if is_blank and size != room:
                raise self._misfit(base + at, f"a blank of {size:,} bytes where the log file has {room:,} left")
            if not is_blank:
                self._check_head(size, magic, room, base + at)
            if at + size > len(data):
                break
            if is_blank:
                pieces.append(RawPiece(at, at + size, True, 0))
            else:
                self._scan(pieces, data, base, at, at + size, is_certain=True)
            at += size
        needed = size_and_magic(data, at)[0] if len(data) - at >= BLANK_BYTES else BLANK_BYTES
        return RawSplit(pieces, at, needed)

    def _check_head(self, size: int, magic: int, room: int, place: int) -> None:
        if magic not in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2):
            raise RawBytesInvalid(place, f"neither a record nor a blank begins here (size {size}, magic {magic})")
        if size < FIXED_BYTES:
            raise RawBytesInvalid(place, f"a record of {size} bytes; the shortest has {FIXED_BYTES}")
        if size + BLANK_BYTES > room:
            raise self._misfit(place, f"a record of {size:,} bytes where the log file has {room:,} left")

    def _misfit(self, place: int, found: str) -> RawBytesInvalid:
        return RawBytesInvalid(
            place, f"{found}; log files here have {self._segment_bytes:,} bytes (mappedFileSizeCommitLog)"
        )

    def _scan(
        self, pieces: list[RawPiece], data: bytes | bytearray, base: int, start: int, end: int, *, is_certain: bool
    ) -> int:
        """Add the sound records from `start` on to the pieces; where they end. `is_certain`: up to `end` there has to
        be a record, RawBytesInvalid if it is not sound."""
        scan = compiled_scan() if pays("scan", self._checked_bytes, self._use) else scan_rows
        array, at, last, stop = np.frombuffer(data, np.uint8), start, 0, int(ScanStop.ROWS_FULL)
        while at < end and stop == ScanStop.ROWS_FULL:
            count, at, stop = scan(array, base, at, end, self._rows, _NO_DELAYS, True, True)
            if count:
                last = int(RecordColumns(array, base, self._rows[:count]).rows[-1, C_STORE_TIME])
        self._checked_bytes += at - start
        if is_certain and at < end:
            known = TornReason(stop).name if stop >= min(TornReason) else ScanStop(stop).name
            raise RawBytesInvalid(base + at, f"the record here is damaged ({known})")
        if at > start:
            joins = bool(pieces) and not pieces[-1].is_blank
            first = pieces.pop().start if joins else start
            pieces.append(RawPiece(first, at, False, last))
        return at
