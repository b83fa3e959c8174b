"""Transactions of a store that RocketMQ's broker wrote: what is undecided in it, and the same records made here."""

from pathlib import Path
from typing import Any

import pytest

from embermq.broker.transactions.half_messages import decided_by, final_of, given_up_of, op_of, real_place
from embermq.model import flags
from embermq.model.message import Message, StoredMessage
from embermq.model.properties import HALF_TOPIC, OP_TOPIC
from embermq.store import MessageStore
from tests.support import golden
from tests.support.brokers import RunningBroker, play


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[StoredMessage]:
    path = golden.restore("transaction", tmp_path_factory.mktemp("golden"))
    with MessageStore.open(path, read_only=True) as store:
        return list(store.scan())


def fields(message: Message | StoredMessage) -> tuple[Any, ...]:
    properties = message.property_bytes() if isinstance(message, Message) else message.property_bytes
    sys_flag = message.sys_flag & ~flags.HOST_V6_MASK
    return message.topic, message.queue_id, message.body, message.flag, sys_flag, properties


def test_op_records_are_the_same(records: list[StoredMessage]) -> None:
    ops = [one for one in records if one.topic == OP_TOPIC]
    assert len(ops) == 15
    for op in ops:
        [offset] = decided_by(op)
        assert fields(op_of(offset)) == fields(op)


def test_committed_messages_are_the_same(records: list[StoredMessage]) -> None:
    by_place = {one.physical_offset: one for one in records}
    committed = [one for one in records if one.sys_flag & flags.TRANSACTION_MASK == flags.COMMIT]
    assert len(committed) == 9
    for message in committed:
        half = by_place[message.prepared_transaction_offset]
        place = real_place(half)
        assert place is not None
        made = final_of(half, place)
        assert fields(made) == fields(message)
        assert made.prepared_transaction_offset == message.prepared_transaction_offset
        assert (made.born_timestamp, made.store_host) == (message.born_timestamp, message.store_host)


def test_given_up_messages_are_the_same(records: list[StoredMessage]) -> None:
    given_up = [one for one in records if one.topic == "TRANS_CHECK_MAX_TIME_TOPIC"]
    halves = {one.property_bytes: one for one in records if one.topic == HALF_TOPIC}
    assert len(given_up) == 3
    for message in given_up:
        assert fields(given_up_of(halves[message.property_bytes], 3)) == fields(message)


def test_the_offsets_of_rocketmq_say_that_all_is_decided(tmp_path: Path) -> None:
    golden.restore("transaction", tmp_path)

    async def scenario(broker: RunningBroker) -> None:
        undecided = broker.broker.transactions.undecided
        assert (len(undecided), undecided.half_end, undecided.op_end) == (0, 33, 15)
        assert broker.broker.topics.find(OP_TOPIC) is None

    sizes = {"segment_bytes": golden_segment_bytes(tmp_path), "queue_file_bytes": golden_queue_bytes(tmp_path)}
    play(scenario, tmp_path, store=sizes)


def test_without_those_offsets_nothing_undecided_is_forgotten(tmp_path: Path) -> None:
    """The copies that RocketMQ stores with each check are undecided then, as they would be for its own broker."""
    path = golden.restore("transaction", tmp_path)
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (path / "config" / name).unlink()

    async def scenario(broker: RunningBroker) -> None:
        decided = {0, 1, 5, 6, 7, 11, 12, 13, 17, 18, 19, 21, 22, 24, 25}
        assert set(broker.broker.transactions.undecided) == set(range(33)) - decided

    sizes = {"segment_bytes": golden_segment_bytes(tmp_path), "queue_file_bytes": golden_queue_bytes(tmp_path)}
    play(scenario, tmp_path, store=sizes)


def golden_segment_bytes(path: Path) -> int:
    return next((path / "store" / "commitlog").iterdir()).stat().st_size


def golden_queue_bytes(path: Path) -> int:
    return next((path / "store" / "consumequeue" / "TxTopic" / "0").iterdir()).stat().st_size
