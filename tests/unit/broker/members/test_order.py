"""Ordered consumption: one owner of a queue at a time, and no message out of its order, whatever members do.

Consumers as RocketMQ's orderly ones behave: they ask for the lock of a queue, renew it, pull and consume only while it
is theirs by their own clock (they stop 30 s after the last renewal, half of what the broker grants), commit what they
have consumed, and unlock when they leave. Members join, leave, hang and die, and the broker is restarted, in an order
drawn from a seed; all of it is noted in a history, which is checked at the end.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from embermq.broker.members.queue_locks import EXPIRE_SECONDS, LOCK_OWNERS, QueueLocks, QueueName
from embermq.files import RealFiles
from embermq.remoting import RequestCode, parse_json, write_json
from embermq.store.tables import ConfigTable
from embermq.testing.clock import ManualClock
from tests.support.brokers import RunningBroker, play
from tests.support.histories import History

QUEUES = [QueueName("T", "b", queue_id) for queue_id in range(3)]
CLIENT_HOLDS_SECONDS = 30.0


@dataclass
class Member:
    """One orderly consumer."""

    name: str
    renewed: dict[QueueName, float] = field(default_factory=dict)
    is_hanging: bool = False

    def owns(self, queue: QueueName, now: float) -> bool:
        return now - self.renewed.get(queue, -1e9) <= CLIENT_HOLDS_SECONDS


class Group:
    """Members of one group, the queues they read, and the broker's locks and offsets."""

    def __init__(self, path: Path, seed: int) -> None:
        self.chance, self.now, self.path = random.Random(seed), 0.0, path
        self.restarts = 0
        self.locks = self.opened()
        self.members = [Member("c1"), Member("c2")]
        self.names = iter(f"c{n}" for n in range(3, 10_000))
        self.committed = dict.fromkeys(QUEUES, 0)
        self.ends = dict.fromkeys(QUEUES, 0)
        self.history = History()

    def step(self) -> None:
        self.now += self.chance.choice([0.1, 1.0, 5.0, 20.0])
        happening = self.chance.random()
        if happening < 0.3:
            queue = self.chance.choice(QUEUES)
            self.history.sent((queue, self.ends[queue]), queue, self.ends[queue])
            self.ends[queue] += 1
        elif happening < 0.38:
            self.members.append(Member(next(self.names)))
        elif happening < 0.46 and len(self.members) > 1:
            self.leave(self.chance.choice(self.members), says_so=self.chance.random() < 0.5)
        elif happening < 0.5:
            self.chance.choice(self.members).is_hanging ^= True
        elif happening < 0.52:
            self.restart()
        else:
            member = self.chance.choice(self.members)
            if not member.is_hanging:
                self.work(member)

    def leave(self, member: Member, *, says_so: bool) -> None:
        self.members.remove(member)
        if says_so:
            self.locks.unlock("g", member.name, QUEUES)

    def opened(self) -> QueueLocks:
        """The locks of a broker that starts now."""
        owners = ConfigTable(RealFiles(), self.path, LOCK_OWNERS, ManualClock())
        assert owners.load() is None
        return QueueLocks(100, owners, self.now)

    def restart(self) -> None:
        """Without notice: what was not written down is gone."""
        self.restarts += 1
        self.locks = self.opened()

    def work(self, member: Member) -> None:
        wanted = self.chance.sample(QUEUES, self.chance.randint(1, len(QUEUES)))
        held = self.locks.lock("g", member.name, wanted, self.now)
        if self.locks.has_new_owners:
            self.locks.save()  # Before it is answered.
        for queue in wanted:
            if queue in held:
                member.renewed[queue] = self.now
            else:
                member.renewed.pop(queue, None)
        for queue in QUEUES:
            if member.owns(queue, self.now):
                self.consume(member, queue)

    def consume(self, member: Member, queue: QueueName) -> None:
        while self.committed[queue] < self.ends[queue] and self.chance.random() < 0.8:
            position = self.committed[queue]
            with self.history.handling(member.name, queue, position, (queue, position)):
                pass
            self.committed[queue] = position + 1


def owners(group: Group) -> Iterator[tuple[QueueName, list[str]]]:
    """Who takes a queue for its own now."""
    for queue in QUEUES:
        yield queue, [member.name for member in group.members if member.owns(queue, group.now)]


@pytest.mark.parametrize("seed", range(12))
def test_one_owner_and_no_reorder_while_members_come_and_go(tmp_path: Path, seed: int) -> None:
    group = Group(tmp_path, seed)
    for _ in range(600):
        group.step()
        for queue, names in owners(group):
            assert len(names) <= 1, (queue, names, group.now)
    drain(group)
    assert group.restarts > 0
    group.history.check()


