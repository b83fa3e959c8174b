"""Filters of all queries that share one DataFrame, and what all of them together leave out.

Spark keeps one plan with the table behind a DataFrame, and every scan of it uses the one that was made last. Two scans
of one query (a join of a table with itself, a union), or a query and one before it, may thus be given each other's
slices. Spark compares rows again, so too many rows do no harm, and too few do: a plan has to hold for every filter
that was ever pushed down into its table. Each planning is a process of its own; what they know of each other is a
small file on the driver's machine, named after the table, that grows with each different filter.

Whatever goes wrong with that file, the answer is: nothing can be left out. Driver side, while planning.
"""

import fcntl
import json
import os
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from embermq.spark.planning.pushdown import Pushed, Span

# More different filters than this, and everything is read: remembering them would cost more than it saves.
FILTERS_MAX = 32
_FORGOTTEN_SECONDS = 7 * 86_400
_SETS = ("topics", "queue_ids", "tags", "keys")
_SPANS = ("queue_offsets", "physical", "times_ms")


def widen(table: str, pushed: Pushed, directory: Path | None = None) -> Pushed:
    """What this filter and all earlier ones of the table have in common."""
    try:
        with _open(directory or _directory(), table) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            lines = file.read().splitlines()
            known = [_from_json(line) for line in lines]
            if pushed not in known:
                if len(known) >= FILTERS_MAX:
                    pushed = Pushed()
                file.write(json.dumps(_to_json(pushed)) + "\n")
                file.flush()
            for one in known:
                pushed = join(pushed, one)
            return pushed
    except (OSError, ValueError, TypeError, KeyError):
        return Pushed()


def join(one: Pushed, other: Pushed) -> Pushed:
    """What holds for the rows of both. One that no row can pass has no say."""
    if one.is_empty or other.is_empty:
        return other if one.is_empty else one
    found: dict[str, Any] = {}
    for name in _SETS:
        ours, theirs = getattr(one, name), getattr(other, name)
        found[name] = None if ours is None or theirs is None else ours | theirs
    for name in _SPANS:
        mine, its = getattr(one, name), getattr(other, name)
        found[name] = Span(min(mine.start, its.start), max(mine.end, its.end))
    return Pushed(**found)


def _directory() -> Path:
    """A directory that is ours alone; OSError if another user made it."""
    directory = Path(tempfile.gettempdir()) / f"embermq-filters-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or not directory.is_dir():
        raise PermissionError(f"{directory} is not ours alone")
    return directory


def _open(directory: Path, table: str) -> IO[str]:
    assert table.isalnum(), "a name we made"
    path = directory / table
    if not path.exists():
        _forget(directory)
    file = path.open("a+", encoding="utf-8")
    file.seek(0)
    return file


def _forget(directory: Path) -> None:
    """Remove files of tables that were not used for a long time."""
    before = time.time() - _FORGOTTEN_SECONDS
    for one in directory.iterdir():
        if one.name.isalnum() and one.lstat().st_mtime < before:
            one.unlink(missing_ok=True)


def _to_json(pushed: Pushed) -> dict[str, object]:
    sets = {name: None if (value := getattr(pushed, name)) is None else sorted(value) for name in _SETS}
    return sets | {name: [getattr(pushed, name).start, getattr(pushed, name).end] for name in _SPANS}


def _from_json(line: str) -> Pushed:
    read = json.loads(line)
    found: dict[str, Any] = {name: None if read[name] is None else frozenset(read[name]) for name in _SETS}
    return Pushed(**(found | {name: Span(*read[name]) for name in _SPANS}))
