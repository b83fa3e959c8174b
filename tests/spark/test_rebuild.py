"""The job `rebuild`: as a function and as a command; bad input; a driver that is killed between any two steps."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from embermq import Message
from embermq.cli.app import run
from embermq.errors import StoreError, StoreLocked
from embermq.repair.rebuild.journal import WORK
from embermq.repair.rebuild.rebuilding import rebuild as rebuild_store
from embermq.repair.verify.store_check import verify
from embermq.spark.jobs.rebuild import found_settings, rebuild
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.crash import numbered
from tests.spark.test_job_commands import asked, lend_session
from tests.spark.test_stream_kill import ROOT
from tests.unit.repair.rebuild.test_follower import derived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_SECONDS = 300.0
COUNT = 120
__all__ = ["lend_session"]


@pytest.fixture
def live(tmp_path: Path) -> StoreBuilder:
    builder = StoreBuilder(tmp_path / "broker-a", clock=ManualClock(), **numbered.TINY)
    with builder.open() as store:
        numbered.append_until(store, 0, COUNT)
    return builder


def spoil(root: Path) -> None:
    """Some of the derived files are gone, some wrong."""
    queues, index = sorted((root / "consumequeue").rglob("0*")), sorted((root / "index").iterdir())
    files = [path for path in queues if path.is_file()]
    files[0].unlink()
    files[2].write_bytes(bytes(len(files[2].read_bytes())))
    index[-1].unlink()


# -- the command -------------------------------------------------------------------------------------------------


def test_the_command(live: StoreBuilder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = derived(live.root)
    spoil(live.root)
    beside = asked(capsys, "rebuild", str(live.root), "--into", str(tmp_path / "new"))["rebuilt"]
    assert derived(tmp_path / "new") == before
    assert derived(live.root) != before
    found = asked(capsys, "rebuild", str(live.root))["rebuilt"]
    assert found["families"] == ["queues", "index"]
    assert {**found, "target": 0, "seconds": 0} == {**beside, "target": 0, "seconds": 0}
    assert derived(live.root) == before
    assert verify(live.root).flaws == []
    assert run(["spark", "rebuild", str(live.root), "--index"]) == 0
    assert "index entries" in capsys.readouterr().out
    assert derived(live.root) == before


def test_damage_is_told(live: StoreBuilder, capsys: pytest.CaptureFixture[str]) -> None:
    with live.open(read_only=True) as store:
        victim = store.fetch("Topic0", 0, 4).messages[0]
    segment = live.root / "commitlog" / f"{victim.physical_offset // 8192 * 8192:020d}"
    data = bytearray(segment.read_bytes())
    at = victim.physical_offset % 8192
    data[at : at + victim.size] = b"\xff" * victim.size
    segment.write_bytes(data)
    (damage,) = asked(capsys, "rebuild", str(live.root), code=1)["damages"]
    assert (damage["physical_offset"], damage["length_bytes"]) == (victim.physical_offset, victim.size)
    assert {flaw.family for flaw in verify(live.root).flaws if flaw.is_fault} == {"commitlog"}


def test_mistakes_are_one_line(live: StoreBuilder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    for words, said in [
        (["rebuild", str(tmp_path / "nowhere")], "no such directory"),
        (["rebuild", str(tmp_path / "photos")], "not a message store"),
        (["rebuild", str(live.root), "--into", str(tmp_path / "there")], "exists already"),
        (["rebuild", str(live.root), "--into", str(tmp_path / "no" / "new")], "no such directory"),
    ]:
        before = sorted(tmp_path.rglob("*"))
        assert run(["spark", *words]) == 2
        text = capsys.readouterr().err
        assert said in text
        assert "Traceback" not in text
        assert len(text.strip().splitlines()) <= 3, text
        assert sorted(tmp_path.rglob("*")) == before


def test_a_store_that_somebody_has_open(spark: "SparkSession", live: StoreBuilder, tmp_path: Path) -> None:
    with live.open() as store:
        store.append(Message("T", b"x"))
        with pytest.raises(StoreLocked):
            rebuild(spark, live.root)
        assert not (live.root / WORK).exists()
        store.wait_for_dispatch()
        store.flush()
        assert rebuild(spark, live.root, into=tmp_path / "new").records > COUNT


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own needs root")
def test_a_disk_that_is_full(spark: "SparkSession", live: StoreBuilder, small_disk: Path) -> None:
    """A task says so; what was there stays; with room the same call goes on."""
    (small_disk / "ballast").write_bytes(bytes(1000 << 10))
    with pytest.raises(StoreError, match=os.strerror(errno.ENOSPC)):
        rebuild(spark, live.root, into=small_disk / "new")
    assert not (small_disk / "new").exists()
    (small_disk / "ballast").unlink()
    rebuild(spark, live.root, into=small_disk / "new")
    assert derived(small_disk / "new") == derived(live.root)


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own needs root")
def test_a_disk_that_is_read_only(spark: "SparkSession", live: StoreBuilder, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreError, match=os.strerror(errno.EROFS)):
        rebuild(spark, live.root, into=small_disk / "new")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


# -- killed ------------------------------------------------------------------------------------------------------


def killed_at(root: Path, place: Path, word: str) -> bool:
    """Run a rebuild in a process of its own and kill it, with all it has started, when it says `word`; False if it
    came to its end before."""
    command = [sys.executable, "-m", "tests.spark.rebuild_child", str(root), str(place)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        start_new_session=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert child.stdout is not None
    try:
        return any(line.strip() == word for line in child.stdout)
    finally:
        os.kill(child.pid, signal.SIGKILL)  # The driver alone: its JVM and its tasks go on for a while.
        child.wait()
        child.stdout.close()


def kill_rounds(live: StoreBuilder, tmp_path: Path, seeds: range) -> None:
    expected = derived(live.root)
    for seed in seeds:
        chance = random.Random(seed)
        steps = [f"{job} {part}" for job in ("deriving", "completing") for part in ("0", "half")]
        words = ["begun", *steps, "swap 1", "swap 2", "swap 3"]
        word = words[seed % len(words)] if seed < len(words) else chance.choice(words)
        spoil(live.root)
        assert killed_at(live.root, tmp_path / f"spark-{seed}", word), word
        if chance.random() < 0.5:
            with live.open() as store:  # A store at any time.
                numbered.check(store)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                rebuild_again(live, seed)
                break
            except StoreLocked:
                assert time.monotonic() < deadline, "nobody can have it open any more"
                time.sleep(0.1)
        assert derived(live.root) == expected, word
        assert not (live.root / WORK).exists(), word
        assert verify(live.root).is_sound, word


def rebuild_again(live: StoreBuilder, seed: int) -> Any:
    """On Spark, or on this machine alone: either finishes what the other began, or begins anew."""
    if seed % 3 == 2:
        return rebuild_store(live.root, found_settings(live.root))
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    assert active is not None
    return rebuild(active, live.root)


@pytest.mark.slow(20)
def test_killed_and_called_again(spark: "SparkSession", live: StoreBuilder, tmp_path: Path) -> None:
    """In the middle of the swap, where the old files and the new ones are both in part in place."""
    kill_rounds(live, tmp_path, range(6, 7))


@pytest.mark.long
def test_killed_again_and_again(spark: "SparkSession", live: StoreBuilder, tmp_path: Path) -> None:
    kill_rounds(live, tmp_path, range(30))
    for path in tmp_path.glob("spark-*"):
        shutil.rmtree(path)


def test_json_of_settings_found(live: StoreBuilder) -> None:
    """Settings for tasks go through JSON: sizes as the files have them."""
    found = found_settings(live.root)
    assert (found.queue_file_bytes, found.index_slots_max, found.index_entries_max) == (160, 16, 40)
    assert json.dumps(found.to_properties(changed_only=True))
