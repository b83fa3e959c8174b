"""Index puts, slot rebuilds and queue routing: kernel == twin."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.columns.compiled.derive import index_keys, index_put, index_put_keys, index_rebuild_slots
from embermq.columns.plain import derive as plain
from embermq.columns.plain.scan import scan_rows
from embermq.columns.rows import C_KEYS_AT, RecordColumns, new_rows
from embermq.format import index
from embermq.format.frame import encode
from embermq.format.index import decode_header, entry_at, index_file_bytes
from embermq.format.java import wrap_i64
from embermq.model.hosts import Host
from tests.columns.guarded import GuardedMemory
from tests.columns.strategies import BASE, I64, logs

MEMORY = GuardedMemory(1 << 16)
FILE_MEMORY = GuardedMemory(1 << 16)
HOST = Host("10.0.0.1", 50000)


def columns_of(data: bytes) -> RecordColumns:
    rows = new_rows(16)
    count, _, _ = scan_rows(data, BASE, 0, len(data), rows, np.zeros(0, np.int64), True, True)
    return RecordColumns(MEMORY.hold(data), BASE, rows[:count])


def keyed(count: int, properties: bytes = b"UNIQ_KEY\x010A01\x02KEYS\x01k1  k2 k1") -> RecordColumns:
    data = b""
    for i in range(count):
        data += encode(
            physical_offset=BASE + len(data),
            queue_id=i % 3,
            queue_offset=i,
            topic=f"Topic{i % 2}",
            body=b"x",
            properties=properties,
            born_timestamp=1,
            born_host=HOST,
            store_timestamp=1_700_000_000_000 + 700 * i,
            store_host=HOST,
        )
    return columns_of(data)


def assert_same_put(
    start: bytes, slots: int, entries: int, batch: RecordColumns, row: int, key: int, guard: int
) -> tuple[bytes, tuple[int, int, int]]:
    ours, theirs = FILE_MEMORY.hold(start), bytearray(start)
    kernel = index_put(ours, slots, entries, batch, row, key, guard)
    twin = plain.put_rows(theirs, slots, entries, batch, row, key, guard)
    assert kernel == twin
    assert ours.tobytes() == bytes(theirs)
    return bytes(theirs), twin


@settings(max_examples=100, deadline=None)
@given(st.lists(logs(), min_size=1, max_size=3), st.integers(1, 7), st.integers(1, 12))
def test_keys_in_two_steps(batches: list[bytes], slots: int, entries: int) -> None:
    """Collected here and put there, keys make the file that putting rows makes."""
    for data in batches:
        batch = columns_of(data)
        keys = index_keys(batch)
        assert keys.tolist() == [list(key) for key in plain.key_rows(batch)]
        start = bytes(index_file_bytes(slots, entries))
        ours, theirs, by_rows = FILE_MEMORY.hold(start), bytearray(start), bytearray(start)
        done = index_put_keys(ours, slots, entries, keys, 0)
        assert done == plain.put_key_rows(theirs, slots, entries, keys.tolist(), 0)
        assert ours.tobytes() == bytes(theirs)
        _, _, put = plain.put_rows(by_rows, slots, entries, batch, 0, 0, 0)
        assert done == put
        assert theirs == by_rows


def test_keys_of_no_rows() -> None:
    assert index_keys(columns_of(b"")).shape == (0, 3)


@pytest.mark.parametrize("later", [-(1 << 63), -1, 0, 999, 1000, (1 << 31) * 1000, (1 << 63) - 1])
def test_seconds_of_odd_times(later: int) -> None:
    """The difference of two times is taken as Java takes it, overflow and all."""
    first = 1_700_000_000_000
    data = b""
    for store_timestamp in (first, later, wrap_i64(first + later), wrap_i64(first - later)):
        data += encode(
            physical_offset=BASE + len(data),
            queue_id=0,
            queue_offset=0,
            topic="T",
            body=b"x",
            properties=b"KEYS\x01A",
            born_timestamp=1,
            born_host=HOST,
            store_timestamp=store_timestamp,
            store_host=HOST,
        )
    assert_same_put(bytes(index_file_bytes(1, 12)), 1, 12, columns_of(data), 0, 0, 0)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(logs(), min_size=1, max_size=3),
    st.integers(1, 7),
    st.integers(1, 12),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from([0, BASE + 1, BASE + 200]),
)
def test_put(batches: list[bytes], slots: int, entries: int, row: int, key: int, guard: int) -> None:
    file = bytes(index_file_bytes(slots, entries))
    for data in batches:
        batch = columns_of(data)
        row, key = min(row, len(batch)), key if row < len(batch) else 0
        file, (row, key, _) = assert_same_put(file, slots, entries, batch, row, key, guard)
        if row < len(batch):  # full: go on in a new file, as its owner does
            assert decode_header(file).count >= entries
            file = bytes(index_file_bytes(slots, entries))
            file, _ = assert_same_put(file, slots, entries, batch, row, key, guard)
        row = key = 0


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=40, max_size=40), st.binary(max_size=200), st.integers(1, 5), I64)
def test_put_into_a_file_of_nonsense(header: bytes, rest: bytes, slots: int, guard: int) -> None:
    entries = 6
    file = (header + rest).ljust(index_file_bytes(slots, entries), b"\x01")[: index_file_bytes(slots, entries)]
    assert_same_put(file, slots, entries, keyed(2), 0, 0, guard)
    believable = file[:36] + struct.pack(">i", 3) + file[40:]
    assert_same_put(believable, slots, entries, keyed(2), 0, 0, 0)


@pytest.mark.parametrize("link", [0, 1, 2, 3, 4, -1])
def test_a_put_that_was_stopped_before_the_count_is_taken_over(link: int) -> None:
    slots, entries = 1, 10
    file, _ = assert_same_put(
        bytes(index_file_bytes(slots, entries)), slots, entries, keyed(1, b"KEYS\x01a b"), 0, 0, 0
    )
    stopped = bytearray(file)  # slot and entry 3 are written, the count still says 3
    struct.pack_into(">i", stopped, 40, 3)
    struct.pack_into(">iqii", stopped, entry_at(3, slots), 5, BASE, 0, link)
    file, _ = assert_same_put(bytes(stopped), slots, entries, keyed(1, b"KEYS\x01c"), 0, 0, 0)
    assert index.decode_entry(file, 3, slots).previous == (link if link in (1, 2) else 0)


def test_more_keys_than_are_put_at_a_time() -> None:
    words = b" ".join(b"w%d" % k for k in range(150))
    file, done = assert_same_put(bytes(index_file_bytes(50, 2000)), 50, 2000, keyed(5, b"KEYS\x01" + words), 0, 0, 0)
    assert done == (5, 0, 750)
    assert decode_header(file).count == 751


def test_every_place_to_stop_and_go_on() -> None:
    batch = keyed(4)
    whole, _ = assert_same_put(bytes(index_file_bytes(10, 100)), 10, 100, batch, 0, 0, 0)
    for entries in range(1, 17):
        file, (row, key, done) = assert_same_put(bytes(index_file_bytes(10, entries)), 10, entries, batch, 0, 0, 0)
        assert done == entries - 1
        rest, _ = assert_same_put(bytes(index_file_bytes(10, 100)), 10, 100, batch, row, key, 0)
        hashes = [index.decode_entry(file, n, 10).key_hash for n in range(1, entries)]
        hashes += [index.decode_entry(rest, n, 10).key_hash for n in range(1, decode_header(rest).count)]
        assert hashes == [index.decode_entry(whole, n, 10).key_hash for n in range(1, 17)]


def test_rows_that_point_outside_the_data_are_refused() -> None:
    batch = keyed(1)
    batch.rows[0, C_KEYS_AT] = 1 << 40
    with pytest.raises(AssertionError):
        index_put(np.zeros(index_file_bytes(10, 10), np.uint8), 10, 10, batch, 0, 0, 0)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 30), st.integers(-5, 40)), max_size=20), st.integers(1, 9))
def test_rebuild_slots(entries: list[tuple[int, int]], slots: int) -> None:
    file = bytearray(b"\x07" * index_file_bytes(slots, len(entries) + 1))
    for number, (key_hash, previous) in enumerate(entries, 1):
        struct.pack_into(">iqii", file, entry_at(number, slots), key_hash, number, 0, previous)
    for count in {1, len(entries) + 1, len(entries) // 2 + 1}:
        ours, theirs = FILE_MEMORY.hold(file), bytearray(file)
        assert index_rebuild_slots(ours, slots, count) == index.rebuild_slots(theirs, slots, count)
        assert ours.tobytes() == bytes(theirs)


def test_rebuild_refuses_a_count_beyond_the_file() -> None:
    with pytest.raises(AssertionError):
        index_rebuild_slots(np.zeros(index_file_bytes(5, 5), np.uint8), 5, 6)
