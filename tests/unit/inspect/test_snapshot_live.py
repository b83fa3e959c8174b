"""A store that is being written while it is looked at, by a thread or another process: whole records, in order,
none twice, nothing missing; and nothing of the store is touched."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from embermq import Message, MessageStore
from embermq.columns.rows import C_QUEUE_OFFSET
from embermq.files import RealFiles
from embermq.inspect.snapshot import DamagedRange, Survey
from embermq.settings import FlushDisk
from embermq.store.layout.state_page import load_state_page
from embermq.testing.builder import StoreBuilder
from tests.crash import numbered
from tests.crash.kills import Child
from tests.crash.test_kill import WAYS
from tests.support.surveys import bounds_of, check_against_log, expected_bounds, frames_of, places_of, seen_by

PATIENCE_SECONDS = 120.0


class Follower:
    """Reads a growing log piece by piece, as a stream does."""

    def __init__(self, root: Path) -> None:
        self.survey = Survey.open(root)
        self.position = self.survey.log_min
        self.places: list[int] = []
        self.next_offsets: dict[tuple[str, int], int] = {}

    def step(self) -> int:
        """Look again and read what is new; answers how many records that were."""
        self.survey.refresh()
        end = self.survey.log_end
        assert end >= self.position
        seen = seen_by(self.survey, self.position, end)
        assert not seen.damages
        self.places += seen.places
        spans = self.survey.queues()
        for key, (low, high) in bounds_of(self.survey).items():
            assert low <= self.next_offsets.get(key, low) <= high
            entries = self.survey.entries(*key, self.next_offsets.get(key, low), high)
            assert len(entries) == high - self.next_offsets.get(key, low)
            assert all(place < end for place in entries["physical_offset"].tolist())
            assert spans[key].end_physical <= end
            self.next_offsets[key] = high
        self.position = end
        return len(seen.places)


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_a_thread_writes_and_one_reads(tmp_path: Path, flush: FlushDisk) -> None:
    builder = StoreBuilder(tmp_path / "store", **(numbered.TINY | {"segment_bytes": 1 << 16, "flush": flush}))
    rounds, wanted = threading.Event(), 400
    with builder.open() as store:

        def write() -> None:
            n = 0
            while n < wanted:
                n += len(numbered.append(store, n))
            rounds.set()

        writer = threading.Thread(target=write)
        writer.start()
        follower = Follower(builder.root)
        steps = 0
        while not rounds.is_set() and writer.is_alive():
            steps += bool(follower.step())
            if flush is FlushDisk.SYNC:
                assert follower.position <= store.flushed_offset
        writer.join()
        follower.step()
        assert follower.places == places_of(builder.root)
        assert bounds_of(follower.survey) == expected_bounds(frames_of(builder.root))
        assert len(follower.places) >= wanted


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow(2)
def test_a_process_writes_and_is_killed(tmp_path: Path, way: str) -> None:
    """What was seen before the kill is there after it, and a store that is opened again goes on from there."""
    root, settings = tmp_path / "store", numbered.TINY | {"segment_bytes": 1 << 16} | WAYS[way]
    child = Child.writing(root, 0, settings)
    child.listen(1)
    follower = Follower(root)
    deadline = time.monotonic() + PATIENCE_SECONDS
    wanted = 50 if way == "pool" else 300  # With a pool an append waits for the next commit.
    while len(follower.places) < wanted and time.monotonic() < deadline:
        follower.step()
        child.listen(child.acknowledged + 1)
    acknowledged = child.kill()
    follower.step()
    seen = list(follower.places)
    assert len(seen) >= wanted
    assert len(seen) >= acknowledged
    if way == "sync":
        page = load_state_page(RealFiles(), root, writable=False)
        assert page is not None
        assert follower.position == page.flushed
    with StoreBuilder(root, **settings).open() as store:
        n = numbered.append_until(store, len(places_of(root)), len(places_of(root)) + 40)
        follower.step()
        assert follower.places[: len(seen)] == seen
        assert follower.places == places_of(root)
        assert len(follower.places) >= n
        check_against_log(follower.survey, frames_of(root))


def test_many_messages_at_once(tmp_path: Path) -> None:
    """The kernel writes whole runs; a reader never sees the middle of one that is not there yet."""
    builder = StoreBuilder(tmp_path / "store", segment_bytes=8 << 20, kernels="always", index=False)
    done = threading.Event()
    with builder.open() as store:

        def write() -> None:
            for number in range(40):
                store.append_many([Message("t", b"%d" % n * 40, queue_id=n % 4) for n in range(number, number + 1000)])
            done.set()

        writer = threading.Thread(target=write)
        survey = Survey.open(builder.root)
        position, counts = 0, dict.fromkeys(range(4), 0)
        writer.start()
        while True:
            finished = done.is_set()
            survey.refresh()
            for columns in survey.scan(position, survey.log_end):
                assert not isinstance(columns, DamagedRange)
                for queue_id in range(4):
                    offsets = columns.column(C_QUEUE_OFFSET)[columns.column(2) == queue_id].tolist()
                    assert offsets == list(range(counts[queue_id], counts[queue_id] + len(offsets)))
                    counts[queue_id] += len(offsets)
            position = survey.log_end
            assert bounds_of(survey) == {("t", queue_id): (0, count) for queue_id, count in counts.items() if count}
            if finished:
                break
        writer.join()
        assert sum(counts.values()) == 40_000


def test_retention_under_a_reader(tmp_path: Path) -> None:
    """Files go while they are read: what is gone is missing, the rest is right, and nothing is raised."""
    builder = StoreBuilder(tmp_path / "store", **numbered.TINY)
    done = threading.Event()
    with builder.open() as store:
        first = numbered.append_until(store, 0, 200)
        store.wait_for_dispatch()

        def delete() -> None:
            n = first
            while len(store.engine.log.segments.all) > 2:
                store.engine.log.segments.delete_first()
                n += len(numbered.append(store, n))
            done.set()

        survey = Survey.open(builder.root)
        deleter = threading.Thread(target=delete)
        deleter.start()
        while not done.is_set():
            survey.refresh()
            for damage in seen_by(survey).damages:
                assert damage[0] % 8192 == 0
            for key, (low, high) in bounds_of(survey).items():
                survey.entries(*key, low, high)
        deleter.join()
        survey.refresh()
        frames = frames_of(builder.root)
        expected = expected_bounds(frames)
        bounds = bounds_of(survey)
        assert {key: bounds[key] for key in expected} == expected


def test_looking_costs_a_running_store_nothing(tmp_path: Path) -> None:
    """A store with a survey open closes as if there were none, and opens again."""
    builder = StoreBuilder(tmp_path / "store", **numbered.TINY)
    surveys: list[Any] = []
    with builder.open() as store:
        numbered.append_until(store, 0, 50)
        surveys += [Survey.open(builder.root) for _ in range(3)]
        for survey in surveys:
            survey.queues()
    with MessageStore.open(builder.root, builder.settings) as store:
        assert store.recovery.clean
        assert not store.recovery.findings
    for survey in surveys:
        survey.refresh()
        check_against_log(survey, frames_of(builder.root))
