"""Allocation: the shares that RocketMQ 4.9.8 itself works out (its strategies, run with these lists), and what must
hold of any strategy."""

import pytest

from embermq.client.consume.queues.allocation import (
    STRATEGIES,
    Allocate,
    allocated,
    average,
    by_machine_room,
    configured,
    consistent_hash,
    near_machine_room,
)
from embermq.client.message_queue import MessageQueue

# Strategy, queues, members, the shares of all members. Half of the queues are at hz@broker-a (a0, a1, ...), the others
# at sh@broker-b.
GOLDEN = [
    ("average", 1, 1, "a0"),
    ("circle", 1, 1, "a0"),
    ("consistent_hash", 1, 1, "a0"),
    ("room", 1, 1, "a0"),
    ("near", 1, 1, "a0"),
    ("average", 4, 1, "a0 a1 b0 b1"),
    ("circle", 4, 1, "a0 a1 b0 b1"),
    ("consistent_hash", 4, 1, "a0 a1 b0 b1"),
    ("room", 4, 1, "a0 a1"),
    ("near", 4, 1, "a0 a1 b0 b1"),
    ("average", 4, 2, "a0 a1 | b0 b1"),
    ("circle", 4, 2, "a0 b0 | a1 b1"),
    ("consistent_hash", 4, 2, "a0 a1 b0 | b1"),
    ("room", 4, 2, "a0 | a1"),
    ("near", 4, 2, "a0 a1 b0 | b1"),
    ("average", 4, 3, "a0 a1 | b0 | b1"),
    ("circle", 4, 3, "a0 b1 | a1 | b0"),
    ("consistent_hash", 4, 3, "a1 b0 | b1 | a0"),
    ("room", 4, 3, "a0 | a1 | "),
    ("near", 4, 3, "a0 b0 | b1 | a1"),
    ("average", 8, 3, "a0 a1 a2 | a3 b0 b1 | b2 b3"),
    ("circle", 8, 3, "a0 a3 b2 | a1 b0 b3 | a2 b1"),
    ("consistent_hash", 8, 3, "a1 a2 a3 b0 | b1 b3 | a0 b2"),
    ("room", 8, 3, "a0 a3 | a1 | a2"),
    ("near", 8, 3, "a0 a1 b0 b1 | b2 | a2 a3 b3"),
    ("average", 3, 5, "a0 | a1 | b0 |  | "),
    ("circle", 3, 5, "a0 | a1 | b0 |  | "),
    ("consistent_hash", 3, 5, "a1 b0 |  | a0 |  | "),
    ("room", 3, 5, "a0 | a1 |  |  | "),
    ("near", 3, 5, "a0 b0 |  | a1 |  | "),
    ("average", 10, 4, "a0 a1 a2 | a3 a4 b0 | b1 b2 | b3 b4"),
    ("circle", 10, 4, "a0 a4 b3 | a1 b0 b4 | a2 b1 | a3 b2"),
    ("consistent_hash", 10, 4, "a1 b0 | b1 b3 | a0 b2 | a2 a3 a4 b4"),
    ("room", 10, 4, "a0 a4 | a1 | a2 | a3"),
    ("near", 10, 4, "a0 a1 a2 b0 b1 | b2 | a3 a4 b3 | b4"),
    ("average", 16, 5, "a0 a1 a2 a3 | a4 a5 a6 | a7 b0 b1 | b2 b3 b4 | b5 b6 b7"),
    ("circle", 16, 5, "a0 a5 b2 b7 | a1 a6 b3 | a2 a7 b4 | a3 b0 b5 | a4 b1 b6"),
    ("consistent_hash", 16, 5, "a1 a6 a7 b0 | b3 | a0 b7 | a2 a3 a4 b4 b5 | a5 b1 b2 b6"),
    ("room", 16, 5, "a0 a5 | a1 a6 | a2 a7 | a3 | a4"),
    ("near", 16, 5, "a0 a1 a2 a3 b0 b1 | b2 b3 | a4 a5 a6 a7 b4 b5 | b6 | b7"),
]
BROKERS = {"a": "hz@broker-a", "b": "sh@broker-b"}


def queues(count: int) -> list[MessageQueue]:
    half = (count + 1) // 2
    return [
        MessageQueue("orders", BROKERS["a" if n < half else "b"], n if n < half else n - half) for n in range(count)
    ]


def members(count: int) -> list[str]:
    return [f"10.0.0.{number}@{1000 + number}#7" for number in range(count)]


def named(name: str) -> Allocate:
    if name == "room":
        return by_machine_room(["hz"])
    if name == "near":
        rooms = {"10.0.0.0": "hz", "10.0.0.2": "hz"}
        return near_machine_room(
            average, lambda broker: broker.partition("@")[0], lambda member: rooms.get(member.partition("@")[0], "bj")
        )
    return STRATEGIES[name]


@pytest.mark.parametrize(("name", "queue_count", "member_count", "shares"), GOLDEN)
def test_shares_are_those_of_rocketmq(name: str, queue_count: int, member_count: int, shares: str) -> None:
    all_queues, ids = queues(queue_count), members(member_count)
    found = [named(name)(own, all_queues, ids) for own in ids]
    assert found == [
        [MessageQueue("orders", BROKERS[one[0]], int(one[1:])) for one in share.split()] for share in shares.split("|")
    ]


@pytest.mark.parametrize("name", [*STRATEGIES, "near"])
@pytest.mark.parametrize("queue_count", [1, 2, 7, 16, 33])
@pytest.mark.parametrize("member_count", [1, 2, 3, 8, 40])
def test_every_queue_has_exactly_one_owner(name: str, queue_count: int, member_count: int) -> None:
    all_queues, ids = queues(queue_count), members(member_count)
    shares = [queue for own in ids for queue in named(name)(own, all_queues, ids)]
    assert sorted(shares) == sorted(all_queues)


@pytest.mark.parametrize("name", [*STRATEGIES, "near", "room"])
def test_one_who_is_not_in_the_list_gets_nothing(name: str) -> None:
    assert named(name)("stranger", queues(4), members(2)) == []
    assert allocated(named(name), "stranger", queues(4), members(2)) == set()


def test_lists_are_sorted_first() -> None:
    ids, all_queues = members(3), queues(8)
    for own in ids:
        expected = set(average(own, all_queues, ids))
        assert allocated(average, own, reversed(all_queues), [*reversed(ids), ids[0]]) == expected


def test_configured_queues_count_where_the_topic_has_them() -> None:
    mine = [queues(4)[1], MessageQueue("orders", "gone", 0)]
    assert allocated(configured(mine), members(1)[0], queues(4), members(1)) == {mine[0]}


def test_few_queues_move_on_the_ring_when_a_member_leaves() -> None:
    all_queues, ids = queues(100), members(10)
    before = {queue: own for own in ids for queue in consistent_hash(own, all_queues, ids)}
    left = ids[:-1]
    after = {queue: own for own in left for queue in consistent_hash(own, all_queues, left)}
    assert {queue for queue in all_queues if before[queue] != after[queue]} == {
        queue for queue, own in before.items() if own == ids[-1]
    }
