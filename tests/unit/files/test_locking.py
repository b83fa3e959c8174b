"""The directory lock excludes other processes, this process, and says who has it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from embermq.files.files import RealFiles
from embermq.files.locking import LockHeld, acquire

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""

TRIER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError:
    sys.exit(7)
"""


def try_elsewhere(path: Path) -> int:
    return subprocess.run([sys.executable, "-c", TRIER, str(path)], check=False).returncode


def test_the_file_holds_exactly_the_four_bytes(tmp_path: Path) -> None:
    lock = RealFiles().lock(tmp_path / "lock")
    lock.release()
    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_content_of_another_writer_is_kept(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"lock and more")
    acquire(tmp_path / "lock").release()
    assert (tmp_path / "lock").read_bytes() == b"lock and more"


def test_another_process_is_kept_out_until_release(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "lock")
    assert try_elsewhere(lock.path) == 7
    lock.release()
    assert try_elsewhere(lock.path) == 0


def test_the_holder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockHeld) as caught:
            acquire(path)
        assert caught.value.pid == holder.pid
        assert caught.value.path == path
        assert str(path) in caught.value.command
        holder.communicate("")
    acquire(path).release()


def test_a_second_lock_in_this_process_is_refused_and_the_first_survives(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "lock")
    os.symlink(tmp_path, tmp_path / "alias")
    for path in (tmp_path / "lock", tmp_path / "alias" / "lock"):
        with pytest.raises(LockHeld) as caught:
            acquire(path)
        assert caught.value.pid == os.getpid()
    assert try_elsewhere(lock.path) == 7, "the refused attempt must not have given the lock up"
    lock.release()
    lock.release()
    acquire(tmp_path / "lock").release()


def test_a_directory_that_cannot_be_written_is_a_plain_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        acquire(tmp_path / "missing" / "lock")
