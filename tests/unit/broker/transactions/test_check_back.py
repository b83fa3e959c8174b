"""Rounds of checks under a clock that a test moves: who is asked when, what the question says, when it ends."""

import json
from pathlib import Path

import pytest

from embermq.model.properties import HALF_TOPIC, OP_TOPIC
from embermq.remoting import Connector, RequestCode
from embermq.testing import ManualClock
from tests.support.brokers import RunningBroker, play, until
from tests.support.transactions import (
    COMMIT,
    TOPIC,
    TransactionProducer,
    config_file,
    halves,
    ops,
    stored_of,
    visible,
)


def test_an_undecided_transaction_is_asked_about(tmp_path: Path) -> None:
    producer, clock = TransactionProducer(), ManualClock()

    async def scenario(broker: RunningBroker) -> None:
        transactions = broker.broker.transactions
        await broker.heartbeat("c1", producers=["pg"])
        await producer.prepare(broker, g=clock.now_ms())
        clock.advance(s=5.999)
        assert (await transactions.check()).checked == 0
        clock.advance(s=0.001)
        assert (await transactions.check()).checked == 1
        await until(lambda: len(producer.asked) == 1)
        [question], [half] = producer.asked, await halves(broker)
        assert (question.code, question.is_oneway) == (RequestCode.CHECK_TRANSACTION_STATE, True)
        assert question.ext == {
            "tranStateTableOffset": "0",
            "commitLogOffset": str(half.physical_offset),
            "msgId": "Upay",
            "transactionId": "Upay",
            "offsetMsgId": half.message_id,
        }
        shown = stored_of(question.body)
        assert (shown.topic, shown.queue_id, shown.body) == (TOPIC, 2, b"pay")
        assert (shown.queue_offset, shown.physical_offset) == (half.queue_offset, half.physical_offset)
        assert shown.properties["TRANSACTION_CHECK_TIMES"] == "1"
        # Nothing is stored for a question, and the answer to it commits.
        assert len(await halves(broker)) == 1
        end = {
            "producerGroup": "pg",
            "tranStateTableOffset": question.ext["tranStateTableOffset"],
            "commitLogOffset": question.ext["commitLogOffset"],
            "commitOrRollback": COMMIT,
            "fromTransactionCheck": True,
        }
        assert (await broker.call(RequestCode.END_TRANSACTION, end)).code == 0
        [message] = await visible(broker)
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert (await transactions.check()).checked == 0

    play(scenario, tmp_path, clock=clock, client_table=producer.table)


def test_fifteen_questions_and_no_more(tmp_path: Path) -> None:
    producer, clock = TransactionProducer(), ManualClock()

    async def scenario(broker: RunningBroker) -> None:
        transactions = broker.broker.transactions
        await broker.heartbeat("c1", producers=["pg"])
        await producer.prepare(broker, g=clock.now_ms())
        for _ in range(15):
            clock.advance(s=60)
            assert (await transactions.check()).checked == 1
        clock.advance(s=60)
        done = await transactions.check()
        assert (done.checked, done.given_up) == (0, 1)
        await until(lambda: len(producer.asked) == 15)
        times = [stored_of(question.body).properties["TRANSACTION_CHECK_TIMES"] for question in producer.asked]
        assert times == [str(number) for number in range(1, 16)]
        [given_up] = await broker.stored("TRANS_CHECK_MAX_TIME_TOPIC")
        assert given_up.properties["TRANSACTION_CHECK_TIMES"] == "15"
        assert broker.broker.topics.find("TRANS_CHECK_MAX_TIME_TOPIC") is not None
        assert await ops(broker) == [b"0"]

    play(scenario, tmp_path, clock=clock, client_table=producer.table)


def test_a_question_that_reaches_no_producer_counts(tmp_path: Path) -> None:
    producer, clock = TransactionProducer(), ManualClock()

    async def scenario(broker: RunningBroker) -> None:
        await producer.prepare(broker, g=clock.now_ms())
        clock.advance(s=60)
        assert (await broker.broker.transactions.check()).checked == 0
        entry = broker.broker.transactions.undecided.entry(0)
        assert entry is not None
        assert entry.checks == 1

    play(scenario, tmp_path, clock=clock, client_table=producer.table)


def test_the_count_of_questions_survives_a_restart(tmp_path: Path) -> None:
    producer, clock = TransactionProducer(), ManualClock()

    async def first(broker: RunningBroker) -> None:
        await producer.prepare(broker, g=clock.now_ms())
        for _ in range(3):
            clock.advance(s=60)
            await broker.broker.transactions.check()

    async def second(broker: RunningBroker) -> None:
        entry = broker.broker.transactions.undecided.entry(0)
        assert entry is not None
        assert entry.checks == 3

    play(first, tmp_path, clock=clock)
    play(second, tmp_path, clock=clock)


