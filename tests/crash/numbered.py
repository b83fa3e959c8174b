"""Messages known by their number alone, and the check of a store that holds them.

Message n always has the same topic, queue, body, keys and kind, so a store that was killed, cut or damaged
can be checked without any record of what was sent: what the log holds says which numbers are there, and the
numbers say what else must be true. Sixteen numbers make a round:

    0-3    one by one              10     delayed (stays parked)
    4-6    with append_many        11-13  prepared, committed, rolled back
    7-9    as one batch            14     a large body
                                   15     without keys and tags
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from embermq import BatchItem, FetchStatus, Message, MessageBatch, MessageStore, Receipt
from embermq.model import flags
from embermq.model.properties import SCHEDULE_TOPIC
from embermq.settings import KernelUse

ROUND = 16
LARGE_BYTES = 1500
BATCH_TOPIC = "Batches"
FILLER_TOPIC = "EMBERMQ_DAMAGED"
SHARED_KEYS = 5

# Files so small that a few dozen messages fill several of each kind.
TINY: dict[str, Any] = {
    "segment_bytes": 8192,
    "queue_file_bytes": 20 * 8,
    "index_slots_max": 16,
    "index_entries_max": 40,
    "delayed_delivery": False,
    "sync_flush_timeout_ms": 600_000,  # Tests look around while a sync is under way.
    "kernels": KernelUse.NEVER,
}


class Known(NamedTuple):
    """What message n is, apart from its place."""

    topic: str
    queue_id: int
    body: bytes
    keys: tuple[str, ...]
    tags: str | None
    sys_flag: int

    @property
    def queued(self) -> bool:
        return flags.has_queue_entry(self.sys_flag)

    @property
    def indexed(self) -> bool:
        return self.sys_flag & flags.TRANSACTION_MASK != flags.ROLLBACK


@lru_cache(maxsize=4096)
def known(n: int) -> Known:
    """Message n as it is found in a store."""
    place = n % ROUND
    source = random.Random(n)
    size = LARGE_BYTES if place == 14 else source.randrange(0, 120)
    body = b"%d|" % n + source.randbytes(size)
    keys = () if place == 15 else (f"id{n}", f"shared{n % SHARED_KEYS}")
    tags = None if place == 15 else f"tag{n % 3}"
    sys_flag = {11: flags.PREPARED, 12: flags.COMMIT, 13: flags.ROLLBACK}.get(place, 0)
    if place in (7, 8, 9):
        return Known(BATCH_TOPIC, 1, body, keys, tags, sys_flag)
    if place == 10:
        return Known(SCHEDULE_TOPIC, n // ROUND % 3, body, keys, tags, sys_flag)
    return Known(f"Topic{n // ROUND % 2}", n % 3, body, keys, tags, sys_flag)


def message(n: int) -> Message:
    """Message n as it is handed in."""
    one = known(n)
    if n % ROUND == 10:
        return Message(
            "Later",
            one.body,
            tags=one.tags,
            keys=one.keys,
            queue_id=3,
            delay_level=one.queue_id + 1,
        )
    return Message(one.topic, one.body, tags=one.tags, keys=one.keys, queue_id=one.queue_id, sys_flag=one.sys_flag)


def group_of(n: int) -> int:
    """How many messages are appended together when n is the next one."""
    return 3 if n % ROUND in (4, 7) else 1


def append(store: MessageStore, n: int) -> list[Receipt]:
    """Append message n and those that go with it; their receipts, all PUT_OK."""
    place = n % ROUND
    if place in (4, 5, 6):
        receipts = list(store.append_many([message(one) for one in range(n, n - place + 7)]))
    elif place in (7, 8, 9):
        numbers = range(n, n - place + 10)
        items = [BatchItem(known(one).body, message(one).all_properties()) for one in numbers]
        receipt = store.append_batch(MessageBatch(Message(BATCH_TOPIC, queue_id=1), items))
        receipts = [receipt] * len(numbers)
    else:
        receipts = [store.append(message(n))]
    assert all(receipt.ok for receipt in receipts), receipts
    return receipts


def append_until(store: MessageStore, start: int, end: int, acknowledged: Callable[[int], None] | None = None) -> int:
    """Append messages from `start` to at least `end`, telling after each append where the next one would begin."""
    n = start
    while n < end:
        n += len(append(store, n))
        if acknowledged is not None:
            acknowledged(n)
    return n


def number_of(body: bytes) -> int:
    return int(body[: body.index(b"|")])


def numbers_in(store: MessageStore) -> list[int]:
    """The numbers the log holds, in log order. Fillers of damaged places do not count."""
    return [number_of(one.body) for one in store.scan() if one.topic != FILLER_TOPIC[: len(one.topic)]]


def check(store: MessageStore, numbers: Iterable[int] | None = None, *, damaged: bool = False) -> list[int]:
    """Everything about a store that follows from the numbers in its log; the numbers.

    With `numbers`: those and no others. Queue offsets count the messages of a queue from 0 on. A number that
    is missing was never stored, or with `damaged` it was, and its queue offset stays unused.
    """
    found = numbers_in(store)
    assert found == sorted(set(found)), f"out of order or twice: {found}"
    if numbers is not None:
        assert found == list(numbers), _difference(found, list(numbers))
    for one in store.scan():
        if one.topic != FILLER_TOPIC[: len(one.topic)]:
            expected = known(number_of(one.body))
            seen = Known(one.topic, one.queue_id, one.body, tuple(one.keys), one.tags, one.sys_flag)
            assert seen == expected
            again = store.get(one.message_id)
            assert again is not None
            assert again.body == one.body
    check_queues(store, found, range(max(found, default=-1) + 1) if damaged else found)
    check_keys(store, found)
    return found


def _difference(found: list[int], wanted: list[int]) -> str:
    missing, extra = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    return f"missing {missing}, not expected {extra}"


def check_queues(store: MessageStore, found: list[int], stored: Iterable[int]) -> None:
    """Each queue delivers exactly its messages, at the offsets they were given when all of `stored` were there."""
    alive = set(found)
    queues: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    next_offset: dict[tuple[str, int], int] = defaultdict(int)
    for n in stored:
        one = known(n)
        if one.queued:
            queue = one.topic, one.queue_id
            if n in alive:
                queues[queue].append((next_offset[queue], n))
            next_offset[queue] += 1
    for (topic, queue_id), expected in queues.items():
        assert fetch_all(store, topic, queue_id) == expected, (topic, queue_id)
        # Offsets of lost messages at a queue's end are not given again, if the queue still knows of them.
        assert expected[-1][0] < store.max_offset(topic, queue_id) <= next_offset[topic, queue_id], (topic, queue_id)
    present = {(topic, queue_id) for topic, queue_ids in store.topics().items() for queue_id in queue_ids}
    assert set(queues) <= present <= set(next_offset)


def check_next_offsets(store: MessageStore, stored: int) -> None:
    """Every queue goes on after all it ever had, whether or not any of it is left."""
    expected: dict[tuple[str, int], int] = defaultdict(int)
    for n in range(stored):
        one = known(n)
        if one.queued:
            expected[one.topic, one.queue_id] += 1
    given = store.engine.writer.next_offsets()
    assert {key: given.get(key, 0) for key in expected} == expected


def fetch_all(store: MessageStore, topic: str, queue_id: int) -> list[tuple[int, int]]:
    """Queue offset and number of everything a consumer gets that reads a queue from its beginning."""
    delivered: list[tuple[int, int]] = []
    at = store.min_offset(topic, queue_id)
    end = store.max_offset(topic, queue_id)
    while at < end:
        outcome = store.fetch(topic, queue_id, at)
        for one in outcome.messages:
            expected = known(number_of(one.body))
            assert (one.topic, one.queue_id, one.body) == (topic, queue_id, expected.body)
            delivered.append((one.queue_offset, number_of(one.body)))
        assert outcome.next_offset > at, outcome
        at = outcome.next_offset
    assert store.fetch(topic, queue_id, end).status is FetchStatus.OFFSET_OVERFLOW_ONE or end == 0
    return delivered


def check_keys(store: MessageStore, found: list[int]) -> None:
    """Each key finds exactly the messages that have it, oldest first."""
    by_key: dict[tuple[str, str], list[int]] = defaultdict(list)
    for n in found:
        one = known(n)
        if one.indexed:
            for key in one.keys:
                by_key[one.topic, key].append(n)
    for (topic, key), expected in by_key.items():
        assert [number_of(one.body) for one in store.find(topic, key)] == expected, (topic, key)
