"""A file system that fails, or calls you, at the n-th operation; that is full; or whose process was killed.

Wraps another one (`RealFiles`, `LossyFiles`):

    files.fail("sync", nth=3)                       the third sync from now raises EIO
    files.before(step=17, call=...)                 called just before the 17th change to the disk
    files.fill()                                    nothing can grow, until fill(False)
    files.kill()                                    every operation from now on ends its thread (Killed)

"Steps" are the operations that change the disk or make a change durable, numbered from 1 over the life of
the object; reads are counted by kind only. Stores through a map are not operations. Any thread.
"""

import errno
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from embermq.files import (
    WHOLE_BYTES_MAX,
    Data,
    DirectoryEntry,
    DiskUsage,
    FileEnds,
    Files,
    FoundName,
    Lock,
    OpenDirectory,
    OpenFile,
    PathKind,
    list_names_by_steps,
    make_directories,
    read_ends_by_steps,
    replace_durably,
)

_DIRECTORY_STEPS = {"make_directory", "create", "rename", "remove", "remove_directory", "sync_directory"}
_FILE_STEPS = {"pwrite", "sync", "truncate", "reserve", "zero"}
STEPS = frozenset(_DIRECTORY_STEPS | _FILE_STEPS)
KINDS = STEPS | {"list_directory", "stat", "open", "read_all", "usage", "lock", "pread", "map"}


class Killed(BaseException):
    """Raised by every operation after `kill`; raise it in a `before` call to stop a thread there.

    Nothing in the product catches it.
    """


@dataclass(slots=True)
class _Fault:
    kind: str
    nth: int
    times: int
    error: int
    path_contains: str
    partial: bool


class FaultyFiles:
    """Counts every operation of `inner`, and lets some fail."""

    def __init__(self, inner: Files) -> None:
        self.inner = inner
        self.counts: Counter[str] = Counter()
        self.steps: list[tuple[str, Path]] = []
        self._faults: list[_Fault] = []
        self._calls: dict[int, Callable[[], None]] = {}
        self._mutex = threading.Lock()
        self._is_killed = False
        self.is_full = False

    # -- arming ----------------------------------------------------------------------------------------

    def fail(
        self,
        kind: str,
        *,
        nth: int = 1,
        times: int | None = 1,
        error: int = errno.EIO,
        path_contains: str = "",
        partial: bool = False,
    ) -> None:
        """Let the n-th such operation from now fail, and those after it up to `times` (None: for good).

        `partial`: a failing pwrite writes the first half of its data before it fails.
        """
        assert kind in KINDS, f"{kind!r} is none of {sorted(KINDS)}"
        assert nth >= 1
        with self._mutex:
            self._faults.append(_Fault(kind, nth, times or 1 << 62, error, path_contains, partial))

    def before(self, *, step: int, call: Callable[[], None]) -> None:
        """Call `call` just before the step of that number, counted from 1 since this object was made."""
        self._calls[step] = call

    def fill(self, full: bool = True) -> None:
        """Let the disk be full: no file grows, and no space is left. With False there is room again."""
        self.is_full = full

    def kill(self) -> None:
        """Let nothing more be done to the disk, as if the process had ended: what comes after this raises Killed."""
        self._is_killed = True

    def heal(self) -> None:
        """No more faults and calls, and room on the disk."""
        self.is_full = False
        with self._mutex:
            self._faults.clear()
            self._calls.clear()

    # -- Files -----------------------------------------------------------------------------------------

    def make_directory(self, path: Path) -> None:
        make_directories(self, path)

    def make_one_directory(self, path: Path) -> None:
        self.check("make_directory", path)
        self.inner.make_one_directory(path)

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        self.check("list_directory", path)
        return self.inner.list_directory(path)

    def list_names(self, path: str) -> list[FoundName]:
        return list_names_by_steps(self, path)

    def read_ends(self, path: str, head_bytes: int, tail_bytes: int, writable: bool) -> FileEnds | None:
        return read_ends_by_steps(self, path, head_bytes, tail_bytes, writable)

    def exists(self, path: Path) -> bool:
        return self.inner.exists(path)

    def stat(self, path: Path) -> DirectoryEntry:
        self.check("stat", path)
        return self.inner.stat(path)

    def kind(self, path: Path) -> PathKind | None:
        return self.inner.kind(path)

    def real_path(self, path: Path) -> Path:
        return self.inner.real_path(path)

    def device(self, path: Path) -> int:
        return self.inner.device(path)

    def open_directory(self, path: Path) -> OpenDirectory:
        return FaultyDirectory(self, self.inner.open_directory(path))

    def create(self, path: Path, size: int, *, fallocate: bool) -> OpenFile:
        self.check("create", path)
        if size:
            self.check_room(path)
        return FaultyFile(self, self.inner.create(path, size, fallocate=fallocate))

    def open(self, path: Path, writable: bool) -> OpenFile:
        self.check("open", path)
        return FaultyFile(self, self.inner.open(path, writable))

    def read_all(self, path: Path, limit: int = WHOLE_BYTES_MAX) -> bytes:
        self.check("read_all", path)
        return self.inner.read_all(path, limit)

    def replace_file(self, path: Path, data: bytes) -> None:
        replace_durably(self, path, data)

    def rename(self, old: Path, new: Path) -> None:
        self.check("rename", new)
        self.inner.rename(old, new)

    def remove(self, path: Path) -> None:
        self.check("remove", path)
        self.inner.remove(path)

    def remove_directory(self, path: Path) -> None:
        self.check("remove_directory", path)
        self.inner.remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        self.check("sync_directory", path)
        self.inner.sync_directory(path)

    def usage(self, path: Path) -> DiskUsage:
        self.check("usage", path)
        found = self.inner.usage(path)
        return DiskUsage(found.total, 0, 0) if self.is_full else found

    def identity(self, path: Path) -> int:
        return self.inner.identity(path)

    def boot(self) -> int:
        return self.inner.boot()

    def lock(self, path: Path) -> Lock:
        self.check("lock", path)
        return self.inner.lock(path)

    def set_mtime(self, path: Path, mtime_ns: int) -> None:
        self.inner.set_mtime(path, mtime_ns)

    # -- deciding --------------------------------------------------------------------------------------

    def check(self, kind: str, path: Path) -> None:
        """Count an operation, call the watchers, and raise if it is to fail."""
        fault = self.count(kind, path)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), str(path))

    def check_room(self, path: Path) -> None:
        """ENOSPC while the disk is full."""
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def count(self, kind: str, path: Path) -> _Fault | None:
        if self._is_killed:
            raise Killed
        call = None
        with self._mutex:
            self.counts[kind] += 1
            if kind in STEPS:
                self.steps.append((kind, path))
                call = self._calls.get(len(self.steps))
            due = [fault for fault in self._faults if self._is_due(fault, kind, path)]
        if call is not None:
            call()
        return due[0] if due else None

    @staticmethod
    def _is_due(fault: _Fault, kind: str, path: Path) -> bool:
        if fault.kind != kind or fault.path_contains not in str(path):
            return False
        fault.nth -= 1
        return -fault.times < fault.nth <= 0


