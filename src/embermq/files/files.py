"""The seam between the product and the disk: `Files`. The disk itself is `RealFiles` (real_files.py).

Every disk access of the store goes through a `Files`, so that tests can lose unsynced bytes, fail the
n-th call and kill between any two calls (`embermq.testing`). The operations are primitive on purpose:
nothing syncs behind the caller's back, except where it says so. What is durable when:

    file bytes and length    after OpenFile.sync()
    directory entries        after sync_directory(parent), for create, rename and remove alike

A failed sync is never retried: the kernel may have dropped the dirty pages, and a second call would
lie. Errors are plain OSError; a full disk is ENOSPC at `create`, never a signal later. Any thread.
"""

import errno
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from embermq.files.directories import OpenDirectory, PathKind
from embermq.files.looking import FileEnds, FoundName
from embermq.files.regular import WHOLE_BYTES_MAX, NotRegular

Data = bytes | bytearray | memoryview

_NO_DIRECTORY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # ELOOP: links in a circle lead nowhere.
_NO_FILE = (*_NO_DIRECTORY, errno.EISDIR)
LEADS_NOWHERE = "is a link that leads nowhere; mount its disk, or remove the link"


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
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
    free: int  # to every user, the superuser included
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

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        """Everything in a directory, sorted by name."""
        ...

    def list_names(self, path: str) -> list[FoundName]:
        """The same names without lengths and times, which cost a call to the system each; the path as text."""
        ...

    def read_ends(self, path: str, head_bytes: int, tail_bytes: int, writable: bool) -> FileEnds | None:
        """The first and the last bytes of a regular file, opened for it as `open` does; None if there is none."""
        ...

    def exists(self, path: Path) -> bool: ...

    def stat(self, path: Path) -> DirectoryEntry: ...

    def kind(self, path: Path) -> PathKind | None:
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


# The operations that take several steps are written over the primitive ones, so that a wrapper
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


def list_names_by_steps(files: Files, path: str) -> list[FoundName]:
    """`Files.list_names` over `list_directory`."""
    entries = files.list_directory(Path(path))
    return [FoundName(entry.name, entry.is_file, entry.is_directory, entry.is_link) for entry in entries]


def read_ends_by_steps(files: Files, path: str, head_bytes: int, tail_bytes: int, writable: bool) -> FileEnds | None:
    """`Files.read_ends` over `open` and `pread`."""
    try:
        file = files.open(Path(path), writable)
    except OSError as problem:
        if problem.errno not in _NO_FILE and not isinstance(problem, NotRegular):
            raise
        return None
    try:
        size, head = file.size, file.pread(head_bytes, 0)
        tail = file.pread(tail_bytes, size - tail_bytes) if 0 < tail_bytes <= size else b""
        return FileEnds(size, head, tail, file.data_end(len(head)) == len(head))
    finally:
        file.close()


def names_of(files: Files, path: str) -> list[FoundName]:
    """As `entries_of`, names only."""
    try:
        return files.list_names(path)
    except OSError as problem:
        if problem.errno not in _NO_DIRECTORY:
            raise
        return []


def entries_of(files: Files, path: Path) -> list[DirectoryEntry]:
    """Everything in a directory that another process may remove at any moment, sorted by name; nothing if there is no
    such directory, or none any more."""
    try:
        return files.list_directory(path)
    except OSError as problem:
        if problem.errno not in _NO_DIRECTORY:
            raise
        return []
