"""The config directory of a store, as a reader sees it: which files can be read, and what they say.

A file that is missing, empty or damaged is replaced by its backup, as in RocketMQ. Reads only. Any thread.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embermq.files import Decoded, Files, entries_of, read_with_backup
from embermq.store.tables.config_table import CONFIG, TableFormat, load_entries
from embermq.store.tables.filters import FILTERS
from embermq.store.tables.offsets import CONSUMER_OFFSETS, DELAY_OFFSETS, TIMER_OFFSETS
from embermq.store.tables.topics_and_groups import GROUPS, TOPICS

_LIGHT_OFFSETS = "lmqConsumerOffset.json"  # Instead of consumerOffset.json where a broker has light queues.
# What is counted in each file: the key of its table.
_TABLES: dict[str, str] = {
    TOPICS.file: TOPICS.key,
    GROUPS.file: GROUPS.key,
    CONSUMER_OFFSETS.file: CONSUMER_OFFSETS.key,
    FILTERS.file: FILTERS.key,
    DELAY_OFFSETS.file: DELAY_OFFSETS.key,
    TIMER_OFFSETS.file: TIMER_OFFSETS.key,
    _LIGHT_OFFSETS: "offsetTable",
}


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
    path = root / CONFIG
    found = []
    for entry in entries_of(files, path):
        if entry.name in _TABLES:
            counted: TableFormat[Any, Any] = TableFormat(entry.name, _TABLES[entry.name], Decoded, dict)
            first, backup, fault = read_with_backup(files, path / entry.name, counted.table_of)
            used = first.decoded or (backup.decoded if backup is not None else None)
            found.append(ConfigFile(entry.name, None if used is None else len(used.value), fault))
    return found


def consumer_progress(files: Files, root: Path) -> list[ConsumerProgress]:
    """Where each group is, as far as it was written down; entries that make no sense are left out."""
    found = [
        ConsumerProgress(topic, group, queue_id, offset)
        for (topic, group), offsets in load_entries(files, root, CONSUMER_OFFSETS).items()
        for queue_id, offset in offsets.items()
    ]
    return sorted(found, key=lambda one: (one.topic, one.group, one.queue_id))
