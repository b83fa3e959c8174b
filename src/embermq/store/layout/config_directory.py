"""The config directory of a store, as a reader sees it: which files can be read, and what they say.

A file that is missing, empty or damaged is replaced by its backup, as the reference does. Reads only. Any thread.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embermq.files import Files, entries_of
from embermq.format.config_json import parse_config, with_integer_keys
from embermq.store.layout import directory

# What is counted in each file: the key of its table.
_TABLES = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
    "consumerFilter.json": "filterDataByTopic",
    "delayOffset.json": "offsetTable",
    "lmqConsumerOffset.json": "offsetTable",
}
_OFFSETS = "consumerOffset.json"
_BACKUP = ".bak"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One file: how many entries its table has, and what is wrong with it, if anything is."""

    name: str
    entries: int | None
    fault: str | None


@dataclass(frozen=True, slots=True)
class ConsumerProgress:
    """How far a consumer group is in a queue: the next offset it will read."""

    topic: str
    group: str
    queue_id: int
    offset: int


def config_files(files: Files, root: Path) -> list[ConfigFile]:
    """Every config file there is, by name."""
    path = root / directory.CONFIG
    found = []
    for entry in entries_of(files, path):
        if entry.name in _TABLES:
            table, fault = _table(files, path / entry.name, _TABLES[entry.name])
            found.append(ConfigFile(entry.name, None if table is None else len(table), fault))
    return found


def consumer_progress(files: Files, root: Path) -> list[ConsumerProgress]:
    """Where each group is, as far as it was written down."""
    path = root / directory.CONFIG / _OFFSETS
    table, _ = _table(files, path, _TABLES[_OFFSETS])
    found = []
    for name, offsets in (table or {}).items():
        topic, at, group = str(name).partition("@")
        if not at or not isinstance(offsets, dict):
            continue
        try:
            queues = with_integer_keys(offsets)
        except ValueError:
            continue
        found += [
            ConsumerProgress(topic, group, one, offset) for one, offset in sorted(queues.items()) if type(offset) is int
        ]
    return sorted(found, key=lambda one: (one.topic, one.group, one.queue_id))


def _table(files: Files, path: Path, key: str) -> tuple[dict[Any, Any] | None, str | None]:
    """The table of a file, or of its backup; and what is wrong with the file."""
    table, fault = _read_table(files, path, key)
    if table is not None or fault is None:
        return table, fault
    backup, other = _read_table(files, path.with_name(path.name + _BACKUP), key)
    if backup is None:
        return None, f"{fault}; there is no good backup" if other is None or "missing" in other else f"{fault}; {other}"
    return backup, f"{fault}; its backup is used"


def _read_table(files: Files, path: Path, key: str) -> tuple[dict[Any, Any] | None, str | None]:
    try:
        content = files.read_all(path)
    except FileNotFoundError:
        return None, "missing"
    except OSError as problem:
        return None, f"cannot be read ({problem.strerror or problem})"
    if not content.strip(b"\0 \t\r\n"):
        return None, "empty"
    try:
        document = parse_config(content.decode())
    except (ValueError, RecursionError) as problem:
        return None, f"cannot be read ({problem})"
    table = document.get(key, {}) if isinstance(document, dict) else None
    if not isinstance(table, dict):
        return None, f"has no {key}"
    return table, None
