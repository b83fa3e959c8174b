"""KvConfig: texts by namespace and key, kept in one JSON file as RocketMQ keeps them.

    {"configTable":{"<namespace>":{"<key>":"<value>"}}}

A change is written down before it is made in memory: what was acknowledged survives a crash, and what could not be
written is refused and not there. The file is replaced atomically and has a backup; a damaged one is kept aside.
If another process wrote the file meanwhile, changes are refused rather than its content replaced.

Reads from any thread: the table is replaced as a whole and never changed. Changes one at a time, under a lock that is
held while the file is written.
"""

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embermq.errors import KvConfigFailed, LimitReached
from embermq.files import BackedUpFile, Decoded, Files
from embermq.remoting import write_json

log = logging.getLogger(__name__)

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"  # topic -> `broker-a:4;broker-b:4`
NAMESPACES_MAX = 1000
VALUE_CHARACTERS_MAX = 65_535
_TABLE = "configTable"

Table = Mapping[str, Mapping[str, str]]


class KvConfig:
    """The KV config of one name server."""

    def __init__(self, files: Files, path: Path) -> None:
        self.path = path
        self._file: BackedUpFile[dict[str, dict[str, str]]] = BackedUpFile(files, path, _decode)
        self._lock = threading.Lock()
        self._table: Table = {}
        self._is_in_doubt = False  # A change failed while it was written: the file may have it.

    def load(self) -> None:
        """Read the file, or its backup. What cannot be read is logged, and never keeps a server from starting."""
        with self._lock:
            self._table = self._file.load() or {}

    @property
    def entries(self) -> int:
        return sum(map(len, self._table.values()))

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Everything of a namespace; None if there never was anything in it."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str, *, entries_max: int, bytes_max: int) -> None:
        """Set a value, durably; LimitReached, KvConfigFailed."""
        if len(value) > VALUE_CHARACTERS_MAX:
            raise LimitReached(f"a value of {len(value):,} characters", VALUE_CHARACTERS_MAX)
        with self._lock:
            before = self._table.get(namespace)
            if before is None and len(self._table) >= NAMESPACES_MAX:
                raise LimitReached(f"no room for the namespace {namespace}", NAMESPACES_MAX)
            if (before is None or key not in before) and self.entries >= entries_max:
                raise LimitReached(f"no room for {namespace} {key}", entries_max, "emberMaxKvEntries")
            self._change({**self._table, namespace: {**(before or {}), key: value}}, bytes_max)

    def delete(self, namespace: str, key: str) -> bool:
        """Remove a value, durably; False if there was none. The namespace stays, as in RocketMQ. KvConfigFailed."""
        with self._lock:
            before = self._table.get(namespace, {})
            if key not in before and not self._is_in_doubt:
                return False
            rest = {one: value for one, value in before.items() if one != key}
            self._change({**self._table, namespace: rest} if namespace in self._table else self._table, None)
            return key in before

    def _change(self, table: Table, bytes_max: int | None) -> None:
        content = write_json({_TABLE: table})
        if bytes_max is not None and len(content) > bytes_max:
            raise LimitReached(f"a KV config of {len(content):,} bytes", bytes_max, "emberMaxKvBytes")
        if self._file.is_changed_elsewhere():
            hint = "give each name server a kvConfigPath of its own, and restart this one"
            raise KvConfigFailed(self.path, f"was written by another process; {hint}")
        try:
            self._file.save(content)
        except OSError as problem:
            self._is_in_doubt = True
            raise KvConfigFailed(self.path, f"cannot be written ({problem.strerror or problem})") from None
        self._is_in_doubt = False
        self._table = table


def _decode(document: Any) -> Decoded[dict[str, dict[str, str]]]:
    """The table of a document; what is no text is left out and reported."""
    table = document.get(_TABLE, {}) if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise ValueError(f"has no {_TABLE}")
    found: Decoded[dict[str, dict[str, str]]] = Decoded({})
    for namespace, entries in table.items():
        if not isinstance(entries, dict):
            found.faults.append(f"{namespace} has no keys")
            continue
        good = {str(key): value for key, value in entries.items() if isinstance(value, str)}
        found.faults.extend(f"{namespace} {key} is no text" for key in entries if str(key) not in good)
        found.value[str(namespace)] = good
    return found
