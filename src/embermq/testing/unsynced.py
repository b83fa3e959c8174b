"""Files and directories in memory that know what of them was synced, and what a crash makes of the rest.

A crash asks about each unsynced change what becomes of it (`Choose`): a page of a file, its length, a name that came or
went. The file system built of these is lossy_files.py. One thread at a time.
"""

import enum
import errno
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

PAGE_BYTES = 4096


class Fate(enum.Enum):
    """What a crash does to one unsynced change."""

    LOST = enum.auto()
    KEPT = enum.auto()
    TORN_HEAD = enum.auto()  # pages only: the first half of what changed is new, the rest is old
    TORN_TAIL = enum.auto()  # pages only: the other way round


@dataclass(frozen=True, slots=True)
class UnsyncedChange:
    """A change whose fate a crash decides; `at` is the page's position, or the new length."""

    kind: str  # "page", "length", "create", "remove" or "rename"
    path: Path
    at: int = 0


Choose = Callable[[UnsyncedChange], Fate]


def lose_everything(change: UnsyncedChange) -> Fate:
    return Fate.LOST


def keep_everything(change: UnsyncedChange) -> Fate:
    return Fate.KEPT


def random_fates(seed: int) -> Choose:
    """Fates drawn at random, the same for the same seed."""
    source = random.Random(seed)
    return lambda change: source.choice(tuple(Fate))


class MemoryFile:
    """A file's content now (a memory file) and at its last sync (pages; an absent one is zeros)."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("embermq", os.MFD_CLOEXEC)
        self.synced: dict[int, bytes] = {}
        self.synced_size = 0
        self.dropped: dict[int, bytes] = {}  # pages a failed sync has silently given up

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)  # Bound early: at the end of the interpreter the module may be gone.

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def dirty_pages(self) -> dict[int, bytes]:
        """Pages that differ from the synced ones, by number, padded with zeros past the end."""
        now = dict(self._pages())
        dirty = {page: data for page, data in now.items() if data != self.synced.get(page, _ZEROS)}
        for page in self.synced:
            if page not in now and self.synced[page] != _ZEROS:
                dirty[page] = _ZEROS
        return dirty

    def _pages(self) -> Iterator[tuple[int, bytes]]:
        """The pages that are not holes."""
        size, at = self.size, 0
        while at < size:
            try:
                at = os.lseek(self.fd, at, os.SEEK_DATA) // PAGE_BYTES * PAGE_BYTES
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                raise
            hole = os.lseek(self.fd, at, os.SEEK_HOLE)
            while at < hole:
                yield at // PAGE_BYTES, os.pread(self.fd, PAGE_BYTES, at).ljust(PAGE_BYTES, b"\0")
                at += PAGE_BYTES

    def sync(self) -> None:
        for page, data in self.dirty_pages().items():
            if self.dropped.get(page) != data:
                self.synced[page] = data
                self.dropped.pop(page, None)
        self.synced_size = self.size

    def drop_dirty(self) -> None:
        """What a kernel does after a write error: the pages count as clean, and never reach the disk."""
        self.dropped.update(self.dirty_pages())

    def unsynced(self) -> "Unsynced":
        return Unsynced(self.size, self.dirty_pages())

    def after_crash(self, path: Path, unsynced: "Unsynced", choose: Choose) -> bytes:
        """The content a crash leaves."""
        size, dirty_pages = unsynced
        if size != self.synced_size and choose(UnsyncedChange("length", path, size)) is Fate.LOST:
            size = self.synced_size
        content = bytearray(size)
        for page, data in self.synced.items():
            _paste(content, page, data)
        for page, data in sorted(dirty_pages.items()):
            if page * PAGE_BYTES < size and self.dropped.get(page) != data:
                fate = choose(UnsyncedChange("page", path, page * PAGE_BYTES))
                _paste(content, page, _mixed(self.synced.get(page, _ZEROS), data, fate))
        return bytes(content)


class Unsynced(NamedTuple):
    """What of a file a sync would make durable: its length, and pages by number."""

    size: int
    pages: dict[int, bytes]


_ZEROS = bytes(PAGE_BYTES)


def _paste(content: bytearray, page: int, data: bytes) -> None:
    at = page * PAGE_BYTES
    if at < len(content):
        end = min(at + PAGE_BYTES, len(content))
        content[at:end] = data[: end - at]


def _mixed(old: bytes, new: bytes, fate: Fate) -> bytes:
    if fate is Fate.LOST:
        return old
    if fate is Fate.KEPT:
        return new
    changed = [at for at in range(PAGE_BYTES) if old[at] != new[at]]
    middle = (changed[0] + changed[-1] + 1) // 2
    return new[:middle] + old[middle:] if fate is Fate.TORN_HEAD else old[:middle] + new[middle:]


@dataclass(eq=False, slots=True)
class MemoryDirectory:
    entries: dict[str, "MemoryNode"] = field(default_factory=dict)
    synced: dict[str, "MemoryNode"] = field(default_factory=dict)
    pending: list["NameChange"] = field(default_factory=list)


MemoryNode = MemoryFile | MemoryDirectory


@dataclass(eq=False, slots=True)
class NameChange:
    """Names that go and names that come, all at once."""

    kind: str
    path: Path
    gone: list[tuple[MemoryDirectory, str]]
    come: list[tuple[MemoryDirectory, str, MemoryNode]]

    @property
    def directories(self) -> list[MemoryDirectory]:
        found = [directory for directory, _ in self.gone] + [directory for directory, _, _ in self.come]
        return [directory for at, directory in enumerate(found) if directory not in found[:at]]

    def apply(self, tables: Callable[[MemoryDirectory], dict[str, MemoryNode]]) -> None:
        for directory, name in self.gone:
            tables(directory).pop(name, None)
        for directory, name, node in self.come:
            tables(directory)[name] = node
