"""Index files in plain Python, on the worked example."""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from embermq.columns.plain.derive import put_rows
from embermq.columns.plain.scan import scan_rows
from embermq.columns.rows import RecordColumns, new_rows
from embermq.format.frame import encode
from embermq.format.index import (
    IndexHeader,
    decode_entry,
    decode_header,
    encode_header,
    entry_at,
    index_file_bytes,
    put,
    rebuild_slots,
    slot_at,
)
from embermq.format.java import index_key_hash
from embermq.model.hosts import Host

SLOTS, ENTRIES = 50, 20
UNIQ = "0A0000010001639CFE2B18B4AAC200A1"


def lookup(buffer: Any, slots_max: int, entries_max: int, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
    """Physical offsets under a hash whose (second-grained) time lies in begin_ms..end_ms, newest first.
    Different keys may share a hash: callers compare the record's own keys. A file ends the walk at the first
    entry older than begin_ms, and on any number that cannot be."""
    header = decode_header(buffer)
    (number,) = struct.unpack_from(">i", buffer, slot_at(key_hash % slots_max))
    if header.count <= 1 or number > min(header.count, entries_max - 1):
        return
    while number > 0:
        entry = decode_entry(buffer, number, slots_max)
        if entry.seconds < 0:
            return
        time_ms = header.begin_timestamp + entry.seconds * 1000
        if entry.key_hash == key_hash and begin_ms <= time_ms <= end_ms:
            yield entry.physical_offset
        if time_ms < begin_ms or entry.previous >= number:
            return
        number = entry.previous


def columns(count: int, properties: bytes, sys_flag: int = 0) -> RecordColumns:
    data = b""
    for i in range(count):
        data += encode(
            physical_offset=1073741824 + len(data),
            queue_id=0,
            queue_offset=i,
            topic="TopicTest",
            body=b"x",
            properties=properties,
            born_timestamp=0,
            born_host=Host("10.0.0.1", 1),
            sys_flag=sys_flag,
            store_timestamp=1700000000123 + 1500 * i,
            store_host=Host("10.0.0.1", 1),
        )
    rows = new_rows(count)
    assert scan_rows(data, 1073741824, 0, len(data), rows, np.zeros(0, np.int64), True, True)[0] == count
    return RecordColumns(data, 1073741824, rows)


def test_places_with_default_sizes() -> None:
    assert index_file_bytes(5_000_000, 20_000_000) == 420_000_040
    assert slot_at(index_key_hash("TopicTest", "k1") % 5_000_000) == 10984136
    assert slot_at(index_key_hash("TopicTest", UNIQ) % 5_000_000) == 751516
    assert slot_at(index_key_hash("TopicTest", "ogaQmc") % 5_000_000) == 40
    assert entry_at(1, 5_000_000) == 20000060


def test_header_of_the_worked_example() -> None:
    file = bytearray(index_file_bytes(SLOTS, ENTRIES))
    batch = columns(1, f"UNIQ_KEY\x01{UNIQ}\x02KEYS\x01k1 k2".encode())
    assert put_rows(file, SLOTS, ENTRIES, batch, 0, 0, 0) == (1, 0, 3)
    raw = "0000018bcfe5687b0000018bcfe5687b000000004000000000000000400000000000000300000004"
    assert file[:40].hex() == raw
    header = decode_header(file)
    assert header == IndexHeader(1700000000123, 1700000000123, 1073741824, 1073741824, 3, 4)
    assert encode_header(header) == file[:40]
    assert decode_header(bytes(40)).count == 1


def test_put_chains_and_lookup() -> None:
    file = bytearray(index_file_bytes(SLOTS, ENTRIES))
    batch = columns(4, b"KEYS\x01k1")
    put_rows(file, SLOTS, ENTRIES, batch, 0, 0, 0)
    key_hash = index_key_hash("TopicTest", "k1")
    physical = [int(p) for p in batch.column(0)]
    assert list(lookup(file, SLOTS, ENTRIES, key_hash, 0, 1 << 62)) == physical[::-1]
    assert [decode_entry(file, n, SLOTS).seconds for n in (1, 2, 3, 4)] == [0, 1, 3, 4]
    begin = decode_header(file).begin_timestamp
    assert list(lookup(file, SLOTS, ENTRIES, key_hash, begin + 1000, begin + 3000)) == physical[2:0:-1]
    assert list(lookup(file, SLOTS, ENTRIES, key_hash + SLOTS, 0, 1 << 62)) == []


def test_a_full_file_stops_in_mid_message_and_a_new_one_goes_on() -> None:
    batch = columns(2, b"KEYS\x01a b c")
    first, second = (bytearray(index_file_bytes(SLOTS, 5)) for _ in range(2))
    assert put_rows(first, SLOTS, 5, batch, 0, 0, 0) == (1, 1, 4)
    assert put_rows(second, SLOTS, 5, batch, 1, 1, 0) == (2, 0, 2)
    assert decode_header(second).count == 3


def test_guard_and_rollback_are_passed_over() -> None:
    file = bytearray(index_file_bytes(SLOTS, ENTRIES))
    batch = columns(3, b"KEYS\x01a")
    assert put_rows(file, SLOTS, ENTRIES, batch, 0, 0, int(batch.rows[1, 0])) == (3, 0, 2)
    assert put_rows(file, SLOTS, ENTRIES, columns(3, b"KEYS\x01a", sys_flag=0xC), 0, 0, 0) == (3, 0, 0)
    assert put_rows(file, SLOTS, ENTRIES, columns(3, b"KEYS\x01a", sys_flag=0x4), 0, 0, 0) == (3, 0, 3)


def test_a_put_that_was_stopped_before_the_count_can_be_repeated() -> None:
    file = bytearray(index_file_bytes(SLOTS, ENTRIES))
    put(file, SLOTS, ENTRIES, 7, 100, 1700000000000)
    before = bytes(file)
    put(file, SLOTS, ENTRIES, 7, 200, 1700000000000)
    after = bytes(file)
    file[36:40] = before[36:40]  # killed just before the count
    put(file, SLOTS, ENTRIES, 7, 200, 1700000000000)
    assert file == after
    assert list(lookup(file, SLOTS, ENTRIES, 7, 0, 1 << 62)) == [200, 100]


def test_rebuild_slots_gives_the_same_bytes() -> None:
    file = bytearray(index_file_bytes(SLOTS, ENTRIES))
    put_rows(file, SLOTS, ENTRIES, columns(5, b"KEYS\x01a b c"), 0, 0, 0)
    healthy = bytes(file)
    file[40 : slot_at(SLOTS)] = b"\xff" * (4 * SLOTS)
    assert rebuild_slots(file, SLOTS, decode_header(file).count) == 3
    assert file == healthy


def test_rebuild_slots_cuts_back() -> None:
    file = bytearray(index_file_bytes(SLOTS, ENTRIES))
    for number in range(1, 5):
        put(file, SLOTS, ENTRIES, number % 3, number, 1700000000000)
    slots = bytes(file[40 : slot_at(SLOTS)])
    for number in range(5, 10):
        put(file, SLOTS, ENTRIES, number % 3, number, 1700000000000)
    assert rebuild_slots(file, SLOTS, 5) == 3
    assert file[40 : slot_at(SLOTS)] == slots
    struct.pack_into(">i", file, entry_at(1, SLOTS), -5)
    assert rebuild_slots(file, SLOTS, 2) == 0
