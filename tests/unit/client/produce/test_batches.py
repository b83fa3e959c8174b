"""Many messages in few requests."""

import pytest

from embermq.client.produce.batches import SendBatch, split
from embermq.client.produce.outgoing import Packer
from embermq.client.produce.settings import producer_settings
from embermq.client.produce.unique_ids import UniqueIds
from embermq.errors import BodyTooLarge
from embermq.format.client_batch import decode_batch_items
from embermq.model.message import Message
from embermq.model.properties import decode_properties


def batches(*messages: Message, bytes_max: int = 1000) -> list[SendBatch]:
    return split(messages, Packer(producer_settings("x:1", "g", {}), UniqueIds("10.0.0.1")), bytes_max)


def bodies(batch: SendBatch) -> list[bytes]:
    wire = batch.outgoing.wire
    return [item.body for item in decode_batch_items(wire.body)] if wire.is_batch else [wire.body]


def test_messages_of_one_topic_go_together() -> None:
    (batch,) = batches(Message("T", b"1", tags="a", flag=3), Message("T", b"2"))
    assert batch.places == [0, 1]
    wire = batch.outgoing.wire
    assert (wire.topic, wire.is_batch, wire.properties, wire.flag) == ("T", True, "", 0)
    first, second = decode_batch_items(wire.body)
    assert (first.body, first.flag, second.body) == (b"1", 3, b"2")
    assert decode_properties(first.encoded_properties or b"") == {"TAGS": "a", "UNIQ_KEY": batch.ids[0]}
    assert decode_properties(second.encoded_properties or b"") == {"UNIQ_KEY": batch.ids[1]}


def test_batches_are_split_by_size_in_order() -> None:
    made = batches(*(Message("T", b"%d" % number * 100) for number in range(10)), bytes_max=500)
    assert [place for batch in made for place in batch.places] == list(range(10))
    assert all(len(batch.outgoing.wire.body) <= 500 for batch in made)
    assert [body[:1] for batch in made for body in bodies(batch)] == [b"%d" % number for number in range(10)]
    assert 3 <= len(made) <= 5


def test_topics_and_waiting_are_apart() -> None:
    made = batches(
        Message("T", b"1"),
        Message("S", b"2"),
        Message("T", b"3"),
        Message("T", b"4", wait_for_store=False),
        Message("T", b"5", wait_for_store=False),
        Message("S", b"6"),
    )
    assert sorted(batch.places for batch in made) == [[0, 2], [1, 5], [3, 4]]
    unwaited = next(batch for batch in made if batch.places == [3, 4])
    assert unwaited.outgoing.wire.properties == "WAIT\x01false"


@pytest.mark.parametrize(
    "alone",
    [
        Message("T", b"x" * 5000),
        Message("T", b"x", delay_level=2),
        Message("T", b"x", properties={"TIMER_DELAY_SEC": "60"}),
    ],
)
def test_large_and_delayed_messages_go_alone_in_their_place(alone: Message) -> None:
    made = batches(Message("T", b"1"), Message("T", b"2"), alone, Message("T", b"3"), Message("T", b"4"))
    assert [batch.places for batch in made] == [[0, 1], [2], [3, 4]]
    assert not made[1].outgoing.wire.is_batch
    assert made[1].ids == [made[1].outgoing.message_id]


def test_one_message_is_no_batch() -> None:
    (batch,) = batches(Message("T", b"1"))
    assert not batch.outgoing.wire.is_batch
    assert batches() == []


def test_one_bad_message_keeps_all_from_being_sent() -> None:
    with pytest.raises(BodyTooLarge):
        batches(Message("T", b"1"), Message("T", b"x" * (5 << 20)))
