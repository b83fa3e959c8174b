"""The seam between the product and the disk: `Files`, and `RealFiles`, which is the disk.

Every disk access of the store goes through a `Files`, so that tests can lose unsynced bytes, fail the
n-th call and kill between any two calls (`embermq.testing`). The operations are primitive on purpose:
nothing syncs behind the caller's back, except where it says so. What is durable when:

    file bytes and length    after OpenFile.sync()
    directory entries        after sync_directory(parent), for create, rename and remove alike

A failed sync is never retried: the kernel may have dropped the dirty pages, and a second call would
lie. Errors are plain OSError; a full disk is ENOSPC at `create`, never a signal later. Any thread.
"""

import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from embermq.files.directories import Kind, OpenDirectory, RealDirectory, kind_at
from embermq.files.locking import acquire
from embermq.files.regular import WHOLE_BYTES_MAX, open_regular, read_whole

Data = bytes | bytearray | memoryview

LEADS_NOWHERE = "is a link that leads nowhere; mount its disk, or remove the link"
_FILE_MODE = 0o644
_ZEROS = bytes(1 << 20)
# What a file system answers when it has no fallocate (the C library's own emulation is not reached then).
_NO_FALLOCATE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
# A name that was removed meanwhile, a link to nothing, a link to itself.
_LEADS_NOWHERE = (errno.ENOENT, errno.ELOOP)


def _no_fallocate(fd: int, start: int, length: int) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


