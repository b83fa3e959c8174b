"""The directory lock excludes other processes, this process, and says who has it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embermq.files import RealFiles
from embermq.files.lock_holders import holder_of
from embermq.files.locking import LockHeld, RecordLock, acquire

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="open-file-description locks, /proc")

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


# -- a lock that does not depend on what else the process does with the file -------------------------------------------


def read_and_close(path: Path) -> None:
    path.read_bytes()  # The kernel drops the POSIX locks that this process has on the file.


@contextmanager
def held_elsewhere(path: Path) -> Iterator[int]:
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder.pid
        finally:
            holder.communicate("")


@linux_only
def test_the_lock_survives_another_descriptor_of_the_file(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "lock")
    read_and_close(lock.path)
    assert try_elsewhere(lock.path) == 7
    assert holder_of(lock.path) == os.getpid(), "found by its descriptor"
    assert lock.problem() is None
    assert record_locks_of(lock.path) == [os.getpid()], "named again"
    lock.release()
    assert holder_of(lock.path) is None


def record_locks_of(path: Path) -> list[int]:
    inode = f":{path.stat().st_ino}"
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return [int(words[4]) for words in lines if words[1] == "POSIX" and words[5].endswith(inode)]


@linux_only
def test_the_holder_is_named_when_only_its_descriptor_tells(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    script = "import sys, pathlib; from embermq.files.locking import acquire; p = pathlib.Path(sys.argv[1]);"
    script += "lock = acquire(p); p.read_bytes(); print('held', flush=True); sys.stdin.read()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockHeld) as caught:
            acquire(path)
        assert (caught.value.pid, str(path) in caught.value.command) == (holder.pid, True)
        holder.communicate("")


def test_without_open_file_locks_a_dropped_lock_is_taken_again(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "lock", RecordLock())
    read_and_close(lock.path)
    assert try_elsewhere(lock.path) == 0, "dropped"
    assert lock.problem() is None
    assert try_elsewhere(lock.path) == 7
    lock.release()


def test_without_open_file_locks_another_holder_is_noticed(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "lock", RecordLock())
    read_and_close(lock.path)
    with held_elsewhere(lock.path) as pid:
        said = lock.problem()
        assert said is not None
        assert said.startswith("was locked by ")
        assert sys.platform != "linux" or f"process {pid} (" in said
    lock.release()


def test_without_open_file_locks_flock_keeps_another_store_out(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "lock", RecordLock())
    read_and_close(lock.path)
    script = "import sys, pathlib; from embermq.files.locking import *\n"
    script += "try: acquire(pathlib.Path(sys.argv[1]), RecordLock())\nexcept LockHeld: sys.exit(7)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(lock.path)]
    assert subprocess.run(command, check=False, env=environment).returncode == 7
    lock.release()


# -- the file goes -----------------------------------------------------------------------------------------------------


def test_a_deleted_file_is_made_again_and_locked(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "lock")
    lock.path.unlink()
    with pytest.raises(LockHeld):
        acquire(lock.path)  # In this process, whatever lies there.
    assert not lock.path.exists()
    assert lock.problem() is None
    assert lock.path.read_bytes() == b"lock"
    assert lock.problem() is None
    assert try_elsewhere(lock.path) == 7
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    lock.release()
    assert try_elsewhere(lock.path) == 0


def test_a_deleted_file_that_another_process_made_anew_is_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = acquire(tmp_path / "lock")
    lock.path.unlink()
    link = os.link

    def be_late(source: Path, target: Path) -> None:
        target.write_bytes(b"lock")
        link(source, target)

    monkeypatch.setattr(os, "link", be_late)
    assert lock.problem() == "was deleted, and another process has made a new one"
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    lock.release()


def test_a_replaced_file_is_a_loss(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "lock")
    (tmp_path / "other").write_bytes(b"lock")
    os.replace(tmp_path / "other", lock.path)
    assert lock.problem() == "was replaced by another file, which another process may have locked"
    lock.release()
    assert lock.problem() == "was released"


def test_a_removed_directory_is_a_loss(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    lock = acquire(tmp_path / "store" / "lock")
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    assert lock.problem() == "was deleted, and cannot be made again (No such file or directory)"
    lock.release()


def test_a_file_that_is_replaced_before_it_is_locked_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "lock"

    class Slow(RecordLock):
        """The file is deleted between opening and locking, once."""

        deleted = False

        def take(self, fd: int) -> bool:
            if not self.deleted:
                self.deleted = True
                path.unlink()
            return super().take(fd)

    lock = acquire(path, Slow())
    assert path.exists()
    assert try_elsewhere(path) == 7
    lock.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_no_part_in_the_lock(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "lock")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        lock.release()  # Nothing of it is left here.
        os.read(reading, 1)
        os._exit(0)
    assert try_elsewhere(lock.path) == 7, "the child gave up nothing"
    assert lock.problem() is None
    lock.release()
    assert try_elsewhere(lock.path) == 0, "the child keeps nothing"
    os.close(writing)
    os.close(reading)
    os.waitpid(child, 0)
