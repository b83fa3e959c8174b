"""The disk: files and directories of the system, behind the seam `Files`. What is durable when is said there.

A new file gets its name together with its length where the system allows it (O_TMPFILE, then linkat): a kill leaves no
empty file. Any thread.
"""

import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from embermq.files.directories import OpenDirectory, PathKind, RealDirectory, kind_at
from embermq.files.files import Data, DirectoryEntry, DiskUsage, Lock, OpenFile, make_directories, replace_durably
from embermq.files.locking import acquire
from embermq.files.looking import FileEnds, FoundName, real_ends, real_names
from embermq.files.regular import WHOLE_BYTES_MAX, open_regular, read_whole

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

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
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

    def list_names(self, path: str) -> list[FoundName]:
        return real_names(path)

    def read_ends(self, path: str, head_bytes: int, tail_bytes: int, writable: bool) -> FileEnds | None:
        return real_ends(path, head_bytes, tail_bytes, writable)

    def exists(self, path: Path) -> bool:
        return os.path.exists(path)

    def stat(self, path: Path) -> DirectoryEntry:
        return _entry(path.name, os.stat(path))

    def kind(self, path: Path) -> PathKind | None:
        return kind_at(path)

    def real_path(self, path: Path) -> Path:
        resolved = Path(os.path.realpath(path))
        if kind_at(resolved) is PathKind.LINK:
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


def _entry(name: str, status: os.stat_result, is_link: bool = False) -> DirectoryEntry:
    mode = status.st_mode
    return DirectoryEntry(name, status.st_size, stat.S_ISREG(mode), status.st_mtime_ns, stat.S_ISDIR(mode), is_link)


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
