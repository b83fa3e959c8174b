"""A file system in memory that remembers what was synced, and can crash.

A crash keeps everything that was synced, and of the rest any subset: that is all a disk promises.

    page of a file (4 KiB)   lost, kept, or torn: partly the old bytes and partly the new
    length of a file         the synced one or the current one
    directory entry          each create, remove and rename since the directory's last sync happened or
                             did not, in any combination; a rename happens as a whole

Files are memory files of the kernel, so that mapping, reading and cutting them behave as on a disk, and
a page counts as unsynced when its bytes differ from those of the last sync. Of several unsynced versions
of one page only the newest takes part in a crash.

Any thread. A crash leaves what all files held at one moment: it looks at them until two looks agree, since stores
through a map take no lock. Without that, a file that was read early would lack what another, read late, already vouches
for, which no kill leaves behind.
"""

import errno
import os
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from embermq.files import (
    CONTENT,
    WHOLE_BYTES_MAX,
    Data,
    DirectoryEntry,
    DiskUsage,
    FileEnds,
    FoundName,
    Lock,
    LockHeld,
    OpenDirectory,
    OpenFile,
    PathKind,
    RealFile,
    TooLarge,
    list_names_by_steps,
    make_directories,
    read_ends_by_steps,
    replace_durably,
)
from embermq.testing.unsynced import (
    Choose,
    Fate,
    MemoryDirectory,
    MemoryFile,
    MemoryNode,
    NameChange,
    Unsynced,
    UnsyncedChange,
    keep_everything,
    lose_everything,
)

_LOOKS_MAX = 1000


def _nodes(directory: MemoryDirectory) -> list[MemoryNode]:
    """What has a name here, had one at the last sync, or got one since."""
    come = [node for change in directory.pending for _, _, node in change.come]
    return [*directory.entries.values(), *directory.synced.values(), *come]


class LossyFile(RealFile):
    """An open file of LossyFiles."""

    __slots__ = ("_files", "_inode")

    def __init__(self, files: "LossyFiles", path: Path, inode: MemoryFile, writable: bool) -> None:
        super().__init__(path, os.dup(inode.fd), writable)
        self._files, self._inode = files, inode

    def pread(self, count: int, at: int) -> bytes:
        self._files.counts["pread"] += 1
        return super().pread(count, at)

    def pwrite(self, data: Data, at: int) -> None:
        self._check_writable("pwrite")
        super().pwrite(data, at)

    def truncate(self, size: int) -> None:
        self._check_writable("truncate")
        super().truncate(size)

    def reserve(self, start: int, end: int) -> None:
        self._check_writable("reserve")
        self._files.check_room(end - max(start, self.size))
        super().reserve(start, end)

    def zero(self, start: int, end: int) -> int:
        self._check_writable("zero")
        return super().zero(start, end)

    def map(self, writable: bool, size: int | None = None) -> memoryview:
        if writable:
            self._check_writable("map")
        return super().map(writable, size)

    def sync(self) -> None:
        self._files.counts["sync"] += 1
        with self._files.mutex:
            self._inode.sync()

    def fail_sync(self) -> None:
        """What a failed fdatasync does: dirty pages are given up although later reads still show them."""
        with self._files.mutex:
            self._inode.drop_dirty()

    def _check_writable(self, kind: str) -> None:
        self._files.counts[kind] += 1
        if not self.writable:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self.path))


class LossyLock:
    """A lock within one LossyFiles."""

    def __init__(self, files: "LossyFiles", path: Path) -> None:
        self.path = path
        self._files = files

    def problem(self) -> str | None:
        return None if self.path in self._files.locks else "was released"

    def release(self) -> None:
        self._files.locks.discard(self.path)


