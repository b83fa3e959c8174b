"""From rows to index entries: the keys of many records, and putting them into an index file.

The plain forms of compiled/derive.py.
"""

from collections.abc import Sequence
from typing import Any

from embermq.columns.rows import C_PHYSICAL, C_STORE_TIME, C_SYS_FLAG, RecordColumns
from embermq.format.index import put
from embermq.format.java import index_key_hash
from embermq.model.flags import ROLLBACK, TRANSACTION_MASK


def put_rows(
    buffer: Any,
    slots_max: int,
    entries_max: int,
    columns: RecordColumns,
    first_row: int,
    first_key: int,
    guard: int,
) -> tuple[int, int, int]:
    """Put the keys of rows first_row.. (of the first row only those from first_key on): UNIQ_KEY, then the
    words of KEYS. Records below physical offset `guard` and rolled-back ones are passed over. Returns (row,
    key, put): the row and key to go on with (row == len(columns) when all is done; otherwise the file is
    full) and how many keys were put."""
    done = 0
    for i in range(first_row, len(columns)):
        row = columns.rows[i]
        physical, store_time = int(row[C_PHYSICAL]), int(row[C_STORE_TIME])
        if physical < guard or int(row[C_SYS_FLAG]) & TRANSACTION_MASK == ROLLBACK:
            continue
        keys = columns.keys(i)
        topic = columns.topic(i)
        for k in range(first_key if i == first_row else 0, len(keys)):
            if not put(buffer, slots_max, entries_max, index_key_hash(topic, keys[k]), physical, store_time):
                return i, k, done
            done += 1
    return len(columns), 0, done


def key_rows(columns: RecordColumns) -> list[tuple[int, int, int]]:
    """(key hash, physical offset, store time) of every key of every row, in the order `put_rows` takes them."""
    found = []
    for i in range(len(columns)):
        row = columns.rows[i]
        if int(row[C_SYS_FLAG]) & TRANSACTION_MASK == ROLLBACK:
            continue
        topic = columns.topic(i)
        for key in columns.keys(i):
            found.append((index_key_hash(topic, key), int(row[C_PHYSICAL]), int(row[C_STORE_TIME])))
    return found


def put_key_rows(buffer: Any, slots_max: int, entries_max: int, keys: Sequence[Sequence[int]], start: int) -> int:
    """Put keys[start:] as `key_rows` gives them; the number of the first one that found the file full."""
    for number in range(start, len(keys)):
        key_hash, physical_offset, store_time = (int(one) for one in keys[number])
        if not put(buffer, slots_max, entries_max, key_hash, physical_offset, store_time):
            return number
    return len(keys)
