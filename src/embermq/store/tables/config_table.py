"""A config table: a map in memory with a version, loaded from one JSON file and saved to it atomically.

    load      the file, or its backup; what cannot be read is reported, and never keeps a store from starting
    put ...   in memory only; each change gives the table a new version
    save      writes the table if it changed since the last save; several changes, or several callers that wait for
              one another, cost one write

Values are immutable: a reader keeps the one it got, and a save needs no copy of them. What the file has beside the
table (fields of newer versions) is kept and written back.

Any thread. Two locks: `_lock` for the map, held for moments; `_saving` for the file, held while it is written, so that
changes go on meanwhile (docs/locks.md).
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from embermq.clock import Clock
from embermq.files import BackedUpFile, Decoded, Files, read_with_backup
from embermq.format.config_json import format_config
from embermq.model.data_version import DATA_VERSION, DataVersion, parse_data_version

CONFIG = "config"  # The directory below a store's root.

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class TableFormat(Generic[K, V]):
    """How one table lies in its file."""

    file: str
    key: str  # of the table in the document
    decode: Callable[[dict[Any, Any]], Decoded[dict[K, V]]]  # ValueError if nothing of the table can be used
    encode: Callable[[Mapping[K, V]], dict[Any, Any]]
    is_versioned: bool = False  # whether RocketMQ 4.9 writes a dataVersion; without it, one that is there is kept

    def path(self, root: Path) -> Path:
        return root / CONFIG / self.file

    def table_of(self, document: Any) -> Decoded[dict[K, V]]:
        """The table of a parsed document; ValueError if it has none."""
        table = document.get(self.key, {}) if isinstance(document, dict) else None
        if not isinstance(table, dict):
            raise ValueError(f"has no {self.key}")
        return self.decode(table)


@dataclass(frozen=True, slots=True)
class _Content(Generic[K, V]):
    entries: dict[K, V]
    version: DataVersion
    others: dict[Any, Any]  # fields of the document that are not ours


def load_entries(files: Files, root: Path, table_format: TableFormat[K, V]) -> dict[K, V]:
    """The entries of a table as a reader sees them: of the backup where the file is damaged. Nothing is written."""
    first, backup, _ = read_with_backup(files, table_format.path(root), table_format.table_of)
    used = first.decoded or (backup.decoded if backup is not None else None)
    return used.value if used is not None else {}


class ConfigTable(Generic[K, V]):
    """One table of the store in directory `root`."""

    def __init__(self, files: Files, root: Path, table_format: TableFormat[K, V], clock: Clock) -> None:
        self._format, self._clock = table_format, clock
        self._file: BackedUpFile[_Content[K, V]] = BackedUpFile(files, table_format.path(root), self._decode)
        self._lock, self._saving = threading.Lock(), threading.Lock()
        self._entries: dict[K, V] = {}
        self._others: dict[Any, Any] = {}
        self._version = DataVersion(timestamp=clock.now_ms())
        self._changes = self._saved = 0

    # -- loading and saving ----------------------------------------------------------------------------

    def load(self) -> str | None:
        """Take the table from its file or its backup; a line about what is wrong with it, None if nothing is.

        Nothing is written: what was damaged stays where it is until a save replaces it.
        """
        with self._saving:
            content = self._file.load()
            with self._lock:
                self._entries = dict(content.entries) if content is not None else {}
                self._others = content.others if content is not None else {}
                self._version = content.version if content is not None else DataVersion(self._clock.now_ms())
                self._changes += 1 if self._file.finding is not None else 0
                self._saved = self._changes - (1 if self._file.finding is not None else 0)
            return self._file.finding

    @property
    def is_damaged(self) -> bool:
        """Whether the file or its backup held something unreadable, which the next save keeps a copy of."""
        return self._file.is_damaged

    @property
    def has_unsaved_changes(self) -> bool:
        return self._changes != self._saved

    def save(self) -> bool:
        """Write the table durably if it changed since it was last saved; False if it had not. OSError."""
        with self._saving:
            with self._lock:
                changes, entries, version = self._changes, self._entries.copy(), self._version
            if changes == self._saved:
                return False
            self._file.save(self._text(entries, version).encode())
            self._saved = changes
            return True

    def text(self) -> str:
        """The table as its file would hold it now; the answer to the admin requests that ask for a whole table."""
        with self._lock:
            entries, version = self._entries.copy(), self._version
        return self._text(entries, version)

    def _text(self, entries: dict[K, V], version: DataVersion) -> str:
        document = self._others | {self._format.key: self._format.encode(entries)}
        if self._format.is_versioned:
            document[DATA_VERSION] = version.to_document()
        return format_config(dict(sorted(document.items())))

    def _decode(self, document: Any) -> Decoded[_Content[K, V]]:
        table = self._format.table_of(document)
        ours, version, faults = {self._format.key}, DataVersion(), list(table.faults)
        if self._format.is_versioned:
            ours.add(DATA_VERSION)
            try:
                version = parse_data_version(document.get(DATA_VERSION))
            except ValueError as problem:
                faults.append(str(problem))
        others = {str(name): value for name, value in document.items() if name not in ours}
        return Decoded(_Content(table.value, version, others), faults)

    # -- reading ---------------------------------------------------------------------------------------

    @property
    def version(self) -> DataVersion:
        return self._version

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def entries(self) -> dict[K, V]:
        """All entries, as they are at one moment."""
        with self._lock:
            return self._entries.copy()

    # -- changing --------------------------------------------------------------------------------------

    def put(self, key: K, value: V) -> None:
        """Set one entry. A value that was there already changes nothing, not even the version."""
        with self._lock:
            self._put(key, value)

    def put_all(self, entries: Mapping[K, V]) -> None:
        """Set several entries at one moment; others stay."""
        with self._lock:
            for key, value in entries.items():
                self._put(key, value)

    def change(self, key: K, to: Callable[[V | None], V]) -> V:
        """Set an entry to what `to` makes of it, with no other change in between. `to` must be quick."""
        with self._lock:
            value = to(self._entries.get(key))
            self._put(key, value)
            return value

    def remove(self, key: K) -> V | None:
        """Remove an entry; what it was, None if there was none."""
        with self._lock:
            value = self._entries.pop(key, None)
            if value is not None:
                self._count_change()
            return value

    def assign(self, entries: Mapping[K, V], version: DataVersion | None = None) -> None:
        """Make these the whole table; with `version`, as a replica that takes over the table of its master."""
        with self._lock:
            if self._entries != entries:
                self._entries = dict(entries)
                self._count_change()
            if version is not None and version != self._version:
                self._version = version
                self._changes += 1

    def _put(self, key: K, value: V) -> None:
        if key not in self._entries or self._entries[key] != value:
            self._entries[key] = value
            self._count_change()

    def _count_change(self) -> None:
        self._changes += 1
        self._version = self._version.following(self._clock.now_ms())
