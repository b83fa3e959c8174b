"""Records against what was derived from them: is each entry in its place, is each key in the index?

Both walk rows of a scan and stop where something is not as it should be, or where they need more to compare with;
the caller sees to it and goes on. They are the plain twins of the kernels of the same names.
"""

import struct
from enum import IntEnum
from typing import Any

from embermq.columns.rows import (
    C_PHYSICAL,
    C_QUEUE_OFFSET,
    C_SIZE,
    C_STORE_TIME,
    C_SYS_FLAG,
    C_TAG_CODE,
    RecordColumns,
)
from embermq.format.index import ENTRY_BYTES as INDEX_ENTRY_BYTES
from embermq.format.index import IndexEntry
from embermq.format.java import index_key_hash, wrap_i64
from embermq.format.queue_entry import ENTRY, ENTRY_BYTES
from embermq.model.flags import PREPARED, ROLLBACK, TRANSACTION_MASK

# Columns of the table that `check_entries` works with: one row for each queue.
Q_FIRST = 0  # first queue offset met; -1: none
Q_NEXT = 1  # the offset that should come next
Q_WINDOW_START = 2  # entries of offsets start..end lie in the pool
Q_WINDOW_END = 3
Q_WINDOW_AT = 4  # where, in bytes
Q_COLUMNS = 5

_INDEX_ENTRY = struct.Struct(">iqii")
_SECONDS_MAX = 0x7FFF_FFFF


class CheckStop(IntEnum):
    DONE = 0
    WINDOW = 1  # the entries of this row's queue are not in the pool here
    BREAK = 2  # this row's queue offset is not the one that should come next
    FULL = 3  # no room for more wrong rows
    ENTRIES_END = 4  # all entries are used up
    DIFFERENT = 5  # the entry is of another key or record
    SECONDS = 6  # the entry is right but for its time
    UNKNOWN = 7  # this row's queue has no number yet, or no row in the table
    WRONG = 8  # this row's entry is not its own


# What a walk over a stretch of log (kernels.check_log) has come to. A few records at a time are between scan and index.
W_AT = 0  # where the next record begins
W_STOP = 1  # why the scan stopped; ScanStop.ROWS_FULL: it goes on
W_COUNT = 2  # rows that hold records now
W_ROW = 3  # the row whose entry is compared next
W_QUEUE = 4  # the number of its queue
W_KEY_ROW = 5  # the row and the number of the key that is compared next
W_KEY = 6
W_ENTRY = 7  # with this entry
W_RECORDS = 8  # how many are behind
W_NEWEST_MS = 9  # the latest store time among them
W_COUNT_OF_NUMBERS = 10


def check_entries(rows: Any, queues: Any, table: Any, pool: Any, start: int, wrong: Any) -> tuple[int, int, int]:
    """Compare rows from `start` on with queue entries. `queues[i]` is the row of the table for row i's queue, or
    negative. Rows with a wrong entry are noted in `wrong`. Returns (row, stop, how many were noted): the row has
    not been looked at when the stop is not DONE."""
    count = 0
    for i in range(start, len(rows)):
        number = int(queues[i])
        if number < 0 or int(rows[i, C_SYS_FLAG]) & PREPARED:
            continue
        if count == len(wrong):
            return i, CheckStop.FULL, count
        state = table[number]
        offset = int(rows[i, C_QUEUE_OFFSET])
        if state[Q_FIRST] >= 0 and offset != state[Q_NEXT]:
            return i, CheckStop.BREAK, count
        if not state[Q_WINDOW_START] <= offset < state[Q_WINDOW_END]:
            return i, CheckStop.WINDOW, count
        if state[Q_FIRST] < 0:
            state[Q_FIRST] = offset
        state[Q_NEXT] = offset + 1
        at = int(state[Q_WINDOW_AT]) + (offset - int(state[Q_WINDOW_START])) * ENTRY_BYTES
        entry = ENTRY.unpack_from(pool, at)
        if entry != (int(rows[i, C_PHYSICAL]), int(rows[i, C_SIZE]), int(rows[i, C_TAG_CODE])):
            wrong[count] = i
            count += 1
    return len(rows), CheckStop.DONE, count


def check_keys(
    columns: RecordColumns, row: int, key: int, entries: Any, entry: int, begin_ms: int, first_physical: int
) -> tuple[int, int, int, int]:
    """Compare the keys of rows from (row, key) on with index entries from number `entry` of `entries` on. Times
    count from `begin_ms`, but for entries of the record at `first_physical`. Returns (row, key, entry, stop):
    those that were compared last when the stop is DIFFERENT or SECONDS, otherwise those to go on with."""
    total = len(entries) // INDEX_ENTRY_BYTES
    for i in range(row, len(columns)):
        numbers = columns.rows[i]
        if int(numbers[C_SYS_FLAG]) & TRANSACTION_MASK == ROLLBACK:
            continue
        keys, topic = columns.keys(i), columns.topic(i)
        physical, store_time = int(numbers[C_PHYSICAL]), int(numbers[C_STORE_TIME])
        for k in range(key if i == row else 0, len(keys)):
            if entry == total:
                return i, k, entry, CheckStop.ENTRIES_END
            found = IndexEntry(*_INDEX_ENTRY.unpack_from(entries, entry * INDEX_ENTRY_BYTES))
            if (found.key_hash, found.physical_offset) != (index_key_hash(topic, keys[k]), physical):
                return i, k, entry, CheckStop.DIFFERENT
            seconds = min(max(wrap_i64(store_time - begin_ms) // 1000, 0), _SECONDS_MAX) if begin_ms > 0 else 0
            if physical != first_physical and found.seconds != seconds:
                return i, k, entry, CheckStop.SECONDS
            entry += 1
    return len(columns), 0, entry, CheckStop.DONE
