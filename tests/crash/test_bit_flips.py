"""One bit turned over anywhere in a store: it opens, and nobody is given a wrong message.

    commitlog               the damaged record is gone or harmless, every other one is there
    consumequeue, index     no wrong message is delivered, and once the files are deleted every message is back
    checkpoint, embermq.*   every message is there

Queues and index have no sums, and a start that believes them does not read them through: a flipped bit in the
middle may hide the message it is about. After a kill the proven part of the log is believed in the same way:
a damaged record there is never delivered, and it is reported by the next start that walks there.

RocketMQ's format has a sum over the body only. What a flip in the other fields of a record may do is
therefore bounded, not excluded: the record may be delivered with a changed field the format cannot check
(its time, host, flag or a property), never with another body or place. A changed queue offset or system flag
puts the record elsewhere in its queue, or into it, and nothing in the format tells: these are left out here. A
changed queue id or topic makes it a guest in another queue, with its own body.
"""

import random
import time
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.settings import FlushDisk
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from embermq.testing.lossy_files import LossyFiles
from tests.crash import disks, numbered

pytestmark = pytest.mark.usefixtures("short_tail")

COUNT = 16
PLAN = disks.builder(index_slots_max=4, index_entries_max=20, queue_file_bytes=20 * 400)
BITS = 8
DERIVED = ("consumequeue", "index")
UNPROTECTED = (*range(20, 28), *range(36, 40))  # Queue offset and system flag.


def used_bytes(disk: LossyFiles, path: Path) -> range:
    """The part of a file that means something, and a little after it."""
    return range(min(len(disk.read_all(path).rstrip(b"\0")) + 16, disk.stat(path).size))


def flips(disk: LossyFiles, path: Path, stride: int, without: Collection[int]) -> Iterator[tuple[int, LossyFiles]]:
    """Copies of the disk with one bit of the file turned over: every `stride`-th byte, each another bit."""
    source = random.Random(path.name)
    for at in used_bytes(disk, path)[:: max(1, stride)]:
        if at in without:
            continue
        bits = range(BITS) if stride == 0 else [source.randrange(BITS)]
        for bit in bits:
            changed = disks.copy(disk)
            disks.flip(changed, path, 8 * at + bit)
            yield 8 * at + bit, changed


def check_log_flip(store: MessageStore, bit: int, places: list[tuple[int, int]]) -> None:
    """At most the record with the flipped bit is missing; every body that is delivered is one that was sent."""
    hit = [number for number, (start, end) in enumerate(places) if start <= bit // 8 < end]
    check_delivery(store, may_miss=hit)
    if store.recovery.clean:  # The whole log was walked.
        bodies = [one.body for one in store.scan() if not one.topic.startswith(numbered.FILLER_TOPIC[:1])]
        wanted = [numbered.known(n).body for n in range(COUNT)]
        assert {n for n in range(COUNT) if wanted[n] not in bodies} <= set(hit)
        assert all(body in wanted for body in bodies)


def check_delivery(store: MessageStore, may_miss: Collection[int]) -> None:
    """Queues and keys deliver messages of their own and nothing else; only some may be missing, or misplaced."""
    queues = {(known.topic, known.queue_id) for n in range(COUNT) if (known := numbered.known(n)).queued}
    for topic, queue_id in queues:
        check_queue(store, topic, queue_id, may_miss)
    for n in range(COUNT):
        known = numbered.known(n)
        for key in known.keys if known.indexed else ():
            found = [numbered.number_of(one.body) for one in store.find(known.topic, key)]
            assert found == sorted(set(found))
            assert all(other in may_miss or key in numbered.known(other).keys for other in found)
            assert n in found or n in may_miss


def check_queue(store: MessageStore, topic: str, queue_id: int, may_miss: Collection[int]) -> None:
    """A queue delivers its own messages in order."""
    mine = [n for n in range(COUNT) if known_place(n) == (topic, queue_id)]
    at = store.min_offset(topic, queue_id)
    got = []
    while at < store.max_offset(topic, queue_id):
        outcome = store.fetch(topic, queue_id, at)
        for one in outcome.messages:
            n = numbered.number_of(one.body)
            assert one.body == numbered.known(n).body
            assert n in may_miss or n in mine
            got.append(n)
        assert outcome.next_offset > at
        at = outcome.next_offset
    own = [n for n in got if n in mine]  # A record whose queue id was flipped may come as a guest, anywhere.
    assert own == sorted(own)
    assert set(mine) - set(got) <= set(may_miss), (topic, queue_id, got, mine)


def known_place(n: int) -> tuple[str, int] | None:
    one = numbered.known(n)
    return (one.topic, one.queue_id) if one.queued else None


def check_flip(disk: LossyFiles, kind: str, bit: int, places: list[tuple[int, int]]) -> None:
    with PLAN.on(disk).open() as store:
        if kind == "commitlog":
            check_log_flip(store, bit, places)
        elif kind in DERIVED:
            assert numbered.numbers_in(store) == list(range(COUNT))
            check_delivery(store, may_miss=range(COUNT))
        else:
            numbered.check(store, range(COUNT))
            assert not store.recovery.damages, store.recovery
        end = numbered.append_until(store, COUNT, COUNT + 1)
    if kind in DERIVED:
        for path in disks.paths(disk, disks.ROOT / kind):
            disk.remove(path)
        with PLAN.on(disk).open() as store:
            numbered.check(store, range(end))
    with PLAN.on(disk).open() as again:
        assert again.recovery.clean
        newest = numbered.known(COUNT)
        assert numbered.fetch_all(again, newest.topic, newest.queue_id)[-1][1] == COUNT
    with PLAN.on(disk).open() as again:
        assert not again.recovery.damages
        assert not again.recovery.findings


def sweep(disk: LossyFiles, path: Path, stride: int) -> None:
    places = disks.places(disk, PLAN)
    kind = path.relative_to(disks.ROOT).parts[0]
    unprotected = {start + at for start, _ in places for at in UNPROTECTED} if kind == "commitlog" else set()
    for bit, changed in flips(disk, path, stride, unprotected):
        try:
            check_flip(changed, kind, bit, places)
        except Exception as problem:
            raise AssertionError(f"{path.relative_to(disks.ROOT)}, byte {bit // 8}, bit {bit % 8}") from problem


def kinds_of_files(disk: LossyFiles) -> dict[str, list[Path]]:
    kinds: dict[str, list[Path]] = {}
    for path in disks.paths(disk):
        parts = path.relative_to(disks.ROOT).parts
        if parts[-1] != "lock":  # Nobody reads it.
            kinds.setdefault(parts[0], []).append(path)
    return kinds


STORES: dict[str, Callable[[], LossyFiles]] = {
    "closed": lambda: disks.closed(COUNT, PLAN),
    "killed": lambda: disks.killed(COUNT, PLAN, at_rest=True),
}
KINDS = [
    ("commitlog", 83),
    ("consumequeue", 47),
    ("index", 61),
    ("checkpoint", 7),
    ("embermq.state", 11),
    ("embermq.index.json", 23),
    ("embermq.inventory.json", 61),
]


@pytest.mark.slow(25)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(("kind", "stride"), KINDS)
def test_a_flipped_bit_does_no_harm(kind: str, stride: int, store: str) -> None:
    disk = STORES[store]()
    files = kinds_of_files(disk).get(kind, [])
    assert files or (kind, store) == ("embermq.inventory.json", "killed")
    for path in files:
        sweep(disk, path, stride)


def test_no_kind_of_file_is_left_out() -> None:
    seen = {name for make in STORES.values() for name in kinds_of_files(make())}
    assert seen - {"abort"} == {kind for kind, _ in KINDS}


@pytest.mark.long
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS])
def test_every_byte(kind: str, store: str) -> None:
    """And of the smallest files every bit."""
    disk = STORES[store]()
    for path in kinds_of_files(disk).get(kind, []):
        sweep(disk, path, 0 if kind in ("checkpoint", "embermq.state") else 1)


