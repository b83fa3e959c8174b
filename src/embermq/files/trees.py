"""Whole directories: removing and copying them.

Removing is careful about what it removes. The caller says which names are its own (`Ours`), and only those go. A link
is never followed and never removed, whatever its name: what it leads to belongs to its owner. Directories are held open
on the way down (directories.py), so that one replaced by a link meanwhile leads nowhere else. Any thread.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from embermq.files.directories import OpenDirectory, PathKind
from embermq.files.files import Files

_COPY_BYTES = 1 << 20

# Is a file or directory, by its path below the directory that is removed, one that the caller made?
Ours = Callable[[tuple[str, ...], PathKind], bool]


def foreign_in(files: Files, path: Path, ours: Ours) -> list[Path]:
    """What `remove_tree` would leave: the topmost names that are not ours, in order. Changes nothing."""
    return _visit(files, path, ours, removing=False)


def remove_tree(files: Files, path: Path, ours: Ours) -> list[Path]:
    """Remove a directory and what is ours in it; fine if there is none. Durable when this returns.

    The topmost names that are not ours stay, with the directories that hold them, and are the answer. If `path` itself
    is a link or a file, it is the answer and nothing is touched.
    """
    left = _visit(files, path, ours, removing=True)
    if not left and files.kind(path) is PathKind.DIRECTORY:
        with suppress(FileNotFoundError):
            files.remove_directory(path)
        files.sync_directory(path.parent)
    return left


def _visit(files: Files, path: Path, ours: Ours, *, removing: bool) -> list[Path]:
    kind = files.kind(path)
    if kind is None:
        return []
    if kind is not PathKind.DIRECTORY:
        return [path]
    with files.open_directory(path) as directory:
        return _visit_below(directory, (), ours, removing=removing)


def _visit_below(directory: OpenDirectory, above: tuple[str, ...], ours: Ours, *, removing: bool) -> list[Path]:
    """What is not ours in a directory; what is ours is removed, or only looked at."""
    foreign: list[Path] = []
    for name, kind in directory.kinds().items():
        parts = (*above, name)
        if kind not in (PathKind.FILE, PathKind.DIRECTORY) or not ours(parts, kind):
            foreign.append(directory.path / name)
        elif kind is PathKind.FILE:
            if removing:
                with suppress(FileNotFoundError):
                    directory.remove(name)
        else:
            foreign += _visit_directory(directory, parts, ours, removing=removing)
    return foreign


def _visit_directory(parent: OpenDirectory, parts: tuple[str, ...], ours: Ours, *, removing: bool) -> list[Path]:
    name = parts[-1]
    try:
        with parent.enter(name) as directory:
            foreign = _visit_below(directory, parts, ours, removing=removing)
        if removing and not foreign:
            parent.remove_directory(name)
    except FileNotFoundError:
        return []
    except (NotADirectoryError, PermissionError):  # Replaced meanwhile, or not for us to look into.
        return [parent.path / name]
    except OSError as problem:
        if problem.errno != errno.ENOTEMPTY:
            raise
        return [parent.path / name]  # Something came in meanwhile.
    return foreign


def copy_file(files: Files, source: Path, target: Path) -> None:
    """Copy a file; stretches of zeros become holes. Its bytes are durable when this returns, its name is not."""
    old = files.open(source, False)
    new = files.create(target, old.size, fallocate=False)
    try:
        at = 0
        while at < old.size:
            data = old.pread(_COPY_BYTES, at)
            if not data:
                break
            if data.strip(b"\0"):
                new.pwrite(data, at)
            at += len(data)
        new.sync()
    finally:
        new.close()
        old.close()
