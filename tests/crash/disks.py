"""Stores on disks in memory, copied and changed at will."""

from pathlib import Path

from embermq import MessageStore
from embermq.settings import FlushDisk
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import keep_everything
from tests.crash import numbered

ROOT = Path("/store")
FIRST_SEGMENT = ROOT / "commitlog" / "0".zfill(20)


def builder(flush: FlushDisk = FlushDisk.SYNC, **settings: object) -> StoreBuilder:
    return StoreBuilder(ROOT, clock=ManualClock(), flush=flush, **(numbered.TINY | settings))


def closed(count: int, plan: StoreBuilder | None = None) -> LossyFiles:
    """A disk with a store of `count` messages that was closed cleanly. The last group may add one or two."""
    disk = LossyFiles()
    with (plan or builder()).on(disk).open() as store:
        numbered.append_until(store, 0, count)
    return disk


def killed(
    count: int, plan: StoreBuilder | None = None, *, at_rest: bool = False, rest_at: int | None = None
) -> LossyFiles:
    """The same, left by a killed process: long after its last append (`at_rest`), or with a rest in between, after
    which queue files were written and not synced (`rest_at`)."""
    disk = LossyFiles()
    store = (plan or builder()).on(disk).open()
    first = 0
    if rest_at is not None:
        first = numbered.append_until(store, 0, rest_at)
        rest(store)
    numbered.append_until(store, first, count)
    store.wait_for_dispatch()
    if at_rest:
        rest(store)
    elif rest_at is not None:
        store.engine.services.housekeeping.write_out()
    left = disk.crash(keep_everything)
    store.close()
    return left


def rest(store: MessageStore) -> None:
    """What a store does when nothing is appended for a minute."""
    store.flush()
    store.wait_for_dispatch()
    store.engine.services.housekeeping.make_durable()


def copy(disk: LossyFiles) -> LossyFiles:
    return disk.crash(keep_everything)


def paths(disk: LossyFiles, directory: Path = ROOT) -> list[Path]:
    """Every file below `directory`."""
    found = []
    for entry in disk.list_directory(directory):
        path = directory / entry.name
        found += [path] if entry.is_file else paths(disk, path)
    return found


def contents(disk: LossyFiles) -> dict[Path, bytes]:
    """The whole tree, to see whether anything changed."""
    return {path: disk.read_all(path) for path in paths(disk)}


def overwrite(disk: LossyFiles, path: Path, at: int, data: bytes) -> None:
    file = disk.open(path, True)
    file.pwrite(data, at)
    file.sync()


def flip(disk: LossyFiles, path: Path, bit: int) -> None:
    """Turn over one bit."""
    at = bit // 8
    old = disk.read_all(path)[at]
    overwrite(disk, path, at, bytes([old ^ (1 << bit % 8)]))


def shorten(disk: LossyFiles, path: Path, size: int) -> None:
    file = disk.open(path, True)
    file.truncate(size)
    file.sync()


def offsets(store: MessageStore) -> list[tuple[int, int]]:
    """Start and end of each record, in log order."""
    return [(one.physical_offset, one.end) for one in store.scan()]


def places(disk: LossyFiles, plan: StoreBuilder | None = None) -> list[tuple[int, int]]:
    """Start and end of each record on a disk, which stays as it is."""
    with (plan or builder()).on(copy(disk)).open(read_only=True) as store:
        return offsets(store)
