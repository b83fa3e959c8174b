"""The same puts at the same times make the same files on both sides, byte for byte."""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from embermq.testing.clock import ManualClock
from tests.interop.appender import append, opened
from tests.interop.reference import ReferenceSession
from tests.interop.workload import SMALL_FILES, mixed, put_of
from tests.support import golden

pytestmark = pytest.mark.interop

START_MS = 1_700_000_000_000


@pytest.mark.parametrize("seed", range(40, 44))
def test_log_queues_and_index_are_equal(seed: int, directory: Path) -> None:
    puts = mixed(300, seed)
    pace = random.Random(seed)
    pauses_ms = [pace.choice((0, 0, 1, 700, 5000)) for _ in puts]
    here, there = directory / "ours", directory / "theirs"
    clock = ManualClock(START_MS)
    with opened(here, SMALL_FILES, clock=clock) as store:
        placed = []
        times = []
        for put, pause_ms in zip(puts, pauses_ms, strict=True):
            clock.advance(ms=pause_ms)
            times.append(clock.now_ms())
            placed.append(append(store, put).physical_offset)
    with ReferenceSession(there, SMALL_FILES) as session:
        answers = session.put_all(put_of(put, time) for put, time in zip(puts, times, strict=True))
    assert placed == [answer.wrote_offset for answer in answers]
    assert_same_files(here, there)


def assert_same_files(here: Path, there: Path, families: Mapping[str, bool] | None = None) -> None:
    """Index files are named by the wall clock of their making, so they are compared in the order of names."""
    for family, names in (families or {"commitlog": True, "consumequeue": True, "index": False}).items():
        mine = golden.content(here / family, names=names)
        assert mine, f"no files in {family}"
        assert mine == golden.content(there / family, names=names), family