class FaultyDirectory:
    """An open directory of FaultyFiles; its operations are counted as those by path are."""

    def __init__(self, files: FaultyFiles, inner: OpenDirectory) -> None:
        self._files, self._inner = files, inner
        self.path = inner.path

    def kinds(self) -> dict[str, PathKind]:
        self._files.check("list_directory", self.path)
        return self._inner.kinds()

    def enter(self, name: str) -> "FaultyDirectory":
        return FaultyDirectory(self._files, self._inner.enter(name))

    def remove(self, name: str) -> None:
        self._files.check("remove", self.path / name)
        self._inner.remove(name)

    def remove_directory(self, name: str) -> None:
        self._files.check("remove_directory", self.path / name)
        self._inner.remove_directory(name)

    def sync(self) -> None:
        self._files.check("sync_directory", self.path)
        self._inner.sync()

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> "FaultyDirectory":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class FaultyFile:
    """An open file of FaultyFiles."""

    __slots__ = ("_files", "_inner", "path")

    def __init__(self, files: FaultyFiles, inner: OpenFile) -> None:
        self._files, self._inner = files, inner
        self.path = inner.path

    @property
    def size(self) -> int:
        return self._inner.size

    @property
    def writable(self) -> bool:
        return self._inner.writable

    def pread(self, count: int, at: int) -> bytes:
        self._files.check("pread", self.path)
        return self._inner.pread(count, at)

    def pwrite(self, data: Data, at: int) -> None:
        fault = self._files.count("pwrite", self.path)
        if fault is None:
            if at + len(data) > self._inner.size:
                self._files.check_room(self.path)
            self._inner.pwrite(data, at)
            return
        if fault.partial:
            self._inner.pwrite(memoryview(data)[: len(data) // 2], at)
        raise OSError(fault.error, os.strerror(fault.error), str(self.path))

    def sync(self) -> None:
        fault = self._files.count("sync", self.path)
        if fault is None:
            self._inner.sync()
            return
        # A disk in memory also forgets what was to be synced, as kernels do: a second try would succeed
        # and save nothing.
        forget = getattr(self._inner, "fail_sync", None)
        if forget is not None:
            forget()
        raise OSError(fault.error, os.strerror(fault.error), str(self.path))

    def truncate(self, size: int) -> None:
        self._files.check("truncate", self.path)
        self._inner.truncate(size)

    def reserve(self, start: int, end: int) -> None:
        self._files.check("reserve", self.path)
        self._files.check_room(self.path)
        self._inner.reserve(start, end)

    def zero(self, start: int, end: int) -> int:
        self._files.check("zero", self.path)
        return self._inner.zero(start, end)

    def is_zero(self, start: int, end: int) -> bool:
        self._files.check("pread", self.path)
        return self._inner.is_zero(start, end)

    def data_end(self, start: int) -> int:
        return self._inner.data_end(start)

    def map(self, writable: bool, size: int | None = None) -> memoryview:
        self._files.check("map", self.path)
        return self._inner.map(writable, size)

    def close(self) -> None:
        self._inner.close()
