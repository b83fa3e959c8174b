"""The few things a lake asks of a file system: read, write as a whole, list, remove. Local, or what pyarrow knows.

A lake is named by a path or a URI (`s3://bucket/lake`, `hdfs://...`). On a local disk a file appears under its name
only when it is whole and synced; object stores do that by themselves.
Driver and workers; any thread.
"""

import errno
import os
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from embermq.errors import OptionInvalid
from embermq.spark.lake.names import HALF


class LakeFiles:
    """Files below one place. Picklable: workers open the place again."""

    def __init__(self, root: str) -> None:
        self.root = root
        try:
            self._files, path = _resolve(root)
        except (ValueError, pa.ArrowInvalid, OSError) as problem:
            raise OptionInvalid("lake", f"this is no place to keep files: {problem}", value=root) from None
        self.path = path.rstrip("/")

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return LakeFiles, (self.root,)

    @property
    def is_local(self) -> bool:
        return str(self._files.type_name) == "local"

    @property
    def arrow(self) -> fs.FileSystem:
        return self._files

    def full(self, name: str) -> str:
        return f"{self.path}/{name}"

    def exists(self, name: str = "") -> bool:
        place = self.full(name) if name else self.path
        return bool(self._files.get_file_info(place).type != fs.FileType.NotFound)

    def changed_at(self, name: str) -> int | None:
        """When the names in a folder changed last, in ns; None where folders have no times, or there is none."""
        if not self.is_local or not self.exists(name):
            return None
        return os.stat(self.full(name)).st_mtime_ns

    def read(self, name: str) -> bytes:
        with self._files.open_input_file(self.full(name)) as file:
            return bytes(file.read())

    def write(self, name: str, data: bytes, *, new: bool = False) -> None:
        """With `new`, FileExistsError if there is such a file: of two who try, one succeeds. (Object stores are only
        looked at before.)"""
        self.write_with(name, lambda place: self._put(place, data), new=new)

    def _put(self, place: str, data: bytes) -> None:
        with self._files.open_output_stream(place) as file:
            file.write(data)

    def write_with(self, name: str, put: Callable[[str], None], *, new: bool = False) -> int:
        """Have `put` write the file at a place it is given, then let it appear under its name. Its bytes."""
        place = self.full(name)
        folder, _, last = place.rpartition("/")
        if self.is_local:
            self._files.create_dir(folder, recursive=True)
            half = f"{folder}/{HALF}{os.getpid()}-{threading.get_ident()}-{last}"
            try:
                put(half)
                _sync(half)
                (_appear if new else os.replace)(half, place)
            except BaseException:
                Path(half).unlink(missing_ok=True)  # A full disk needs the room.
                raise
            _sync(folder)
        elif new and self.exists(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), place)
        else:
            put(place)
        return int(self._files.get_file_info(place).size)

    def link(self, name: str, other: str) -> None:
        """The file under another name as well; fine if it has it. Local lakes only."""
        place = self.full(other)
        if self.exists(other):
            return
        folder = place.rpartition("/")[0]
        self._files.create_dir(folder, recursive=True)
        try:
            os.link(self.full(name), place)
            _sync(folder)
        except OSError:  # No links here.
            self.write_with(other, lambda half: self._files.copy_file(self.full(name), half))

    def remove(self, name: str) -> None:
        """Fine if it is not there."""
        if self.exists(name):
            self._files.delete_file(self.full(name))

    def list(self, name: str = "", *, recursive: bool = False) -> list[str]:
        """Names below a folder (relative to the lake), none if there is no such folder."""
        place = self.full(name) if name else self.path
        selector = fs.FileSelector(place, recursive=recursive, allow_not_found=True)
        found = self._files.get_file_info(selector)
        cut = len(self.path) + 1
        return sorted(one.path[cut:] for one in found if one.type == fs.FileType.File)

    def list_own(self) -> Sequence[tuple[str, bool]]:
        """Every file of the lake, and whether a link leads to it. Links that lead back into the lake, or in a circle,
        are not followed: a file has one name here. Files that are links themselves are left out."""
        if not self.is_local:
            return [(name, False) for name in self.list(recursive=True)]
        found = []
        seen = {os.path.realpath(self.path)}
        waiting = [("", False)]
        while waiting:
            folder, linked = waiting.pop()
            for item in _entries(self.full(folder) if folder else self.path):
                name = f"{folder}/{item.name}" if folder else item.name
                if item.is_file(follow_symlinks=False):
                    found.append((name, linked))
                elif item.is_dir(follow_symlinks=False):
                    waiting.append((name, linked))
                elif _leads_outside(item.path, seen):
                    seen.add(os.path.realpath(item.path))
                    waiting.append((name, True))
        return sorted(found)


def _entries(folder: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as items:
            return sorted(items, key=lambda item: item.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _leads_outside(link: str, seen: Collection[str]) -> bool:
    """Does a link lead to a directory that is in none of these, and that none of them is in?"""
    if not os.path.isdir(link):
        return False
    place = Path(os.path.realpath(link))
    return not any(place.is_relative_to(one) or Path(one).is_relative_to(place) for one in seen)


def _resolve(root: str) -> tuple[fs.FileSystem, str]:
    if "://" in root:
        files, path = fs.FileSystem.from_uri(root)
        return files, str(path)
    return fs.LocalFileSystem(), str(Path(root).expanduser().absolute())


def _appear(half: str, place: str) -> None:
    """A file under its name, if that is free."""
    try:
        os.link(half, place)
    except FileExistsError:
        raise
    except OSError:  # A file system without links: the lock of the lake has to do.
        if os.path.exists(place):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), place) from None
        os.replace(half, place)
    else:
        os.unlink(half)


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
