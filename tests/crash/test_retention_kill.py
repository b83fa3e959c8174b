"""kill -9 while old log files go: what is left is an unbroken row of messages up to the last acknowledged one.

Real files, a real process, a real kill; retention looks every few milliseconds, and every file is old at once.
"""

import random
import time
from pathlib import Path
from typing import Any

import pytest

from embermq import MessageStore, StoreSettings
from embermq.settings import FlushDisk
from tests.crash import numbered
from tests.crash.test_kill import WAYS, Child
from tests.crash.test_retention import check_row

FILES: dict[str, Any] = numbered.TINY | {
    "segment_bytes": 16384, "queue_file_bytes": 20 * 16, "index_entries_max": 100, "retention_hours": 0,
    "clean_interval_ms": 2, "delete_segment_pause_ms": 1, "delete_queue_pause_ms": 1,
    "commit_interval_ms": 1, "commit_thorough_interval_ms": 1, "delete_when": ";".join(str(hour) for hour in range(24)),
}  # fmt: skip


class DeletingChild(Child):
    module = "tests.crash.retention_child"


def kill_and_check(directory: Path, settings: dict[str, Any], rounds: int, seed: int) -> None:
    source = random.Random(seed)
    stored, first = 0, 0
    for number in range(rounds):
        child = DeletingChild(directory, stored, settings)
        child.listen(stored)
        child.listen(stored + source.randrange(700, 1000))  # More than the child leaves in the log.
        time.sleep(source.random() * 0.003)
        acknowledged = child.kill()
        with MessageStore.open(directory, StoreSettings(**settings)) as store:
            assert not store.recovery.damages, store.recovery
            found = check_row(store, acknowledged)
            assert found[0] > first, "no file went"
            first = found[0]
            stored = numbered.append_until(store, found[-1] + 1, found[-1] + 2)
            assert first <= acknowledged, number


@pytest.mark.parametrize("way", WAYS)
def test_killed_while_old_files_go(tmp_path: Path, way: str) -> None:
    kill_and_check(tmp_path / "store", FILES | WAYS[way], rounds=2, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", WAYS)
def test_killed_many_times_while_old_files_go(tmp_path: Path, way: str, seed: int) -> None:
    kill_and_check(tmp_path / "store", FILES | WAYS[way], rounds=20, seed=seed)


def test_the_settings_of_this_file_do_delete(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", StoreSettings(**FILES | {"flush": FlushDisk.ASYNC})) as store:
        numbered.append_until(store, 0, 300)
        store.wait_for_dispatch()
        assert store.delete_expired().segments > 0
