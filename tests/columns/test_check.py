"""Records against queue and index entries: kernel == twin on right, wrong and hostile files."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.check import check_entries, check_keys
from embermq.columns.plain import check
from embermq.columns.plain.check import Q_COLUMNS, Q_FIRST, Q_NEXT, Q_WINDOW_AT, Q_WINDOW_END, Q_WINDOW_START, CheckStop
from embermq.columns.plain.derive import put_rows
from embermq.columns.plain.scan import scan_rows
from embermq.columns.rows import (
    C_PHYSICAL,
    C_QUEUE_ID,
    C_QUEUE_OFFSET,
    C_SIZE,
    C_SYS_FLAG,
    C_TAG_CODE,
    RecordColumns,
    Rows,
    new_rows,
)
from embermq.format.frame import encode
from embermq.format.index import ENTRY_BYTES, entry_at, index_file_bytes
from embermq.format.queue_entry import ENTRY
from embermq.model.flags import PREPARED
from embermq.model.hosts import Host
from tests.columns.guarded import GuardedMemory
from tests.columns.strategies import BASE, I64, logs

MEMORY = GuardedMemory(1 << 16)
OTHER_MEMORY = GuardedMemory(1 << 16)
HOST = Host("10.0.0.1", 50000)
LOGS = st.lists(logs(), min_size=1, max_size=2)


def columns_of(data: bytes) -> RecordColumns:
    rows = new_rows(64)
    count, _, _ = scan_rows(data, BASE, 0, len(data), rows, np.zeros(0, np.int64), True, True)
    return RecordColumns(MEMORY.hold(data), BASE, rows[:count])


def some_records(count: int, queues: int = 2) -> RecordColumns:
    data = b""
    for i in range(count):
        data += encode(
            physical_offset=BASE + len(data),
            queue_id=i % queues,
            queue_offset=i // queues,
            topic="Topic",
            body=b"x" * i,
            properties=f"UNIQ_KEY\x01U{i}\x02KEYS\x01a{i} b\x02TAGS\x01t{i}".encode(),
            born_timestamp=1,
            born_host=HOST,
            store_timestamp=1_700_000_000_000 + 700 * i,
            store_host=HOST,
        )
    return columns_of(data)


# -- entries ---------------------------------------------------------------------------------------------


def queue_entries_of(rows: Rows, queue: int) -> bytes:
    mine = rows[rows[:, C_QUEUE_ID] == queue]
    return b"".join(ENTRY.pack(int(row[C_PHYSICAL]), int(row[C_SIZE]), int(row[C_TAG_CODE])) for row in mine)


def full_table(rows: Rows, queues: int) -> tuple[Any, bytes]:
    """A table with all entries of all queues in the pool."""
    table, pool = np.zeros((queues, Q_COLUMNS), np.int64), b""
    for queue in range(queues):
        entries = queue_entries_of(rows, queue)
        table[queue] = (-1, 0, 0, len(entries) // 20, len(pool))
        pool += entries
    return table, pool


def both_entries(
    rows: Rows, queues: Any, table: Any, pool: bytes, start: int = 0, room: int = 64
) -> tuple[tuple[int, int, int], list[int], Any]:
    ours, theirs = table.copy(), table.copy()
    wrong, wrong_too = np.zeros(room, np.int64), np.zeros(room, np.int64)
    kernel = check_entries(rows, queues, ours, OTHER_MEMORY.hold(pool), start, wrong)
    twin = check.check_entries(rows, queues, theirs, pool, start, wrong_too)
    assert kernel == twin
    assert ours.tolist() == theirs.tolist()
    assert wrong.tolist() == wrong_too.tolist()
    return twin, wrong[: twin[2]].tolist(), ours


def test_right_entries_are_right() -> None:
    rows = some_records(20).rows
    table, pool = full_table(rows, 2)
    found, wrong, after = both_entries(rows, rows[:, C_QUEUE_ID].copy(), table, pool)
    assert (found, wrong) == ((20, CheckStop.DONE, 0), [])
    assert after[:, Q_FIRST].tolist() == [0, 0]
    assert after[:, Q_NEXT].tolist() == [10, 10]


@pytest.mark.parametrize("byte", range(20))
def test_every_byte_of_a_entry_counts(byte: int) -> None:
    rows = some_records(6).rows
    table, pool = full_table(rows, 2)
    spoilt = bytearray(pool)
    spoilt[2 * 20 + byte] ^= 1  # The third entry of queue 0: row 4.
    assert both_entries(rows, rows[:, C_QUEUE_ID].copy(), table, bytes(spoilt))[1] == [4]


def test_stops() -> None:
    rows = some_records(8, 1).rows
    queues = rows[:, C_QUEUE_ID].copy()
    table, pool = full_table(rows, 1)
    table[0, Q_WINDOW_END] = 3
    assert both_entries(rows, queues, table, pool)[0] == (3, CheckStop.WINDOW, 0)
    table[0, Q_WINDOW_END], table[0, Q_WINDOW_START] = 8, 2
    assert both_entries(rows, queues, table, pool)[0] == (0, CheckStop.WINDOW, 0)
    table, pool = full_table(rows, 1)
    gap = rows.copy()
    gap[5:, C_QUEUE_OFFSET] += 1
    assert both_entries(gap, queues, table, pool)[0] == (5, CheckStop.BREAK, 0)
    again = rows.copy()
    again[4, C_QUEUE_OFFSET] = 0
    assert both_entries(again, queues, table, pool)[0] == (4, CheckStop.BREAK, 0)
    assert both_entries(rows, queues, table, bytes(len(pool)), room=3)[0] == (3, CheckStop.FULL, 3)
    assert both_entries(rows, queues, table, pool, start=8)[0] == (8, CheckStop.DONE, 0)


def test_rows_without_a_queue_are_passed() -> None:
    rows = some_records(6, 1).rows.copy()
    queues = rows[:, C_QUEUE_ID].copy()
    table, pool = full_table(rows, 1)
    queues[:2] = -1
    rows[2, C_SYS_FLAG] |= PREPARED
    found, wrong, after = both_entries(rows, queues, table, pool)
    assert (found[0], wrong) == (6, [])
    assert after[0, Q_FIRST] == 3


@settings(max_examples=200, deadline=None)
@given(LOGS, st.lists(I64, min_size=10, max_size=10), st.binary(max_size=400), st.data())
def test_entries_of_nonsense(batches: list[bytes], numbers: list[int], pool: bytes, data: st.DataObject) -> None:
    """Windows always lie in the pool: whoever loads them sees to it. Everything else may be anything."""
    for raw in batches:
        rows = columns_of(raw).rows
        queues = np.array([data.draw(st.integers(-1, 1)) for _ in range(len(rows))], np.int64)
        table = np.array(numbers, np.int64).reshape(2, Q_COLUMNS)
        for queue in range(2):
            start = min(max(int(table[queue, Q_WINDOW_START]), 0), 1 << 40)
            count = data.draw(st.integers(0, len(pool) // 20))
            table[queue, Q_WINDOW_START], table[queue, Q_WINDOW_END] = start, start + count
            table[queue, Q_WINDOW_AT] = data.draw(st.integers(0, len(pool) - 20 * count))
        both_entries(rows, queues, table, pool)


# -- keys ----------------------------------------------------------------------------------------------


def entries_for(batch: RecordColumns, count: int = 200) -> bytes:
    file = bytearray(index_file_bytes(3, count))
    row, _, put = put_rows(file, 3, count, batch, 0, 0, 0)
    assert row == len(batch)
    return bytes(file[entry_at(1, 3) : entry_at(1 + put, 3)])


def both_keys(batch: RecordColumns, row: int, key: int, entries: bytes, entry: int, begin: int, first: int) -> Any:
    kernel = check_keys(batch, row, key, OTHER_MEMORY.hold(entries), entry, begin, first)
    twin = check.check_keys(batch, row, key, entries, entry, begin, first)
    assert kernel == twin
    return twin


def test_right_keys_are_right_also_in_two_steps() -> None:
    batch = some_records(40)
    entries = entries_for(batch)
    begin = 1_700_000_000_000
    assert len(entries) == 120 * ENTRY_BYTES
    assert both_keys(batch, 0, 0, entries, 0, begin, BASE) == (40, 0, 120, CheckStop.DONE)
    half = entries[: 50 * ENTRY_BYTES]
    row, key, entry, stop = both_keys(batch, 0, 0, half, 0, begin, BASE)
    assert (row, key, entry, stop) == (16, 2, 50, CheckStop.ENTRIES_END)
    assert both_keys(batch, row, key, entries[50 * ENTRY_BYTES :], 0, begin, BASE) == (40, 0, 70, CheckStop.DONE)


@pytest.mark.parametrize("at", range(16))
def test_every_byte_of_an_entry_counts_but_for_its_link(at: int) -> None:
    batch = some_records(10)
    entries = bytearray(entries_for(batch))
    entries[7 * ENTRY_BYTES + at] ^= 1
    expected = CheckStop.SECONDS if at >= 12 else CheckStop.DIFFERENT
    assert both_keys(batch, 0, 0, bytes(entries), 0, 1_700_000_000_000, BASE) == (2, 1, 7, expected)


def test_times_of_the_first_record_may_be_any() -> None:
    batch = some_records(3)
    entries = bytearray(entries_for(batch))
    struct.pack_into(">i", entries, 12, 99)
    assert both_keys(batch, 0, 0, bytes(entries), 0, 1_700_000_000_000, BASE)[3] == CheckStop.DONE
    assert both_keys(batch, 0, 0, bytes(entries), 0, 1_700_000_000_000, -1)[3] == CheckStop.SECONDS


@settings(max_examples=300, deadline=None)
@given(LOGS, st.binary(max_size=300), st.integers(0, 3), st.integers(0, 2), I64, I64)
def test_keys_of_nonsense(batches: list[bytes], entries: bytes, row: int, key: int, begin: int, first: int) -> None:
    for data in batches:
        batch = columns_of(data)
        at = min(row, len(batch))
        both_keys(batch, at, key if at < len(batch) else 0, entries, 0, begin, first)
        right = entries_for(batch)
        both_keys(batch, 0, 0, right, 0, begin, first)
        both_keys(batch, 0, 0, right[: len(right) // 2], 0, begin, first)
