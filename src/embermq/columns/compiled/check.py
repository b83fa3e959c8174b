"""Records against queue entries and index entries. Twins: format.check.check_entries and check_keys."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns import rows as c
from embermq.columns.compiled.derive import _collect_keys
from embermq.columns.compiled.parts.compiling import I64, READ_BYTES, READ_I64, READ_ROWS, ROWS, inlined, kernel
from embermq.columns.compiled.parts.memory import cell, i32_at, i64_at, set_cell
from embermq.columns.plain.check import (
    Q_COLUMNS,
    Q_FIRST,
    Q_NEXT,
    Q_WINDOW_AT,
    Q_WINDOW_END,
    Q_WINDOW_START,
    CheckStop,
)
from embermq.columns.rows import RecordColumns, Rows, as_bytes_array
from embermq.format.index import ENTRY_BYTES as INDEX_ENTRY_BYTES
from embermq.format.queue_entry import ENTRY_BYTES
from embermq.model.flags import PREPARED

_DONE, _WINDOW, _BREAK, _FULL, _ENTRIES_END, _DIFFERENT, _SECONDS, _, _WRONG = (int(stop) for stop in CheckStop)
_SECONDS_MAX = 0x7FFF_FFFF
PENDING_KEYS = 64
_NO_GUARD = -0x8000_0000_0000_0000


@inlined
def check_entry(rows: Any, i: int, number: int, table: Any, pool: Any) -> int:
    """Compare row i, of queue `number`, with its entry: DONE, WINDOW, BREAK or WRONG; -1 when a window lies outside the
    pool. After WINDOW and BREAK nothing has been noted."""
    offset = cell(rows, i, c.C_QUEUE_OFFSET)
    first = cell(table, number, Q_FIRST)
    if first >= 0 and offset != cell(table, number, Q_NEXT):
        return _BREAK
    window = cell(table, number, Q_WINDOW_START)
    if offset < window or offset >= cell(table, number, Q_WINDOW_END):
        return _WINDOW
    at = cell(table, number, Q_WINDOW_AT) + (offset - window) * ENTRY_BYTES
    if at < 0 or at > len(pool) - ENTRY_BYTES:
        return -1
    if first < 0:
        set_cell(table, number, Q_FIRST, offset)
    set_cell(table, number, Q_NEXT, offset + 1)
    if (
        i64_at(pool, at) != cell(rows, i, c.C_PHYSICAL)
        or i32_at(pool, at + 8) != cell(rows, i, c.C_SIZE)
        or i64_at(pool, at + 12) != cell(rows, i, c.C_TAG_CODE)
    ):
        return _WRONG
    return _DONE


@kernel(f"UniTuple(int64, 3)({READ_ROWS}, {READ_I64}, {ROWS}, {READ_BYTES}, int64, {I64})")
def _check_entries(rows: Any, queues: Any, table: Any, pool: Any, start: int, wrong: Any) -> tuple[int, int, int]:
    count = 0
    for i in range(start, len(rows)):
        number = queues[np.uint64(i)]
        if number < 0 or cell(rows, i, c.C_SYS_FLAG) & PREPARED != 0:
            continue
        if number >= len(table):
            return -1, _DONE, count
        if count == len(wrong):
            return i, _FULL, count
        found = check_entry(rows, i, number, table, pool)
        if found < 0:
            return -1, _DONE, count
        if found == _WRONG:
            wrong[np.uint64(count)] = i
            count += 1
        elif found != _DONE:
            return i, found, count
    return len(rows), _DONE, count


def check_entries(
    rows: Rows, queues: NDArray[np.int64], table: NDArray[np.int64], pool: Any, start: int, wrong: NDArray[np.int64]
) -> tuple[int, int, int]:
    """Compare rows from `start` on with queue entries. `queues[i]` is the row of the table for row i's queue, or
    negative. Rows with a wrong entry are noted in `wrong`. Returns (row, stop, how many were noted): the row has
    not been looked at when the stop is not DONE.

    Twin: format.check.check_entries. Some 300 times as fast: 150 M records/s on rows just scanned."""
    assert table.shape[1:] == (Q_COLUMNS,), table.shape
    assert len(queues) == len(rows), (len(queues), len(rows))
    assert 0 <= start <= len(rows), start
    row, stop, count = _check_entries(rows, queues, table, as_bytes_array(pool), start, wrong)
    assert row >= 0, "a queue's window lies outside the pool, or a queue outside the table"
    return row, stop, count


@inlined
def check_keys_of(
    data: Any,
    rows: Any,
    row: int,
    key: int,
    entries: Any,
    entry: int,
    begin_ms: int,
    first_physical: int,
    pending: Any,
) -> Any:
    """Compare keys from (row, key) on with entries from `entry` on. Returns (row, key, entry, stop); row -1 when a row
    points outside the data."""
    total = len(entries) // INDEX_ENTRY_BYTES
    while 0 <= row < len(rows):
        count, row, key = _collect_keys(entries, 1, data, rows, row, key, _NO_GUARD, pending)
        for k in range(count):
            source, source_key = cell(pending, k, 1), cell(pending, k, 2)
            if entry == total:
                return source, source_key, entry, _ENTRIES_END
            at = entry * INDEX_ENTRY_BYTES
            physical = cell(rows, source, c.C_PHYSICAL)
            if i32_at(entries, at) != cell(pending, k, 0) or i64_at(entries, at + 4) != physical:
                return source, source_key, entry, _DIFFERENT
            seconds = 0
            store_time = cell(rows, source, c.C_STORE_TIME)
            elapsed: int = np.int64(np.uint64(store_time) - np.uint64(begin_ms))  # type: ignore[assignment]
            if begin_ms > 0 and elapsed > 0:
                seconds = min(elapsed // 1000, _SECONDS_MAX)
            if physical != first_physical and i32_at(entries, at + 12) != seconds:
                return source, source_key, entry, _SECONDS
            entry += 1
    return row, key, entry, _DONE


@kernel(f"UniTuple(int64, 4)({READ_BYTES}, {READ_ROWS}, int64, int64, {READ_BYTES}, int64, int64, int64, {ROWS})")
def _check_keys(
    data: Any,
    rows: Any,
    row: int,
    key: int,
    entries: Any,
    entry: int,
    begin_ms: int,
    first_physical: int,
    pending: Any,
) -> tuple[int, int, int, int]:
    row, key, entry, stop = check_keys_of(data, rows, row, key, entries, entry, begin_ms, first_physical, pending)
    return row, key, entry, stop


def check_keys(
    columns: RecordColumns, row: int, key: int, entries: Any, entry: int, begin_ms: int, first_physical: int
) -> tuple[int, int, int, int]:
    """Compare the keys of rows from (row, key) on with index entries from number `entry` of `entries` on. Times
    count from `begin_ms`, but for entries of the record at `first_physical`. Returns (row, key, entry, stop):
    those that were compared last when the stop is DIFFERENT or SECONDS, otherwise those to go on with.

    Twin: format.check.check_keys. Some 100 times as fast: 20 M keys/s on rows just scanned."""
    assert 0 <= row <= len(columns), row
    raw = as_bytes_array(entries)
    assert 0 <= entry <= len(raw) // INDEX_ENTRY_BYTES, entry
    pending = np.empty((PENDING_KEYS, 3), dtype=np.int64)
    found = _check_keys(columns.data, columns.rows, row, key, raw, entry, begin_ms, first_physical, pending)
    assert found[0] >= 0, "rows and data do not belong together"
    return found
