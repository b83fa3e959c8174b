"""From rows to the index: the keys of records into an index file.

Twins: put_rows and key_rows of plain/derive.py, format.index.rebuild_slots.
Rows must come from a scan of the same data; a row that points outside it is an assertion, not a crash.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns import rows as c
from embermq.columns.compiled.parts.compiling import BYTES, READ_BYTES, READ_ROWS, ROWS, inlined, kernel
from embermq.columns.compiled.parts.memory import (
    cell,
    i32_at,
    i64_at,
    prefetch,
    put_i32,
    put_i64,
    set_cell,
    stores_before,
    u8_at,
)
from embermq.columns.compiled.parts.text import hash_text, signed32
from embermq.columns.rows import RecordColumns
from embermq.format.index import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES, index_file_bytes
from embermq.model.flags import ROLLBACK, TRANSACTION_MASK

_SPACE = 0x20
_HASH_SIGN = 0x23
_SECONDS_MAX = 0x7FFF_FFFF
_PENDING_KEYS = 64  # enough to hide the way to memory, few enough to stay in the cache


@inlined
def _is_inside(at: int, length: int, size: int) -> bool:
    return 0 <= at <= size and 0 <= length <= size - at


@inlined
def _index_hash(code: int) -> int:
    """|signed hash|, and 0 for the one that has no absolute value."""
    code = abs(signed32(code))
    return code if code < 0x8000_0000 else 0


@inlined
def _put(file: Any, slots_max: int, entries_max: int, key_hash: int, physical: int, store_time: int) -> bool:
    """format.index.put, store by store: the entry, its slot, the header, and the count last."""
    count = max(i32_at(file, 36), 1)
    if count >= entries_max:
        return False
    slot_at = HEADER_BYTES + SLOT_BYTES * (key_hash % slots_max)
    entry_at = HEADER_BYTES + SLOT_BYTES * slots_max + ENTRY_BYTES * count
    previous = i32_at(file, slot_at)
    if previous == count:
        previous = i32_at(file, entry_at + 16)
    if previous <= 0 or previous >= count:
        previous = 0
    begin = i64_at(file, 0)
    seconds = 0
    # Java's difference wraps; that of signed numbers may be anything here.
    elapsed: int = np.int64(np.uint64(store_time) - np.uint64(begin))  # type: ignore[assignment]
    if begin > 0 and elapsed > 0:
        seconds = min(elapsed // 1000, _SECONDS_MAX)
    put_i32(file, entry_at, key_hash)
    put_i64(file, entry_at + 4, physical)
    put_i32(file, entry_at + 12, seconds)
    put_i32(file, entry_at + 16, previous)
    stores_before()
    put_i32(file, slot_at, count)
    stores_before()
    if count <= 1:
        put_i64(file, 16, physical)
        put_i64(file, 0, store_time)
    put_i64(file, 8, store_time)
    put_i64(file, 24, physical)
    if previous == 0:
        put_i32(file, 32, i32_at(file, 32) + 1)
    stores_before()
    put_i32(file, 36, count + 1)
    return True


@inlined
def _note_key(file: Any, slots_max: int, pending: Any, count: int, code: int, row: int, key: int) -> None:
    """Keeps a key to be put, and has its slot fetched meanwhile: slots lie all over a large file."""
    key_hash = _index_hash(code)
    prefetch(file, HEADER_BYTES + SLOT_BYTES * (key_hash % slots_max))
    set_cell(pending, count, 0, key_hash)
    set_cell(pending, count, 1, row)
    set_cell(pending, count, 2, key)


@inlined
def _collect_keys(
    file: Any, slots_max: int, data: Any, rows: Any, row: int, first_key: int, guard: int, pending: Any
) -> Any:
    """Notes keys from (row, first_key) on until `pending` is full. Returns (count, row, key) to go on with;
    row -1 when a row points outside the data."""
    count, size = 0, len(data)
    while row < len(rows):
        skip, first_key = first_key, 0
        uniq_at, uniq_len = cell(rows, row, c.C_UNIQ_AT), cell(rows, row, c.C_UNIQ_LEN)
        keys_at, keys_len = cell(rows, row, c.C_KEYS_AT), cell(rows, row, c.C_KEYS_LEN)
        topic_at, topic_len = cell(rows, row, c.C_TOPIC_AT), cell(rows, row, c.C_TOPIC_LEN)
        if (
            (uniq_len < 0 and keys_len < 0)
            or cell(rows, row, c.C_PHYSICAL) < guard
            or cell(rows, row, c.C_SYS_FLAG) & TRANSACTION_MASK == ROLLBACK
        ):
            row += 1
            continue
        if (
            not _is_inside(topic_at, topic_len, size)
            or (uniq_len >= 0 and not _is_inside(uniq_at, uniq_len, size))
            or (keys_len >= 0 and not _is_inside(keys_at, keys_len, size))
        ):
            return count, -1, 0
        topic_code = 31 * hash_text(data, topic_at, topic_len, 0) + _HASH_SIGN
        key = 0
        if uniq_len >= 0:
            if key >= skip:
                if count == len(pending):
                    return count, row, key
                code = hash_text(data, uniq_at, uniq_len, topic_code)
                _note_key(file, slots_max, pending, count, code, row, key)
                count += 1
            key += 1
        at, end = keys_at, keys_at + max(keys_len, 0)
        while at < end:
            if u8_at(data, at) == _SPACE:
                at += 1
                continue
            start = at
            while at < end and u8_at(data, at) != _SPACE:
                at += 1
            if key >= skip:
                if count == len(pending):
                    return count, row, key
                code = hash_text(data, start, at - start, topic_code)
                _note_key(file, slots_max, pending, count, code, row, key)
                count += 1
            key += 1
        row += 1
    return count, row, 0


@kernel(f"UniTuple(int64, 3)({BYTES}, int64, int64, {READ_BYTES}, {READ_ROWS}, int64, int64, int64, {ROWS})")
def _index_put(
    file: Any,
    slots_max: int,
    entries_max: int,
    data: Any,
    rows: Any,
    row: int,
    key: int,
    guard: int,
    pending: Any,
) -> tuple[int, int, int]:
    done = 0
    while 0 <= row < len(rows):
        count, row, key = _collect_keys(file, slots_max, data, rows, row, key, guard, pending)
        for k in range(count):
            source = cell(pending, k, 1)
            physical, store_time = cell(rows, source, c.C_PHYSICAL), cell(rows, source, c.C_STORE_TIME)
            if not _put(file, slots_max, entries_max, cell(pending, k, 0), physical, store_time):
                return source, cell(pending, k, 2), done
            done += 1
    return row, key, done


def index_put(
    file: NDArray[np.uint8],
    slots_max: int,
    entries_max: int,
    columns: RecordColumns,
    first_row: int,
    first_key: int,
    guard: int,
) -> tuple[int, int, int]:
    """Put the keys of rows first_row.. (of the first row only those from first_key on) into an index file.
    Returns (row, key, put): the row and key to go on with (row == len(columns) when all is done; otherwise
    the file is full) and how many keys were put. A process killed inside leaves a file that a repeated call
    completes.

    Twin: format.index.put_rows. Some 150 times as fast: 10 M records/s with two keys each into a file of
    default size in memory, 2.5 times what it would be without prefetching the slots."""
    assert slots_max > 0
    assert len(file) >= index_file_bytes(slots_max, entries_max), len(file)
    assert 0 <= first_row <= len(columns), first_row
    pending = np.empty((_PENDING_KEYS, 3), dtype=np.int64)
    row, key, done = _index_put(
        file, slots_max, entries_max, columns.data, columns.rows, first_row, first_key, guard, pending
    )
    assert row >= 0, "rows and data do not belong together"
    return row, key, done


@kernel(f"UniTuple(int64, 3)({BYTES}, {READ_BYTES}, {READ_ROWS}, int64, int64, {ROWS})")
def _index_keys(unused: Any, data: Any, rows: Any, row: int, key: int, out: Any) -> tuple[int, int, int]:
    """`unused` stands for a file of one slot, so that there is something to prefetch."""
    count, row, key = _collect_keys(unused, 1, data, rows, row, key, -0x8000_0000_0000_0000, out)
    for k in range(count):
        source = cell(out, k, 1)
        set_cell(out, k, 1, cell(rows, source, c.C_PHYSICAL))
        set_cell(out, k, 2, cell(rows, source, c.C_STORE_TIME))
    return count, row, key


def index_keys(columns: RecordColumns) -> NDArray[np.int64]:
    """(key hash, physical offset, store time) of every key of every row, for `index_put_keys`, anywhere.

    Twin: format.index.key_rows. Some 100 times as fast: 15 M keys/s on rows just scanned."""
    unused = np.zeros(HEADER_BYTES + SLOT_BYTES, np.uint8)
    parts: list[NDArray[np.int64]] = []
    row = key = 0
    while row < len(columns):
        out = np.empty((2 * (len(columns) - row) + 64, 3), dtype=np.int64)
        count, row, key = _index_keys(unused, columns.data, columns.rows, row, key, out)
        assert row >= 0, "rows and data do not belong together"
        parts.append(out[:count])
    return np.concatenate(parts) if parts else np.empty((0, 3), dtype=np.int64)


@kernel(f"int64({BYTES}, int64, int64, {READ_ROWS}, int64)")
def _index_put_keys(file: Any, slots_max: int, entries_max: int, keys: Any, start: int) -> int:
    for k in range(start, len(keys)):
        ahead = cell(keys, min(k + _PENDING_KEYS, len(keys) - 1), 0)
        prefetch(file, HEADER_BYTES + SLOT_BYTES * (ahead % slots_max))
        if not _put(file, slots_max, entries_max, cell(keys, k, 0), cell(keys, k, 1), cell(keys, k, 2)):
            return k
    return len(keys)


def index_put_keys(
    file: NDArray[np.uint8], slots_max: int, entries_max: int, keys: NDArray[np.int64], start: int
) -> int:
    """Put keys[start:], which `index_keys` collected; the number of the first one that found the file full.

    Twin: format.index.put_key_rows. Some 150 times as fast: 12 M keys/s into a file of default size."""
    assert slots_max > 0
    assert len(file) >= index_file_bytes(slots_max, entries_max), len(file)
    assert keys.shape[1:] == (3,), keys.shape
    assert 0 <= start <= len(keys), start
    assert not len(keys) or int(keys[:, 0].min()) >= 0, "a key hash is never negative"
    return _index_put_keys(file, slots_max, entries_max, np.ascontiguousarray(keys), start)


@kernel(f"int64({BYTES}, int64, int64)")
def _index_rebuild_slots(file: Any, slots_max: int, count: int) -> int:
    entries_at = HEADER_BYTES + SLOT_BYTES * slots_max
    for at in range(HEADER_BYTES, entries_at, SLOT_BYTES):
        put_i32(file, at, 0)
    used = 0
    for number in range(1, count):
        ahead = min(number + _PENDING_KEYS, count - 1)
        next_hash = i32_at(file, entries_at + ENTRY_BYTES * ahead)
        prefetch(file, HEADER_BYTES + SLOT_BYTES * (abs(next_hash) % slots_max))
        at = entries_at + ENTRY_BYTES * number
        key_hash = i32_at(file, at)
        if key_hash < 0:
            continue
        slot_at = HEADER_BYTES + SLOT_BYTES * (key_hash % slots_max)
        previous = i32_at(file, slot_at)
        if previous == 0:
            used += 1
        if i32_at(file, at + 16) != previous:  # A healthy file keeps its pages clean.
            put_i32(file, at + 16, previous)
        put_i32(file, slot_at, number)
    put_i32(file, 32, used)
    return used


def index_rebuild_slots(file: NDArray[np.uint8], slots_max: int, count: int) -> int:
    """Recompute all slots, the links of entries 1..count-1 and the header's slot count from those entries.
    The header's other fields stay. Entries with an impossible hash are left out. Returns the slot count.

    Twin: format.index.rebuild_slots. Some 40 times as fast: 30 M entries/s."""
    assert slots_max > 0
    room = (len(file) - index_file_bytes(slots_max, 0)) // ENTRY_BYTES
    assert 0 < count <= max(room, 1), (count, room)
    return _index_rebuild_slots(file, slots_max, count)
