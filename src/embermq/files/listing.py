"""Directories that another process may remove at any moment, as tools beside a living store list them. Any thread."""

from pathlib import Path

from embermq.files.files import Entry, Files


def entries_of(files: Files, path: Path) -> list[Entry]:
    """Everything in a directory, sorted by name; nothing if there is no such directory, or none any more."""
    try:
        return files.list_directory(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
