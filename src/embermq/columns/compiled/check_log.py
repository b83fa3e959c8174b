"""A stretch of log that should be sound, in one walk: scanned, and compared with queue entries and index entries.

A few records at a time go through all of it while their bytes are in the processor's first caches; one step after the
other over thousands of records reads most of the log from memory three times. Twin: plain/scan.py,
check_entries and check_keys of plain/check.py, one after the other.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns import rows as c
from embermq.columns.compiled.check import PENDING_KEYS, check_entry, check_keys_of
from embermq.columns.compiled.parts.compiling import I64, READ_BYTES, READ_I64, READ_ROWS, ROWS, inlined, kernel
from embermq.columns.compiled.parts.memory import cell
from embermq.columns.compiled.queue_table import queue_of_row
from embermq.columns.compiled.scan import scan_records
from embermq.columns.plain.check import (
    Q_COLUMNS,
    W_AT,
    W_COUNT,
    W_COUNT_OF_NUMBERS,
    W_ENTRY,
    W_KEY,
    W_KEY_ROW,
    W_NEWEST_MS,
    W_QUEUE,
    W_RECORDS,
    W_ROW,
    W_STOP,
    CheckStop,
)
from embermq.columns.rows import N_COLUMNS, Rows
from embermq.format.frame import ScanStop
from embermq.model.flags import PREPARED

ROWS_AT_ONCE = 64
_DONE, _UNKNOWN = int(CheckStop.DONE), int(CheckStop.UNKNOWN)
_ROWS_FULL = int(ScanStop.ROWS_FULL)
_FOREIGN = -1
_SUMS_AND_PLACES = 3


@inlined
def _get(walk: Any, number: int) -> int:
    return walk[np.uint64(number)]  # type: ignore[no-any-return]


@inlined
def _set(walk: Any, number: int, value: int) -> None:
    walk[np.uint64(number)] = value


@inlined
def _check_rows(data: Any, rows: Any, queues: Any, topics: Any, table: Any, pool: Any, walk: Any) -> int:
    """Entries of the rows that are not compared yet; returns why it stopped."""
    for i in range(_get(walk, W_ROW), _get(walk, W_COUNT)):
        _set(walk, W_ROW, i)
        number = queue_of_row(data, rows, i, queues, topics)
        if number < _FOREIGN:
            return _FOREIGN
        if number < 0 or number >= len(table):
            return _UNKNOWN
        _set(walk, W_QUEUE, number)
        if cell(rows, i, c.C_SYS_FLAG) & PREPARED == 0:
            found = check_entry(rows, i, number, table, pool)
            if found != _DONE:
                return found
    _set(walk, W_ROW, _get(walk, W_COUNT))
    return _DONE


@kernel(
    f"int64({READ_BYTES}, int64, int64, {ROWS}, {READ_I64}, {READ_ROWS}, {READ_BYTES}, {ROWS},"
    f" {READ_BYTES}, {READ_BYTES}, {READ_I64}, {ROWS}, {I64})"
)
def _check_log(
    data: Any,
    base: int,
    end: int,
    rows: Any,
    delay_ms: Any,
    queues: Any,
    topics: Any,
    table: Any,
    pool: Any,
    entries: Any,
    index: Any,
    pending: Any,
    walk: Any,
) -> int:
    while True:
        count = _get(walk, W_COUNT)
        stop = _check_rows(data, rows, queues, topics, table, pool, walk)
        if stop != _DONE:
            return stop
        if len(index) == 2:
            row, key, entry, stop = check_keys_of(
                data,
                rows[:count],
                _get(walk, W_KEY_ROW),
                _get(walk, W_KEY),
                entries,
                _get(walk, W_ENTRY),
                index[np.uint64(0)],
                index[np.uint64(1)],
                pending,
            )
            _set(walk, W_KEY_ROW, row)
            _set(walk, W_KEY, key)
            _set(walk, W_ENTRY, entry)
            if row < 0:
                return _FOREIGN
            if stop != _DONE:
                return stop  # type: ignore[no-any-return]
        newest = _get(walk, W_NEWEST_MS)
        for i in range(count):
            newest = max(newest, cell(rows, i, c.C_STORE_TIME))
        _set(walk, W_NEWEST_MS, newest)
        _set(walk, W_RECORDS, _get(walk, W_RECORDS) + count)
        _set(walk, W_COUNT, 0)
        if _get(walk, W_STOP) != _ROWS_FULL:
            return _DONE
        count, at, stop = scan_records(data, base, _get(walk, W_AT), end, rows, delay_ms, _SUMS_AND_PLACES)
        _set(walk, W_AT, at)
        _set(walk, W_STOP, stop)
        _set(walk, W_COUNT, count)
        _set(walk, W_ROW, 0)
        _set(walk, W_KEY_ROW, 0)
        _set(walk, W_KEY, 0)


def new_walk(start: int) -> NDArray[np.int64]:
    """A walk that begins at data[start], with entry 0."""
    walk = np.zeros(W_COUNT_OF_NUMBERS, np.int64)
    walk[W_AT], walk[W_STOP] = start, _ROWS_FULL
    return walk


class LogCheck:
    """Memory that a walk needs besides its own numbers. One thread."""

    def __init__(self, delay_ms: NDArray[np.int64]) -> None:
        self.rows: Rows = np.zeros((ROWS_AT_ONCE, N_COLUMNS), np.int64)
        self._delay_ms = delay_ms
        self._pending = np.empty((PENDING_KEYS, 3), np.int64)

    def go_on(
        self,
        data: NDArray[np.uint8],
        base: int,
        end: int,
        queues: tuple[Rows, NDArray[np.uint8]],
        table: NDArray[np.int64],
        pool: NDArray[np.uint8],
        entries: NDArray[np.uint8],
        index: NDArray[np.int64],
        walk: NDArray[np.int64],
    ) -> CheckStop:
        """Walk on, up to data[end] or to what the caller has to see to; then `rows` has the records at hand.

        `queues`: what a QueueTable has lent. `table`, `pool`: as for check_entries.
        `entries`: index entries from number walk[W_ENTRY] on are compared; `index`: begin_ms and first_physical as for
        check_keys, or nothing: then keys are not looked at.
        DONE: the walk is at data[end], or where walk[W_STOP] says why not. UNKNOWN, WINDOW, BREAK: of row walk[W_ROW],
        which is looked at again; ENTRIES_END: give it others. WRONG, DIFFERENT, SECONDS: something is not sound.

        0.6 of the time of scan, route, check_entries and check_keys over 4,096 records at a time at 1 KiB, 0.8 at
        100 B: 4 and 6 M records/s."""
        assert table.shape[1:] == (Q_COLUMNS,), table.shape
        assert len(walk) == W_COUNT_OF_NUMBERS, len(walk)
        assert len(index) in (0, 2), len(index)
        assert 0 <= walk[W_AT] <= len(data), walk
        assert 0 <= end <= len(data), end
        stop = _check_log(
            data,
            base,
            end,
            self.rows,
            self._delay_ms,
            *queues,
            table,
            pool,
            entries,
            index,
            self._pending,
            walk,
        )
        assert stop >= 0, "rows and data do not belong together, or a queue's window lies outside the pool"
        return CheckStop(stop)
