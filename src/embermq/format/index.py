"""Index file: a hash table from `topic#key` to physical offsets, and its plain-Python operations.

    at             size      field
    0                 8      begin timestamp      store time of the first entry
    8                 8      end timestamp        of the last one
    16                8      begin physical offset
    24                8      end physical offset
    32                4      hash slot count      slots in use
    36                4      index count          number of the next entry; starts at 1
    40        4 * slots      slots                number of the newest entry of the slot, 0 = none
    40+4*slots  20 * entries entries              entry 0 is never used

    Entry: i32 key hash, i64 physical offset, i32 seconds since begin, i32 previous entry of the slot.

An entry counts once the index count says so: the entry is written first, then the slot, then the header
with the count last. A writer stopped in between leaves a slot pointing at the entry that comes next: it is
complete, so readers may follow it, and the next put under that slot takes over its link.
Keys of many records at once: `embermq.columns`.
"""

import struct
from typing import Any

import msgspec

from embermq.format.java import wrap_i64

HEADER_BYTES = 40
SLOT_BYTES = 4
ENTRY_BYTES = 20
_HEADER = struct.Struct(">qqqqii")
_SLOT = struct.Struct(">i")
_ENTRY = struct.Struct(">iqii")
_I64 = struct.Struct(">q")
_SECONDS_MAX = 0x7FFF_FFFF
assert (_HEADER.size, _ENTRY.size) == (HEADER_BYTES, ENTRY_BYTES)


class IndexHeader(msgspec.Struct, frozen=True, gc=False):
    """The first 40 bytes. `count` is the number of the next entry, never below 1 once decoded."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical: int = 0
    end_physical: int = 0
    slot_count: int = 0
    count: int = 1


class IndexEntry(msgspec.Struct, frozen=True, gc=False):
    key_hash: int
    physical_offset: int
    seconds: int
    previous: int


def index_file_bytes(slots_max: int, entries_max: int) -> int:
    return HEADER_BYTES + SLOT_BYTES * slots_max + ENTRY_BYTES * entries_max


def slot_at(slot: int) -> int:
    """Byte position of a slot."""
    return HEADER_BYTES + SLOT_BYTES * slot


def entry_at(number: int, slots_max: int) -> int:
    """Byte position of an entry."""
    return HEADER_BYTES + SLOT_BYTES * slots_max + ENTRY_BYTES * number


def decode_header(buffer: Any) -> IndexHeader:
    """The header; a count of 0 or less (a file without entries) reads as 1."""
    begin, end, begin_physical, end_physical, slots, count = _HEADER.unpack_from(buffer)
    return IndexHeader(begin, end, begin_physical, end_physical, slots, max(count, 1))


def encode_header(header: IndexHeader) -> bytes:
    return _HEADER.pack(
        header.begin_timestamp,
        header.end_timestamp,
        header.begin_physical,
        header.end_physical,
        header.slot_count,
        header.count,
    )


def decode_entry(buffer: Any, number: int, slots_max: int) -> IndexEntry:
    return IndexEntry(*_ENTRY.unpack_from(buffer, entry_at(number, slots_max)))


def put(buffer: Any, slots_max: int, entries_max: int, key_hash: int, physical_offset: int, store_time: int) -> bool:
    """Add one key to a writable index file; False when the file is full."""
    begin, _end, _begin_physical, _end_physical, slots, count = _HEADER.unpack_from(buffer)
    count = max(count, 1)
    if count >= entries_max:
        return False
    slot = slot_at(key_hash % slots_max)
    (previous,) = _SLOT.unpack_from(buffer, slot)
    if previous == count:  # A writer was stopped between slot and count: its entry knows the older one.
        previous = decode_entry(buffer, count, slots_max).previous
    if previous <= 0 or previous >= count:
        previous = 0
    seconds = min(max(wrap_i64(store_time - begin) // 1000, 0), _SECONDS_MAX) if begin > 0 else 0
    _ENTRY.pack_into(buffer, entry_at(count, slots_max), key_hash, physical_offset, seconds, previous)
    _SLOT.pack_into(buffer, slot, count)
    if count <= 1:
        _I64.pack_into(buffer, 16, physical_offset)
        _I64.pack_into(buffer, 0, store_time)
    _I64.pack_into(buffer, 8, store_time)
    _I64.pack_into(buffer, 24, physical_offset)
    if previous == 0:
        _SLOT.pack_into(buffer, 32, slots + 1)
    _SLOT.pack_into(buffer, 36, count + 1)
    return True


def rebuild_slots(buffer: Any, slots_max: int, count: int) -> int:
    """Recompute all slots, the links of entries 1..count-1 and the header's slot count from those entries.
    The header's other fields stay. Entries with an impossible hash are left out. Returns the slot count."""
    room = (len(buffer) - HEADER_BYTES - SLOT_BYTES * slots_max) // ENTRY_BYTES
    assert 0 < count <= max(room, 1), (count, room)
    buffer[HEADER_BYTES : slot_at(slots_max)] = bytes(SLOT_BYTES * slots_max)
    used = 0
    for number in range(1, count):
        at = entry_at(number, slots_max)
        (key_hash,) = _SLOT.unpack_from(buffer, at)
        if key_hash < 0:
            continue
        slot = slot_at(key_hash % slots_max)
        (previous,) = _SLOT.unpack_from(buffer, slot)
        used += previous == 0
        _SLOT.pack_into(buffer, at + 16, previous)
        _SLOT.pack_into(buffer, slot, number)
    _SLOT.pack_into(buffer, 32, used)
    return used
