"""Records through a map: the same as with pread, from anywhere to anywhere; a hand-over where something is wrong."""

from pathlib import Path

import pytest

from embermq.columns.rows import C_PHYSICAL, new_rows
from embermq.store.compare.mapped_pieces import MappedScan, mapped_records
from embermq.store.log.file_scan import DamagedRange, LogSegment, scan_segments
from embermq.testing.lossy_files import LossyFiles
from tests.crash import disks
from tests.crash.disks import FIRST_SEGMENT
from tests.support.bad_disk import BadDisk

SEGMENT = LogSegment(FIRST_SEGMENT, 0, 8192)


@pytest.fixture(scope="module")
def disk() -> LossyFiles:
    return disks.closed(60)


def mapped(disk: LossyFiles | BadDisk, start: int, end: int, rows: int = 64) -> tuple[list[int], MappedScan]:
    steps = mapped_records(disk, SEGMENT, start, end, new_rows(rows))
    found: list[int] = []
    while True:
        try:
            batch = next(steps)
        except StopIteration as done:
            return found, done.value
        found += [int(row[C_PHYSICAL]) for row in batch.rows]


def plain(disk: LossyFiles, start: int, end: int) -> list[int]:
    found = []
    for scanned in scan_segments([SEGMENT], start, end, files=disk):
        assert not isinstance(scanned, DamagedRange)
        found += [int(row[C_PHYSICAL]) for row in scanned.rows]
    return found


@pytest.mark.parametrize("rows", [1, 3, 64])
def test_any_stretch(disk: LossyFiles, rows: int) -> None:
    """A record that begins before the end is given whole; a blank ends the file."""
    places = [start for start, _ in disks.places(disk) if start < 8192]
    after = dict(disks.places(disk))
    for start in places[::4]:
        for end in range(start + 1, 8193, 331):
            found, stop = mapped(disk, start, end, rows)
            assert found == plain(disk, start, end)
            assert stop.is_done
            assert stop.place in (after[found[-1]], 8192)
            assert stop.place >= end


def test_what_is_wrong_is_left_to_others(disk: LossyFiles) -> None:
    start, end = disks.places(disk)[7]
    left = disks.copy(disk)
    disks.flip(left, FIRST_SEGMENT, 8 * (start + 89))
    found, stop = mapped(left, 0, 8192)
    assert stop == MappedScan(start, False)
    assert found == [place for place, _ in disks.places(disk) if place < start]
    zeroed = disks.copy(disk)
    disks.overwrite(zeroed, FIRST_SEGMENT, start, bytes(end - start))
    assert mapped(zeroed, 0, 8192)[1] == MappedScan(start, False)
    huge = disks.copy(disk)
    disks.overwrite(huge, FIRST_SEGMENT, start, b"\x7f\xff\xff\xff")
    assert mapped(huge, 0, start + 50)[1] == MappedScan(start, False)


def test_a_file_that_cannot_be_mapped_or_is_not_there(disk: LossyFiles) -> None:
    assert mapped(BadDisk(disk, {FIRST_SEGMENT: [0]}), 0, 8192) == ([], MappedScan(0, False))
    gone = disks.copy(disk)
    gone.remove(FIRST_SEGMENT)
    assert mapped(gone, 0, 8192) == ([], MappedScan(0, False))


def test_a_kernel_that_does_not_read_pages_in(disk: LossyFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embermq.store.compare.mapped_pieces.populate_for_reading", lambda view, start, end: False)
    assert mapped(disk, 0, 8192) == ([], MappedScan(0, False))


def test_a_short_file(disk: LossyFiles) -> None:
    cut = disks.copy(disk)
    disks.shorten(cut, FIRST_SEGMENT, 3000)
    found, stop = mapped(cut, 0, 8192)
    assert found
    assert all(place < 3000 for place in found)
    assert not stop.is_done or stop.place >= 3000


def test_paths_are_those_of_the_store() -> None:
    assert Path("/store/commitlog/00000000000000000000") == FIRST_SEGMENT
