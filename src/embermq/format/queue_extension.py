"""Extension of a consume queue: an entry with a bit map per message, for readers that filter by SQL.

    at  size  field
     0     2  size of this entry      20 + bit map
     2     8  tag code
    10     8  store time
    18     2  length of the bit map
    20     n  bit map

Entries lie one behind another in files of equal size. An entry that does not fit is written to the next file, and -1
as a size ends this one; 4 bytes are kept free for it. The queue entry's third field then holds the entry's address:
its offset plus the smallest 64-bit number, so that it differs from any hash.

The bit map is a bloom filter over the consumer groups whose filter matched (murmur3, as Guava computes it).
"""

import math
import struct
from collections.abc import Iterable
from typing import Any

import msgspec

from embermq.format.java import wrap_i32

ENTRY_HEAD_BYTES = 20
ENTRY_BYTES_MAX = 32767
END_MARK = b"\xff\xff"
END_RESERVED_BYTES = 4
_ENTRY = struct.Struct(">hqqh")
_SIZE = struct.Struct(">h")
assert _ENTRY.size == ENTRY_HEAD_BYTES

_ADDRESS_BASE = -(1 << 63)
_ADDRESS_LAST = -(1 << 31) - 1  # below every possible hash
EXTENSION_OFFSET_MAX = _ADDRESS_LAST - _ADDRESS_BASE


class ExtensionEntry(msgspec.Struct, frozen=True, gc=False):
    tag_code: int
    store_time: int
    bitmap: bytes = b""

    @property
    def size(self) -> int:
        return ENTRY_HEAD_BYTES + len(self.bitmap)


def is_address(tag_code: int) -> bool:
    """Whether a queue entry's third field is the address of an extension entry."""
    return tag_code <= _ADDRESS_LAST


def address_of(offset: int) -> int:
    assert 0 <= offset <= EXTENSION_OFFSET_MAX, offset
    return offset + _ADDRESS_BASE


def offset_of(address: int) -> int:
    assert is_address(address), address
    return address - _ADDRESS_BASE


def encode_entry(entry: ExtensionEntry) -> bytes:
    assert entry.size <= ENTRY_BYTES_MAX, entry.size
    return _ENTRY.pack(entry.size, entry.tag_code, entry.store_time, len(entry.bitmap)) + entry.bitmap


def entry_size(buffer: Any, at: int, limit: int) -> int:
    """Size of the entry at `at`; 0 when there is none (never written, the end mark, or cut off)."""
    if limit - at < ENTRY_HEAD_BYTES:
        return 0
    size: int = _SIZE.unpack_from(buffer, at)[0]
    return size if ENTRY_HEAD_BYTES <= size <= limit - at else 0


def decode_entry(buffer: Any, at: int, limit: int) -> ExtensionEntry | None:
    """The entry at `at`, or None when there is none or its lengths do not add up."""
    size = entry_size(buffer, at, limit)
    if size == 0:
        return None
    _size, tag_code, store_time, bitmap_len = _ENTRY.unpack_from(buffer, at)
    if ENTRY_HEAD_BYTES + bitmap_len != size:
        return None
    return ExtensionEntry(tag_code, store_time, bytes(buffer[at + ENTRY_HEAD_BYTES : at + size]))


def fits(entry_bytes: int, position: int, file_bytes: int) -> bool:
    """Whether an entry can be written at `position` of a file, or belongs into the next one."""
    return entry_bytes <= file_bytes - position - END_RESERVED_BYTES


class BloomFilter(msgspec.Struct, frozen=True):
    """`hashes` bits of `bits` are set per key."""

    hashes: int
    bits: int

    @staticmethod
    def sized(error_percent: int = 20, keys: int = 32) -> "BloomFilter":
        """For so many keys and so many false answers in a hundred."""
        hashes = math.ceil(math.log(error_percent / 100) / math.log(0.5))
        bits = math.ceil(keys * math.log2(100 / error_percent) * math.log2(math.e))
        return BloomFilter(hashes, -(-bits // 8) * 8)

    def positions(self, key: str) -> list[int]:
        """The bits of a key, in the order they are computed."""
        code = murmur3_first_half(key.encode())
        first, second = wrap_i32(code), wrap_i32(code >> 32)
        mixed = (wrap_i32(first + k * second) for k in range(1, self.hashes + 1))
        return [(~value if value < 0 else value) % self.bits for value in mixed]

    def bitmap(self, keys: Iterable[str]) -> bytes:
        """The bit map in which the bits of all `keys` are set."""
        raw = bytearray(self.bits // 8)
        for key in keys:
            for position in self.positions(key):
                raw[position // 8] |= 1 << position % 8
        return bytes(raw)


def may_contain(bitmap: bytes, positions: Iterable[int]) -> bool:
    """False when one of the bits is clear: the key was surely not added."""
    return all(p // 8 < len(bitmap) and bitmap[p // 8] >> p % 8 & 1 for p in positions)


_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def _rotated(value: int, count: int) -> int:
    return (value << count | value >> 64 - count) & _MASK


def _finished(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def murmur3_first_half(data: bytes) -> int:
    """The first 64 bits of the 128-bit MurmurHash3 for 64-bit machines, seed 0; unsigned."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        k1, k2 = struct.unpack_from("<QQ", data, at)
        h1 ^= _rotated(k1 * _C1 & _MASK, 31) * _C2 & _MASK
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _rotated(k2 * _C2 & _MASK, 33) * _C1 & _MASK
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    k1, k2 = struct.unpack("<QQ", data[whole:].ljust(16, b"\0"))
    h2 ^= _rotated(k2 * _C2 & _MASK, 33) * _C1 & _MASK
    h1 ^= _rotated(k1 * _C1 & _MASK, 31) * _C2 & _MASK
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _finished(h1), _finished(h2)
    return (h1 + h2) & _MASK