class LossyDirectory:
    """An open directory of LossyFiles, which knows no links: a path always leads to the same place."""

    def __init__(self, files: "LossyFiles", path: Path) -> None:
        self.path = path
        self._files = files

    def kinds(self) -> dict[str, PathKind]:
        return {
            entry.name: PathKind.FILE if entry.is_file else PathKind.DIRECTORY
            for entry in self._files.list_directory(self.path)
        }

    def enter(self, name: str) -> "LossyDirectory":
        self._files.list_directory(self.path / name)
        return LossyDirectory(self._files, self.path / name)

    def remove(self, name: str) -> None:
        self._files.remove(self.path / name)

    def remove_directory(self, name: str) -> None:
        self._files.remove_directory(self.path / name)

    def sync(self) -> None:
        self._files.sync_directory(self.path)

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> "LossyDirectory":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class LossyFiles:
    """An empty file system with only a root directory, which is `/` and durable."""

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.counts: Counter[str] = Counter()
        self.locks: set[Path] = set()
        self.mutex = threading.RLock()
        self._root = MemoryDirectory()
        self._boot = secrets.randbits(62)

    # -- Files -----------------------------------------------------------------------------------------

    def make_directory(self, path: Path) -> None:
        make_directories(self, path)

    def make_one_directory(self, path: Path) -> None:
        self._add("create", path, MemoryDirectory())

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        with self.mutex:
            names = sorted(self._directory(path).entries)
            return [self.stat(path / name) for name in names]

    def list_names(self, path: str) -> list[FoundName]:
        return list_names_by_steps(self, path)

    def read_ends(self, path: str, head_bytes: int, tail_bytes: int, writable: bool) -> FileEnds | None:
        return read_ends_by_steps(self, path, head_bytes, tail_bytes, writable)

    def exists(self, path: Path) -> bool:
        with self.mutex:
            return self._find(path) is not None

    def stat(self, path: Path) -> DirectoryEntry:
        with self.mutex:
            node = self._find(path)
            if node is None:
                raise _missing(path)
            if isinstance(node, MemoryDirectory):
                return DirectoryEntry(path.name, 0, False, 0, is_directory=True)
            status = os.fstat(node.fd)
            return DirectoryEntry(path.name, status.st_size, True, status.st_mtime_ns)

    def kind(self, path: Path) -> PathKind | None:
        if not self.exists(path):
            return None
        return PathKind.FILE if self.stat(path).is_file else PathKind.DIRECTORY

    def real_path(self, path: Path) -> Path:
        return path

    def device(self, path: Path) -> int:
        self.stat(path)
        return 1

    def open_directory(self, path: Path) -> OpenDirectory:
        self.list_directory(path)
        return LossyDirectory(self, path)

    def create(self, path: Path, size: int, *, fallocate: bool) -> OpenFile:
        with self.mutex:
            if fallocate:
                self.check_room(size)
            inode = MemoryFile()
            if fallocate and size:
                os.posix_fallocate(inode.fd, 0, size)
            os.truncate(inode.fd, size)
            self._add("create", path, inode)
            return LossyFile(self, path, inode, True)

    def open(self, path: Path, writable: bool) -> OpenFile:
        with self.mutex:
            return LossyFile(self, path, self._file(path), writable)

    def read_all(self, path: Path, limit: int = WHOLE_BYTES_MAX) -> bytes:
        with self.mutex:
            inode = self._file(path)
            if inode.size > limit:
                raise TooLarge(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
            return os.pread(inode.fd, inode.size, 0)

    def replace_file(self, path: Path, data: bytes) -> None:
        replace_durably(self, path, data)

    def rename(self, old: Path, new: Path) -> None:
        with self.mutex:
            node = self._find(old)
            if node is None:
                raise _missing(old)
            source, target = self._directory(old.parent), self._directory(new.parent)
            self._change(NameChange("rename", new, [(source, old.name)], [(target, new.name, node)]))

    def remove(self, path: Path) -> None:
        with self.mutex:
            self._file(path)
            self._change(NameChange("remove", path, [(self._directory(path.parent), path.name)], []))

    def remove_directory(self, path: Path) -> None:
        with self.mutex:
            if self._directory(path).entries:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
            self._change(NameChange("remove", path, [(self._directory(path.parent), path.name)], []))

    def sync_directory(self, path: Path) -> None:
        with self.mutex:
            self.counts["sync_directory"] += 1
            for change in list(self._directory(path).pending):
                change.apply(lambda directory: directory.synced)
                for directory in change.directories:
                    directory.pending.remove(change)

    def usage(self, path: Path) -> DiskUsage:
        with self.mutex:
            if self._find(path) is None:
                raise _missing(path)
            total = self.capacity_bytes or 1 << 40
            free = max(total - self._used(), 0)
            return DiskUsage(total, free, free)

    def identity(self, path: Path) -> int:
        return 1  # Copies are not counted here.

    def boot(self) -> int:
        return self._boot

    def lock(self, path: Path) -> Lock:
        with self.mutex:
            if path in self.locks:
                raise LockHeld(path, os.getpid())
            if not self.exists(path):
                self.create(path, 0, fallocate=False).pwrite(CONTENT, 0)
            self.locks.add(path)
            return LossyLock(self, path)

    def set_mtime(self, path: Path, mtime_ns: int) -> None:
        with self.mutex:
            os.utime(self._file(path).fd, ns=(mtime_ns, mtime_ns))

    # -- crashing --------------------------------------------------------------------------------------

    def crash(self, choose: Choose = lose_everything) -> "LossyFiles":
        """The file system as it is found after a crash, everything in it durable. This one stays as it is."""
        with self.mutex:
            survivor = LossyFiles(self.capacity_bytes)
            if choose is keep_everything:  # Only the process died.
                survivor._boot = self._boot
            for path, content in self._survivors(choose):
                survivor.put(path, content)
            return survivor

    def crash_to(self, target: Path, root: Path, choose: Choose = lose_everything) -> None:
        """Write what a crash leaves of the directory `root` to a real directory."""
        with self.mutex:
            for path, content in self._survivors(choose):
                if path == root or root in path.parents:
                    place = target / path.relative_to(root)
                    if content is None:
                        place.mkdir(parents=True, exist_ok=True)
                    else:
                        place.write_bytes(content)

    def put(self, path: Path, content: bytes | None) -> None:
        """Put a file (or, with None, a directory) there, durably: the way a test sets the scene."""
        if content is None:
            self.make_directory(path)
            return
        self.make_directory(path.parent)
        file = self.create(path, 0, fallocate=False)
        if content:
            file.pwrite(content, 0)
        file.sync()
        self.sync_directory(path.parent)

    def unsynced(self) -> list[UnsyncedChange]:
        """Every change whose fate a crash would decide now."""
        changes: list[UnsyncedChange] = []

        def note(change: UnsyncedChange) -> Fate:
            changes.append(change)
            return Fate.KEPT

        with self.mutex:
            for _ in self._survivors(note):
                pass
        return changes

    def _survivors(self, choose: Choose) -> Iterator[tuple[Path, bytes | None]]:
        """What a crash leaves, directories (None) before what is in them."""
        unsynced = self._unsynced_at_one_moment()
        tables = self._tables_after_crash(choose)
        waiting: list[tuple[Path, MemoryNode]] = [(Path("/"), self._root)]
        while waiting:
            path, node = waiting.pop()
            if isinstance(node, MemoryFile):
                yield path, node.after_crash(path, unsynced[node], choose)
                continue
            yield path, None
            entries = tables.get(id(node), node.synced)
            waiting += [(path / name, entries[name]) for name in sorted(entries, reverse=True)]

    def _unsynced_at_one_moment(self) -> dict[MemoryFile, Unsynced]:
        """Of every file. The mutex keeps names and syncs as they are, but not the bytes."""
        nodes = [node for directory in self._every_directory() for node in _nodes(directory)]
        files = dict.fromkeys(node for node in nodes if isinstance(node, MemoryFile))
        before = {file: file.unsynced() for file in files}
        for _ in range(_LOOKS_MAX):
            now = {file: file.unsynced() for file in files}
            if now == before:
                return now
            before = now
        raise RuntimeError(f"files changed in each of {_LOOKS_MAX} looks: stop the writers before a crash")

    def _tables_after_crash(self, choose: Choose) -> dict[int, dict[str, MemoryNode]]:
        """The entries of each directory, by identity, after each pending change has met its fate."""
        tables: dict[int, dict[str, MemoryNode]] = {}
        seen: set[int] = set()

        def table(directory: MemoryDirectory) -> dict[str, MemoryNode]:
            return tables.setdefault(id(directory), dict(directory.synced))

        for directory in self._every_directory():
            table(directory)
            for change in directory.pending:
                if id(change) not in seen:
                    seen.add(id(change))
                    if choose(UnsyncedChange(change.kind, change.path)) is not Fate.LOST:
                        change.apply(table)
        return tables

    def _every_directory(self) -> list[MemoryDirectory]:
        """Those that exist now, or would if the last changes were lost."""
        found, waiting = [], [self._root]
        while waiting:
            directory = waiting.pop()
            if directory not in found:
                found.append(directory)
                waiting += [node for node in _nodes(directory) if isinstance(node, MemoryDirectory)]
        return found

    # -- the tree --------------------------------------------------------------------------------------

    def check_room(self, size: int) -> None:
        """ENOSPC if `size` more bytes do not fit."""
        if self.capacity_bytes is not None and self._used() + size > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _used(self) -> int:
        files = [node for directory in self._every_directory() for node in directory.entries.values()]
        return sum(os.fstat(node.fd).st_blocks * 512 for node in files if isinstance(node, MemoryFile))

    def _find(self, path: Path) -> MemoryNode | None:
        node: MemoryNode = self._root
        for part in path.parts[1:]:
            if not isinstance(node, MemoryDirectory) or part not in node.entries:
                return None
            node = node.entries[part]
        return node

    def _file(self, path: Path) -> MemoryFile:
        node = self._find(path)
        if node is None:
            raise _missing(path)
        if isinstance(node, MemoryDirectory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return node

    def _directory(self, path: Path) -> MemoryDirectory:
        node = self._find(path)
        if node is None:
            raise _missing(path)
        if isinstance(node, MemoryFile):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return node

    def _add(self, kind: str, path: Path, node: MemoryNode) -> None:
        with self.mutex:
            parent = self._directory(path.parent)
            if path.name in parent.entries:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            self._change(NameChange(kind, path, [], [(parent, path.name, node)]))

    def _change(self, change: NameChange) -> None:
        self.counts[change.kind] += 1
        change.apply(lambda directory: directory.entries)
        for directory in change.directories:
            directory.pending.append(change)


def _missing(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
