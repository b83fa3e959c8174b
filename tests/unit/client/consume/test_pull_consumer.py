"""A pull consumer against a broker of this process."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from embermq.client.aio import PullConsumer
from embermq.client.message_queue import MessageQueue
from embermq.errors import ClientClosed, OptionInvalid, QueueNotAssigned, RouteMissing
from embermq.remoting import RequestCode
from tests.support.brokers import RunningBroker, until
from tests.support.clusters import Cluster, play

T = "T"
QUEUES = [MessageQueue(T, "a", number) for number in range(4)]


async def send(broker: RunningBroker, start: int, end: int, topic: str = T, queues: int = 1) -> None:
    for number in range(start, end):
        answer = await broker.send(topic, b"m%d" % number, f"TAGS\x01t{number % 2}\x02", e=number % queues)
        assert answer.code == 0, answer.remark
    assert broker.store.wait_for_dispatch()  # A queue ends where it is dispatched.


def numbered(start: int, end: int) -> list[bytes]:
    return [b"m%d" % number for number in range(start, end)]


def consumer(cluster: Cluster, group: str = "g", **more: Any) -> PullConsumer:
    return PullConsumer(**({"name_server": cluster.name_server, "group": group, "consume_from": "first"} | more))


async def committed(broker: RunningBroker, queue_id: int = 0, group: str = "g") -> int:
    ext = {"consumerGroup": group, "topic": T, "queueId": queue_id}
    answer = await broker.call(RequestCode.QUERY_CONSUMER_OFFSET, ext)
    return int((answer.ext or {})["offset"])


async def polled(pull: PullConsumer, count: int, **more: Any) -> list[bytes]:
    bodies: list[bytes] = []
    while len(bodies) < count:
        found = await pull.poll(10.0, **more)
        assert found, f"only {bodies}"
        bodies += [message.body for message in found]
    return bodies


# -- iterating -------------------------------------------------------------------------------------------------------


def test_messages_one_after_another_and_committed_at_the_end(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 100)
        bodies = []
        async with consumer(cluster) as pull:
            async for message in pull.messages(T, timeout=3.0):
                bodies.append(message.body)
        assert bodies == numbered(0, 100)
        assert await committed(cluster.broker) == 100

    play(scenario, tmp_path)


def test_what_was_not_looked_at_comes_again_after_a_break(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 20)
        async with consumer(cluster) as pull:
            iterating = pull.messages(T)
            first = [(await anext(iterating)).body for _ in range(3)]
            await iterating.aclose()  # type: ignore[attr-defined]
            assert first == numbered(0, 3)
            assert await polled(pull, 17) == numbered(3, 20)
        assert await committed(cluster.broker) == 20

    play(scenario, tmp_path)


def test_a_block_that_fails_does_not_commit_the_message_it_failed_at(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 20)

        async def fail_at_m5() -> None:
            async with consumer(cluster) as pull:
                async for message in pull.messages(T):
                    if message.body == b"m5":
                        raise RuntimeError("m5")

        with pytest.raises(RuntimeError, match="m5"):
            await fail_at_m5()
        assert await committed(cluster.broker) <= 5

    play(scenario, tmp_path)


def test_commit_while_iterating_commits_up_to_this_message(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 20)
        async with consumer(cluster, auto_commit=False) as pull:
            iterating = pull.messages(T)
            for _ in range(7):
                await anext(iterating)
            await pull.commit()
            assert await committed(cluster.broker) == 7
            assert (await anext(iterating)).body == b"m7"
            await iterating.aclose()  # type: ignore[attr-defined]
        assert await committed(cluster.broker) == 7  # Nothing by itself.

    play(scenario, tmp_path)


def test_tags_and_topics(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 6)
        await send(cluster.broker, 0, 3, topic="U")
        async with consumer(cluster) as pull:
            await pull.subscribe(T, "t1")
            await pull.subscribe("U")
            assert await polled(pull, 3, topic="U") == numbered(0, 3)
            assert await polled(pull, 3, topic=T) == [b"m1", b"m3", b"m5"]
            assert await pull.poll(0.05, topic="U") == []

    play(scenario, tmp_path)


# -- polling and committing --------------------------------------------------------------------------------------------


def test_what_a_poll_returned_is_done_with_the_next(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 10)
        async with consumer(cluster, commit_seconds=0.02) as pull:
            await pull.subscribe(T)
            first = await pull.poll(10.0, 4)
            assert [message.body for message in first] == numbered(0, 4)
            await asyncio.sleep(0.1)
            assert await committed(cluster.broker) == 0
            assert pull.position(QUEUES[0]) == 0
            assert len(await pull.poll(10.0, 3)) == 3
            await _until_committed(cluster.broker, 4)
        assert await committed(cluster.broker) == 7

    play(scenario, tmp_path)


async def _until_committed(broker: RunningBroker, offset: int) -> None:
    for _ in range(1000):
        if await committed(broker) == offset:
            return
        await asyncio.sleep(0.01)
    raise TimeoutError(f"not committed: {await committed(broker)}")


def test_offsets_that_match_nothing_are_committed_too(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 10)
        async with consumer(cluster) as pull:
            await pull.subscribe(T, "nothing has this tag")
            assert await pull.poll(0.1) == []
            await until(lambda: pull.position(QUEUES[0]) == 10)
        assert await committed(cluster.broker) == 10

    play(scenario, tmp_path)


def test_a_poll_without_messages_returns_after_its_time(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with consumer(cluster) as pull:
            await pull.subscribe(T)
            assert await pull.poll(0.0) == []
            assert await pull.poll(0.02) == []

    play(scenario, tmp_path)


def test_a_waiting_poll_gets_the_next_message(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 1)
        async with consumer(cluster) as pull:
            await pull.subscribe(T)
            assert await polled(pull, 1) == [b"m0"]
            waiting = asyncio.ensure_future(pull.poll(20.0))
            await asyncio.sleep(0.05)
            await send(cluster.broker, 1, 2)
            assert [message.body for message in await waiting] == [b"m1"]

    play(scenario, tmp_path)


# -- queues by hand ----------------------------------------------------------------------------------------------------


def test_assigned_queues_belong_to_no_group(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 8, queues=4)
        async with consumer(cluster) as pull, consumer(cluster) as other:
            assert await pull.topic_queues(T) == QUEUES
            await pull.assign(QUEUES[:2])
            await other.assign(QUEUES[1:2])
            assert pull.assignment == set(QUEUES[:2])
            assert sorted(await polled(pull, 4)) == [b"m0", b"m1", b"m4", b"m5"]
            assert sorted(await polled(other, 2)) == [b"m1", b"m5"]
            assert cluster.broker.broker.clients.consumers("g") is None
            await pull.assign(QUEUES[2:3])
            assert pull.assignment == {QUEUES[2]}
            assert await polled(pull, 2) == [b"m2", b"m6"]
            await pull.commit()
            assert await pull.committed(QUEUES[2]) == 2
            assert await pull.end_offset(QUEUES[2]) == 2
        assert await committed(cluster.broker, 2) == 2

    play(scenario, tmp_path)


def test_seeking(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 10)
        queue = QUEUES[0]
        async with consumer(cluster) as pull:
            await pull.assign([queue])
            assert await polled(pull, 10) == numbered(0, 10)
            pull.seek(queue, 7)
            assert await polled(pull, 3) == numbered(7, 10)
            await pull.seek_to_begin(queue)
            assert pull.position(queue) == 0
            first = await pull.poll(10.0, 1)
            assert first[0].body == b"m0"
            await pull.seek_to_end(queue)
            await send(cluster.broker, 10, 11)
            assert await polled(pull, 1) == [b"m10"]
            await pull.seek_to_time(queue, 0)
            assert (await pull.poll(10.0, 1))[0].body == b"m0"
            pull.seek(queue, 3)
            await pull.commit()
        assert await committed(cluster.broker) == 3

    play(scenario, tmp_path)


def test_seeking_outside_of_the_queue_goes_on_inside(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 5)
        queue = QUEUES[0]
        async with consumer(cluster) as pull:
            await pull.assign([queue])
            pull.seek(queue, 1000)
            await until(lambda: pull.position(queue) == 5)
            await send(cluster.broker, 5, 6)
            assert await polled(pull, 1) == [b"m5"]

    play(scenario, tmp_path)


def test_a_paused_queue_is_not_pulled(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 4, queues=2)
        async with consumer(cluster) as pull:
            await pull.assign([])
            pull.pause([QUEUES[0]])
            await pull.assign(QUEUES[:2])
            assert sorted(await polled(pull, 2)) == [b"m1", b"m3"]
            assert await pull.poll(0.05) == []
            pull.resume([QUEUES[0]])
            assert sorted(await polled(pull, 2)) == [b"m0", b"m2"]

    play(scenario, tmp_path)


def test_members_share_the_queues(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 8, queues=4)
        async with consumer(cluster) as one, consumer(cluster) as two:
            await one.subscribe(T)
            await two.subscribe(T)
            await until(lambda: len(one.assignment) == len(two.assignment) == 2)
            assert not one.assignment & two.assignment

    play(scenario, tmp_path)


# -- mistakes ----------------------------------------------------------------------------------------------------------


def test_mistakes_are_named(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await send(cluster.broker, 0, 1)
        async with consumer(cluster) as pull:
            with pytest.raises(
                QueueNotAssigned, match="queue T@a:0 is not one of this consumer of group 'g'; it has none"
            ):
                pull.seek(QUEUES[0], 1)
            with pytest.raises(RouteMissing, match="'nowhere'"):
                await pull.topic_queues("nowhere")
            await pull.assign(QUEUES[:1])
            with pytest.raises(QueueNotAssigned, match="its queues are T@a:0"):
                pull.position(QUEUES[1])
            with pytest.raises(OptionInvalid, match="option offset = -1"):
                pull.seek(QUEUES[0], -1)
            with pytest.raises(OptionInvalid, match="assigned by hand"):
                await pull.subscribe(T)
        with pytest.raises(ClientClosed, match="is closed"):
            await pull.poll(0.1)
        async with consumer(cluster) as pull:
            await pull.subscribe(T)
            with pytest.raises(OptionInvalid, match="subscribed to"):
                await pull.assign(QUEUES)

    play(scenario, tmp_path)
