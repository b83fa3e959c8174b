"""A stretch of log in one walk: the same stops, counts and tables as scan, entries and keys one after the other."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from embermq.columns.compiled.check_log import ROWS_AT_ONCE, LogCheck, new_walk
from embermq.columns.compiled.queue_table import QueueTable
from embermq.columns.plain import check
from embermq.columns.plain.check import (
    Q_COLUMNS,
    W_AT,
    W_COUNT,
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
from embermq.columns.plain.derive import put_rows
from embermq.columns.plain.scan import scan_rows
from embermq.columns.rows import (
    C_PHYSICAL,
    C_QUEUE_ID,
    C_SIZE,
    C_STORE_TIME,
    C_SYS_FLAG,
    C_TAG_CODE,
    RecordColumns,
    new_rows,
)
from embermq.format.frame import ScanStop, encode
from embermq.format.index import ENTRY_BYTES, entry_at, index_file_bytes
from embermq.format.queue_entry import ENTRY
from embermq.model.flags import PREPARED
from embermq.model.hosts import Host
from tests.columns.guarded import GuardedMemory
from tests.columns.strategies import BASE, hostile_logs, logs

NO_DELAYS = np.zeros(0, np.int64)
HOST = Host("10.0.0.1", 50000)
QUEUES = 3
COUNT = 5 * ROWS_AT_ONCE // 2
MEMORY, QUEUE_MEMORY, INDEX_MEMORY = GuardedMemory(1 << 18), GuardedMemory(1 << 16), GuardedMemory(1 << 16)


class Made:
    """A log of records over three queues, with everything it is compared with."""

    def __init__(self, count: int = COUNT, sys_flag: int = 0) -> None:
        data = b""
        for i in range(count):
            data += encode(
                physical_offset=BASE + len(data),
                queue_id=i % QUEUES,
                queue_offset=i // QUEUES,
                topic="Topic",
                body=b"x" * (i % 50),
                properties=f"UNIQ_KEY\x01U{i}\x02KEYS\x01a{i} b\x02TAGS\x01t{i}".encode(),
                born_timestamp=1,
                born_host=HOST,
                store_timestamp=1_700_000_000_000 + 700 * i,
                store_host=HOST,
                sys_flag=sys_flag,
            )
        self.data = MEMORY.hold(data)
        rows = new_rows(count)
        assert scan_rows(data, BASE, 0, len(data), rows, NO_DELAYS, True, True)[0] == count
        self.records = RecordColumns(self.data, BASE, rows)
        entries = [rows[rows[:, C_QUEUE_ID] == queue] for queue in range(QUEUES)]
        self.pool = b"".join(
            ENTRY.pack(int(row[C_PHYSICAL]), int(row[C_SIZE]), int(row[C_TAG_CODE])) for of in entries for row in of
        )
        self.table = np.zeros((QUEUES, Q_COLUMNS), np.int64)
        at = 0
        for queue, of in enumerate(entries):
            self.table[queue] = (-1, 0, 0, len(of), at)
            at += len(of) * ENTRY.size
        index = bytearray(index_file_bytes(64, 3 * count + 1))
        put_rows(index, 64, 3 * count + 1, self.records, 0, 0, 0)
        first = entry_at(1, 64)
        self.entries = bytes(index[first : first + 3 * count * ENTRY_BYTES])
        self.index = np.array([int(rows[0, C_STORE_TIME]), BASE], np.int64)
        self.queues = QueueTable()
        for queue in range(QUEUES):
            self.queues.add(b"Topic", queue, queue)
        self.check = LogCheck(NO_DELAYS)

    def go_on(self, walk: NDArray[np.int64], **changed: Any) -> CheckStop:
        lent = self.queues.lent()
        return self.check.go_on(
            self.data,
            BASE,
            changed.get("end", len(self.data)),
            changed.get("queues", lent),
            changed.get("table", self.table),
            QUEUE_MEMORY.hold(changed.get("pool", self.pool)),
            INDEX_MEMORY.hold(changed.get("entries", self.entries)),
            changed.get("index", self.index),
            walk,
        )


def test_a_sound_stretch_is_walked_to_its_end() -> None:
    made, walk = Made(), new_walk(0)
    assert made.go_on(walk) == CheckStop.DONE
    assert (walk[W_AT], walk[W_STOP], walk[W_COUNT]) == (len(made.data), ScanStop.BUFFER_END, 0)
    assert (walk[W_RECORDS], walk[W_ENTRY]) == (COUNT, 3 * COUNT)
    assert walk[W_NEWEST_MS] == made.records.rows[:, C_STORE_TIME].max()
    expected = made.table.copy()
    expected[:, :2] = [(-1, 0)] * QUEUES
    numbers, wrong = made.records.rows[:, C_QUEUE_ID].copy(), np.zeros(8, np.int64)
    assert check.check_entries(made.records.rows, numbers, expected, made.pool, 0, wrong) == (COUNT, CheckStop.DONE, 0)
    assert made.table.tolist() == expected.tolist()


def test_it_begins_and_ends_where_it_is_told() -> None:
    made = Made()
    third, end = (int(made.records.rows[i, C_PHYSICAL]) - BASE for i in (3, 90))
    walk = new_walk(third)
    walk[W_ENTRY] = 9
    assert made.go_on(walk, end=end) == CheckStop.DONE
    assert (walk[W_AT], walk[W_RECORDS], walk[W_ENTRY]) == (end, 87, 270)


def test_without_an_index_keys_are_not_looked_at() -> None:
    made, walk = Made(), new_walk(0)
    assert made.go_on(walk, entries=b"", index=NO_DELAYS) == CheckStop.DONE
    assert (walk[W_RECORDS], walk[W_ENTRY]) == (COUNT, 0)


def test_it_asks_for_queues_windows_and_entries_and_goes_on() -> None:
    """All stops that are no flaw, in one walk: nothing is counted twice or left out."""
    made, walk = Made(), new_walk(0)
    whole, made.queues = made.table.copy(), QueueTable()
    made.table[:, 2:4] = -1
    stops, given = [], 7
    walk_entry = 0
    while (stop := made.go_on(walk, entries=made.entries[walk_entry * ENTRY_BYTES : given * ENTRY_BYTES])) != 0:
        stops.append(stop)
        if stop == CheckStop.UNKNOWN:
            made.queues.add(b"Topic", int(made.check.rows[walk[W_ROW], C_QUEUE_ID]), len(made.queues))
        elif stop == CheckStop.WINDOW:
            made.table[walk[W_QUEUE], 2:] = whole[walk[W_QUEUE], 2:]
        else:
            assert stop == CheckStop.ENTRIES_END
            walk_entry, given = given, given + 50
            walk[W_ENTRY] = 0
    assert (walk[W_RECORDS], walk[W_AT]) == (COUNT, len(made.data))
    assert stops.count(CheckStop.UNKNOWN) == stops.count(CheckStop.WINDOW) == QUEUES
    assert stops.count(CheckStop.ENTRIES_END) == -(-(3 * COUNT - 7) // 50)
    assert made.table[:, 1].sum() == COUNT


def test_more_queues_than_the_table_has_are_asked_for() -> None:
    made, walk = Made(), new_walk(0)
    assert made.go_on(walk, table=made.table[:1]) == CheckStop.UNKNOWN
    assert walk[W_ROW] == 1
    assert made.go_on(walk) == CheckStop.DONE


def test_a_queue_offset_that_does_not_follow_is_a_break() -> None:
    made, walk = Made(), new_walk(0)
    made.table[1, :2] = (0, 5)
    assert made.go_on(walk) == CheckStop.BREAK
    assert (walk[W_ROW], walk[W_QUEUE]) == (1, 1)
    made.table[1, 0] = -1
    assert made.go_on(walk) == CheckStop.DONE
    assert walk[W_RECORDS] == COUNT


def test_prepared_records_have_no_entries() -> None:
    made, walk = Made(sys_flag=PREPARED), new_walk(0)
    assert (made.records.rows[:, C_SYS_FLAG] == PREPARED).all()
    assert made.go_on(walk, pool=bytes(len(made.pool))) == CheckStop.DONE
    assert walk[W_RECORDS] == COUNT
    assert (made.table[:, 0] == -1).all()


@pytest.mark.parametrize("number", [0, 1, ROWS_AT_ONCE - 1, ROWS_AT_ONCE, COUNT - 1])
@pytest.mark.parametrize("byte", [0, 7, 11, 19])
def test_any_wrong_queue_entry_is_seen(number: int, byte: int) -> None:
    made, walk = Made(), new_walk(0)
    pool = bytearray(made.pool)
    pool[int(made.table[number % QUEUES, 4]) + number // QUEUES * ENTRY.size + byte] ^= 1
    assert made.go_on(walk, pool=pool) == CheckStop.WRONG
    assert walk[W_RECORDS] + walk[W_ROW] == number


@pytest.mark.parametrize("number", [0, 4, 3 * ROWS_AT_ONCE - 1, 3 * ROWS_AT_ONCE, 3 * COUNT - 1])
@pytest.mark.parametrize(
    ("byte", "stop"), [(3, CheckStop.DIFFERENT), (11, CheckStop.DIFFERENT), (15, CheckStop.SECONDS)]
)
def test_any_wrong_index_entry_is_seen(number: int, byte: int, stop: CheckStop) -> None:
    made, walk = Made(), new_walk(0)
    entries = bytearray(made.entries)
    entries[number * ENTRY_BYTES + byte] ^= 1
    found = made.go_on(walk, entries=entries)
    if stop == CheckStop.SECONDS and number < 3:
        assert found == CheckStop.DONE  # The time of the first record in a file is not compared.
        return
    assert found == stop
    assert (walk[W_RECORDS] + walk[W_KEY_ROW], walk[W_KEY], walk[W_ENTRY]) == (number // 3, number % 3, number)


@pytest.mark.parametrize("number", [0, ROWS_AT_ONCE - 1, ROWS_AT_ONCE, COUNT - 1])
def test_damage_ends_the_walk_where_it_is(number: int) -> None:
    made, walk = Made(), new_walk(0)
    place = int(made.records.rows[number, C_PHYSICAL]) - BASE
    made.data[place + 4] ^= 1
    assert made.go_on(walk) == CheckStop.DONE
    assert (walk[W_AT], walk[W_RECORDS], walk[W_COUNT]) == (place, number, 0)
    assert walk[W_STOP] not in (ScanStop.BUFFER_END, ScanStop.ROWS_FULL)


@settings(max_examples=200, deadline=None)
@given(st.one_of(logs(), hostile_logs()))
def test_it_stops_where_the_twin_of_scan_stops(data: bytes) -> None:
    rows = new_rows(64)
    count, at, code = scan_rows(data, BASE, 0, len(data), rows, NO_DELAYS, True, True)
    records = RecordColumns(data, BASE, rows[:count])
    queues = QueueTable()
    for i in range(count):
        if queues.find(records.topic_bytes(i), int(rows[i, C_QUEUE_ID])) < 0:
            queues.add(records.topic_bytes(i), int(rows[i, C_QUEUE_ID]), len(queues))
    walk, checker = new_walk(0), LogCheck(NO_DELAYS)
    table = np.zeros((max(len(queues), 1), Q_COLUMNS), np.int64)
    table[:, 0] = table[:, 2] = table[:, 3] = -1
    pool = np.zeros(ENTRY.size, np.uint8)
    seen, made_for = 0, -1
    while True:
        stop = checker.go_on(MEMORY.hold(data), BASE, len(data), queues.lent(), table, pool, pool, NO_DELAYS, walk)
        if stop == CheckStop.DONE:
            break
        assert stop in (CheckStop.WINDOW, CheckStop.BREAK, CheckStop.WRONG)
        row, number = checker.rows[walk[W_ROW]], walk[W_QUEUE]
        if stop == CheckStop.WINDOW:
            entry = ENTRY.pack(int(row[C_PHYSICAL]), int(row[C_SIZE]), int(row[C_TAG_CODE]))
            pool = np.frombuffer(entry, np.uint8)
            offset = int(row[3])
            table[:, 2:4] = -1
            if offset >= (1 << 63) - 1 or offset < 0:
                return
            table[number, 2:] = (offset, offset + 1, 0)
            seen, made_for = seen + 1, int(row[C_PHYSICAL])
        elif stop == CheckStop.BREAK:
            table[number, 0] = -1
        else:
            assert made_for != row[C_PHYSICAL], "the entry was made for the row"
            return  # Two records of a queue have the same queue offset: the entry is of the other one.
    assert (walk[W_RECORDS], walk[W_AT], walk[W_STOP]) == (count, at, code)
    assert seen <= count
