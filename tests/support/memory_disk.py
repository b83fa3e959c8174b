"""Directories of tests on a file system in memory, where there is one with room.

Most tests of single parts open a store, which syncs files and directories some dozens of times. That they do is shown
by the crash tests, on disks that forget what was not synced; here it is only waited for. In memory a sync costs
nothing, and the unit tests take less than half of their time.

Linux has such a file system as /dev/shm. A container may have a tiny one, and a store makes its files in full size
from the start: with less than ROOM_BYTES free it is left alone.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOM_BYTES = 4 << 30
_SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "embermq-tests-"


def memory_disk() -> Path | None:
    """Where this process may make directories in memory; what processes that are gone have left there is removed."""
    try:
        room = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return None
    if room.f_bavail * room.f_frsize < ROOM_BYTES or not os.access(_SHARED_MEMORY, os.W_OK | os.X_OK):
        return None
    for left in _SHARED_MEMORY.glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        if left.stat().st_uid == os.getuid() and pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)
    return _SHARED_MEMORY


@contextmanager
def directory_in(memory: Path) -> Iterator[Path]:
    """A new directory, removed with all that is in it."""
    made = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=memory))
    try:
        yield made
    finally:
        for path in (made, *(path for path in made.rglob("*") if path.is_dir() and not path.is_symlink())):
            path.chmod(0o700)  # A test may have taken permissions away.
        shutil.rmtree(made)
