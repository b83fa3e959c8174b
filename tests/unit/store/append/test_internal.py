"""Messages of a broker's own: stored as they are, in topics that are closed to clients."""

from pathlib import Path

import pytest

from embermq import Message
from embermq.errors import BodyTooLarge, DiskFull, QueueIdInvalid, StoreClosed, StoreReadOnly, TopicNameInvalid
from embermq.model import flags
from embermq.model.properties import HALF_TOPIC, OP_TOPIC, REAL_QUEUE_ID, REAL_TOPIC, SCHEDULE_TOPIC
from embermq.settings import FlushDisk
from embermq.store.append import is_closed_to_clients, redirected
from embermq.testing.builder import StoreBuilder
from tests.crash.numbered import TINY


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", **TINY)


@pytest.mark.parametrize(
    ("topic", "closed"),
    [
        (SCHEDULE_TOPIC, True),
        (HALF_TOPIC, True),
        (OP_TOPIC, True),
        ("%RETRY%shop", False),
        ("%DLQ%shop", False),
        ("orders", False),
    ],
)
def test_topics_of_a_broker(builder: StoreBuilder, topic: str, closed: bool) -> None:
    assert is_closed_to_clients(topic) is closed
    with builder.open() as store:
        receipt = store.internal.append(Message(topic, b"x", queue_id=2, tags="d", reconsume_times=3))
        assert receipt.ok
        [stored] = store.fetch(topic, 2, 0).messages
        assert (stored.body, stored.tags, stored.reconsume_times) == (b"x", "d", 3)


def test_a_delay_level_is_data(builder: StoreBuilder) -> None:
    """A half message with a delay level waits in the half topic; only `append` parks."""
    with builder.open() as store:
        store.internal.append(Message(HALF_TOPIC, b"half", delay_level=3))
        store.append(Message("orders", b"parked", delay_level=3))
        assert store.fetch(HALF_TOPIC, 0, 0).messages[0].properties["DELAY"] == "3"
        assert set(store.topics()) == {HALF_TOPIC, SCHEDULE_TOPIC}


def test_a_transaction(builder: StoreBuilder) -> None:
    """A half message, its decision, and the message itself from the half one."""
    message = Message("orders", b"pay", queue_id=3, keys="o-1", sys_flag=flags.PREPARED | flags.MULTI_TAG)
    with builder.open() as store:
        half = redirected(message, HALF_TOPIC, 0, sys_flag=message.sys_flag & ~flags.TRANSACTION_MASK)
        store.internal.append(half)
        [stored] = store.fetch(HALF_TOPIC, 0, 0).messages
        assert stored.sys_flag == flags.MULTI_TAG
        assert (stored.properties[REAL_TOPIC], stored.properties[REAL_QUEUE_ID]) == ("orders", "3")
        receipts = store.internal.append_many(
            [
                Message("orders", stored.body, queue_id=3, sys_flag=flags.COMMIT, keys="o-1"),
                Message("orders", stored.body, queue_id=3, sys_flag=flags.ROLLBACK, prepared_transaction_offset=7),
                Message(OP_TOPIC, b"0", tags="d"),
            ],
            although_full=True,
        )
        assert [receipt.ok for receipt in receipts] == [True] * 3
        assert [one.body for one in store.fetch("orders", 3, 0).messages] == [b"pay"]
        rolled_back = store.at(receipts[1].physical_offset)
        assert rolled_back is not None
        assert rolled_back.sys_flag & flags.TRANSACTION_MASK == flags.ROLLBACK
        assert rolled_back.prepared_transaction_offset == 7
        assert store.internal.append_many([]) == []


def test_what_is_refused(builder: StoreBuilder) -> None:
    small = builder.changed(message_bytes_max=100)
    with small.open() as store:
        internal, end = store.internal, store.max_physical
        with pytest.raises(BodyTooLarge):
            internal.append(Message(HALF_TOPIC, bytes(101)))
        with pytest.raises(TopicNameInvalid):
            internal.append_many([Message(HALF_TOPIC), Message("no spaces please")])
        with pytest.raises(QueueIdInvalid):
            redirected(Message("orders", queue_id=-1), HALF_TOPIC, 0)
        with pytest.raises(TopicNameInvalid):
            redirected(Message(""), HALF_TOPIC, 0)
        assert store.max_physical == end
    with pytest.raises(StoreClosed):
        internal.append(Message(HALF_TOPIC))
    with small.open(read_only=True) as reader, pytest.raises(StoreReadOnly):
        _ = reader.internal


def test_past_the_mark_of_a_full_disk_only_if_asked(builder: StoreBuilder) -> None:
    with builder.open() as store:
        full = DiskFull("91% full")
        store.engine.writer.refuse_while_full(full)
        with pytest.raises(DiskFull):
            store.internal.append(Message(OP_TOPIC, b"0"))
        assert store.internal.append(Message(OP_TOPIC, b"0"), although_full=True).ok
        store.engine.writer.refuse_while_full(None)


def test_durable_when_the_settings_promise_it(builder: StoreBuilder) -> None:
    with builder.changed(flush=FlushDisk.SYNC).open() as store:
        receipt = store.internal.append(Message(HALF_TOPIC, b"x"))
        assert store.flushed_offset >= receipt.physical_offset + receipt.size


@pytest.mark.parametrize("flush", [FlushDisk.ASYNC, FlushDisk.SYNC])
def test_messages_side_by_side_without_a_wait(builder: StoreBuilder, flush: FlushDisk) -> None:
    with builder.changed(flush=flush).open() as store:
        for number in range(60):  # More than one log file.
            pair = [Message("orders", bytes(300)), Message(OP_TOPIC, b"%d" % number, tags="d")]
            receipts, end = store.internal.append_unconfirmed(pair, as_is=True)
            first, last = receipts
            assert last.physical_offset == first.physical_offset + first.size
            assert end == (last.physical_offset + last.size if flush is FlushDisk.SYNC else 0)


def test_a_delay_level_takes_effect_where_it_should(builder: StoreBuilder) -> None:
    with builder.open() as store:
        delayed = Message("orders", b"later", delay_level=3)
        store.internal.append_unconfirmed([delayed, Message(OP_TOPIC, b"0")], as_is=False)
        assert set(store.topics()) == {SCHEDULE_TOPIC, OP_TOPIC}
        store.internal.append_unconfirmed([delayed], as_is=True)
        assert set(store.topics()) == {SCHEDULE_TOPIC, OP_TOPIC, "orders"}


def test_one_bad_message_of_several_leaves_nothing(builder: StoreBuilder) -> None:
    with builder.open() as store:
        with pytest.raises(TopicNameInvalid):
            store.internal.append_unconfirmed([Message("orders"), Message("no spaces please")], as_is=False)
        assert store.max_physical == 0
