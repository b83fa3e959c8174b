"""Readers beside a writer, and readers of stores with missing files: both kinds of opening give the same answers. A
reader may end earlier than the writer does; it never skips anything, and shows nothing that is not durable yet under
SYNC_FLUSH."""

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq.columns.rows import C_PHYSICAL
from embermq.format.names import segment_name
from embermq.inspect.snapshot import DamagedRange, Survey
from embermq.settings import FlushDisk
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles
from tests.crash import answers, disks, numbered
from tests.crash.interrupted_reader import ACTIONS, by_opening, by_survey, interrupt
from tests.crash.read_beside import ReadBeside
from tests.crash.test_kill import DELETING, FILES

# -- a writer acts while a reader opens ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ACTIONS)
def test_a_reader_is_interrupted_while_it_opens(name: str) -> None:
    interrupt(by_opening, name, FlushDisk.ASYNC, openings=10)


@pytest.mark.parametrize("name", ACTIONS)
def test_a_look_from_outside_is_interrupted(name: str) -> None:
    interrupt(by_survey, name, FlushDisk.ASYNC, openings=10)


def test_a_reader_is_interrupted_again_and_again() -> None:
    interrupt(by_opening, "expires", FlushDisk.ASYNC, openings=2, again=True)


@pytest.mark.long
@pytest.mark.parametrize("flush", list(FlushDisk))
@pytest.mark.parametrize("name", ACTIONS)
def test_a_reader_is_interrupted_before_every_look(name: str, flush: FlushDisk) -> None:
    interrupt(by_opening, name, flush, openings=10_000)
    interrupt(by_opening, name, flush, openings=20, again=True)
    interrupt(by_survey, name, flush, openings=10_000)


# -- a process writes, and is killed -------------------------------------------------------------------------------

WAYS: dict[str, dict[str, Any]] = {
    f"{flush.name.lower()}{' retention' if deleting else ''}": (DELETING if deleting else FILES) | {"flush": flush}
    for flush in FlushDisk
    for deleting in (False, True)
}


@pytest.mark.parametrize("way", ["async", "sync retention"])
def test_readers_beside_a_process_that_is_killed(tmp_path: Path, way: str) -> None:
    ReadBeside(tmp_path, WAYS[way], seed=1).run(kills=1, openings=2)


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_readers_beside_processes_that_are_killed_many_times(
    tmp_path: Path, way: str, figures: Callable[[str, str], None]
) -> None:
    rounds = ReadBeside(tmp_path, WAYS[way], seed=2)
    rounds.run(kills=9, openings=12)
    figures(f"readers beside kills, {way}", f"{rounds.openings} openings, {rounds.messages:,} messages read, no hole")


# -- what is not durable -------------------------------------------------------------------------------------------


def test_a_reader_beside_a_sync_flush_writer_sees_no_message_before_it_is_durable() -> None:
    disk = LossyFiles()
    files, plan = FaultyFiles(disk), disks.builder()
    with plan.on(files).open() as store:
        numbered.append(store, 0)
        store.wait_for_dispatch()
        under_way, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            under_way.set()
            assert go_on.wait(30)

        files.before(step=len(files.steps) + 1, call=hold)
        place = store.max_physical
        appending = threading.Thread(target=numbered.append, args=(store, 1))
        appending.start()
        assert under_way.wait(30)
        assert files.steps[-1][0] == "sync"
        try:
            with plan.on(disk).open(read_only=True) as reader:
                assert numbered.check(reader) == [0]
                assert reader.max_offset("Topic0", 1) == 0
                assert reader.find("Topic0", "id1") == []
                assert reader.at(place) is None
                assert reader.max_physical == place
            with plan.on(disks.copy(disk)).open(read_only=True) as reader:  # The writer was killed here.
                assert numbered.check(reader) == [0]
        finally:
            go_on.set()
            appending.join()
        with plan.on(disk).open(read_only=True) as reader:
            assert numbered.check(reader) == [0, 1]


def test_what_a_power_cut_has_left_unbroken_is_shown_by_both_kinds_of_opening() -> None:
    """The state page may be older than the log then, and recovery keeps what follows it."""
    disk, plan = LossyFiles(), disks.builder()
    with plan.on(disk).open() as store:
        numbered.append_until(store, 0, 40)
        left = disk.crash()
    with plan.on(disks.copy(left)).open() as store:
        wanted = answers.of_store(store, 40)
    with plan.on(left).open(read_only=True) as reader:
        assert answers.of_store(reader, 40) == wanted


