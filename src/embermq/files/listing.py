"""Directories that another process may remove at any moment, as tools beside a living store list them. Any thread."""

import errno
from pathlib import Path

from embermq.files.files import Entry, Files

_NO_DIRECTORY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # ELOOP: links in a circle lead nowhere.


def entries_of(files: Files, path: Path) -> list[Entry]:
    """Everything in a directory, sorted by name; nothing if there is no such directory, or none any more."""
    try:
        return files.list_directory(path)
    except OSError as problem:
        if problem.errno not in _NO_DIRECTORY:
            raise
        return []
