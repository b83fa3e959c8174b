"""Half messages and their decisions through the wire: a test for each row of the table of states."""

import asyncio
from pathlib import Path

import pytest

from embermq.broker.transactions.states import TRANSITIONS, Event, State
from embermq.model import flags
from embermq.model.properties import HALF_TOPIC, SCHEDULE_TOPIC
from embermq.remoting import RequestCode, ResponseCode
from embermq.settings import BrokerRole, FlushDisk
from embermq.testing import ManualClock
from tests.support.brokers import RunningBroker, play
from tests.support.transactions import (
    COMMIT,
    ROLLBACK,
    TOPIC,
    UNKNOWN,
    TransactionProducer,
    halves,
    ops,
    visible,
)

DECISIONS = {Event.COMMIT: COMMIT, Event.ROLLBACK: ROLLBACK}


def test_a_half_message_is_stored_and_seen_by_no_consumer(tmp_path: Path) -> None:
    producer = TransactionProducer()

    async def scenario(broker: RunningBroker) -> None:
        answer = await producer.prepare(broker)
        assert answer.ext is not None
        [half] = await halves(broker)
        assert (answer.ext["msgId"], answer.ext["queueOffset"], answer.ext["queueId"]) == (half.message_id, "0", "2")
        assert (half.body, half.sys_flag & flags.TRANSACTION_MASK, half.queue_id) == (b"pay", 0, 0)
        kept = {"REAL_TOPIC": TOPIC, "REAL_QID": "2", "TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "Upay"}
        assert half.properties.items() >= kept.items()
        assert await visible(broker) == []
        assert broker.broker.topics.find(HALF_TOPIC) is not None
        assert list(broker.broker.transactions.undecided) == [0]

    play(scenario, tmp_path)


@pytest.mark.parametrize("flush", [FlushDisk.ASYNC, FlushDisk.SYNC])
def test_a_commit_makes_it_visible(tmp_path: Path, flush: FlushDisk) -> None:
    producer = TransactionProducer()

    async def scenario(broker: RunningBroker) -> None:
        half = await producer.prepare(broker)
        answer = await producer.end(broker, half, COMMIT)
        assert (answer.code, answer.remark) == (0, None)
        if flush is FlushDisk.SYNC:
            assert broker.store.flushed_offset == broker.store.max_physical
        [message], [record] = await visible(broker), await halves(broker)
        assert (message.body, message.queue_id, message.flag) == (b"pay", 2, record.flag)
        assert message.sys_flag & flags.TRANSACTION_MASK == flags.COMMIT
        assert message.prepared_transaction_offset == record.physical_offset
        assert message.property_bytes == record.property_bytes
        assert (message.born_timestamp, message.born_host) == (record.born_timestamp, record.born_host)
        assert await ops(broker) == [b"0"]
        assert len(broker.broker.transactions.undecided) == 0

    play(scenario, tmp_path, store={"flush": flush})


def test_a_rollback_leaves_nothing_visible(tmp_path: Path) -> None:
    producer = TransactionProducer()

    async def scenario(broker: RunningBroker) -> None:
        half = await producer.prepare(broker)
        assert (await producer.end(broker, half, ROLLBACK)).code == 0
        assert await visible(broker) == []
        assert await ops(broker) == [b"0"]

    play(scenario, tmp_path)


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
def test_a_second_decision_changes_nothing(tmp_path: Path, first: int, second: int) -> None:
    producer = TransactionProducer()

    async def scenario(broker: RunningBroker) -> None:
        half = await producer.prepare(broker)
        await producer.end(broker, half, first)
        end = broker.store.max_physical
        again = await producer.end(broker, half, second)
        assert (again.code, "decided before" in (again.remark or "")) == (0, True)
        assert broker.store.max_physical == end
        assert len(await visible(broker)) == (first == COMMIT)

    play(scenario, tmp_path)


def test_unknown_is_not_answered_and_changes_nothing(tmp_path: Path) -> None:
    producer = TransactionProducer()

    async def scenario(broker: RunningBroker) -> None:
        half = await producer.prepare(broker)
        later = asyncio.ensure_future(producer.end(broker, half, UNKNOWN))
        assert (await producer.end(broker, half, COMMIT)).code == 0
        assert (await producer.end(broker, half, UNKNOWN + 4, commitOrRollback=COMMIT)).code == 0
        assert not later.done()
        later.cancel()
        assert await ops(broker) == [b"0"]

    play(scenario, tmp_path)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"commitLogOffset": 1 << 40}, "no half message"),
        ({"commitLogOffset": -1}, "no half message"),
        ({"producerGroup": "other"}, "producer group wrong"),
        ({"tranStateTableOffset": 7}, "state table offset wrong"),
    ],
)
@pytest.mark.parametrize("event", DECISIONS)
def test_an_end_that_names_no_half_message(
    tmp_path: Path, changed: dict[str, int | str], why: str, event: Event
) -> None:
    assert TRANSITIONS[State.NONE, event].answer == "1"
    producer = TransactionProducer()

    async def scenario(broker: RunningBroker) -> None:
        half = await producer.prepare(broker)
        answer = await producer.end(broker, half, DECISIONS[event], **changed)
        assert (answer.code, why in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        assert await ops(broker) == []
        assert list(broker.broker.transactions.undecided) == [0]

    play(scenario, tmp_path)


def test_an_ordinary_message_cannot_be_committed(tmp_path: Path) -> None:
    producer = TransactionProducer()

    async def scenario(broker: RunningBroker) -> None:
        sent = await broker.send(TOPIC, b"plain", "PGROUP\x01pg")
        answer = await producer.end(broker, sent, COMMIT)
        assert (answer.code, "no half message" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)

    play(scenario, tmp_path)


def test_a_delay_takes_effect_after_the_commit(tmp_path: Path) -> None:
    producer = TransactionProducer()

    async def scenario(broker: RunningBroker) -> None:
        half = await producer.prepare(broker, more="\x02DELAY\x0118")
        assert [one.properties["DELAY"] for one in await halves(broker)] == ["18"]
        await producer.end(broker, half, COMMIT)
        assert await visible(broker) == []
        [parked] = await broker.stored(SCHEDULE_TOPIC, 17)
        assert (parked.properties["REAL_TOPIC"], parked.properties["REAL_QID"]) == (TOPIC, "2")

    play(scenario, tmp_path)


def test_transactions_may_be_refused(tmp_path: Path) -> None:
    producer = TransactionProducer()

    async def scenario(broker: RunningBroker) -> None:
        answer = await producer.prepare(broker)
        assert (answer.code, "transaction message is forbidden" in (answer.remark or "")) == (16, True)
        assert broker.store.max_physical == 0

    play(scenario, tmp_path, reject_transactions=True)


def test_the_number_of_undecided_transactions_is_bounded(tmp_path: Path) -> None:
    producer = TransactionProducer()

    async def scenario(broker: RunningBroker) -> None:
        first = await producer.prepare(broker)
        refused = await producer.prepare(broker)
        assert (refused.code, "emberMaxUndecidedTransactions" in (refused.remark or "")) == (2, True)
        await producer.end(broker, first, ROLLBACK)
        assert (await producer.prepare(broker)).code == 0

    play(scenario, tmp_path, undecided_max=1)


def test_a_batch_begins_no_transaction(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        answer = await broker.send(TOPIC, b"x", "TRAN_MSG\x01true", m=True)
        assert (answer.code, "batch" in (answer.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)

    play(scenario, tmp_path)


def test_a_slave_ends_no_transaction(tmp_path: Path) -> None:
    producer = TransactionProducer()

    async def scenario(broker: RunningBroker) -> None:
        half = await producer.prepare(broker)
        broker.store.set_role(BrokerRole.SLAVE)
        assert (await producer.end(broker, half, COMMIT)).code == ResponseCode.SLAVE_NOT_AVAILABLE

    play(scenario, tmp_path)


def test_a_store_that_refuses_leaves_it_undecided(tmp_path: Path) -> None:
    producer = TransactionProducer()

    async def scenario(broker: RunningBroker) -> None:
        half = await producer.prepare(broker)
        broker.store.set_writable(False)
        assert (await producer.end(broker, half, COMMIT)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        broker.store.set_writable(True)
        assert (await producer.end(broker, half, COMMIT)).code == 0
        assert len(await visible(broker)) == 1

    play(scenario, tmp_path)


def test_a_given_up_transaction_is_resumed(tmp_path: Path) -> None:
    producer, clock = TransactionProducer(), ManualClock()

    async def scenario(broker: RunningBroker) -> None:
        await producer.prepare(broker, g=clock.now_ms())
        clock.advance(s=10)
        done = await broker.broker.transactions.check()
        assert (done.given_up, done.checked) == (1, 0)
        [given_up] = await broker.stored("TRANS_CHECK_MAX_TIME_TOPIC")
        assert (given_up.body, given_up.properties["REAL_TOPIC"]) == (b"pay", TOPIC)
        assert await ops(broker) == [b"0"]
        answer = await broker.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": given_up.message_id})
        assert answer.code == 0
        [_first, again] = await halves(broker)
        assert (again.properties["TRANSACTION_CHECK_TIMES"], list(broker.broker.transactions.undecided)) == ("0", [1])
        fields = end_fields_of(again.queue_offset, again.physical_offset)
        assert (await broker.call(RequestCode.END_TRANSACTION, fields)).code == 0
        assert [one.body for one in await visible(broker)] == [b"pay"]

    play(scenario, tmp_path, clock=clock, transaction_checks_max=0, client_table=producer.table)


def end_fields_of(queue_offset: int, physical_offset: int) -> dict[str, object]:
    return {
        "producerGroup": "pg",
        "tranStateTableOffset": queue_offset,
        "commitLogOffset": physical_offset,
        "commitOrRollback": COMMIT,
    }


@pytest.mark.parametrize("message_id", ["", "zz", "7F00000100002A9F0000000000FFFFFF"])
def test_what_cannot_be_resumed(tmp_path: Path, message_id: str) -> None:
    async def scenario(broker: RunningBroker) -> None:
        answer = await broker.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        plain = await broker.send(TOPIC, b"plain")
        assert plain.ext is not None
        ordinary = await broker.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": plain.ext["msgId"]})
        assert (ordinary.code, "no half message" in (ordinary.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)

    play(scenario, tmp_path)


def test_the_table_of_states_has_every_decision() -> None:
    for state in State:
        for event in DECISIONS:
            assert (state, event) in TRANSITIONS