def test_without_its_state_the_count_begins_anew(tmp_path: Path) -> None:
    producer, clock = TransactionProducer(), ManualClock()

    async def first(broker: RunningBroker) -> None:
        for number in range(3):
            half = await producer.prepare(broker, b"%d" % number, g=clock.now_ms())
            if number != 1:
                await producer.end(broker, half, COMMIT)
        clock.advance(s=60)
        await broker.broker.transactions.check()

    async def second(broker: RunningBroker) -> None:
        undecided = broker.broker.transactions.undecided
        assert list(undecided) == [1]
        entry = undecided.entry(1)
        assert entry is not None
        assert entry.checks == 0
        assert (undecided.half_end, undecided.op_end) == (3, 2)

    play(first, tmp_path, clock=clock)
    for name in ("emberTransactions.json", "emberTransactions.json.bak"):
        config_file(tmp_path, name).unlink(missing_ok=True)
    play(second, tmp_path, clock=clock)


def test_what_another_broker_has_done_with_is_not_asked_about(tmp_path: Path) -> None:
    """RocketMQ's broker moves the offset of the half queue over half messages that it has stored again."""
    producer, clock = TransactionProducer(), ManualClock()

    async def first(broker: RunningBroker) -> None:
        for number in range(3):
            await producer.prepare(broker, b"%d" % number, g=clock.now_ms())

    async def second(broker: RunningBroker) -> None:
        assert list(broker.broker.transactions.undecided) == [2]

    play(first, tmp_path, clock=clock)
    offsets = config_file(tmp_path, "consumerOffset.json")
    table = {f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS": {"0": 2}, f"{OP_TOPIC}@CID_RMQ_SYS_TRANS": {"0": 0}}
    offsets.write_text(json.dumps({"offsetTable": table}))
    assert config_file(tmp_path, "emberTransactions.json").exists()
    play(second, tmp_path, clock=clock)


@pytest.mark.parametrize("content", ["", "{", '{"transactions":{"positions":{"half":"x"}}}', '{"transactions":{}}'])
def test_a_damaged_state_is_no_reason_to_lose_anything(tmp_path: Path, content: str) -> None:
    producer = TransactionProducer()

    async def first(broker: RunningBroker) -> None:
        await producer.prepare(broker)

    async def second(broker: RunningBroker) -> None:
        assert list(broker.broker.transactions.undecided) == [0]

    play(first, tmp_path)
    config_file(tmp_path, "emberTransactions.json.bak").unlink(missing_ok=True)
    config_file(tmp_path, "emberTransactions.json").write_text(content)
    play(second, tmp_path)


def test_producers_take_turns(tmp_path: Path) -> None:
    producer, clock = TransactionProducer(), ManualClock()
    other = TransactionProducer()

    async def scenario(broker: RunningBroker) -> None:
        second = Connector(other.table)
        try:
            await broker.heartbeat("c1", producers=["pg"])
            both = RunningBroker(broker.broker, second)
            await both.heartbeat("c2", producers=["pg"])
            for number in range(4):
                await producer.prepare(broker, b"%d" % number, g=clock.now_ms())
            clock.advance(s=60)
            assert (await broker.broker.transactions.check()).checked == 4
            await until(lambda: len(producer.asked) == len(other.asked) == 2)
        finally:
            await second.close()

    play(scenario, tmp_path, clock=clock, client_table=producer.table)


def test_a_half_message_whose_record_is_gone_is_forgotten(tmp_path: Path) -> None:
    producer, clock = TransactionProducer(), ManualClock()

    async def scenario(broker: RunningBroker) -> None:
        await producer.prepare(broker, g=clock.now_ms())
        entry = broker.broker.transactions.undecided.entry(0)
        assert entry is not None
        entry.physical_offset = 1 << 40
        clock.advance(s=60)
        assert (await broker.broker.transactions.check()).forgotten == 1
        assert len(broker.broker.transactions.undecided) == 0

    play(scenario, tmp_path, clock=clock)


def test_a_round_goes_on_behind_an_immune_message(tmp_path: Path) -> None:
    producer, clock = TransactionProducer(), ManualClock()

    async def scenario(broker: RunningBroker) -> None:
        await broker.heartbeat("c1", producers=["pg"])
        await producer.prepare(broker, b"1", more="\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x01600", g=clock.now_ms())
        await producer.prepare(broker, b"2", g=clock.now_ms())
        clock.advance(s=60)
        assert (await broker.broker.transactions.check()).checked == 1
        clock.advance(s=600)
        assert (await broker.broker.transactions.check()).checked == 2

    play(scenario, tmp_path, clock=clock, client_table=producer.table)


def test_rounds_come_by_themselves(tmp_path: Path) -> None:
    producer = TransactionProducer()

    async def scenario(broker: RunningBroker) -> None:
        await broker.heartbeat("c1", producers=["pg"])
        await producer.prepare(broker, g=1)
        await until(lambda: len(producer.asked) >= 2)

    more = {"transaction_check_interval_ms": 50, "transaction_timeout_ms": 0}
    play(scenario, tmp_path, client_table=producer.table, store={"retention_hours": 10**6}, **more)
