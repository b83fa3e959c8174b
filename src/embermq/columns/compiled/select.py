"""Choosing rows: what a Selection describes, compiled once and applied to many scans.

Twin: format.select.select_rows. Rows must come from a scan of the same data; one that points outside it is an
assertion, not a crash.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns import rows as c
from embermq.columns.compiled.parts.compiling import I64, READ_BYTES, READ_I64, READ_ROWS, inlined, kernel
from embermq.columns.compiled.parts.memory import cell, i64_at, u8_at
from embermq.columns.compiled.parts.text import hash_text
from embermq.columns.plain.select import I64_MAX, I64_MIN, SYSTEM_PREFIXES, SYSTEM_TOPICS, Selection, select_rows
from embermq.columns.rows import RecordColumns
from embermq.format.java import string_hash_utf8, wrap_i64
from embermq.model.flags import PREPARED

__all__ = ["Selection", "Selector", "select"]

# Kinds of entries in the one table of all texts; a kind that is asked for has its bit in the flags.
_SYSTEM, _TOPIC, _QUEUE, _QUEUE_ID, _TAG, _KEY = range(6)

# Columns of the table. A row is free when its kind is -1.
_T_CODE = 0  # hash of the text << 32 | queue id
_T_KIND = 1
_T_SLOT = 2
_T_TEXT_AT = 3
_T_TEXT_LEN = 4
_T_COLUMNS = 5
_T_MULTIPLIER = 0x1E37_79B9_7F4A_7C15

# Places in `limits`.
_L_FLAGS, _L_PHYSICAL, _L_TIME, _L_OFFSET, _L_COUNT = 0, 1, 3, 5, 7

_SPACE = 0x20
_PREFIX_1, _PREFIX_2 = (int.from_bytes(prefix.encode(), "big") for prefix in SYSTEM_PREFIXES)
_FOREIGN = -1


@inlined
def _is_inside(at: int, length: int, size: int) -> bool:
    return 0 <= at <= size and 0 <= length <= size - at


@inlined
def _is_same(data: Any, at: int, other: Any, other_at: int, length: int) -> bool:
    k = 0
    while length - k >= 8:
        if i64_at(data, at + k) != i64_at(other, other_at + k):
            return False
        k += 8
    while k < length:
        if u8_at(data, at + k) != u8_at(other, other_at + k):
            return False
        k += 1
    return True


@inlined
def _spot(kind: int, code: int, mask: int) -> int:
    return ((code ^ kind) * _T_MULTIPLIER) >> 32 & mask


@inlined
def _find(table: Any, texts: Any, kind: int, code: int, data: Any, at: int, length: int) -> Any:
    """The slot of a text in the table, or -1."""
    mask = len(table) - 1
    spot = _spot(kind, code, mask)
    while cell(table, spot, _T_KIND) >= 0:
        if (
            cell(table, spot, _T_CODE) == code
            and cell(table, spot, _T_KIND) == kind
            and cell(table, spot, _T_TEXT_LEN) == length
            and _is_same(data, at, texts, cell(table, spot, _T_TEXT_AT), length)
        ):
            return cell(table, spot, _T_SLOT)
        spot = (spot + 1) & mask
    return -1


@inlined
def _has_hash(table: Any, kind: int, code: int) -> bool:
    """Whether some text of this kind has the hash: worth looking at the text."""
    mask = len(table) - 1
    spot = _spot(kind, code, mask)
    while cell(table, spot, _T_KIND) >= 0:
        if cell(table, spot, _T_CODE) == code and cell(table, spot, _T_KIND) == kind:
            return True
        spot = (spot + 1) & mask
    return False


@inlined
def _has_text(table: Any, texts: Any, kind: int, data: Any, at: int, length: int) -> Any:
    code = hash_text(data, at, length, 0) << 32
    return _find(table, texts, kind, code, data, at, length) >= 0


@inlined
def _has_key(table: Any, texts: Any, data: Any, at: int, length: int) -> bool:
    """Whether one of the words is a wanted key."""
    end = at + length
    while at < end:
        if u8_at(data, at) == _SPACE:
            at += 1
            continue
        start = at
        while at < end and u8_at(data, at) != _SPACE:
            at += 1
        if _has_text(table, texts, _KEY, data, start, at - start):
            return True
    return False


@inlined
def _numbers_fit(rows: Any, i: int, limits: Any, table: Any, flags: int) -> bool:
    """What can be said without looking at the record's bytes."""
    if flags >> _SYSTEM & 1 and cell(rows, i, c.C_SYS_FLAG) & PREPARED != 0:
        return False
    physical = cell(rows, i, c.C_PHYSICAL)
    if physical < limits[np.uint64(_L_PHYSICAL)] or physical > limits[np.uint64(_L_PHYSICAL + 1)]:
        return False
    store_time = cell(rows, i, c.C_STORE_TIME)
    if store_time < limits[np.uint64(_L_TIME)] or store_time > limits[np.uint64(_L_TIME + 1)]:
        return False
    queue_offset = cell(rows, i, c.C_QUEUE_OFFSET)
    if queue_offset < limits[np.uint64(_L_OFFSET)] or queue_offset > limits[np.uint64(_L_OFFSET + 1)]:
        return False
    if flags >> _QUEUE_ID & 1 and not _has_hash(table, _QUEUE_ID, cell(rows, i, c.C_QUEUE_ID) & 0xFFFF_FFFF):
        return False
    # Only parked records have something else than the hash there, and they are of the system.
    if flags >> _TAG & 1 and flags >> _SYSTEM & 1:
        if cell(rows, i, c.C_TAGS_LEN) < 0 or not _has_hash(table, _TAG, cell(rows, i, c.C_TAG_CODE) << 32):
            return False
    return True


