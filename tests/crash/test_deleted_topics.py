"""Deleted topics and damage together: a start and a salvage keep every whole record that a queue should have.

A topic that was deleted and used again begins its queues at offset 0. Where the log lost the record of offset 0, a walk
cannot see that the topic began again; the note of deleted topics says it. Stores are made from a seed, one log file is
removed and one becomes zeros, and what is left is compared with what was there before.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.model.message import StoredMessage
from embermq.repair.salvage.salvaging import salvage
from embermq.repair.verify.store_check import verify
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from embermq.testing.lossy_files import LossyFiles

ROOT, NEW = Path("/store"), Path("/new")
SEGMENT_BYTES = 4096
TOPICS = ("apples", "pears", "plums")
LOST_TO_A_LATER_LIFE = (8, 9, 12, 17, 19)  # Each failed before the walk used the note.

Placed = dict[tuple[str, int, int], StoredMessage]


@dataclass
class Case:
    """A store on a disk, its messages, and which of them were lost."""

    disk: LossyFiles
    builder: StoreBuilder
    messages: Placed
    lost: set[int] = field(default_factory=set)

    @property
    def expected(self) -> dict[tuple[str, int, int], bytes]:
        return {key: one.body for key, one in self.messages.items() if one.physical_offset not in self.lost}

    def at(self, root: Path) -> StoreBuilder:
        builder = StoreBuilder(root, clock=ManualClock(), files=self.disk)
        builder.settings = self.builder.settings
        return builder


def make_store(chance: random.Random) -> Case:
    """Messages, a topic deleted, more messages, perhaps of the deleted topic too; this up to three times."""
    disk = LossyFiles()
    builder = StoreBuilder(
        ROOT,
        clock=ManualClock(),
        files=disk,
        segment_bytes=SEGMENT_BYTES,
        delayed_delivery=False,
        queue_file_bytes=20 * chance.choice([8, 16, 64]),
        index_slots_max=16,
        index_entries_max=chance.choice([20, 64, 400]),
    )
    with builder.open() as store:
        for _ in range(chance.randint(1, 3)):
            fill(store, chance, TOPICS)
            gone = chance.choice(TOPICS)
            if gone in store.topics():
                store.delete_topic(gone)
            fill(store, chance, TOPICS if chance.random() < 0.5 else [one for one in TOPICS if one != gone])
    return Case(disk, builder, messages_of(builder))


def fill(store: MessageStore, chance: random.Random, topics: "list[str] | tuple[str, ...]") -> None:
    for number in range(chance.randint(5, 60)):
        body = f"{number}-{chance.random()}".encode() + bytes(chance.randint(0, 200))
        store.append(Message(chance.choice(topics), body, keys=f"k{number}", queue_id=chance.randrange(2)))


def messages_of(builder: StoreBuilder) -> Placed:
    """What a consumer that reads every queue from its beginning gets."""
    found: Placed = {}
    with builder.open(read_only=True) as store:
        for topic, queue_ids in store.topics().items():
            for queue_id in queue_ids:
                at = store.min_offset(topic, queue_id)
                while at < store.max_offset(topic, queue_id):
                    fetched = store.fetch(topic, queue_id, at, 32)
                    found |= {(topic, queue_id, one.queue_offset): one for one in fetched.messages}
                    assert fetched.next_offset > at
                    at = fetched.next_offset
    return found


def damage(case: Case, chance: random.Random) -> None:
    """Remove one log file with messages, and fill another one with zeros."""
    log = ROOT / "commitlog"
    starts = sorted({one.physical_offset // SEGMENT_BYTES * SEGMENT_BYTES for one in case.messages.values()})
    if len(starts) < 2:
        return
    removed, zeroed = chance.sample(starts, 2)
    case.disk.remove(log / f"{removed:020d}")
    file = case.disk.open(log / f"{zeroed:020d}", True)
    file.pwrite(bytes(SEGMENT_BYTES), 0)
    file.close()
    places = (one.physical_offset for one in case.messages.values())
    case.lost = {place for place in places if place - place % SEGMENT_BYTES in (removed, zeroed)}


def damaged(seed: int) -> Case:
    chance = random.Random(seed)
    case = make_store(chance)
    damage(case, chance)
    return case


def bodies(builder: StoreBuilder) -> dict[tuple[str, int, int], bytes]:
    return {key: one.body for key, one in messages_of(builder).items()}


def check_salvage(seed: int) -> None:
    case = damaged(seed)
    salvage(ROOT, NEW, case.builder.settings, files=case.disk, clock=ManualClock())
    report = verify(NEW, files=case.disk)
    assert report.is_sound, report.flaws
    assert bodies(case.at(NEW)) == case.expected


def check_start(seed: int) -> None:
    case = damaged(seed)
    assert bodies(case.builder) == case.expected  # A reader, which writes nothing.
    case.builder.open().close()
    report = verify(ROOT, files=case.disk)
    assert not [flaw for flaw in report.flaws if "has no entry" in flaw.fault or "its record is" in flaw.fault], report
    assert bodies(case.builder) == case.expected


@pytest.mark.parametrize("seed", LOST_TO_A_LATER_LIFE)
def test_salvage_keeps_what_came_after_a_deletion(seed: int) -> None:
    check_salvage(seed)


@pytest.mark.parametrize("seed", LOST_TO_A_LATER_LIFE)
def test_a_start_keeps_what_came_after_a_deletion(seed: int) -> None:
    check_start(seed)


@pytest.mark.long
def test_many_stores_with_deleted_topics_and_damage() -> None:
    for seed in range(1000, 1300):
        check_salvage(seed)
        check_start(seed)


@pytest.mark.parametrize("kept", ["no files", "all files"])
def test_a_new_life_without_the_note_and_with_damage_elsewhere(kept: str) -> None:
    """Nothing says that the topic was deleted but offset 0 and 1 coming again. The queue ends with its new life, and
    does not go for what the old one had behind it."""
    disk = LossyFiles()
    builder = StoreBuilder(ROOT, clock=ManualClock(), files=disk, segment_bytes=SEGMENT_BYTES, queue_file_bytes=20 * 32)
    with builder.open() as store:
        store.append_many([Message("apples", b"old", keys="old") for _ in range(8)])
        hit = store.append(Message("pears", bytes(100)))
        store.append_many([Message("pears", b"after") for _ in range(3)])
        store.wait_for_dispatch()
        store.delete_topic("apples")
        store.append_many([Message("apples", b"new %d" % number) for number in range(3)])
    disk.remove(ROOT / "embermq.deleted.json")
    disk.remove(ROOT / "embermq.inventory.json")
    if kept == "no files":
        disk.remove(ROOT / "consumequeue" / "apples" / "0" / f"{0:020d}")
    file = disk.open(ROOT / "commitlog" / f"{0:020d}", True)
    file.pwrite(b"\xff" * 50, hit.physical_offset + 100)
    file.close()
    with builder.open() as store:
        assert [reported.physical_offset for reported in store.recovery.damages] == [hit.physical_offset]
        assert [one.body for one in store.fetch("apples", 0, 0).messages] == [b"new 0", b"new 1", b"new 2"]
        assert store.append(Message("apples", b"next")).queue_offset == 3
    assert verify(ROOT, files=disk).is_sound
