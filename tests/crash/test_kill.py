"""kill -9 at a random moment: whatever was acknowledged is there once, in order, with its bytes.

A child process appends and reports through a pipe; it is killed, the store is opened again and checked, and
the next child goes on where it ended. Real files, a real process, a real kill.
"""

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from embermq import MessageStore, StoreSettings
from embermq.settings import FlushDisk
from embermq.store import tail_mark
from embermq.testing.lossy_files import LossyFiles, keep_everything
from tests.crash import disks, numbered

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0
STORED_MAX = 800  # Then a new store: checking takes longer with every message.
FAR = 100_000  # A number no round comes to.
FILES: dict[str, Any] = numbered.TINY | {"segment_bytes": 65536, "queue_file_bytes": 20 * 64, "index_entries_max": 500}
WAYS: dict[str, dict[str, Any]] = {
    "sync": {"flush": FlushDisk.SYNC},
    "async": {"flush": FlushDisk.ASYNC},
    "pool": {"flush": FlushDisk.ASYNC, "transient_pool": True, "transient_pool_buffers": 3},
}


class Child:
    """The writing process, seen from outside."""

    module = "tests.crash.writer_child"

    def __init__(self, directory: Path, first: int, settings: dict[str, Any]) -> None:
        command = [sys.executable, "-m", self.module, str(directory), str(first), json.dumps(settings)]
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout.fileno()
        self._text = b""

    @property
    def acknowledged(self) -> int:
        """Numbers below this were acknowledged, as far as it was heard; -1 before the store was open."""
        lines = self._text[: self._text.rfind(b"\n") + 1].split()
        return int(lines[-1]) if lines else -1

    def listen(self, until: int, seconds: float = PATIENCE_SECONDS) -> None:
        """Hear reports until number `until` is acknowledged, or for so long."""
        deadline = time.monotonic() + seconds
        poll = select.poll()  # Unlike select, it takes descriptors of any number.
        poll.register(self._pipe, select.POLLIN)
        while self.acknowledged < until and (left := deadline - time.monotonic()) > 0:
            if poll.poll(left * 1000):
                text = os.read(self._pipe, 1 << 16)
                assert text, f"the child ended by itself: {self._process.wait()}"
                self._text += text

    def kill(self) -> int:
        """SIGKILL; what had been acknowledged by then, all of it heard."""
        self._process.send_signal(signal.SIGKILL)
        assert self._process.stdout is not None
        self._text += self._process.stdout.read()
        self._process.stdout.close()
        assert self._process.wait() == -signal.SIGKILL
        return self.acknowledged


def kill_and_check(directory: Path, settings: dict[str, Any], rounds: int, seed: int, each: int) -> None:
    source = random.Random(seed)
    stored = 0
    for number in range(rounds):
        child = Child(directory, stored, settings)
        child.listen(stored)  # The store is open.
        child.listen(stored + source.randrange(each))
        time.sleep(source.random() * 0.003)
        acknowledged = child.kill()
        with MessageStore.open(directory, StoreSettings(**settings)) as store:
            assert not store.recovery.clean
            assert not store.recovery.damages, store.recovery
            found = numbered.check(store)
            where = f"round {number}: {len(found)} found, {acknowledged} acknowledged, {store.recovery}"
            assert found == list(range(len(found))), where
            assert len(found) >= acknowledged, where
            stored = numbered.append_until(store, len(found), len(found) + 1)
        if stored > STORED_MAX:
            directory, stored = directory.with_name(f"store{number}"), 0


@pytest.mark.parametrize("way", WAYS)
def test_killed_at_a_random_moment(tmp_path: Path, way: str) -> None:
    kill_and_check(tmp_path / "store", FILES | WAYS[way], rounds=3, seed=1, each=250)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", WAYS)
def test_killed_many_times(tmp_path: Path, way: str, seed: int) -> None:
    kill_and_check(tmp_path / "store", FILES | WAYS[way], rounds=40, seed=seed, each=150)


def test_killed_while_recovering(tmp_path: Path) -> None:
    """A child that is killed while it opens a store leaves one that opens."""
    directory = tmp_path / "store"
    settings = FILES | WAYS["async"]
    child = Child(directory, 0, settings)
    child.listen(1000)
    acknowledged = child.kill()
    for pause in (0.2, 0.3, 0.4):
        child = Child(directory, FAR, settings)
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
        assert again.recovery.walked_from >= at_rest - 40_000
        assert more - end <= again.recovery.records < 200
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
    store._housekeeping.write_out()  # Written, not synced.
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
