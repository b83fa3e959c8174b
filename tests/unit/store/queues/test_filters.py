"""Filters in two stages: tags, conditions of consumer groups, and the bits that registered ones leave behind."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from embermq import Message, MessageStore, StoreSettings
from embermq.errors import StoreError
from embermq.format.java import string_hash
from embermq.format.queue_extension import BloomFilter, ExtensionEntry
from embermq.model.properties import decode_properties, property_value
from embermq.model.status import FetchStatus
from embermq.sql92 import compile_expression
from embermq.store.queues.filters import FilterBits, GroupFilter, PropertyFilter, TagFilter, as_filter

SETTINGS = StoreSettings(
    segment_bytes=256 << 10,
    queue_file_bytes=20 * 1000,
    index_slots_max=10,
    index_entries_max=1000,
    disk_full_percent=100,
)


def codes(*tags: str) -> NDArray[np.int64]:
    return np.array([string_hash(tag) if tag else 0 for tag in tags], np.int64)


def test_tags_by_hash_then_by_text() -> None:
    one = TagFilter(frozenset(["AaAa"]))
    assert one.matches_entry(codes("AaAa", "BBBB", "paid", ""), None).tolist() == [True, True, False, False]
    assert one.matches_record(b"KEYS\x01k\x02TAGS\x01AaAa")
    assert not one.matches_record(b"TAGS\x01BBBB")
    assert not one.matches_record(b"")
    two = TagFilter(frozenset(["paid", "sent"]))
    assert two.matches_entry(codes("sent", "lost", "paid"), None).tolist() == [True, False, True]
    high_bits = codes("sent") + (7 << 32)  # Only the low 32 bits are compared.
    assert two.matches_entry(high_bits, None).tolist() == [True]


def test_expressions() -> None:
    assert as_filter(None) is as_filter("*") is as_filter("") is as_filter(" || ") is None
    found = as_filter(" paid||sent ||")
    assert isinstance(found, TagFilter)
    assert found.tags == {"paid", "sent"}
    assert as_filter(found) is found


pieces = st.sampled_from([b"TAGS", b"\x01", b"\x02", b"a", b"TAG", b"\xff", "ü".encode()])


@given(st.lists(pieces, max_size=12).map(b"".join))
def test_one_property_is_found_as_all_are(encoded: bytes) -> None:
    found = property_value(encoded, b"TAGS")
    assert (None if found is None else found.decode("utf-8", "replace")) == decode_properties(encoded).get("TAGS")


def big(properties: bytes) -> bool:
    return int(property_value(properties, b"amount") or b"0") > 100


def test_a_group_filter_asks_bits_only_where_they_say_something() -> None:
    bloom = BloomFilter.sized()
    wanted = GroupFilter("orders", "group", big, registered_ms=1000)
    mine, other = bloom.bitmap([wanted.key]), bloom.bitmap([])
    rows = [
        (ExtensionEntry(0, 1001, mine), True),
        (ExtensionEntry(0, 1001, other), False),
        (ExtensionEntry(0, 1000, other), True),  # Stored before the filter was known.
        (ExtensionEntry(0, 1001, b""), True),
        (ExtensionEntry(0, 1001, other + b"\0"), True),  # Bits of another length.
        (None, True),
    ]
    tag_codes = np.zeros(len(rows), np.int64)
    assert wanted.matches_entry(tag_codes, [entry for entry, _ in rows]).tolist() == [answer for _, answer in rows]
    assert wanted.matches_entry(tag_codes, None).all()
    assert wanted.matches_record(b"amount\x01101")
    assert not wanted.matches_record(b"amount\x01ten")  # What raises does not match.


def test_registered_filters_fill_the_extension(tmp_path: Path) -> None:
    bits = FilterBits()
    asked: list[bytes] = []

    def counted(properties: bytes) -> bool:
        asked.append(properties)
        return big(properties)

    settings = SETTINGS.replace(queue_extension=True)
    with MessageStore.open(tmp_path, settings, bit_map_for=bits) as store:

        def append(*amounts: int) -> None:
            store.append_many(Message("orders", properties={"amount": str(amount)}) for amount in amounts)
            assert store.wait_for_dispatch()

        append(500)  # Nothing is registered: no bits, so the record itself is asked.
        remove = bits.register(GroupFilter("orders", "group", big))
        append(*range(1, 20), 200, *range(20, 30))
        reader = GroupFilter("orders", "group", counted)
        for answer in (
            [one.properties["amount"] for one in store.fetch("orders", 0, 0, tags=reader).messages],
            store.read_raw("orders", 0, 0, filter=reader).count,
        ):
            assert answer in (["500", "200"], 2)
            assert len(asked) < 15, "bits have spared none of them"
            asked.clear()
        remove()
        append(300)
        read = store.read_raw("orders", 0, 31, filter=reader)
        assert (read.status, read.count) == (FetchStatus.FOUND, 1)
        assert store.read_raw("orders", 0, 31, filter="*").count == 1


def test_registering_again_replaces_the_filter_of_a_group() -> None:
    bits = FilterBits()
    first = bits.register(GroupFilter("orders", "group", big))
    bits.register(GroupFilter("orders", "group", lambda _: False))
    bits.register(GroupFilter("orders", "other", big))
    assert [one.group for one in bits._filters["orders"]] == ["group", "other"]
    first()  # It is no more there.
    assert len(bits._filters["orders"]) == 2
    with pytest.raises(ValueError, match="this store has 112"):
        bits.register(GroupFilter("orders", "third", big, bloom=BloomFilter.sized(keys=8)))


class Wrong:
    def matches_entry(self, tag_codes: NDArray[np.int64], extensions: object) -> NDArray[np.bool_]:
        return np.ones(1, np.bool_)

    def matches_record(self, properties: bytes) -> bool:
        raise ZeroDivisionError


def test_a_filter_that_answers_nonsense(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SETTINGS) as store:
        store.append_many(Message("orders", b"x") for _ in range(3))
        store.wait_for_dispatch()
        with pytest.raises(StoreError, match="when asked about 3 entries"):
            store.fetch("orders", 0, 0, tags=Wrong())
        with pytest.raises(StoreError, match="when asked about 3 entries"):
            store.read_raw("orders", 0, 0, filter=Wrong())
        with pytest.raises(ZeroDivisionError):  # What a filter raises is for its author.
            store.read_raw("orders", 0, 2, filter=Wrong())


def test_a_condition_without_a_group(tmp_path: Path) -> None:
    """Fetch and read_raw ask it about each record, and answer the same."""
    wanted = PropertyFilter(compile_expression("n BETWEEN 10 AND 12 OR n > 97").matches)
    with MessageStore.open(tmp_path, SETTINGS) as store:
        for n in range(100):
            store.append(Message("orders", b"%d" % n, properties={"n": str(n)}))
        store.wait_for_dispatch()
        fetched = store.fetch("orders", 0, 0, 32, wanted)
        raw = store.read_raw("orders", 0, 0, 32, filter=wanted)
    assert [message.body for message in fetched.messages] == [b"10", b"11", b"12", b"98", b"99"]
    assert (raw.count, raw.next_offset, raw.status) == (5, 100, fetched.status)
    assert raw.next_offset == fetched.next_offset
