"""Extension entries and bloom filters, on worked examples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.format.java import string_hash
from embermq.format.queue_extension import (
    END_MARK,
    EXTENSION_OFFSET_MAX,
    BloomFilter,
    ExtensionEntry,
    address_of,
    decode_entry,
    encode_entry,
    entry_size,
    fits,
    is_address,
    may_contain,
    murmur3_first_half,
    offset_of,
)

BITMAP = bytes.fromhex("0000020000000000400000000002")
ENTRY = ExtensionEntry(string_hash("TagA"), 1700000000123, BITMAP)
RAW = bytes.fromhex("0022000000000027a8070000018bcfe5687b000e0000020000000000400000000002")


def test_entry() -> None:
    assert encode_entry(ENTRY) == RAW
    assert decode_entry(b"xx" + RAW, 2, 36) == ENTRY
    assert entry_size(RAW, 0, 34) == ENTRY.size == 34


@pytest.mark.parametrize("raw", [b"", RAW[:19], RAW[:33], bytes(34), END_MARK + RAW[2:], b"\0\x13" + RAW[2:]])
def test_no_entry(raw: bytes) -> None:
    assert decode_entry(raw, 0, len(raw)) is None
    assert entry_size(raw, 0, len(raw)) == 0


def test_entry_whose_lengths_do_not_add_up() -> None:
    assert decode_entry(RAW[:19] + b"\x0d" + RAW[20:], 0, 34) is None


def test_addresses() -> None:
    assert address_of(0) == -9223372036854775808
    assert address_of(64) == -9223372036854775744
    assert address_of(64).to_bytes(8, "big", signed=True).hex() == "8000000000000040"
    assert offset_of(address_of(64)) == 64
    assert EXTENSION_OFFSET_MAX == 9223372034707292159
    assert is_address(-2147483649)
    assert not is_address(-2147483648)


def test_four_bytes_are_kept_free() -> None:
    assert fits(34, 0, 38)
    assert not fits(34, 1, 38)


def test_bloom_filter() -> None:
    bloom = BloomFilter.sized()
    assert bloom == BloomFilter(hashes=3, bits=112)
    assert murmur3_first_half(b"GroupA#TopicTest") == 0x4099A908411C9E8E
    assert bloom.positions("GroupA#TopicTest") == [105, 17, 70]
    assert bloom.bitmap(["GroupA#TopicTest"]) == BITMAP
    assert bloom.positions("SQLConsumerGroupName#vjr-points-mall-topic") == [14, 59, 39]


def test_murmur3_of_nothing() -> None:
    assert murmur3_first_half(b"") == 0


@given(st.lists(st.text(max_size=40), max_size=5))
@pytest.mark.slow(2)
def test_what_was_added_is_found(keys: list[str]) -> None:
    bloom = BloomFilter.sized()
    bitmap = bloom.bitmap(keys)
    assert all(may_contain(bitmap, bloom.positions(key)) for key in keys)


def test_a_shorter_bit_map_never_matches_a_position_beyond_it() -> None:
    assert not may_contain(b"\xff", [8])
    assert may_contain(b"\xff", [7])