# -- files are missing ---------------------------------------------------------------------------------------------

COUNT = 150
STATES = ("closed", "killed", "killed at rest", "killed after a rest", "power cut")


def store_in(state: str, flush: FlushDisk) -> LossyFiles:
    plan = disks.builder(flush)
    match state:
        case "closed":
            return disks.closed(COUNT, plan)
        case "killed":
            return disks.killed(COUNT, plan)
        case "killed at rest":
            return disks.killed(COUNT, plan, at_rest=True)
        case "killed after a rest":
            return disks.killed(COUNT, plan, rest_at=COUNT // 2)
    disk = LossyFiles()
    with plan.on(disk).open() as store:
        first = numbered.append_until(store, 0, COUNT // 2)
        disks.rest(store)
        numbered.append_until(store, first, COUNT)
        store.flush()
        return disk.crash()


def damage_files(source: random.Random, disk: LossyFiles) -> list[str]:
    """Do something to one to three files; what was done."""
    done = []
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        kind = source.choice(("missing", "missing", "empty", "empty", "short", "zeroed"))
        is_log = kind in ("short", "zeroed") or source.random() < 0.6
        path = source.choice([path for path in disks.paths(disk) if _is_log(path) == is_log and path.name != "lock"])
        size = disk.stat(path).size
        if kind == "missing":
            disk.remove(path)
            disk.sync_directory(path.parent)
        elif kind == "empty":
            disks.shorten(disk, path, 0)
        elif kind == "short":
            disks.shorten(disk, path, source.randrange(size + 1))
        elif size:
            at = source.randrange(size)
            disks.overwrite(disk, path, at, bytes(min(size - at, source.choice((1, 8, 200, 3000)))))
        done.append(f"{path.relative_to(disks.ROOT)} {kind}")
        if not any(_is_log(path) for path in disks.paths(disk)):
            break
    return done


def _is_log(path: Path) -> bool:
    return path.parent.name == "commitlog"


def compare_openings(seeds: range) -> None:
    """Damage copies of stores, and compare what a reader answers with what an opening for writing answers."""
    stores: dict[tuple[str, FlushDisk], LossyFiles] = {}
    for seed in seeds:
        source = random.Random(seed)
        state, flush = source.choice(STATES), source.choice(list(FlushDisk))
        if (state, flush) not in stores:
            stores[state, flush] = store_in(state, flush)
        disk = disks.copy(stores[state, flush]) if state != "power cut" else stores[state, flush].crash()
        done = damage_files(source, disk)
        plan = disks.builder(flush)
        with plan.on(disks.copy(disk)).open() as store:
            wanted = answers.of_store(store, COUNT)
        before = disks.contents(disk)
        with plan.on(disk).open(read_only=True) as reader:
            found = answers.of_store(reader, COUNT)
        assert disks.contents(disk) == before
        where = (seed, state, flush.name, done)
        assert not (skipped := answers.differences(found, wanted)), (where, skipped)
        assert found == wanted, where


@pytest.mark.parametrize("number", range(6))
def test_an_empty_log_file_ends_what_was_not_flushed_for_everybody(number: int) -> None:
    """An opening for writing keeps an unbroken row of what was not confirmed, and so shows everybody else."""
    disk, plan = disks.killed(COUNT, disks.builder(FlushDisk.ASYNC)), disks.builder(FlushDisk.ASYNC)
    disks.shorten(disk, disks.ROOT / "commitlog" / segment_name(8192 * number), 0)
    survey = Survey.open(disks.ROOT, files=disk)
    places: list[int] = []
    for columns in survey.scan(0, survey.log_end):
        assert not isinstance(columns, DamagedRange)
        places += columns.column(C_PHYSICAL).tolist()
    with plan.on(disks.copy(disk)).open(read_only=True) as reader:
        shown = [one.physical_offset for one in reader.scan()]
    with plan.on(disk).open() as store:
        wanted = [one.physical_offset for one in store.scan()]
    assert shown == places == wanted


@pytest.mark.usefixtures("short_tail")
def test_a_reader_answers_as_an_opening_for_writing_does_when_files_are_missing() -> None:
    compare_openings(range(6))


@pytest.mark.long
@pytest.mark.usefixtures("short_tail")
@pytest.mark.parametrize("part", range(4))
def test_readers_of_many_stores_with_missing_files(part: int) -> None:
    compare_openings(range(100 * part, 100 * part + 100))
