"""The lock of a store directory: an exclusive lock on byte [0, 1) of the file `lock`.

That byte is the one a Java FileChannel locks, so this store and Apache RocketMQ exclude each other on the same
directory. A Java process has a POSIX record lock there, which the kernel drops as soon as the process closes any
descriptor of the file, as it does when it copies its own directory. So ours is another one:

    Linux       an open-file-description lock on byte 0. It belongs to our descriptor, conflicts with POSIX locks of
                other processes, and ends when the descriptor is closed. A POSIX lock on byte 1 tells others which
                process this is; nothing depends on it
    elsewhere   a POSIX lock on byte 0, and flock, which belongs to the descriptor, on the file

A forked child would share the descriptor and keep the lock after its parent's death, so it closes it at once.
A second store of this process is refused by a register of the locks that are held. `problem` finds out whether the
lock still does what it is for: the file may have been deleted or replaced under it. Any thread.
"""

import errno
import fcntl
import logging
import os
import secrets
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from embermq.files.lock_holders import (
    FLOCK,
    FileKey,
    command_line,
    key_of,
    open_file_lock_holder,
    record_lock_holder,
)
from embermq.files.regular import open_regular

log = logging.getLogger(__name__)

CONTENT = b"lock"
LOCKED_BYTE, NAMING_BYTE = 0, 1
_REFUSED = (errno.EAGAIN, errno.EACCES)
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_TRIES = 10  # Each is a file that was replaced between opening and locking it.

_register_lock = threading.RLock()  # Re-entrant: a signal handler may fork while it is held.
_held: "set[DirectoryLock]" = set()


class LockHeld(OSError):
    """Another holder has the lock: `pid` (None if unknown) and its command line as far as it can be read."""

    def __init__(self, path: Path, pid: int | None, command: str = "") -> None:
        super().__init__(errno.EAGAIN, "the lock is held by another process", str(path))
        self.path, self.pid, self.command = path, pid, command


class Mechanism(Protocol):
    """A way to lock a file through a descriptor of it."""

    def take(self, fd: int) -> bool:
        """Take the lock, or take it again; False if there is another holder."""
        ...


class OpenFileLock:
    """An open-file-description lock, and a POSIX lock that names the process. OSError where there is no such thing."""

    def take(self, fd: int) -> bool:
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, LOCKED_BYTE, 1, 0)
        if not _is_granted(lambda: fcntl.fcntl(fd, fcntl.F_OFD_SETLK, asked)):
            return False
        with suppress(OSError):
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, NAMING_BYTE, os.SEEK_SET)
        return True