@inlined
def _topic_fits(data: Any, at: int, length: int, code: int, table: Any, texts: Any, flags: int) -> bool:
    if flags >> _SYSTEM & 1:
        if length >= 8 and (i64_at(data, at) == _PREFIX_1 or i64_at(data, at) == _PREFIX_2):
            return False
        if _find(table, texts, _SYSTEM, code, data, at, length) >= 0:
            return False
    return not flags >> _TOPIC & 1 or _find(table, texts, _TOPIC, code, data, at, length) >= 0


@inlined
def _words_fit(rows: Any, i: int, data: Any, table: Any, texts: Any, flags: int) -> int:
    """1 when tag and keys are wanted ones, 0 when not, -1 when the row points outside the data."""
    size = len(data)
    if flags >> _TAG & 1:
        at, length = cell(rows, i, c.C_TAGS_AT), cell(rows, i, c.C_TAGS_LEN)
        if length < 0:
            return 0
        if not _is_inside(at, length, size):
            return _FOREIGN
        if not _has_text(table, texts, _TAG, data, at, length):
            return 0
    if flags >> _KEY & 1:
        at, length = cell(rows, i, c.C_UNIQ_AT), cell(rows, i, c.C_UNIQ_LEN)
        keys_at, keys_len = cell(rows, i, c.C_KEYS_AT), cell(rows, i, c.C_KEYS_LEN)
        if length >= 0 and not _is_inside(at, length, size):
            return _FOREIGN
        if keys_len >= 0 and not _is_inside(keys_at, keys_len, size):
            return _FOREIGN
        if length < 0 or not _has_text(table, texts, _KEY, data, at, length):
            if keys_len < 0 or not _has_key(table, texts, data, keys_at, keys_len):
                return 0
    return 1


@kernel(f"int64({READ_BYTES}, {READ_ROWS}, {READ_I64}, {READ_ROWS}, {READ_BYTES}, {READ_ROWS}, {I64})")
def _select(data: Any, rows: Any, limits: Any, table: Any, texts: Any, ranges: Any, wanted: Any) -> int:
    """Fills `wanted`; returns how many, or a negative code."""
    count = 0
    flags = limits[np.uint64(_L_FLAGS)]
    by_topic = flags & (1 << _SYSTEM | 1 << _TOPIC | 1 << _QUEUE) != 0
    last_at, last_len, last_code, last_fits = 0, -1, 0, False
    for i in range(len(rows)):
        if not _numbers_fit(rows, i, limits, table, flags):
            continue
        if by_topic:
            at, length = cell(rows, i, c.C_TOPIC_AT), cell(rows, i, c.C_TOPIC_LEN)
            if not _is_inside(at, length, len(data)):
                return _FOREIGN
            if length != last_len or not _is_same(data, at, data, last_at, length):
                last_at, last_len = at, length
                last_code = hash_text(data, at, length, 0) << 32
                last_fits = _topic_fits(data, at, length, last_code, table, texts, flags)
            if not last_fits:
                continue
            if flags >> _QUEUE & 1:
                code = last_code | (cell(rows, i, c.C_QUEUE_ID) & 0xFFFF_FFFF)
                slot = _find(table, texts, _QUEUE, code, data, at, length)
                if slot < 0:
                    continue
                queue_offset = cell(rows, i, c.C_QUEUE_OFFSET)
                if queue_offset < cell(ranges, slot, 0) or queue_offset > cell(ranges, slot, 1):
                    continue
        fits = _words_fit(rows, i, data, table, texts, flags)
        if fits < 0:
            return _FOREIGN
        if fits > 0:
            wanted[np.uint64(count)] = i
            count += 1
    return count


