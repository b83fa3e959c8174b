"""Which queues of a topic belong to which member of a group. Pure; the same answers as RocketMQ's strategies.

Every member works the whole allocation out for itself, from the same two sorted lists; nothing is agreed on. Members
that see different lists for a moment may both take a queue, or neither, until the next rebalance.

    average           neighbouring queues, sizes that differ by one at most
    average_by_circle every m-th queue
    configured        what the configuration says, regardless of other members
    by_machine_room   averages over the queues of brokers named `room@broker` in the rooms given
    near_machine_room each room's queues among its own members; rooms without members among all
    consistent_hash   a ring of 10 points a member: few queues move when a member comes or goes
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import md5

from embermq.client.message_queue import MessageQueue

# Own client id, sorted queues of one topic, sorted client ids of the group -> the own queues.
Allocate = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
RING_POINTS = 10


def allocated(
    strategy: Allocate, own: str, queues: Iterable[MessageQueue], members: Iterable[str]
) -> set[MessageQueue]:
    """The own share, by lists sorted as everyone sorts them; nothing for one who is not in the list."""
    ids, all_queues = sorted(set(members)), sorted(queues)
    if own not in ids or not all_queues:
        return set()
    known = set(all_queues)
    return {queue for queue in strategy(own, all_queues, ids) if queue in known}


def average(own: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    if own not in members:
        return []
    index, rest = members.index(own), len(queues) % len(members)
    has_one_more = index < rest
    size = 1 if len(queues) <= len(members) else len(queues) // len(members) + has_one_more
    start = index * size if has_one_more else index * size + rest
    return list(queues[start : start + size])


def average_by_circle(own: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    return list(queues[members.index(own) :: len(members)]) if own in members else []


def configured(queues: Collection[MessageQueue]) -> Allocate:
    """Always these queues, where the topic has them."""
    listed = list(queues)

    def allocate(own: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        return listed

    return allocate


def by_machine_room(rooms: Collection[str]) -> Allocate:
    """Only queues of brokers in these rooms; a broker's name says its room: `room@broker`."""
    wanted = frozenset(rooms)

    def allocate(own: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        if own not in members:
            return []
        near = [queue for queue in queues if queue.broker.count("@") == 1 and queue.broker.partition("@")[0] in wanted]
        index, (size, rest) = members.index(own), divmod(len(near), len(members))
        own_queues = near[index * size : (index + 1) * size]
        return own_queues + ([near[size * len(members) + index]] if index < rest else [])

    return allocate


def near_machine_room(
    strategy: Allocate, broker_room: Callable[[str], str], member_room: Callable[[str], str]
) -> Allocate:
    """`strategy` inside each room; queues of rooms without a member are shared out among all members."""

    def allocate(own: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        if own not in members:
            return []
        queues_of: dict[str, list[MessageQueue]] = defaultdict(list)
        members_of: dict[str, list[str]] = defaultdict(list)
        for queue in queues:
            queues_of[broker_room(queue.broker)].append(queue)
        for member in members:
            members_of[member_room(member)].append(member)
        here = member_room(own)
        found = strategy(own, queues_of[here], members_of[here]) if queues_of.get(here) else []
        for room in sorted(queues_of):
            if room not in members_of and queues_of[room]:
                found = found + strategy(own, queues_of[room], members)
        return found

    return allocate


def consistent_hash(
    own: str, queues: Sequence[MessageQueue], members: Sequence[str], points: int = RING_POINTS
) -> list[MessageQueue]:
    if own not in members:
        return []
    ring = {_ring_hash(f"{member}-{point}"): member for member in members for point in range(points)}
    places = sorted(ring)
    return [queue for queue in queues if ring[_next_place(places, _ring_hash(_java_text(queue)))] == own]


def _next_place(places: Sequence[int], at: int) -> int:
    """The first place at or after `at`, around the ring."""
    index = bisect_left(places, at)
    return places[index] if index < len(places) else places[0]


def _ring_hash(text: str) -> int:
    """The first four bytes of the MD5 sum: where RocketMQ puts a text on its ring. It protects nothing."""
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def _java_text(queue: MessageQueue) -> str:
    """A queue as Java prints it, which is what RocketMQ hashes."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker}, queueId={queue.queue_id}]"


# By the names that RocketMQ's clients report (`AVG`, `AVG_BY_CIRCLE`, `CONSISTENT_HASH`).
STRATEGIES: dict[str, Allocate] = {
    "average": average,
    "circle": average_by_circle,
    "consistent_hash": consistent_hash,
}