class RecordLock:
    """A POSIX record lock, and flock where the file system has it."""

    def take(self, fd: int) -> bool:
        if not _is_granted(lambda: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, LOCKED_BYTE, os.SEEK_SET)):
            return False
        try:
            return _is_granted(lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except OSError as problem:
            if problem.errno not in _UNSUPPORTED:
                raise
            return True


class BestLock:
    """The first of the two; the second where the system or the file system lacks it."""

    def take(self, fd: int) -> bool:
        try:
            return OpenFileLock().take(fd)
        except OSError as problem:
            if problem.errno not in _UNSUPPORTED:
                raise
            return RecordLock().take(fd)


def _is_granted(ask: "LockCall") -> bool:
    try:
        ask()
    except OSError as problem:
        if problem.errno not in _REFUSED:
            raise
        return False
    return True


class LockCall(Protocol):
    def __call__(self) -> object: ...


class DirectoryLock:
    """A held lock. Release it once; letting it go out of scope does not release it."""

    __slots__ = ("_descriptors", "_mechanism", "_place", "path")

    def __init__(self, path: Path, fd: int, place: tuple[FileKey, str], mechanism: Mechanism) -> None:
        self.path, self._place, self._mechanism = path, place, mechanism
        self._descriptors = [(fd, key_of(os.fstat(fd)))]  # The last one is of the file that is in place.

    def release(self) -> None:
        """Give the lock up. The file stays, as RocketMQ leaves it."""
        with _register_lock:
            self.close()
            _held.discard(self)

    def close(self) -> None:
        """Close the descriptors; for a forked child, which has no other part in the lock."""
        for fd, key in self._descriptors:
            with suppress(OSError):
                if key_of(os.fstat(fd)) == key:  # Code that closes all descriptors may have closed it, too.
                    os.close(fd)
        self._descriptors = []

    def is_of(self, place: tuple[FileKey, str], file: FileKey | None) -> bool:
        """Is this the lock of that name in that directory, or of that file?"""
        return self._place == place or any(key == file for _, key in self._descriptors)

    def problem(self) -> str | None:
        """Why the lock protects nothing any more, to be read after its path; None while it does.

        A file that was deleted is made again: those who take the lock leave one there, so none has taken it since.
        A file that was replaced may have been locked and given up by another writer meanwhile: that is a loss.
        """
        with _register_lock:
            if not self._descriptors:
                return "was released"
            fd, key = self._descriptors[-1]
            try:
                if key_of(os.fstat(fd)) != key:
                    return "is no longer locked: this process has closed the descriptor"
            except OSError:
                return "is no longer locked: this process has closed the descriptor"
            try:
                found = key_of(os.stat(self.path))
            except FileNotFoundError:
                return self._make_again()
            if found != key:
                return "was replaced by another file, which another process may have locked"
            return None if self._mechanism.take(fd) else f"was locked by {_describe(*find_holder(fd))}"

    def _make_again(self) -> str | None:
        """Put a file in the place of a deleted one, locked before it has the name. Never over another one."""
        beside = self.path.with_name(f"{self.path.name}.{secrets.token_hex(8)}.tmp")
        try:
            fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                os.pwrite(fd, CONTENT, 0)
                os.fsync(fd)
                self._mechanism.take(fd)
                os.link(beside, self.path)
            except BaseException:
                os.close(fd)
                raise
            finally:
                with suppress(OSError):
                    os.unlink(beside)
        except FileExistsError:
            return "was deleted, and another process has made a new one"
        except OSError as problem:
            return f"was deleted, and cannot be made again ({problem.strerror})"
        self._descriptors.append((fd, key_of(os.fstat(fd))))
        log.warning("lock file was deleted and has been made again path=%s", self.path)
        return None


def acquire(path: Path, mechanism: Mechanism | None = None) -> DirectoryLock:
    """Take the lock or raise LockHeld; creates the file if need be and writes its four bytes."""
    mechanism = mechanism or BestLock()
    with _register_lock:
        place = key_of(os.stat(path.parent)), path.name
        for _ in range(_TRIES):
            # Before it is opened: closing it again would give up the POSIX lock that this process has on it.
            file = _file_at(path)
            if any(lock.is_of(place, file) for lock in _held):
                raise LockHeld(path, os.getpid(), command_line(os.getpid()))
            lock = _acquire_once(path, place, mechanism)
            if lock is not None:
                _held.add(lock)
                return lock
    raise LockHeld(path, None)


def _acquire_once(path: Path, place: tuple[FileKey, str], mechanism: Mechanism) -> DirectoryLock | None:
    """None if the file was deleted or replaced before it was locked."""
    fd = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        if not mechanism.take(fd):
            raise LockHeld(path, *find_holder(fd))
        if _file_at(path) != key_of(os.fstat(fd)):
            os.close(fd)
            return None
        if os.pread(fd, len(CONTENT), 0) != CONTENT:
            os.pwrite(fd, CONTENT, 0)
            os.fsync(fd)
        return DirectoryLock(path, fd, place, mechanism)
    except BaseException:
        os.close(fd)
        raise


def _file_at(path: Path) -> FileKey | None:
    try:
        return key_of(os.stat(path))
    except FileNotFoundError:
        return None


def find_holder(fd: int) -> tuple[int | None, str]:
    """The process that keeps us out, None if it cannot be found; and its command line."""
    pid = record_lock_holder(fd, LOCKED_BYTE) or record_lock_holder(fd, NAMING_BYTE)
    pid = pid or open_file_lock_holder(key_of(os.fstat(fd)))
    return pid, command_line(pid) if pid else ""


def _describe(pid: int | None, command: str) -> str:
    who = f"process {pid}" if pid else "another process"
    return f"{who} ({command})" if command else who


def _close_in_child() -> None:
    """In a forked child: the locks stay with the parent, and must not outlive it here."""
    for lock in _held:
        lock.close()
    _held.clear()
    _register_lock.release()


if hasattr(os, "register_at_fork"):  # Where processes can fork. Taken before: no descriptor escapes the register.
    os.register_at_fork(
        before=_register_lock.acquire, after_in_parent=_register_lock.release, after_in_child=_close_in_child
    )
