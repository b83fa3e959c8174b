"""What went or was replaced in a store directory while a tool looked at it: for tools beside a living store.

A tool that reads a store which is being written meets files that retention has just removed, queues of a topic that was
deleted, an index that was made again. None of that is damage. The tool takes a `Shape` before it begins and compares it
with one taken later: if something went in between, what the tool found wrong is looked at again, and `changes` says
what happened. Growth of the log is no change here. Reads only. Any thread.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from embermq.files import DirectoryEntry, Files, entries_of
from embermq.format.names import parse_index_name, parse_segment_name
from embermq.store.layout import ABORT, CONSUME_QUEUE, INDEX, load_deleted_topics, log_places
from embermq.store.layout import INVENTORY_FILE as INVENTORY


@dataclass(frozen=True, slots=True)
class Shape:
    """The names in a store directory, and when it was opened and closed."""

    log_files: frozenset[int]
    topics: frozenset[str]  # That have queues
    deleted: Mapping[str, int]
    index_files: frozenset[str]
    made: Mapping[str, int | None]  # Which directory of queues and which one of index files it is.
    opened: int | None  # When it was opened for writing; None: it is closed.
    closed: int | None

    @classmethod
    def of(cls, files: Files, root: Path) -> "Shape":
        families = (CONSUME_QUEUE, INDEX)
        log = [entry for place in log_places(files, root) for entry in _entries(files, place) if entry.is_file]
        starts = (parse_segment_name(entry.name) for entry in log)
        return cls(
            frozenset(start for start in starts if start is not None),
            frozenset(one.name for one in _entries(files, root / CONSUME_QUEUE) if one.is_directory),
            load_deleted_topics(files, root),
            frozenset(one.name for one in _entries(files, root / INDEX) if parse_index_name(one.name)),
            {family: _identity(files, root / family) for family in families},
            _changed_at(files, root / ABORT),
            _changed_at(files, root / INVENTORY),
        )

    def changes(self, now: "Shape") -> list[str]:
        """What went since, one line each."""
        found = [self._log_files(now), *self._topics(now), *self._families(now)]
        gone = len(self.index_files - now.index_files)
        if gone and self.made[INDEX] == now.made[INDEX]:
            found.append(f"{_counted(gone, 'index file was', 'index files were')} removed")
        if (self.opened, self.closed) != (now.opened, now.closed):
            found.append(self._opening(now))
        return [one for one in found if one]

    def _log_files(self, now: "Shape") -> str:
        gone = self.log_files - now.log_files
        if not gone:
            return ""
        left = min(now.log_files, default=0)
        if max(gone) < left:
            count = _counted(len(gone), "log file", "log files")
            return f"retention removed {count}; the log begins at physical offset {left} now"
        return f"{_counted(len(gone), 'log file was', 'log files were')} removed"

    def _topics(self, now: "Shape") -> list[str]:
        noted = sorted(topic for topic, place in now.deleted.items() if self.deleted.get(topic) != place)
        silent = sorted(self.topics - now.topics - set(noted))
        return [
            *(f"topic {topic} was deleted" for topic in noted),
            *(f"the queues of topic {topic} were removed" for topic in silent),
        ]

    def _families(self, now: "Shape") -> list[str]:
        """A rebuild swaps a whole directory."""
        return [
            f"{family}/ was replaced by another directory"
            for family, made in self.made.items()
            if made is not None and now.made[family] is not None and made != now.made[family]
        ]

    def _opening(self, now: "Shape") -> str:
        if self.opened is None or now.opened is None:
            return "the store was closed" if now.opened is None else "the store was opened for writing"
        return "the store was closed and opened again"


@dataclass(slots=True)
class Watched:
    """A store directory, and all that went in it since this was made."""

    files: Files
    root: Path
    changes: list[str] = field(default_factory=list)
    _shape: Shape = field(init=False)

    def __post_init__(self) -> None:
        self._shape = Shape.of(self.files, self.root)

    def look(self) -> bool:
        """Look at it again: has anything gone since the last look?"""
        before, self._shape = self._shape, Shape.of(self.files, self.root)
        found = before.changes(self._shape)
        self.changes += [one for one in found if one not in self.changes]
        return bool(found)


def is_about_missing_file(problem: BaseException) -> bool:
    """Did something fail because a file or directory was not there, or not any more?"""
    missing = FileNotFoundError, NotADirectoryError
    return isinstance(problem, missing) or isinstance(problem.__cause__, missing)


def _entries(files: Files, path: Path) -> list[DirectoryEntry]:
    """What cannot be listed has no names here; who needs it says so."""
    try:
        return entries_of(files, path)
    except OSError:
        return []


def _identity(files: Files, path: Path) -> int | None:
    try:
        return files.identity(path)
    except OSError:
        return None


def _changed_at(files: Files, path: Path) -> int | None:
    try:
        return files.stat(path).mtime_ns
    except OSError:
        return None


def _counted(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"
