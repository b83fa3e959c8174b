"""kill -9 at a random moment: whatever was acknowledged is there once, in order, with its bytes.

A child process appends and reports through a pipe; it is killed, the store is opened again and checked, and
the next child goes on where it ended (kills.py). Real files, a real process, a real kill.
"""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq import MessageStore, StoreSettings
from embermq.settings import FlushDisk
from embermq.store.log import tail_mark
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import keep_everything
from tests.crash import disks, numbered
from tests.crash.kills import Child, Figures, KillRounds

FAR = 100_000  # A number no round comes to.
FILES: dict[str, Any] = numbered.TINY | {"segment_bytes": 65536, "queue_file_bytes": 20 * 64, "index_entries_max": 500}
# Everything goes as soon as it may; the child takes care that there is always something that may.
DELETING: dict[str, Any] = numbered.TINY | {
    "segment_bytes": 16384,
    "queue_file_bytes": 20 * 16,
    "index_entries_max": 100,
    "retention_hours": 0,
    "clean_interval_ms": 2,
    "delete_segment_pause_ms": 1,
    "delete_queue_pause_ms": 1,
    "commit_interval_ms": 1,
    "commit_thorough_interval_ms": 1,
    "delete_when": ";".join(str(hour) for hour in range(24)),
}
WAYS: dict[str, dict[str, Any]] = {
    f"{flush.name.lower()}{'-pool' if pool else ''}": {
        "flush": flush,
        "transient_pool": pool,
        "transient_pool_buffers": 3,
    }
    for flush, pool in itertools.product(FlushDisk, (False, True))
}
ROUNDS = 25  # for each of 4 ways, with and without retention: 200


def rounds(directory: Path, way: str, retention: bool, count: int, seed: int = 1) -> Figures:
    kills = KillRounds(directory, (DELETING if retention else FILES) | WAYS[way], seed, retention=retention)
    if retention:  # More than the child leaves in the log, so that files go.
        return kills.run(count, at_least=500, at_most=900, stored_max=100_000)
    return kills.run(count, at_most=150, stored_max=800)


@pytest.mark.parametrize("retention", [False, True], ids=["", "retention"])
@pytest.mark.parametrize("way", WAYS)
def test_killed_at_a_random_moment(tmp_path: Path, way: str, retention: bool) -> None:
    rounds(tmp_path, way, retention, 1 if way == "sync-pool" else 2)


@pytest.mark.long
@pytest.mark.parametrize("retention", [False, True], ids=["", "retention"])
@pytest.mark.parametrize("way", WAYS)
def test_killed_many_times(
    tmp_path: Path, way: str, retention: bool, kill_figures: Callable[[str, Figures], None]
) -> None:
    name = f"{way}, old files going" if retention else way
    kill_figures(name, rounds(tmp_path, way, retention, ROUNDS, seed=7))


def test_the_settings_of_this_file_do_delete(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", StoreSettings(**DELETING | {"flush": FlushDisk.ASYNC})) as store:
        numbered.append_until(store, 0, 300)
        store.wait_for_dispatch()
        assert store.delete_expired().segments > 0


def test_killed_while_recovering(tmp_path: Path) -> None:
    """A child that is killed while it opens a store leaves one that opens."""
    directory = tmp_path / "store"
    settings = FILES | WAYS["async"]
    child = Child.writing(directory, 0, settings)
    child.listen(1000)
    acknowledged = child.kill()
    for pause in (0.2, 0.3, 0.4):
        child = Child.writing(directory, FAR, settings)
        child.listen(10 * FAR, pause)
        child.kill()
    with MessageStore.open(directory, StoreSettings(**settings)) as store:
        found = [n for n in numbered.numbers_in(store) if n < FAR]
        assert len(found) >= acknowledged
        assert found == list(range(len(found)))


def test_recovery_after_a_kill_reads_only_the_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that was at rest before the kill is not walked from its beginning."""
    monkeypatch.setattr(tail_mark, "TAIL_BYTES", 10_000)
    settings = StoreSettings(**FILES)
    disk = LossyFiles()
    store = MessageStore.open(Path("/store"), settings, files=disk)
    end = numbered.append_until(store, 0, 600)
    disks.rest(store)
    at_rest = store.max_physical
    more = numbered.append_until(store, end, end + 5)
    left = disk.crash(keep_everything)
    store.close()
    with MessageStore.open(Path("/store"), settings, files=left) as again:
        # The mark moves with the steps of the dispatcher, which are larger on a busy machine.
        assert again.recovery.walked_from >= at_rest - 80_000
        assert more - end <= again.recovery.records < 300
        numbered.check(again, range(more))


def test_what_was_written_counts_while_the_machine_runs_and_only_what_was_synced_after_it_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tail_mark, "TAIL_BYTES", 10_000)
    settings = StoreSettings(**FILES)
    disk = LossyFiles()
    store = MessageStore.open(Path("/store"), settings, files=disk)
    end = numbered.append_until(store, 0, 600)
    store.flush()
    store.wait_for_dispatch()
    store.engine.services.housekeeping.write_out()  # Written, not synced.
    killed, lost_power = disk.crash(keep_everything), disk.crash()
    store.close()
    for left, walks_all in ((killed, False), (lost_power, True)):
        with MessageStore.open(Path("/store"), settings, files=left) as again:
            assert (again.recovery.walked_from == 0) == walks_all
            numbered.check(again, range(end))


def test_a_copy_of_a_running_store_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Its files were copied one after another, so what one of them says of another is worth nothing."""
    settings = StoreSettings(**FILES)
    with MessageStore.open(tmp_path / "store", settings) as store:
        end = numbered.append_until(store, 0, 100)
        disks.rest(store)
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
        with MessageStore.open(tmp_path / "copy", settings) as copy:
            assert copy.recovery.walked_from == 0
            numbered.check(copy, range(end))
