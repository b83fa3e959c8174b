"""An orderly push consumer against a broker of this process."""

import asyncio
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from embermq.client.aio import PushConsumer
from embermq.client.calls import lock_queues
from embermq.client.consume.handle.handlers import Context
from embermq.client.consume.queues import readers as readers_module
from embermq.client.message_queue import MessageQueue
from embermq.client.received import ReceivedMessage
from embermq.remoting import RequestCode, parse_json, write_json
from embermq.testing import ManualClock
from tests.support.brokers import RunningBroker, until
from tests.support.clusters import Cluster, play
from tests.support.histories import History

T = "T"
Q0 = MessageQueue(T, "a", 0)


async def send(broker: RunningBroker, start: int, end: int, queues: int = 4) -> None:
    for number in range(start, end):
        answer = await broker.send(T, b"m%d" % number, e=number % queues)
        assert answer.code == 0, answer.remark


def consumer(cluster: Cluster, **more: Any) -> PushConsumer:
    options: dict[str, Any] = {"name_server": cluster.name_server, "group": "g", "consume_from": "first"}
    return PushConsumer(**(options | {"orderly": True} | more))


async def locked_by(broker: RunningBroker, client_id: str, queue: MessageQueue = Q0) -> bool:
    """Whether a client gets the lock of a queue now."""
    body = write_json({"clientId": client_id, "consumerGroup": "g", "mqSet": [queue.document()]})
    return bool(parse_json((await broker.call(RequestCode.LOCK_BATCH_MQ, None, body)).body)["lockOKMQSet"])


def test_every_queue_is_handled_in_order(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        history = History()
        for number in range(200):
            answer = await cluster.broker.send(T, b"%d" % number, e=number % 4)
            assert answer.code == 0
            history.sent(b"%d" % number)

        def handle(messages: list[ReceivedMessage], context: Context) -> bool:
            assert context.is_orderly
            (message,) = messages
            one = history.begin("only", message.queue, message.queue_offset, message.body)
            is_late = message.queue_offset % 7 == 3 and message.reconsume_times == 0
            context.suspend = 0.01
            history.finish(one, consumed=not is_late)
            return not is_late

        async with consumer(cluster) as one:
            await one.subscribe(T, "*", handle)
            await until(lambda: not history.unconsumed())
        history.check(exactly_once=True)
        assert len(history.handlings) == 200 + sum(1 for n in range(50) if n % 7 == 3) * 4

    play(scenario, tmp_path)


def test_tries_that_are_used_up_end_as_a_dead_letter(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 2, queues=1)
        tries: list[tuple[bytes, int]] = []

        def handle(messages: list[ReceivedMessage], context: Context) -> bool:
            tries.append((messages[0].body, messages[0].reconsume_times))
            context.suspend = 0.01
            return messages[0].body == b"m1"

        async with consumer(cluster, retries_max=2) as one:
            await one.subscribe(T, "*", handle)
            await until(lambda: one.positions.get(Q0) == 2)
        assert tries == [(b"m0", 0), (b"m0", 1), (b"m0", 2), (b"m1", 0)]
        (dead,) = await cluster.broker.stored("%DLQ%g")
        assert (dead.body, dead.properties["RETRY_TOPIC"]) == (b"m0", T)

    play(scenario, tmp_path)


def test_locks_are_given_back_when_the_consumer_closes(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 4)
        got: list[bytes] = []
        async with consumer(cluster) as one:
            await one.subscribe(T, "*", lambda messages, _context: got.extend(m.body for m in messages))
            await until(lambda: len(got) == 4)
            assert not await locked_by(cluster.broker, "another")
        assert await locked_by(cluster.broker, "another")

    play(scenario, tmp_path)


@pytest.mark.slow(seconds=2)
def test_a_queue_whose_handler_runs_is_kept_locked_until_it_returns(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 3, queues=1)
        began, go_on, got = threading.Event(), threading.Event(), list[bytes]()

        def handle(messages: list[ReceivedMessage], context: Context) -> None:
            began.set()
            go_on.wait(20)
            got.extend(message.body for message in messages)

        async with consumer(cluster) as one:
            await one.subscribe(T, "*", handle)
            await until(began.is_set)
            assert one._core is not None
            readers = one._core.readers
            async with readers.turn:
                await readers.lose(Q0)
                assert readers.find(Q0) is None
                assert not await readers.take(Q0)  # Its last handler still runs.
                assert not await locked_by(cluster.broker, "another")
                go_on.set()
                await until(lambda: got == [b"m0"])
                for _ in range(1000):
                    if await locked_by(cluster.broker, "another"):
                        break
                    await asyncio.sleep(0.005)
                assert await readers.stored(Q0) == 1  # What was finished counts.
        assert got == [b"m0"]

    play(scenario, tmp_path)


@pytest.mark.slow(seconds=2)
def test_a_member_that_lost_its_lock_stops_and_commits_nothing(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 4, queues=1)
        began, go_on, got = threading.Event(), threading.Event(), list[bytes]()

        def handle(messages: list[ReceivedMessage], context: Context) -> None:
            got.extend(message.body for message in messages)
            if messages[0].body == b"m1":
                began.set()
                go_on.wait(20)

        async with consumer(cluster, commit_seconds=60) as one:
            await one.subscribe(T, "*", handle)
            await until(began.is_set)
            clock.advance(s=61)  # The broker has heard nothing for a minute, and another one takes the queue.
            assert await locked_by(cluster.broker, "another")
            assert one._core is not None
            await one._core.readers.renew_locks()
            assert Q0 not in one.queues
            go_on.set()
            await asyncio.sleep(0.1)
            assert got == [b"m0", b"m1"]
            assert Q0 not in one.positions
        ext = {"consumerGroup": "g", "topic": T, "queueId": 0}
        answer = await cluster.broker.call(RequestCode.QUERY_CONSUMER_OFFSET, ext)
        # m0 may have been committed by a pull while the lock was held; m1 ended without it.
        assert (answer.ext or {})["offset"] in ("0", "1")
        assert not await locked_by(cluster.broker, "a third one")  # The other's lock was not given back.

    play(scenario, tmp_path, clock=clock)


@pytest.mark.slow(seconds=2)
def test_renewed_locks_stay(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 4)
        got: list[bytes] = []
        async with consumer(cluster) as one:
            await one.subscribe(T, "*", lambda messages, _context: got.extend(m.body for m in messages))
            for _ in range(4):
                clock.advance(s=40)
                assert one._core is not None
                await one._core.readers.renew_locks()
                assert not await locked_by(cluster.broker, "another")
            await until(lambda: len(got) == 4)

    play(scenario, tmp_path, clock=clock)


def test_a_queue_given_up_during_a_renewal_goes_to_the_next_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the renewal comes when the lock is given back already. It is not renewed again."""

    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 1)
        granted, go_on = asyncio.Event(), asyncio.Event()

        async def answer_late(*request: Any) -> Collection[MessageQueue]:
            answer = await lock_queues(*request)
            granted.set()
            await go_on.wait()
            return answer

        async with consumer(cluster) as one:
            await one.subscribe(T, "*", lambda _messages, _context: None)
            await until(lambda: Q0 in one.queues)
            assert one._core is not None
            readers = one._core.readers
            await one._core.membership.close()  # It would take the queue again.
            monkeypatch.setattr(readers_module, "lock_queues", answer_late)
            renewing = asyncio.ensure_future(readers.renew_locks())
            await granted.wait()
            await readers.lose(Q0)
            go_on.set()
            await renewing
            await readers.renew_locks()
            assert await locked_by(cluster.broker, "another")

    play(scenario, tmp_path)
