"""The lock of a store directory: an exclusive POSIX record lock on byte [0, 1) of the file `lock`.

This is the lock a Java FileChannel takes, so this store and Apache RocketMQ exclude each other on the
same directory. Such a lock belongs to a process and not to an open file, which has two consequences:
a second store in this process would be let in, so held files are also registered here; and closing any
descriptor of the file gives the lock up, so nobody else in the process may open it. Any thread.
"""

import errno
import fcntl
import os
import struct
import sys
import threading
from pathlib import Path

from embermq.files.regular import open_regular

CONTENT = b"lock"
_FLOCK = struct.Struct("@hhqqi")  # l_type, l_whence, l_start, l_len, l_pid of struct flock on 64-bit Linux

_registry_lock = threading.Lock()
_held: dict[tuple[int, int], int] = {}  # (device, inode) -> process; a forked child holds nothing


class LockHeld(OSError):
    """Somebody has the lock: `pid` (None if unknown) and its command line as far as it can be read."""

    def __init__(self, path: Path, pid: int | None, command: str = "") -> None:
        super().__init__(errno.EAGAIN, "the lock is held by another process", str(path))
        self.path, self.pid, self.command = path, pid, command


class DirectoryLock:
    """A held lock. Release it once; letting it go out of scope does not release it."""

    __slots__ = ("_fd", "_key", "path")

    def __init__(self, path: Path, fd: int, key: tuple[int, int]) -> None:
        self.path, self._fd, self._key = path, fd, key

    def release(self) -> None:
        """Give the lock up. The file stays, as the reference leaves it."""
        with _registry_lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                _held.pop(self._key, None)


def acquire(path: Path) -> DirectoryLock:
    """Take the lock or raise LockHeld; creates the file if need be and writes its four bytes."""
    with _registry_lock:
        key = _key_of(path)
        if key is not None and _held.get(key) == os.getpid():
            raise LockHeld(path, os.getpid(), command_line(os.getpid()))
        fd = open_regular(path, os.O_RDWR | os.O_CREAT)
        try:
            _lock_first_byte(path, fd)
            if os.pread(fd, len(CONTENT), 0) != CONTENT:
                os.pwrite(fd, CONTENT, 0)
                os.fsync(fd)
            status = os.fstat(fd)
        except BaseException:
            os.close(fd)
            raise
        key = (status.st_dev, status.st_ino)
        _held[key] = os.getpid()
        return DirectoryLock(path, fd, key)


def _key_of(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _lock_first_byte(path: Path, fd: int) -> None:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        pid = _holder(fd)
        raise LockHeld(path, pid, command_line(pid) if pid else "") from None


def _holder(fd: int) -> int | None:
    """The process that has byte 0 locked; None if it let go meanwhile or lives where we cannot see it."""
    if sys.platform != "linux":  # the structure differs from system to system
        return None
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None


def command_line(pid: int) -> str:
    """The command line of a process, or "" if it cannot be read."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()
