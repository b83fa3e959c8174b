"""Client batches, on the worked example and on bodies that do not add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.errors import BatchInvalid
from embermq.format.client_batch import decode_batch_items, encode_batch_items
from embermq.format.frame import encode
from embermq.model.hosts import Host
from embermq.model.message import BatchItem

BODY = bytes.fromhex(
    "0000002700000000000000000000000000000001780010574149540174727565"
    "025441475301410000002800000000000000000000000300000002797a001057"
    "414954017472756502544147530141"
)
RECORDS = [
    "00000077daa320a70cdc16830000000200000000000000000000000a0000000000001000000000000000018bcfe568000a0000010000c350"
    "0000018bcfe56be7c0a8016400002a9f00000000000000000000000000000001780154001a57414954017472756502544147530141"
    "02434c55535445520163",
    "00000078daa320a70ff448620000000200000003000000000000000b0000000000001077000000000000018bcfe568000a0000010000c350"
    "0000018bcfe56be7c0a8016400002a9f00000000000000000000000000000002797a0154001a57414954017472756502544147530141"
    "02434c55535445520163",
]
PROPERTIES = b"WAIT\x01true\x02TAGS\x01A"
ITEMS = [BatchItem(b"x", encoded_properties=PROPERTIES), BatchItem(b"yz", flag=3, encoded_properties=PROPERTIES)]


def test_worked_example() -> None:
    assert encode_batch_items(ITEMS) == BODY
    assert decode_batch_items(BODY) == ITEMS
    assert decode_batch_items(memoryview(BODY)) == ITEMS


def test_records_of_the_worked_example() -> None:
    physical = 4096
    for i, item in enumerate(decode_batch_items(BODY)):
        record = encode(
            physical_offset=physical,
            queue_id=2,
            queue_offset=10 + i,
            topic="T",
            body=item.body,
            flag=item.flag,
            properties=item.property_bytes() + b"\x02CLUSTER\x01c",
            born_timestamp=1700000000000,
            born_host=Host("10.0.0.1", 50000),
            store_timestamp=1700000000999,
            store_host=Host("192.168.1.100", 10911),
        )
        assert record.hex() == RECORDS[i]
        physical += len(record)


def test_nothing_is_an_empty_batch() -> None:
    assert decode_batch_items(b"") == []


@pytest.mark.parametrize("cut", [1, 21, 38, 40, 78])
def test_cut_bodies(cut: int) -> None:
    with pytest.raises(BatchInvalid):
        decode_batch_items(BODY[:cut])


@given(st.integers(0, len(BODY) - 1), st.binary(min_size=1, max_size=4))
def test_damaged_bodies_are_read_or_refused(at: int, new: bytes) -> None:
    damaged = (BODY[:at] + new + BODY[at + len(new) :])[: len(BODY)]
    try:
        items = decode_batch_items(damaged)
    except BatchInvalid:
        return
    assert sum(22 + len(item.body) + len(item.property_bytes()) for item in items) == len(damaged)
