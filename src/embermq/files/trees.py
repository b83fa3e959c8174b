"""Whole directories: removing and copying them over the primitive operations. Any thread."""

from contextlib import suppress
from pathlib import Path

from embermq.files.files import Files

_COPY_BYTES = 1 << 20


def remove_tree(files: Files, path: Path) -> None:
    """Remove a directory and all that is in it; fine if there is none. Durable when this returns."""
    if not files.exists(path):
        return
    _remove_below(files, path)
    with suppress(FileNotFoundError):
        files.remove_directory(path)
    files.sync_directory(path.parent)


def _remove_below(files: Files, path: Path) -> None:
    for entry in files.list_directory(path):
        if not entry.is_directory:
            files.remove(path / entry.name)
        else:
            _remove_below(files, path / entry.name)
            files.remove_directory(path / entry.name)


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
