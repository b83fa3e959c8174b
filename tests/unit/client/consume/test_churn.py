"""Members that join, leave and die while messages are sent, judged by a history."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq.client.aio import PushConsumer
from embermq.client.consume.handle.handlers import Context
from embermq.client.consume.queues import membership
from embermq.client.message_queue import MessageQueue
from embermq.client.received import ReceivedMessage
from embermq.testing import ManualClock
from tests.support.brokers import until
from tests.support.clusters import Cluster, play
from tests.support.histories import History

T = "T"
MEMBERS_MAX = 4


class Member:
    """A consumer that notes what it does, and may die."""

    def __init__(self, cluster: Cluster, name: str, history: History, *, orderly: bool, chance: random.Random) -> None:
        self.name, self._history, self._chance = name, history, chance
        self.is_dead = False
        self.consumer = PushConsumer(
            name_server=cluster.name_server,
            group="g",
            consume_from="first",
            orderly=orderly,
            commit_seconds=0.05,
            threads=4,
        )

    async def start(self) -> None:
        await self.consumer.start()
        await self.consumer.subscribe(T, "*", self._handle)

    async def _handle(self, messages: list[ReceivedMessage], context: Context) -> bool:
        """Takes a moment, so that members are caught in the middle; fails now and then."""
        (message,) = messages
        place = message.queue if message.topic == message.queue.topic else ("retry", message.queue)
        one = self._history.begin(self.name, place, message.queue_offset, message.body)
        await asyncio.sleep(self._chance.random() * 0.004)
        if self.is_dead:
            await asyncio.sleep(60)  # It never returned: the process is gone.
        is_consumed = self._chance.random() > 0.05
        context.delay_level, context.suspend = 1, 0.01
        self._history.finish(one, consumed=is_consumed)
        return is_consumed

    def topic_queues(self) -> set[MessageQueue]:
        return {queue for queue in self.consumer.queues if queue.topic == T}

    async def die(self) -> None:
        """Without a word: nothing is finished, committed, unlocked or unregistered."""
        self.is_dead = True
        core = self.consumer._core
        assert core is not None
        assert self.consumer._consumption is not None
        await core.membership.close()
        for reader in core.readers:
            reader.drop()
        core.readers.positions.clear()
        core.readers._readers.clear()
        self.consumer._consumption.workers.close()
        await core.instance.connector.close()

    async def renew(self) -> None:
        """The locks, and the heartbeat: a broker forgets clients that it has not heard of for two minutes."""
        assert self.consumer._core is not None
        await self.consumer._core.instance.beat()
        await self.consumer._core.readers.renew_locks()


async def churn(cluster: Cluster, seed: int, *, orderly: bool, steps: int, clock: ManualClock) -> History:
    chance, history = random.Random(seed), History()
    members: list[Member] = []
    buried: list[Member] = []
    names = (f"member-{number}" for number in range(1000))

    async def sending(stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            broker = cluster.brokers[chance.choice(sorted(cluster.brokers))]
            key = b"%d" % number
            history.trying(key)
            answer = await broker.send(T, key, e=number % 4)
            assert answer.code == 0, answer.remark
            history.sent(key)
            number += 1
            await asyncio.sleep(0.002)

    async def join() -> None:
        member = Member(cluster, next(names), history, orderly=orderly, chance=chance)
        members.append(member)
        await member.start()

    async def leave() -> None:
        await members.pop(chance.randrange(len(members))).consumer.close()

    async def die() -> None:
        gone = members.pop(chance.randrange(len(members)))
        await gone.die()
        buried.append(gone)
        if orderly:  # Its locks expire a minute after it last renewed them; the others renew theirs meanwhile.
            for _ in range(3):
                clock.advance(s=25)
                await asyncio.gather(*(member.renew() for member in members))

    async def pass_time() -> None:
        """What a dead member asked for while it died holds a lock for another minute."""
        while orderly:
            clock.advance(s=25)
            await asyncio.gather(*(member.renew() for member in members))
            await asyncio.sleep(0.1)

    stop = asyncio.Event()
    sender = asyncio.ensure_future(sending(stop))
    await join()
    for _ in range(steps):
        choices: list[Callable[[], Any]] = [join] * (len(members) < MEMBERS_MAX) + [leave, die] * (len(members) > 1)
        await chance.choice(choices)()
        await asyncio.sleep(0.05 + 0.1 * chance.random())
    await until(lambda: len(history.sends) >= 100)
    stop.set()
    await sender
    passing = asyncio.ensure_future(pass_time())
    everything = {MessageQueue(T, broker, number) for broker in cluster.brokers for number in range(4)}
    await until(lambda: set().union(*(member.topic_queues() for member in members)) == everything)
    await until(lambda: sum(len(member.topic_queues()) for member in members) == len(everything))
    await until(lambda: not history.unconsumed())
    passing.cancel()
    await asyncio.gather(passing, return_exceptions=True)
    for member in members:
        await member.consumer.close()
    return history


@pytest.mark.slow(seconds=12)
@pytest.mark.parametrize("orderly", [True, False], ids=["orderly", "concurrent"])
@pytest.mark.parametrize("seed", [1, 2])
def test_members_come_and_go_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, orderly: bool
) -> None:
    monkeypatch.setattr(membership, "SOON_SECONDS", 0.05)
    clock = ManualClock()

    async def scenario(cluster: Cluster) -> None:
        for broker in cluster.brokers.values():
            assert (await broker.send(T, b"first", e=0)).code == 0
        history = await churn(cluster, seed, orderly=orderly, steps=15, clock=clock)
        history.trying(b"first")
        history.check(ordered=orderly, single_owner=orderly)

    # With a clock that stands still, locks expire when the test says so; delayed retries need one that moves.
    play(scenario, tmp_path, brokers=2, clock=clock if orderly else None)
