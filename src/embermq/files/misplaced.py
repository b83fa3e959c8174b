"""Putting aside what has the name of a file of ours and is a directory or a pipe, or the other way round.

It is not ours, so it is never deleted: it keeps its content under another name, and the name that is
needed is free again. Where other programs read every name in a directory, it goes to one that is kept for such things.
Any thread.
"""

import logging
from contextlib import suppress
from pathlib import Path

from embermq.files.directories import PathKind
from embermq.files.files import Files

log = logging.getLogger(__name__)


def put_aside(files: Files, path: Path, into: Path | None = None) -> Path:
    """Rename what lies at `path`, durably, and answer its new path: in `into`, a directory that is made if need be, by
    its path below the parent of `into`; beside where it was if there is none, or if it cannot be moved there."""
    kind = "not-a-directory" if files.kind(path) is PathKind.FILE else "not-a-file"
    if into is not None:
        with suppress(OSError):  # Another file system, or a name that is too long.
            files.make_directory(into)
            return _moved(files, path, into, f"{'.'.join(path.relative_to(into.parent).parts)}.{kind}")
    return _moved(files, path, path.parent, f"{path.name}.{kind}")


def _moved(files: Files, path: Path, directory: Path, name: str) -> Path:
    number = 1
    while files.kind(aside := directory / f"{name}-{number}") is not None:
        number += 1
    files.rename(path, aside)
    for changed in {path.parent, directory}:
        files.sync_directory(changed)
    log.warning("put aside path=%s as=%s", path, aside)
    return aside
