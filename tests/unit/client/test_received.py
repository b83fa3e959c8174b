"""Stored records as messages."""

import zlib

import pytest

from embermq.client.message_queue import MessageQueue
from embermq.client.received import parse_record, parse_records
from embermq.errors import AnswerInvalid, CorruptFrame
from embermq.format.frame import MESSAGE_MAGIC, MESSAGE_MAGIC_V2, encode
from embermq.model.hosts import Host
from embermq.model.properties import encode_properties


def record(body: bytes = b"hello", sys_flag: int = 0, magic: int = MESSAGE_MAGIC, **properties: str) -> bytes:
    return encode(
        physical_offset=4711,
        queue_id=3,
        queue_offset=17,
        topic="orders",
        body=body,
        properties=encode_properties(properties),
        born_timestamp=1,
        born_host=Host("10.0.0.1", 5000),
        store_timestamp=2,
        store_host=Host("127.0.0.1", 20911),
        flag=5,
        sys_flag=sys_flag,
        reconsume_times=2,
        magic=magic,
    )


@pytest.mark.parametrize("magic", [MESSAGE_MAGIC, MESSAGE_MAGIC_V2])
def test_a_record_has_every_field(magic: int) -> None:
    message = parse_record(record(magic=magic, TAGS="paid", KEYS="o-1 o-2", UNIQ_KEY="U", DELAY="3"), "broker-a")
    assert message.topic == "orders"
    assert message.queue == MessageQueue("orders", "broker-a", 3)
    assert (message.queue_offset, message.physical_offset, message.flag) == (17, 4711, 5)
    assert (message.body, message.tags, message.keys, message.delay_level) == (b"hello", "paid", ["o-1", "o-2"], 3)
    assert (message.born_timestamp, message.store_timestamp, message.reconsume_times) == (1, 2, 2)
    assert (message.born_host, message.store_host) == (Host("10.0.0.1", 5000), Host("127.0.0.1", 20911))
    assert message.message_id == message.transaction_id == "U"
    assert message.offset_message_id == "7F000001000051AF0000000000001267"


def test_without_a_unique_key_the_id_is_the_brokers() -> None:
    message = parse_record(record(), "b")
    assert message.message_id == message.offset_message_id
    assert (message.tags, message.keys, message.delay_level, message.transaction_id) == (None, [], 0, None)


def test_several_records_lie_one_behind_another() -> None:
    bodies = [b"a", b"", b"ccc" * 100]
    assert [message.body for message in parse_records(b"".join(map(record, bodies)), "b")] == bodies
    assert parse_records(b"", "b") == []


@pytest.mark.parametrize("sys_flag", [0x1, 0x301])
def test_bodies_are_decompressed_when_looked_at(sys_flag: int) -> None:
    message = parse_record(record(zlib.compress(b"x" * 5000), sys_flag), "b")
    assert len(message.stored_body) < 100
    assert message.body == b"x" * 5000


def test_a_body_that_does_not_decompress_spares_its_neighbours() -> None:
    bad, good = parse_records(record(b"no zlib", 1) + record(b"good"), "b")
    assert good.body == b"good"
    with pytest.raises(CorruptFrame, match="4711"):
        _ = bad.body


@pytest.mark.parametrize(
    "spoil", [lambda raw: raw[:-1], lambda raw: raw + b"\0" * 9, lambda raw: raw[:90] + b"?" + raw[91:]]
)
def test_records_that_do_not_add_up_are_named_with_their_broker(spoil) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(AnswerInvalid, match="broker-a"):
        parse_records(spoil(record()), "broker-a")


def test_one_record_is_one() -> None:
    with pytest.raises(AnswerInvalid, match="2 records"):
        parse_record(record() * 2, "b")