class Selector:
    """A selection made ready: one table of all its texts. Any thread."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        entries: list[tuple[int, bytes, int, int]] = []  # kind, text, queue id, slot
        flags = 0
        if not selection.include_system:
            flags |= 1 << _SYSTEM
            entries += [(_SYSTEM, topic.encode(), 0, 0) for topic in SYSTEM_TOPICS]
        for kind, texts in ((_TOPIC, selection.topics), (_TAG, selection.tags), (_KEY, selection.keys)):
            if texts is not None:
                flags |= 1 << kind
                entries += [(kind, text, 0, 0) for text in _encoded(texts)]
        if selection.queue_ids is not None:
            flags |= 1 << _QUEUE_ID
            entries += [(_QUEUE_ID, b"", queue_id, 0) for queue_id in selection.queue_ids if _fits_i32(queue_id)]
        self._ranges = np.zeros((0, 2), np.int64)
        if selection.queues is not None:
            flags |= 1 << _QUEUE
            wanted = [(topic, number, span) for (topic, number), span in selection.queues.items() if _fits_i32(number)]
            entries += [
                (_QUEUE, text, number, slot)
                for slot, (topic, number, _) in enumerate(wanted)
                for text in _encoded([topic])
            ]
            bounds = [_inclusive(start, end) for _, _, (start, end) in wanted]
            self._ranges = np.array(bounds, np.int64).reshape(-1, 2)
        self._limits = _limits(selection, flags)
        self._table, self._texts = _compiled(entries)
        self._is_inexact = any(
            "\ufffd" in text
            for texts in (selection.topics, selection.tags, selection.keys, [t for t, _ in selection.queues or ()])
            for text in texts or ()
        )

    def select(self, records: RecordColumns) -> NDArray[np.int64]:
        """Numbers of the wanted rows, in order.

        Twin: format.select.select_rows. 30-150 times as fast: 25 M/s to hide the system's records, 60 M/s by a tag
        that few have, 7 M/s by key."""
        if self._is_inexact:  # A repaired text stands for many different bytes, which the table does not know.
            return select_rows(records, self.selection)
        wanted = np.empty(len(records), np.int64)
        count = _select(records.data, records.rows, self._limits, self._table, self._texts, self._ranges, wanted)
        assert count >= 0, "rows and data do not belong together"
        return wanted[:count]


_latest: Selector | None = None


def select(records: RecordColumns, selection: Selection) -> NDArray[np.int64]:
    """Numbers of the wanted rows, in order. The selection is compiled when it is another one than before."""
    global _latest
    selector = _latest
    if selector is None or selector.selection is not selection:
        selector = _latest = Selector(selection)
    return selector.select(records)


def _encoded(texts: Iterable[str]) -> list[bytes]:
    """As they may stand in a record; a text with a lone surrogate stands in none."""
    return [text.encode() for text in texts if not any("\ud800" <= letter <= "\udfff" for letter in text)]


def _fits_i32(number: int) -> bool:
    return -(1 << 31) <= number < 1 << 31


def _limits(selection: Selection, flags: int) -> NDArray[np.int64]:
    limits = np.zeros(_L_COUNT, np.int64)
    limits[_L_FLAGS] = flags
    for place, start, end in (
        (_L_PHYSICAL, selection.physical_start, selection.physical_end),
        (_L_TIME, selection.begin_ms, selection.end_ms),
        (_L_OFFSET, selection.queue_offset_start, selection.queue_offset_end),
    ):
        limits[place], limits[place + 1] = _inclusive(start, end)
    return limits


def _inclusive(start: int | None, end: int | None) -> tuple[int, int]:
    """First and last: a half-open range of 64-bit numbers cannot hold the greatest one. An empty range becomes an
    impossible one."""
    first = I64_MIN if start is None else start
    last = I64_MAX if end is None else end - 1
    if first > last or first > I64_MAX or last < I64_MIN:
        return 1, 0
    return max(first, I64_MIN), min(last, I64_MAX)


def _compiled(entries: list[tuple[int, bytes, int, int]]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The table, at most half full, and the texts behind it."""
    table = np.full((1 << max(4, (2 * len(entries)).bit_length()), _T_COLUMNS), -1, np.int64)
    mask = len(table) - 1
    texts = bytearray()
    places: dict[bytes, int] = {}
    for kind, text, number, slot in entries:
        if text not in places:
            places[text] = len(texts)
            texts += text
        code = wrap_i64((string_hash_utf8(text) & 0xFFFF_FFFF) << 32 | number & 0xFFFF_FFFF)
        spot = wrap_i64((code ^ kind) * _T_MULTIPLIER) >> 32 & mask
        while table[spot, _T_KIND] >= 0:
            spot = (spot + 1) & mask
        table[spot] = code, kind, slot, places[text], len(text)
    return table, np.frombuffer(bytes(texts), np.uint8)
