"""The log's last record, cut at every byte, and every kind of rubbish after it.

Exactly the complete records survive, the next append is readable, and the second start has nothing to do.
"""

import random
from collections.abc import Callable

import pytest

from embermq.settings import FlushDisk
from embermq.testing.lossy_files import LossyFiles
from tests.crash import disks, numbered

COUNT = 7  # The last record is the last of an append_many.
PLAN = disks.builder(FlushDisk.ASYNC)

Rubbish = Callable[[bytes, int], bytes]


def _stale(log: bytes, size: int) -> bytes:
    """Records of an older life of the file."""
    return (log * (size // len(log) + 1))[:size]


RUBBISH: dict[str, Rubbish] = {
    "zeros": lambda log, size: bytes(size),
    "ones": lambda log, size: b"\xff" * size,
    "random": lambda log, size: random.Random(size).randbytes(size),
    "stale": _stale,
}


def check_cut(disk: LossyFiles, count: int) -> None:
    """A store opened there has the first `count` numbers, takes more, and starts cleanly afterwards."""
    with PLAN.on(disk).open() as store:
        numbered.check(store, range(count))
        end = numbered.append_until(store, count, count + 1)
        numbered.check(store, range(end))
    with PLAN.on(disk).open() as again:
        assert again.recovery.clean
        assert not again.recovery.damages
        assert not again.recovery.findings
        numbered.check(again, range(end))


@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("rubbish", RUBBISH)
def test_the_last_record_is_cut(rubbish: str, closed: bool) -> None:
    cut_last_record(rubbish, closed, 2 if rubbish == "zeros" and not closed else 7)


@pytest.mark.long
@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("rubbish", RUBBISH)
def test_the_last_record_is_cut_at_every_byte(rubbish: str, closed: bool) -> None:
    cut_last_record(rubbish, closed, 1)


def cut_last_record(rubbish: str, closed: bool, stride: int) -> None:
    """`closed`: the disk had confirmed the record before, and lost it all the same; that is reported.

    The format has no sum over the properties, at the end of a record: there only zeros can be recognised, which is
    what a file that was never written to holds, and only as long as nobody has confirmed the record.
    """
    whole = disks.closed(COUNT, PLAN) if closed else disks.killed(COUNT, PLAN)
    start, end = disks.places(whole, PLAN)[-1]
    log = whole.read_all(disks.FIRST_SEGMENT)
    properties_at = end - len(numbered.message(COUNT - 1).property_bytes())
    tells = rubbish == "zeros" and not closed
    for at in range(start, end if tells else properties_at, stride):
        disk = disks.copy(whole)
        disks.overwrite(disk, disks.FIRST_SEGMENT, at, RUBBISH[rubbish](log[:end], len(log) - at))
        if closed:
            with PLAN.on(disks.copy(disk)).open() as store:
                assert store.recovery.damages[0].physical_offset == start
        check_cut(disk, COUNT - 1)


@pytest.mark.parametrize("rubbish", ["ones", "random", "stale"])
def test_rubbish_after_the_last_record_goes(rubbish: str) -> None:
    whole = disks.killed(COUNT, PLAN)
    _, end = disks.places(whole, PLAN)[-1]
    log = whole.read_all(disks.FIRST_SEGMENT)
    for size in (1, 3, 4, 7, 8, 9, 90, 91, 100, 1000, len(log) - end):
        disk = disks.copy(whole)
        disks.overwrite(disk, disks.FIRST_SEGMENT, end, RUBBISH[rubbish](log[:end], size))
        check_cut(disk, COUNT)


def test_a_log_file_cut_short() -> None:
    cut_file_short(3)


@pytest.mark.long
def test_a_log_file_cut_short_at_every_byte() -> None:
    cut_file_short(1)


def cut_file_short(stride: int) -> None:
    whole = disks.killed(COUNT, PLAN)
    places = disks.places(whole, PLAN)
    start, end = places[-1]
    for size in (*range(start, end + 1, stride), end, end + 1, end + 5000, *(at for at, _ in places)):
        disk = disks.copy(whole)
        disks.shorten(disk, disks.FIRST_SEGMENT, size)
        check_cut(disk, sum(1 for _, stop in places if stop <= size))


def test_the_tail_is_split_over_two_files() -> None:
    """Killed, or without power, while going over to the next file: its first record is torn, or the blank is."""
    whole = disks.killed(40, PLAN)
    places = disks.places(whole, PLAN)
    second = disks.ROOT / "commitlog" / f"{8192:020d}"
    last = max(number for number, (start, _) in enumerate(places) if start < 8192)
    for path in disks.paths(whole, disks.ROOT / "commitlog"):
        if path > second:
            whole.remove(path)
    for missing in (0, 8, 100, 8192):  # How much of the second file is there.
        disk = disks.copy(whole)
        disks.overwrite(disk, second, missing, bytes(8192 - missing))
        complete = sum(1 for _, end in places if end <= 8192 + missing)
        check_cut(disk, complete)
    for kept in range(9):  # How much of the blank is there; the second file is empty.
        disk = disks.copy(whole)
        disks.overwrite(disk, second, 0, bytes(8192))
        blank_at = places[last][1]
        disks.overwrite(disk, disks.FIRST_SEGMENT, blank_at + kept, bytes(8192 - blank_at - kept))
        check_cut(disk, last + 1)