def drain(group: Group) -> None:
    """All that is left is consumed once locks of the dead have expired."""
    group.now += EXPIRE_SECONDS + 1
    for member in group.members:
        member.is_hanging, member.renewed = False, {}
    while any(group.committed[queue] < group.ends[queue] for queue in QUEUES):
        group.work(group.members[0])


def test_a_hanging_owner_loses_its_queue_before_another_gets_it() -> None:
    """A client stops 30 s after its last renewal; the broker gives the queue away 60 s after it."""
    locks, first = QueueLocks(10), Member("c1", {QUEUES[0]: 0.0})
    locks.lock("g", "c1", [QUEUES[0]], 0.0)
    assert not first.owns(QUEUES[0], CLIENT_HOLDS_SECONDS + 0.1)
    assert locks.lock("g", "c2", [QUEUES[0]], EXPIRE_SECONDS) == []
    assert locks.lock("g", "c2", [QUEUES[0]], EXPIRE_SECONDS + 0.1) == [QUEUES[0]]


async def lock(broker: RunningBroker, client: str, *queue_ids: int) -> list[int]:
    mine = [{"topic": "T", "brokerName": "b", "queueId": queue_id} for queue_id in queue_ids]
    body = write_json({"consumerGroup": "g", "clientId": client, "mqSet": mine})
    answer = await broker.call(RequestCode.LOCK_BATCH_MQ, None, body)
    assert answer.code == 0
    return sorted(queue["queueId"] for queue in parse_json(answer.body)["lockOKMQSet"])


async def unlock(broker: RunningBroker, client: str, *queue_ids: int) -> None:
    mine = [{"topic": "T", "brokerName": "b", "queueId": queue_id} for queue_id in queue_ids]
    body = write_json({"consumerGroup": "g", "clientId": client, "mqSet": mine})
    assert (await broker.call(RequestCode.UNLOCK_BATCH_MQ, None, body)).code == 0


def test_locks_over_the_wire_expire_by_the_brokers_clock(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(broker: RunningBroker) -> None:
        assert await lock(broker, "c1", 0, 1) == [0, 1]
        assert await lock(broker, "c2", 0, 1, 2) == [2]
        clock.advance(s=50)
        assert await lock(broker, "c1", 0) == [0]
        clock.advance(s=11)
        assert await lock(broker, "c2", 0, 1) == [1]
        await unlock(broker, "c2", 0)
        assert await lock(broker, "c2", 0) == []
        await unlock(broker, "c1", 0)
        assert await lock(broker, "c2", 0) == [0]

    play(scenario, tmp_path, clock=clock)


def test_a_restarted_broker_gives_no_queue_to_another_owner(tmp_path: Path) -> None:
    clock = ManualClock()

    async def before(broker: RunningBroker) -> None:
        assert await lock(broker, "c1", 0, 1) == [0, 1]
        await unlock(broker, "c1", 1)

    async def after(broker: RunningBroker) -> None:
        assert await lock(broker, "c2", 0, 1) == [1]
        assert await lock(broker, "c1", 0) == [0]
        clock.advance(s=61)
        assert await lock(broker, "c2", 0) == [0]

    play(before, tmp_path, clock=clock)
    play(after, tmp_path, clock=clock)


def test_the_owners_file_is_that_of_the_locks(tmp_path: Path) -> None:
    owners = ConfigTable(RealFiles(), tmp_path, LOCK_OWNERS, ManualClock())
    locks = QueueLocks(10, owners)
    locks.lock("g", "c1", QUEUES, 0.0)
    locks.unlock("g", "c1", QUEUES[:1])
    assert locks.save()
    locks.lock("g", "c1", QUEUES[1:], 5.0)
    assert not locks.save(), "a renewal changes no owner"
    again = ConfigTable(RealFiles(), tmp_path, LOCK_OWNERS, ManualClock())
    assert again.load() is None
    assert again.entries() == {("g", queue): "c1" for queue in QUEUES[1:]}
    locks.expire(70.0)
    assert (len(locks), len(owners)) == (0, 0)
    (tmp_path / "config" / "emberLocks.json").write_text('{"lockTable":{"x@b@T@g":"c1","1@b@T@g":"c2","2@g":"c"}}')
    assert again.load() is not None
    assert again.entries() == {("g", QUEUES[1]): "c2"}
