"""`embermq store top`."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.files import DiskUsage, RealFiles
from tests.unit.cli.store.conftest import Command

QUICK = ["--interval", "0.05"]


def test_plain_lines(command: Command, directory: Path) -> None:
    ran = command("top", directory, "--count", "2", *QUICK)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert len(lines) == 2
    for part in ("0/s messages", "0 B/s", "dispatch behind 0 B", "flush behind 0 B", " in 1 files", "% used"):
        assert part in lines[0], lines[0]


def test_json_a_look(command: Command, tmp_path: Path, settings: StoreSettings) -> None:
    with MessageStore.open(tmp_path / "store", settings) as store:
        for number in range(10):
            store.append(Message("t", b"%d" % number))
        store.flush()
        store.wait_for_dispatch()
        ran = command("top", tmp_path / "store", "--once", "--output", "json", *QUICK)
    [look] = ran.lines
    assert look["messages"] == 10
    assert look["queues"] == 1
    assert look["flush_behind_bytes"] == 0
    assert look["writer_pid"] == os.getpid()
    assert look["disk_total_bytes"] >= look["disk_free_bytes"] > 0
    assert look["max_physical_offset"] > look["min_physical_offset"] == 0


def test_free_space_is_ours_to_use(command: Command, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what the file system keeps for the superuser: the picture and the document say the same."""
    monkeypatch.setattr(RealFiles, "usage", lambda self, path: DiskUsage(total=1000, free=300, available=200))
    [look] = command("top", directory, "--once", "--output", "json", *QUICK).lines
    assert (look["disk_total_bytes"], look["disk_free_bytes"]) == (1000, 200)


def test_a_picture_on_a_terminal(directory: Path) -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "embermq.cli", "store", "top", str(directory), "--count", "2", *QUICK]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    with subprocess.Popen(command, stdout=follower, stdin=follower, stderr=subprocess.PIPE, env=environment) as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # The other end is closed.
                break
            if not piece:
                break
            shown += piece
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait() == 0
    os.close(leader)
    for part in (b"open for writing by", b"none", b"dispatch behind", b"orders", b"coming in"):
        assert part in shown, shown


def test_interrupting_is_how_one_leaves(directory: Path) -> None:
    command = [sys.executable, "-m", "embermq.cli", "store", "top", str(directory), *QUICK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.send_signal(2)
        assert process.wait() == 0
        assert process.stderr.read() == b""


def test_no_store(command: Command, tmp_path: Path) -> None:
    command("top", tmp_path / "missing", "--once").assert_one_line(2, "there is no such directory")


def test_the_scrub(command: Command, tmp_path: Path, settings: StoreSettings) -> None:
    with MessageStore.open(tmp_path / "store", settings) as store:
        store.append(Message("t", b"x", keys=("k",)))
        store.scrub()
        [look] = command("top", tmp_path / "store", "--once", "--output", "json", *QUICK).lines
        assert (look["scrub_findings"], look["scrub_round_began_ms"]) == (0, None)
        assert look["scrub_finished_ms"] > 0
    shown = command("info", tmp_path / "store", "--output", "json").document
    assert (shown["scrub"]["rounds"], shown["scrub"]["findings"], shown["scrub"]["healed"]) == (1, 0, 0)
    assert "last whole round finished at" in command("info", tmp_path / "store").out
