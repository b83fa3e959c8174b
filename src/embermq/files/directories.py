"""Directories held open, what a name is without following links, and on which disk it lies.

Removing by path has a gap: between the look and the removal a directory of the path can be replaced by a link, and
then the removal happens wherever the link leads. An `OpenDirectory` is the directory itself: it was opened without
following a link, it stays the same directory whatever happens to its path, and what it removes are its own names.
Any thread, one at a time.
"""

import errno
import os
import stat
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Protocol

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PathKind(StrEnum):
    """What a name stands for; a link is a link, wherever it leads."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"  # a pipe, a device, a socket


class OpenDirectory(Protocol):
    """A directory that is held open. Close it, or use it in a `with`."""

    @property
    def path(self) -> Path: ...

    def kinds(self) -> dict[str, PathKind]:
        """Every name in it, sorted; links that lead nowhere included."""
        ...

    def enter(self, name: str) -> "OpenDirectory":
        """A directory in it; NotADirectoryError if that is a link or a file."""
        ...

    def remove(self, name: str) -> None:
        """Unlink a file or a link. Not synced."""
        ...

    def remove_directory(self, name: str) -> None:
        """Remove an empty directory. Not synced."""
        ...

    def sync(self) -> None:
        """Make its entries durable."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> "OpenDirectory": ...

    def __exit__(self, *exception: object) -> None: ...


class RealDirectory:
    """An open directory on the disk."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path, parent: int | None = None) -> None:
        self.path = path
        self._fd = -1
        try:
            self._fd = os.open(path if parent is None else path.name, _OPEN, dir_fd=parent)
        except OSError as problem:
            if problem.errno == errno.ELOOP:  # What some systems say of a link that is not to be followed.
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None
            raise type(problem)(problem.errno, problem.strerror, str(path)) from None

    def kinds(self) -> dict[str, PathKind]:
        found = {}
        with os.scandir(self._fd) as items:
            for item in items:
                with suppress(FileNotFoundError):  # removed meanwhile
                    found[item.name] = _kind_of_item(item)
        return dict(sorted(found.items()))

    def enter(self, name: str) -> "RealDirectory":
        return RealDirectory(self.path / name, self._fd)

    def remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self._fd)

    def remove_directory(self, name: str) -> None:
        os.rmdir(name, dir_fd=self._fd)

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> "RealDirectory":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _kind_of_item(item: os.DirEntry[str]) -> PathKind:
    """Without a call to the system for each, where the directory says it."""
    if item.is_symlink():
        return PathKind.LINK
    if item.is_dir(follow_symlinks=False):
        return PathKind.DIRECTORY
    return PathKind.FILE if item.is_file(follow_symlinks=False) else PathKind.OTHER


def _kind_of_mode(mode: int) -> PathKind:
    if stat.S_ISREG(mode):
        return PathKind.FILE
    if stat.S_ISDIR(mode):
        return PathKind.DIRECTORY
    return PathKind.LINK if stat.S_ISLNK(mode) else PathKind.OTHER


def kind_at(path: Path) -> PathKind | None:
    """What lies at a path itself; None if there is nothing, or no way to it."""
    try:
        return _kind_of_mode(os.lstat(path).st_mode)
    except OSError as problem:
        if problem.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        return None


def mount_of(path: Path) -> Path:
    """The nearest directory at or above `path` where a file system is mounted: a full disk is known by its mount."""
    place = Path(os.path.realpath(path))
    while not os.path.ismount(place) and place != place.parent:
        place = place.parent
    return place