# Some systems have neither call.
_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
_fallocate: Callable[[int, int, int], None] = getattr(os, "posix_fallocate", _no_fallocate)


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory. What is neither a file nor a directory (a FIFO, a device) is none of ours."""

    name: str
    size: int
    is_file: bool  # A regular one.
    mtime_ns: int
    is_directory: bool = False
    is_link: bool = False  # Then the rest is about what the link leads to.


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Space of the file system that holds a path, in bytes."""

    total: int
    free: int  # to anybody, the superuser included
    available: int  # to us

    @property
    def used_ratio(self) -> float:
        """Whole percents of what we could ever use, rounded up, as a fraction: RocketMQ's figure."""
        used = self.total - self.free
        usable = used + self.available
        return -(-100 * used // usable) / 100 if usable > 0 else 1.0


class Lock(Protocol):
    """A held directory lock."""

    @property
    def path(self) -> Path: ...

    def problem(self) -> str | None:
        """Why it protects nothing any more, to be read after its path; None while it does. Takes it again if it can."""
        ...

    def release(self) -> None: ...


class OpenFile(Protocol):
    """An open file. Any thread; `close` only by the owner, when nothing else can be using it."""

    @property
    def path(self) -> Path: ...

    @property
    def size(self) -> int: ...

    @property
    def writable(self) -> bool: ...

    def pread(self, count: int, at: int) -> bytes:
        """Up to `count` bytes; fewer only at the end of the file."""
        ...

    def pwrite(self, data: Data, at: int) -> None:
        """Write all of `data`, extending the file if it reaches past the end."""
        ...

    def sync(self) -> None:
        """Make bytes and length durable (fdatasync). If it raises, nothing is known to be durable."""
        ...

    def truncate(self, size: int) -> None:
        """Cut, or extend with a hole."""
        ...

    def reserve(self, start: int, end: int) -> None:
        """Give [start, end) blocks on the disk, extending the file; new bytes read as zero."""
        ...

    def zero(self, start: int, end: int) -> int:
        """Make [start, end) read as zero and say how many bytes had to be rewritten; length unchanged."""
        ...

    def is_zero(self, start: int, end: int) -> bool:
        """Does [start, end) read as zero? Holes are not read."""
        ...

    def data_end(self, start: int) -> int:
        """No byte from here to the end was ever written; at least `start`. A hint: it may be later."""
        ...

    def map(self, writable: bool, size: int | None = None) -> memoryview:
        """The first `size` bytes (default: all) as shared memory.

        The mapping stays until the last view of it is gone; it outlives close() and the file's removal.
        """
        ...

    def close(self) -> None: ...


class Files(Protocol):
    """A file system."""

    def make_directory(self, path: Path) -> None:
        """Create `path` and missing parents, durably; fine if it exists."""
        ...

    def make_one_directory(self, path: Path) -> None:
        """Create `path` in an existing directory; FileExistsError if it is there. Not synced."""
        ...

    def list_directory(self, path: Path) -> list[Entry]:
        """Everything in a directory, sorted by name."""
        ...

    def exists(self, path: Path) -> bool: ...

    def stat(self, path: Path) -> Entry: ...

    def kind(self, path: Path) -> Kind | None:
        """What lies at `path` itself, links not followed; None if nothing does."""
        ...

    def real_path(self, path: Path) -> Path:
        """`path` with all links resolved, as far as it exists; OSError if they lead in a circle."""
        ...

    def device(self, path: Path) -> int:
        """A number for the file system that holds `path`: nothing can be renamed from one to another."""
        ...

    def open_directory(self, path: Path) -> OpenDirectory:
        """The directory at `path` itself; NotADirectoryError if that is a link or a file."""
        ...

    def create(self, path: Path, size: int, *, fallocate: bool) -> OpenFile:
        """A new file of `size` zero bytes; FileExistsError if there is one. Nothing stays behind on error.

        With `fallocate` its blocks are reserved, otherwise it is sparse. Not synced.
        """
        ...

    def open(self, path: Path, writable: bool) -> OpenFile:
        """A regular file; OSError for anything else, without waiting."""
        ...

    def read_all(self, path: Path, limit: int = WHOLE_BYTES_MAX) -> bytes:
        """The content of a regular file of at most `limit` bytes; OSError for anything else."""
        ...

    def replace_file(self, path: Path, data: bytes) -> None:
        """Make `data` the whole content of `path`, durably: after a crash it is the old or the new one."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Atomic, and replaces `new`. Not synced."""
        ...

    def remove(self, path: Path) -> None:
        """Unlink a file. Not synced."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory. Not synced."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Make the entries of a directory durable."""
        ...

    def usage(self, path: Path) -> DiskUsage: ...

    def identity(self, path: Path) -> int:
        """A number that stays with a file and that a copy of it does not have."""
        ...

    def boot(self) -> int:
        """A number for the time since the machine started: while it stays, nothing written was lost. 0: unknown."""
        ...

    def lock(self, path: Path) -> Lock:
        """Take the exclusive lock of a store directory, or raise LockHeld."""
        ...

    def set_mtime(self, path: Path, mtime_ns: int) -> None: ...


class RealFile:
    """An open file on the disk. Its descriptor is closed with the object, or earlier by close()."""

    __slots__ = ("__weakref__", "_fd", "path", "size", "writable")

    def __init__(self, path: Path, fd: int, writable: bool) -> None:
        self._fd = fd
        self.path, self.writable = path, writable
        self.size = os.fstat(fd).st_size

    def __del__(self) -> None:
        # Readers may be inside pread while a segment is deleted: deleting only drops its
        # reference, and the descriptor goes with the last one. Closing it by force could hand its
        # number to another file under a reader's feet.
        if hasattr(self, "_fd"):  # Not if a signal handler raised before it was set.
            self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def pread(self, count: int, at: int) -> bytes:
        data = os.pread(self._fd, count, at)
        if len(data) == count or not data:
            return data
        parts = [data]
        done = len(data)
        while done < count:
            data = os.pread(self._fd, count - done, at + done)
            if not data:
                break
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def pwrite(self, data: Data, at: int) -> None:
        length = len(data)
        done = os.pwrite(self._fd, data, at)
        if done < length:
            rest = memoryview(data).cast("B")
            while done < length:
                done += os.pwrite(self._fd, rest[done:], at + done)
        self.size = max(self.size, at + length)

    def sync(self) -> None:
        _sync_data(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self.size = size

    def reserve(self, start: int, end: int) -> None:
        if start >= end:
            return
        try:
            _fallocate(self._fd, start, end - start)
        except OSError as error:
            if error.errno not in _NO_FALLOCATE:
                raise
            self._write_zeros_past_end(end)
        self.size = max(self.size, end)

    def _write_zeros_past_end(self, end: int) -> None:
        """Reserve the hard way. Only what lies past the end: below it there is data."""
        at = self.size
        while at < end:
            self.pwrite(memoryview(_ZEROS)[: end - at], at)
            at = self.size

    def zero(self, start: int, end: int) -> int:
        rewritten = 0
        # All pieces first: reading one draws its neighbours into the page cache, where they count as data.
        for at, stop in list(self._pieces_with_data(start, min(end, self.size))):
            if self.pread(stop - at, at) != _ZEROS[: stop - at]:
                self.pwrite(memoryview(_ZEROS)[: stop - at], at)
                rewritten += stop - at
        return rewritten

    def is_zero(self, start: int, end: int) -> bool:
        pieces = list(self._pieces_with_data(start, min(end, self.size)))
        return all(self.pread(stop - at, at) == _ZEROS[: stop - at] for at, stop in pieces)

    def data_end(self, start: int) -> int:
        end = start
        for _, stop in self._pieces_with_data(start, self.size):
            end = stop
        return end

    def _pieces_with_data(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """[start, end) without its holes, in pieces of at most 1 MiB."""
        at = start
        while at < end:
            try:
                at = os.lseek(self._fd, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole from here on
                    return
                raise
            hole = min(os.lseek(self._fd, at, os.SEEK_HOLE), end)
            while at < hole:
                stop = min(at + len(_ZEROS), hole)
                yield at, stop
                at = stop

    def map(self, writable: bool, size: int | None = None) -> memoryview:
        size = self.size if size is None else size
        if not writable:
            size = min(size, os.fstat(self._fd).st_size)  # It may have been cut.
        if size == 0:
            return memoryview(b"")
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return memoryview(mmap.mmap(self._fd, size, access=access))


class RealFiles:
    """The disk."""

    __slots__ = ()

    def make_directory(self, path: Path) -> None:
        make_directories(self, path)

    def make_one_directory(self, path: Path) -> None:
        os.mkdir(path)

    def list_directory(self, path: Path) -> list[Entry]:
        entries = []
        with os.scandir(path) as found:
            for item in found:
                try:
                    status = item.stat()
                except OSError as problem:
                    if problem.errno in _LEADS_NOWHERE:
                        continue
                    raise
                entries.append(_entry(item.name, status, item.is_symlink()))
        return sorted(entries, key=lambda entry: entry.name)

    def exists(self, path: Path) -> bool:
        return os.path.exists(path)

    def stat(self, path: Path) -> Entry:
        return _entry(path.name, os.stat(path))

    def kind(self, path: Path) -> Kind | None:
        return kind_at(path)

    def real_path(self, path: Path) -> Path:
        resolved = Path(os.path.realpath(path))
        if kind_at(resolved) is Kind.LINK:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        return resolved

    def device(self, path: Path) -> int:
        return os.stat(path).st_dev

    def open_directory(self, path: Path) -> OpenDirectory:
        return RealDirectory(path)

    def create(self, path: Path, size: int, *, fallocate: bool) -> OpenFile:
        # A name appears together with its length: RocketMQ refuses to start over an empty file,
        # and a process may be killed between any two calls.
        fd = _open_unnamed(path.parent)
        named = fd is None
        if fd is None:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
        file = RealFile(path, fd, True)
        try:
            if fallocate:
                self._check_room(path.parent, size)
                file.reserve(0, size)
            else:
                file.truncate(size)
            if not named:
                _name(fd, path)
        except OSError:
            file.close()
            if named:
                os.unlink(path)
            raise
        return file

    def _check_room(self, path: Path, size: int) -> None:
        """Refuse beforehand what cannot fit: a file system may take all that is left before it says so,
        and for that moment the disk is full for everybody else."""
        if size > self.usage(path).available:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def open(self, path: Path, writable: bool) -> OpenFile:
        return RealFile(path, open_regular(path, os.O_RDWR if writable else os.O_RDONLY), writable)

    def read_all(self, path: Path, limit: int = WHOLE_BYTES_MAX) -> bytes:
        return read_whole(path, limit)

    def replace_file(self, path: Path, data: bytes) -> None:
        replace_durably(self, path, data)

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        os.unlink(path)

    def remove_directory(self, path: Path) -> None:
        os.rmdir(path)

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def usage(self, path: Path) -> DiskUsage:
        status = os.statvfs(path)
        block = status.f_frsize
        return DiskUsage(status.f_blocks * block, status.f_bfree * block, status.f_bavail * block)

    def identity(self, path: Path) -> int:
        return os.stat(path).st_ino

    def boot(self) -> int:
        try:
            text = Path("/proc/sys/kernel/random/boot_id").read_text()
        except OSError:
            return 0
        return int(text.strip().replace("-", ""), 16) >> 66  # As much as fits a signed 64-bit number.

    def lock(self, path: Path) -> Lock:
        return acquire(path)

    def set_mtime(self, path: Path, mtime_ns: int) -> None:
        os.utime(path, ns=(mtime_ns, mtime_ns))


def _entry(name: str, status: os.stat_result, is_link: bool = False) -> Entry:
    mode = status.st_mode
    return Entry(name, status.st_size, stat.S_ISREG(mode), status.st_mtime_ns, stat.S_ISDIR(mode), is_link)


# The two operations that take several steps are written over the primitive ones, so that a wrapper
# (a fault injector, a counter) sees each step and can fail or stop between any two.


def make_directories(files: Files, path: Path) -> None:
    """Create `path` and its missing parents, each durable in its parent before the next."""
    missing = []
    while not files.exists(path):
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        try:
            files.make_one_directory(directory)
        except FileExistsError:  # Another thread was faster, or it is a link.
            if not files.exists(directory):
                raise OSError(errno.ENOENT, LEADS_NOWHERE, str(directory)) from None
        files.sync_directory(directory.parent)


def replace_durably(files: Files, path: Path, data: bytes) -> None:
    """Write a temporary file beside `path`, sync it, rename it over `path`, sync the directory."""
    temporary = path.with_name(path.name + ".tmp")
    with suppress(FileNotFoundError):  # left by a crash
        files.remove(temporary)
    file = files.create(temporary, 0, fallocate=False)
    try:
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_directory(path.parent)


def _name(fd: int, path: Path) -> None:
    """Give a file without a name this one; an OSError is about that."""
    try:
        # The directory argument is not used for an absolute path, but makes Python call linkat.
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(path)) from None


def _open_unnamed(directory: Path) -> int | None:
    """A file without a name in `directory`, to be given one later; None where the system has no such thing."""
    flag = getattr(os, "O_TMPFILE", 0)
    if not flag or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(directory, os.O_RDWR | flag | os.O_CLOEXEC, _FILE_MODE)
    except OSError as error:
        if error.errno in (*_NO_FALLOCATE, errno.EISDIR):
            return None
        raise
