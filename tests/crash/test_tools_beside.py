"""Tools beside a store that goes on: retention, deleted topics, growth, restarts and rebuilds while they look.

Something happens between any two calls that a tool makes to the file system (`Meanwhile`); the tool still ends with a
right answer. And real processes: one writes, deletes topics and log files in a loop, while every verb is run beside it.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from embermq.cli.app import app
from embermq.repair.verify.store_check import verify
from tests.crash.kills import ROOT
from tests.support.living import SMALL, LivingStore
from tests.support.looks import LOOKS
from tests.support.meanwhile import Meanwhile

HAPPENINGS = ("retention", "deletion", "new life", "growth", "restart", "stop", "rebuild", "everything")
_MEMORY = Path("/dev/shm")
# Each verb, and how it may end: 1 is "nothing found". Beside a store that deletes, a message may be gone.
VERBS = {
    "info": (0,),
    "verify": (0,),
    "verify --fast": (0,),
    "dump": (0,),
    "clean --dry-run --set fileReservedTime=1": (0,),
    "top --once": (0,),
    "fetch steady 0": (0, 1),
    "find --topic steady --key k101": (0, 1),
    "trace --key k101": (0, 1),
    "get --at 0": (0, 1),
}
_BUSY = {**SMALL, "index_entries_max": 400, "queue_file_bytes": 20 * 64, "segment_bytes": 16 << 10}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, where the system has one: hundreds of stores are made here."""
    if not _MEMORY.is_dir():
        yield tmp_path
        return
    path = _MEMORY / f"embermq-{tmp_path.parent.name}-{tmp_path.name}"
    path.mkdir()
    yield path
    shutil.rmtree(path)


def calls_of(place: Path, tool: str) -> int:
    """How many calls a tool makes if nothing happens."""
    return look_at(place, tool, "growth", 0).calls


def look_at(place: Path, tool: str, happening: str, at: int) -> Meanwhile:
    """Run a tool on a new store, with something happening before its call number `at`."""
    living = LivingStore(place / "store")
    files = Meanwhile(at, living.happenings[happening])
    try:
        LOOKS[tool](living, files.as_files)
    finally:
        living.close()
        shutil.rmtree(place / "store")
    return files


@pytest.mark.parametrize("happening", HAPPENINGS)
@pytest.mark.parametrize("tool", LOOKS)
def test_something_happens_while_a_tool_looks(place: Path, tool: str, happening: str) -> None:
    calls = calls_of(place, tool)
    for part in (0.2, 0.6):
        look_at(place, tool, happening, int(calls * part) or 1)


@pytest.mark.long
@pytest.mark.parametrize("happening", HAPPENINGS)
@pytest.mark.parametrize("tool", LOOKS)
def test_something_happens_before_every_single_call(place: Path, tool: str, happening: str) -> None:
    calls = calls_of(place, tool)
    for at in range(1, calls + 1, max(calls // 150, 1)):
        try:
            look_at(place, tool, happening, at)
        except Exception as problem:
            raise AssertionError(f"{happening} before call {at} of {calls}") from problem


def test_verify_says_what_went(place: Path) -> None:
    living = LivingStore(place / "store")
    try:
        files = Meanwhile(200, living.everything)
        report = verify(living.root, files=files.as_files)
        assert report.is_sound
        assert "topic pears was deleted" in report.meanwhile
        assert any(line.startswith("retention removed ") for line in report.meanwhile)
        assert verify(living.root).meanwhile == []
    finally:
        living.close()


def test_damage_is_still_told_when_files_go_meanwhile(place: Path) -> None:
    living = LivingStore(place / "store")
    try:
        living.store.flush()
        with sorted((living.root / "commitlog").iterdir())[1].open("r+b") as file:
            file.seek(3000)
            file.write(bytes(500))
        files = Meanwhile(200, living.delete_topic)
        report = verify(living.root, files=files.as_files)
        assert [flaw.family for flaw in report.flaws if flaw.is_fault] == ["commitlog"]
        assert report.meanwhile == ["topic pears was deleted"]
    finally:
        living.close()


# -- beside a real process -------------------------------------------------------------------------------------


@contextmanager
def busy_store(root: Path) -> Iterator[Path]:
    """A store that another process writes without rest."""
    command = [sys.executable, "-m", "tests.crash.busy_child", str(root), json.dumps(_BUSY)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline()
        yield root
        assert child.poll() is None
        child.stdin.close()
        assert child.wait(60) == 0


def run(root: Path, verb: str) -> Result:
    name, *options = verb.split()
    return CliRunner().invoke(app, ["store", name, str(root), *options])


def check_verb(root: Path, verb: str) -> None:
    result = run(root, verb)
    said = f"{verb}: {result.output[-2000:]}"
    assert result.exception is None or isinstance(result.exception, SystemExit), said
    assert result.exit_code in VERBS[verb], said
    assert "No such file" not in result.output, said


def test_every_verb_beside_a_busy_store(place: Path) -> None:
    with busy_store(place / "store") as root:
        for verb in VERBS:
            check_verb(root, verb)


@pytest.mark.long
def test_every_verb_beside_a_busy_store_for_minutes(place: Path) -> None:
    with busy_store(place / "store") as root:
        end = time.monotonic() + 180
        while time.monotonic() < end:
            for verb in VERBS:
                check_verb(root, verb)