# -- files that only some stores have ------------------------------------------------------------------------------

RARE = ("consumequeue_ext", "config", "embermq.offsets.json", "embermq.deleted.json")
RARE_CLOCK = ManualClock(4_000_000_000_000)  # Every file is old then.
RARE_PLAN = StoreBuilder(
    disks.ROOT,
    clock=RARE_CLOCK,
    flush=FlushDisk.SYNC,
    **(
        numbered.TINY
        | {
            "queue_extension": True,
            "queue_extension_file_bytes": 2048,
            "delayed_delivery": True,
            "retention_hours": 0,
            "delete_segment_pause_ms": 0,
            "delete_queue_pause_ms": 0,
        }
    ),
)


@lru_cache
def rare_store() -> tuple[LossyFiles, frozenset[int]]:
    """A closed store with an extension, progress of delayed messages, a queue that was emptied and a deleted topic;
    and the numbers it holds."""
    disk = LossyFiles()
    with RARE_PLAN.on(disk).open() as store:
        for _ in range(3):
            store.append(Message("Emptied", b"x"))
            store.append(Message("Deleted", b"x"))
        numbered.append_until(store, 0, 80)
        store.delete_topic("Deleted")
        assert store.engine.services.delayed is not None
        deadline = time.monotonic() + 60
        while store.engine.services.delayed.first_parked() is not None and time.monotonic() < deadline:
            RARE_CLOCK.advance(s=60)  # What was parked is delivered, and holds nothing any more.
            time.sleep(0.01)
        store.wait_for_dispatch()
        assert store.delete_expired().segments
        numbers = frozenset(rare_numbers(store))
    return disk, numbers


def rare_numbers(store: MessageStore) -> list[int]:
    return [numbered.number_of(one.body) for one in store.scan() if b"|" in one.body]


def sweep_rare(kind: str, stride: int) -> None:
    disk, numbers = rare_store()
    files = kinds_of_files(disk).get(kind, [])
    assert files, kind
    for path in files:
        for bit, changed in flips(disk, path, stride, ()):
            where = f"{path.relative_to(disks.ROOT)}, byte {bit // 8}, bit {bit % 8}"
            with RARE_PLAN.on(changed).open() as store:
                assert set(rare_numbers(store)) == numbers, where  # Delayed ones may be delivered again.
                for topic, queue_ids in store.topics().items():
                    for queue_id in queue_ids:
                        if topic in ("Topic0", "Topic1", numbered.BATCH_TOPIC):
                            numbered.fetch_all(store, topic, queue_id)  # Checks each body against its number.
                assert not store.recovery.damages, where
                assert store.append(Message("Emptied", b"y")).queue_offset in (0, 3), where


@pytest.mark.parametrize("kind", RARE)
def test_a_flipped_bit_in_a_file_that_few_stores_have(kind: str) -> None:
    sweep_rare(kind, 41 if kind == "consumequeue_ext" else 13)


@pytest.mark.long
@pytest.mark.parametrize("kind", RARE)
def test_every_byte_of_files_that_few_stores_have(kind: str) -> None:
    sweep_rare(kind, 1)
