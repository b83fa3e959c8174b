"""Open files of derived data: a bounded number of descriptors over any number of paths.

Remembers what was written since the last sync, so that one call makes it durable. Any thread may `find` and
`sync`; everything that changes the disk is called with the owner's lock for that held.
A writer says `touch` after it wrote, never only before: a sync may run in between.
A file dropped from here stays usable for those who still hold it; its descriptor goes with the last one.
"""

import errno
import logging
import resource
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path

from embermq.files.directories import PathKind
from embermq.files.files import LEADS_NOWHERE, Files, OpenFile
from embermq.files.misplaced import put_aside
from embermq.files.regular import NotRegular

log = logging.getLogger(__name__)

# A quarter of the descriptors the process may have, but not so few that a small store suffers, nor so many
# that a large one takes them all.
OPEN_MAX = max(256, min(2048, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
# Of a store that is only read. A process may read many stores, and libraries in it may call select(), which takes no
# descriptor above 1,023: py4j does, and Spark's calls to Python would wait for ever.
READ_OPEN_MAX = 256


def open_if_there(files: Files, path: Path, *, writable: bool) -> OpenFile | None:
    """The file at `path`; None if there is none, or something that is no file."""
    try:
        return files.open(path, writable)
    except OSError as problem:
        # ELOOP: links in a circle lead nowhere. The last two: a directory in its place, a file above it.
        absent = problem.errno in (errno.ENOENT, errno.ELOOP, errno.EISDIR, errno.ENOTDIR)
        if not absent and not isinstance(problem, NotRegular):
            raise
        return None


class OpenFiles:
    """At most `open_max` open files, the least recently used one goes first."""

    def __init__(
        self, files: Files, *, read_only: bool, open_max: int | None = None, quarantine: Path | None = None
    ) -> None:
        """`open_max`: None for READ_OPEN_MAX or OPEN_MAX. `quarantine`: where to put what is in the way and none of
        ours."""
        self._files, self._quarantine = files, quarantine
        self._read_only = read_only
        self._open_max = open_max or (READ_OPEN_MAX if read_only else OPEN_MAX)
        # Guards the table, and keeps "open and remember" apart from "remove and forget": otherwise a
        # reader could bring back a removed file, and later reads of that path would see the old one.
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, OpenFile] = OrderedDict()
        self._touched: set[Path] = set()
        self._changed_directories: set[Path] = set()
        self._syncing = threading.Lock()  # A second sync must not return before the first has done its part.
        self._sync_error: OSError | None = None
        self.aside: list[tuple[Path, Path]] = []  # What was in the way, and its name since.

    def find(self, path: Path) -> OpenFile | None:
        """The open file at `path`, or None when there is none."""
        with self._lock:
            file = self._open.get(path)
            if file is not None:
                self._open.move_to_end(path)
                return file
            file = open_if_there(self._files, path, writable=not self._read_only)
            if file is not None:
                self._remember(path, file)
            return file

    def _remember(self, path: Path, file: OpenFile) -> None:
        self._open[path] = file
        if len(self._open) > self._open_max:
            self._open.popitem(last=False)  # Not closed: a reader may be inside pread.

    def obtain(self, path: Path, size: int, *, fallocate: bool = False, fresh: bool = False) -> OpenFile:
        """The file at `path`, created with `size` zero bytes if it is not there.

        One of another length is brought to it, and with `fresh` its old content goes: it is not proven.
        """
        assert not self._read_only
        file = self.find(path)
        if file is not None and fresh and self._files.kind(path) is PathKind.LINK:
            self.remove(path)  # The link: what it leads to is not emptied.
            file = None
        if file is None:
            self._make_directories(path.parent)
            file = self._create(path, size, fallocate)
            with self._lock:
                self._remember(path, file)
                self._changed_directories.add(path.parent)
        elif fresh or file.size != size:
            if fresh:
                file.truncate(0)
            file.truncate(size)
            if fallocate:
                file.reserve(0, size)
            self.touch(path)
        return file

    def _create(self, path: Path, size: int, fallocate: bool) -> OpenFile:
        try:
            return self._files.create(path, size, fallocate=fallocate)
        except FileExistsError:
            kind = self._files.kind(path)
            if kind not in (PathKind.LINK, PathKind.DIRECTORY, PathKind.OTHER):
                raise
        if kind is not PathKind.LINK:
            self._put_aside(path)
        else:
            log.warning("link_replaced path=%s reason=it leads to no file", path)
            self._files.remove(path)
        return self._files.create(path, size, fallocate=fallocate)

    def _put_aside(self, path: Path) -> None:
        """What lies here is in the way, and none of ours."""
        self.aside.append((path, put_aside(self._files, path, self._quarantine)))

    def _make_directories(self, directory: Path) -> None:
        """Without a sync for each: with a thousand topics that would take seconds. flush() does it."""
        missing = []
        while not self._files.exists(directory):
            missing.append(directory)
            directory = directory.parent
        if self._files.kind(directory) in (PathKind.FILE, PathKind.OTHER):
            self._put_aside(directory)
            missing.append(directory)
        for path in reversed(missing):
            try:
                self._files.make_one_directory(path)
            except FileExistsError:
                if not self._files.exists(path):
                    raise OSError(errno.ENOENT, LEADS_NOWHERE, str(path)) from None
            with self._lock:
                self._changed_directories.add(path.parent)

    def touch(self, path: Path) -> None:
        """The content at `path` was changed and is to be synced."""
        with self._lock:
            self._touched.add(path)

    @property
    def unsynced_count(self) -> int:
        """How many files a sync would have to do with."""
        return len(self._touched)

    def remove(self, path: Path) -> None:
        """Unlink, durable with the next sync; fine if it is gone already."""
        assert not self._read_only
        with self._lock:
            self._open.pop(path, None)
            try:
                self._files.remove(path)
            except FileNotFoundError:
                pass
            except OSError:
                if self._files.kind(path) is not PathKind.DIRECTORY:
                    raise
                self._put_aside(path)
            self._touched.discard(path)
            self._changed_directories.add(path.parent)

    def remove_directory(self, path: Path) -> None:
        """Remove `path` if it is an empty directory; one with anything left in it stays, and so does a link."""
        try:
            with self._files.open_directory(path) as directory:
                if directory.kinds():
                    return
            self._files.remove_directory(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        with self._lock:
            self._changed_directories.discard(path)
            self._changed_directories.add(path.parent)

    def sync(self) -> None:
        """Make everything written, created or removed before this call durable.

        After one failure the pages may be gone and a second call would lie, so it raises for ever.
        """
        with self._syncing:
            if self._sync_error is not None:
                raise self._sync_error.with_traceback(None)
            with self._lock:
                touched, self._touched = self._touched, set()
                directories, self._changed_directories = self._changed_directories, set()
            left = deque(sorted(touched))
            while left:
                file = self._find_to_sync(left, directories)
                if file is not None:
                    self._sync_or_never(file.sync)
                left.popleft()
            for directory in sorted(directories):
                self._sync_or_never(partial(self._sync_if_there, directory))

    def _find_to_sync(self, left: Collection[Path], directories: set[Path]) -> OpenFile | None:
        """The first of those left. If it cannot be opened nothing is lost: all of them are for the next sync then."""
        try:
            return self.find(next(iter(left)))
        except OSError:
            with self._lock:
                self._touched.update(left)
                self._changed_directories |= directories
            raise

    def _sync_or_never(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except OSError as error:
            self._sync_error = error
            raise

    def _sync_if_there(self, directory: Path) -> None:
        with suppress(FileNotFoundError):  # removed since, with all that was in it
            self._files.sync_directory(directory)

    def sync_directory(self, path: Path) -> None:
        """Make removals in `path` durable now, before what follows."""
        self._files.sync_directory(path)

    def close(self) -> None:
        with self._lock:
            self._open.clear()
