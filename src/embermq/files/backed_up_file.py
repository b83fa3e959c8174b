"""One small JSON file with its backup: read with a fallback, replaced atomically, evidence kept.

    topics.json             what counts
    topics.json.bak         the version before it, as RocketMQ keeps it
    topics.json.tmp         while one of them is being written
    topics.json.damaged-1   what a file held that could not be read, kept when a save replaces it

Reading falls back to the backup where the file is missing, empty or damaged, as RocketMQ does; it never raises for
what it finds, and never writes. Saving replaces first the backup by the last good version, then the file, each by a
synced temporary file, a rename and a sync of the directory: after a crash at any step the old or the new version is
there. Content that could not be read is copied aside before it is replaced, and never becomes the backup.

One thread at a time; the owner of the file takes care of that.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from embermq.files.files import Files
from embermq.format.config_json import parse_config

log = logging.getLogger(__name__)

BACKUP = ".bak"
DAMAGED = ".damaged-"
DAMAGED_FILES_MAX = 8  # of one file; beyond that the last one is replaced

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decoded(Generic[T]):
    """What a document says; and which of its entries make no sense and were left out."""

    value: T
    faults: list[str] = field(default_factory=list)


Decode = Callable[[Any], Decoded[T]]  # ValueError for a document of which nothing can be used


@dataclass(frozen=True, slots=True)
class FileRead(Generic[T]):
    """One file as it was read."""

    decoded: Decoded[T] | None
    fault: str | None  # why there is nothing, or which entries were left out
    content: bytes | None

    @property
    def is_damaged(self) -> bool:
        """Whether there is something that a save must not simply replace."""
        return self.fault not in (None, "missing", "empty")


def read_file(files: Files, path: Path, decode: Decode[T]) -> FileRead[T]:
    """Read one file. Nothing is raised for what is in it."""
    try:
        content = files.read_all(path)
    except FileNotFoundError:
        return FileRead(None, "missing", None)
    except OSError as problem:
        return FileRead(None, f"cannot be read ({problem.strerror or problem})", None)
    if not content.strip(b"\0 \t\r\n"):
        return FileRead(None, "empty", content)
    try:
        document = parse_config(content.decode())
    except (ValueError, RecursionError) as problem:
        return FileRead(None, f"cannot be read ({problem})", content)
    try:
        decoded = decode(document)
    except ValueError as problem:
        return FileRead(None, str(problem), content)
    return FileRead(decoded, "; ".join(decoded.faults) or None, content)


def backup_of(path: Path) -> Path:
    return path.with_name(path.name + BACKUP)


def read_with_backup(files: Files, path: Path, decode: Decode[T]) -> tuple[FileRead[T], FileRead[T] | None, str | None]:
    """The file, its backup if that was needed, and one line on what is wrong (None: nothing, or neither exists)."""
    first = read_file(files, path, decode)
    if first.decoded is not None:
        return first, None, f"{first.fault}; left out" if first.fault else None
    backup = read_file(files, backup_of(path), decode)
    if backup.decoded is not None:
        return first, backup, f"{first.fault}; its backup is used"
    if first.fault == backup.fault == "missing":
        return first, backup, None
    if backup.fault in ("missing", "empty"):
        return first, backup, f"{first.fault}; there is no good backup"
    return first, backup, f"{first.fault}; its backup {backup.fault}"


class BackedUpFile(Generic[T]):
    """A file that is read once and then saved again and again."""

    def __init__(self, files: Files, path: Path, decode: Decode[T]) -> None:
        self._files, self.path, self._decode = files, path, decode
        self._content: bytes | None = None  # What the file holds, when that is known to be good.
        self._is_known = False  # Whether the file is as `_content` says: None means that there is none.
        self._damaged: list[tuple[Path, bytes | None]] = []  # Files to keep a copy of before they are replaced.
        self.finding: str | None = None  # What was wrong when it was loaded.

    @property
    def is_damaged(self) -> bool:
        """Whether content was found that could not be read, and is still only in its place."""
        return bool(self._damaged)

    def load(self) -> T | None:
        """What the file says, or its backup; None if neither says anything. Reads only."""
        first, backup, self.finding = read_with_backup(self._files, self.path, self._decode)
        self._content = first.content if first.fault is None else None
        self._is_known = first.fault in (None, "missing")
        reads = [(self.path, first)] + ([(backup_of(self.path), backup)] if backup is not None else [])
        self._damaged = [(path, read.content) for path, read in reads if read.is_damaged]
        if self.finding is not None:
            log.warning("config.damaged file=%s reason=%s", self.path, self.finding)
        used = first.decoded or (backup.decoded if backup is not None else None)
        return used.value if used is not None else None

    def save(self, content: bytes) -> None:
        """Make `content` the file, durably; the version before it, if it was good, becomes the backup. OSError."""
        if content == self._content:
            return
        self._files.make_directory(self.path.parent)
        while self._damaged:
            self._keep_aside(*self._damaged[-1])
            self._damaged.pop()
        if self._content is not None:
            self._files.replace_file(backup_of(self.path), self._content)
        # If this fails half way, the file may hold the old version or the new one.
        self._content, self._is_known = None, False
        self._files.replace_file(self.path, content)
        self._content, self._is_known = content, True

    def is_changed_elsewhere(self) -> bool:
        """Whether the file is not as it was loaded or saved last: another process, or a person, wrote it."""
        return self._is_known and _read_bytes(self._files, self.path) != self._content

    def _keep_aside(self, path: Path, content: bytes | None) -> None:
        """Content is copied, so that a crash before the file is replaced changes nothing; what cannot be read moves."""
        places = [path.with_name(f"{path.name}{DAMAGED}{number}") for number in range(1, DAMAGED_FILES_MAX + 1)]
        taken = [place for place in places if self._files.exists(place)]
        if content is not None and any(_read_bytes(self._files, place) == content for place in taken):
            return
        aside = next((place for place in places if place not in taken), places[-1])
        log.warning("config.damaged file=%s kept as=%s", path, aside.name)
        if content is not None:
            self._files.replace_file(aside, content)
        elif self._files.exists(path):
            self._files.rename(path, aside)
            self._files.sync_directory(path.parent)


def _read_bytes(files: Files, path: Path) -> bytes | None:
    try:
        return files.read_all(path)
    except OSError:
        return None
