"""Transactions against a broker of ours: decided at once, or when the broker asks."""

import asyncio
from pathlib import Path

import pytest

from embermq.client import Decision, TransactionProducer
from embermq.client.admin import TraceStep
from embermq.client.aio import Admin as AsyncAdmin
from embermq.client.aio import Message
from embermq.client.aio import TransactionProducer as AsyncTransactionProducer
from embermq.client.produce.transactions import Verdict, decision_of
from embermq.client.received import ReceivedMessage
from embermq.errors import ClientClosed, MessageRejected
from embermq.testing import ManualClock
from tests.support.brokers import until
from tests.support.clusters import Cluster, cluster_on_thread, play

M = Message("orders", b"paid", keys=["o-1"])
MINUTE = 60.0


async def visible(cluster: Cluster) -> list[bytes]:
    return [message.body for number in range(4) for message in await cluster.broker.stored("orders", number)]


async def never(message: ReceivedMessage) -> Verdict:
    raise AssertionError("no one asked")


@pytest.mark.parametrize(
    ("verdict", "decision"),
    [
        (True, Decision.COMMIT),
        (False, Decision.ROLLBACK),
        (None, Decision.UNKNOWN),
        (Decision.COMMIT, Decision.COMMIT),
    ],
)
def test_verdicts(verdict: Verdict, decision: Decision) -> None:
    assert decision_of(verdict) is decision


@pytest.mark.parametrize(("verdict", "expected"), [(True, [b"paid"]), (False, []), (None, [])])
def test_the_local_transaction_decides(tmp_path: Path, verdict: Verdict, expected: list[bytes]) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with AsyncTransactionProducer(cluster.name_server, "g", never) as producer:
            seen: list[str] = []

            async def execute(message: Message, transaction_id: str) -> Verdict:
                assert await visible(cluster) == []
                seen.append(transaction_id)
                return verdict

            result = await producer.send(M, execute)
            assert seen == [result.sent.message_id]
            assert result.is_ended is (verdict is not None)
            assert await visible(cluster) == expected
            assert (await producer.producer.send(Message("orders", b"plain"))).ok

    play(scenario, tmp_path)


def test_an_exception_leaves_it_undecided_and_is_raised(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with AsyncTransactionProducer(cluster.name_server, "g", never) as producer:

            async def execute(message: Message, transaction_id: str) -> Verdict:
                raise KeyError("the database is gone")

            with pytest.raises(KeyError):
                await producer.send(M, execute)
            assert len(cluster.broker.broker.transactions.undecided) == 1
            with pytest.raises(MessageRejected, match="delayed"):
                await producer.prepare(Message("orders", b"", delay_level=1))

    play(scenario, tmp_path)


@pytest.mark.parametrize(("verdict", "expected"), [(True, [b"paid"]), (False, []), (None, [])])
def test_the_broker_asks_about_what_is_undecided(tmp_path: Path, verdict: Verdict, expected: list[bytes]) -> None:
    clock = ManualClock()

    async def scenario(cluster: Cluster) -> None:
        asked: list[ReceivedMessage] = []

        async def check(message: ReceivedMessage) -> Verdict:
            asked.append(message)
            return verdict

        async with AsyncTransactionProducer(cluster.name_server, "g", check) as producer:
            sent = await producer.prepare(M)
            await producer.producer.core.instance.beat()
            clock.advance(s=2 * MINUTE)
            broker = cluster.broker.broker
            await broker.transactions.check()
            for _ in range(2000):
                if asked and (verdict is None or not len(broker.transactions.undecided)):
                    break
                await asyncio.sleep(0.005)
            (message,) = asked
            assert (message.topic, message.body, message.keys) == ("orders", b"paid", ["o-1"])
            assert message.message_id == sent.message_id == message.transaction_id
            assert await visible(cluster) == expected
            assert len(broker.transactions.undecided) == (verdict is None)

    play(scenario, tmp_path, clock=clock)


def test_a_check_that_fails_decides_nothing(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(cluster: Cluster) -> None:
        is_asked = asyncio.Event()

        async def check(message: ReceivedMessage) -> Verdict:
            is_asked.set()
            raise ValueError("no")

        async with AsyncTransactionProducer(cluster.name_server, "g", check) as producer:
            await producer.prepare(M)
            await producer.producer.core.instance.beat()
            clock.advance(s=2 * MINUTE)
            await cluster.broker.broker.transactions.check()
            await is_asked.wait()
        assert len(cluster.broker.broker.transactions.undecided) == 1

    play(scenario, tmp_path, clock=clock)


def test_ends_of_transactions_are_traced(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(cluster: Cluster) -> None:
        async def check(message: ReceivedMessage) -> Verdict:
            return False

        async with AsyncTransactionProducer(cluster.name_server, "g", check, trace=True) as producer:
            asked = await producer.prepare(Message("orders", b"", tags="t", keys=["o-2"]))
            await producer.producer.core.instance.beat()
            clock.advance(s=2 * MINUTE)
            transactions = cluster.broker.broker.transactions
            await transactions.check()
            await until(lambda: not len(transactions.undecided))
            committed = await producer.end(await producer.prepare(M), True)
        async with AsyncAdmin(name_server=cluster.name_server) as admin:
            first, second = committed.sent, asked
            found = [await ended(admin, one.message_id) for one in (first, second)]
            keyed = await admin.traces.of_key("o-2")
        address = cluster.broker.address
        assert [(one.status, one.from_check, one.keys, one.topic, one.transaction_id) for one in found] == [
            ("commit_message", False, "o-1", "orders", first.transaction_id),
            ("rollback_message", True, "o-2", "orders", second.transaction_id),
        ]
        assert {one.store_host for one in found} == {address}
        assert [step.what for step in keyed] == ["send", "end transaction"]

    play(scenario, tmp_path, clock=clock)


async def ended(admin: AsyncAdmin, message_id: str) -> TraceStep:
    """The one step with which a transaction ended."""
    (found,) = [step for step in await admin.traces.of_message(message_id) if step.what == "end transaction"]
    return found


def test_the_blocking_face(tmp_path: Path) -> None:
    def check(message: ReceivedMessage) -> Verdict:
        return True

    with cluster_on_thread(tmp_path) as cluster:
        with TransactionProducer(name_server=cluster.name_server, group="g", check=check) as producer:
            result = producer.send(M, lambda message, transaction_id: True)
            assert (result.decision, result.is_ended) == (Decision.COMMIT, True)
            rolled_back = producer.send(M, lambda message, transaction_id: False)
            assert rolled_back.is_ended
            store = cluster.broker.store
            store.wait_for_dispatch()
            found = [m.body for n in range(4) for m in store.fetch("orders", n, 0).messages]
            assert found == [b"paid"]
        producer.close()
        with pytest.raises(ClientClosed):
            producer.prepare(M)
