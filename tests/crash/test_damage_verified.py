"""After an opening that quarantined damage, `verify` finds nothing to complain of: neither queues nor index lead to a
record that is gone.

A range of whole records is damaged, because no checksum covers the head of a record: a flipped bit there changes the
message, and nothing can know it.
"""

import random

import pytest

from embermq.repair.verify.store_check import verify
from embermq.testing.lossy_files import LossyFiles
from tests.crash import disks, numbered

COUNT = 90
SEGMENT_BYTES = 8192
PLAN = disks.builder()
LOG = disks.ROOT / "commitlog"


def make_disk(left_by: str) -> LossyFiles:
    match left_by:
        case "close":
            return disks.closed(COUNT, PLAN)
        case "kill":
            return disks.killed(COUNT, PLAN, rest_at=COUNT // 2)
        case "kill at rest":
            return disks.killed(COUNT, PLAN, at_rest=True)
        case _:
            return disks.killed(COUNT, PLAN, at_rest=True).crash()  # Another boot: only what was synced counts.


def damage(disk: LossyFiles, chance: random.Random) -> None:
    """Records first..last of one file are zeroed, or overwritten by noise."""
    places = disks.places(disk, PLAN)
    first = chance.randrange(len(places) - 1)
    start = places[first][0]
    file_start = start - start % SEGMENT_BYTES
    chosen = places[first : first + chance.choice((1, 2, 8, 40))]
    length = max(end for begin, end in chosen if begin < file_start + SEGMENT_BYTES) - start
    data = bytes(length) if chance.random() < 0.5 else chance.randbytes(length)
    disks.overwrite(disk, LOG / f"{file_start:020d}", start - file_start, data)


def check_sound(disk: LossyFiles) -> None:
    for fast in (False, True):
        report = verify(disks.ROOT, files=disk, fast=fast)
        assert [str(flaw) for flaw in report.flaws if flaw.is_fault] == []


@pytest.mark.parametrize("left_by", ["close", "kill", "kill at rest", "power cut"])
@pytest.mark.parametrize("seed", range(6))
def test_verify_is_content_after_an_opening_that_met_damage(left_by: str, seed: int) -> None:
    disk, chance = make_disk(left_by), random.Random(seed)
    for _ in range(chance.randrange(1, 4)):
        damage(disk, chance)
    with PLAN.on(disk).open() as store:
        met = store.recovery.damages
        numbered.check_keys(store, numbered.numbers_in(store))
    assert met
    check_sound(disk)


@pytest.mark.parametrize("left_by", ["close", "kill", "kill at rest", "power cut"])
@pytest.mark.parametrize("number", [54, 70])
def test_keys_that_changed_before_damage_are_indexed_as_they_are(left_by: str, number: int) -> None:
    """No checksum covers keys, so the record is taken; the index has what it had before."""
    disk = make_disk(left_by)
    places = disks.places(disk, PLAN)
    for n in (3, number):
        start, end = places[n]
        path, at = LOG / f"{start - start % SEGMENT_BYTES:020d}", start % SEGMENT_BYTES
        record = disk.read_all(path)[at : at + end - start]
        disks.overwrite(disk, path, at + record.index(b"id%d" % n), b"ID")
    start, end = places[number + 1]
    disks.overwrite(disk, LOG / f"{start - start % SEGMENT_BYTES:020d}", start % SEGMENT_BYTES, bytes(end - start))
    with PLAN.on(disk).open() as store:
        assert store.recovery.damages
        if store.recovery.walked_from <= places[number][0]:
            assert [one.keys for one in store.find(numbered.known(number).topic, f"ID{number}")]
    if store.recovery.walked_from == 0:
        check_sound(disk)
