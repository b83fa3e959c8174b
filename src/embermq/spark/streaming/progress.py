"""Progress of a stream as a consumer group's: `config/consumerOffset.json` of the store, for RocketMQ's tools to see.

    {"offsetTable": {"<topic>@<group>": {<queue id>: <next offset to read>, ...}}}

A stream goes on from its checkpoint and never reads this file for itself: it is for people who look at lags, and it
is written after a micro-batch was committed, never before. Entries of other groups, and whatever else is in the
file, stay as they are.

A running broker owns the file: it writes its own table over it every few seconds, and would lose what its consumers
committed since if an older table was put there. So while a process that is not ours has the store open, nothing
is written; it is made up for at the first commit after that process has gone, and a broker that is started then
shows it. Driver side, one thread.

RocketMQ's `consumerProgress` finds a group by its retry topic. So together with the first offsets the group gets its
entries in subscriptionGroup.json and topics.json, as a heartbeat would make them; only where no process has the store
open, and only in files that are there: those of a broker.
"""

import fcntl
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from embermq.clock import SystemClock
from embermq.errors import StorePathInvalid
from embermq.files import Files, RealFiles
from embermq.model.names import retry_topic
from embermq.store.layout import STATE_FILE as STATE_PAGE
from embermq.store.layout import is_ours, lock_holder
from embermq.store.tables import (
    CONSUMER_OFFSETS,
    GROUPS,
    TOPICS,
    ConfigTable,
    GroupConfig,
    TableFormat,
    TopicConfig,
    commit_offsets,
)

NAME = CONSUMER_OFFSETS.file

V = TypeVar("V")

_log = logging.getLogger(__name__)


class GroupProgress:
    """The entry of one group in one store."""

    def __init__(self, root: Path, group: str, files: Files | None = None) -> None:
        self._root, self._group, self._files = root, group, files or RealFiles()
        self._path = CONSUMER_OFFSETS.path(root)
        self._written: dict[tuple[str, int], int] | None = None
        self._has_warned = False

    def check(self) -> None:
        """StorePathInvalid if the file could never be written: better known before a stream runs for days."""
        place = self._path.parent if self._path.parent.exists() else self._root
        if not os.access(place, os.W_OK | os.X_OK):
            raise StorePathInvalid(place, "no permission to write, which groupId needs; leave groupId out, or allow it")

    def write(self, offsets: Mapping[tuple[str, int], int]) -> bool:
        """Say how far the group is: next offsets to read by topic and queue id. False if that had to be put off."""
        if self._written == dict(offsets):
            return True
        try:
            done = not self._is_owned_by_broker() and self._merge(offsets)
        except OSError as problem:
            self._warn(f"cannot be written: {problem.strerror or problem}")
            return False
        if done:
            self._written, self._has_warned = dict(offsets), False
        return done

    def _is_owned_by_broker(self) -> bool:
        holder = lock_holder(self._root)
        if holder is None or is_ours(holder, self._root / STATE_PAGE):
            return False
        self._warn(
            f"belongs to the broker that is running (process {holder}); written when it has stopped."
            " With the option nameServer in place of a path, progress is committed to the running broker"
        )
        return True

    def _merge(self, offsets: Mapping[tuple[str, int], int]) -> bool:
        """Change our entries and nothing else, one process at a time."""
        self._files.make_directory(self._path.parent)
        descriptor = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            table = ConfigTable(self._files, self._root, CONSUMER_OFFSETS, SystemClock())
            table.load()
            if table.is_damaged:
                self._warn("cannot be read, and is left alone")
                return False
            for (topic, queue_id), queue_offset in sorted(offsets.items()):
                commit_offsets(table, topic, self._group, [(queue_id, queue_offset)])
            table.save()
            self._register()
            return True
        finally:
            os.close(descriptor)

    def _register(self) -> None:
        """Make the group known, unless it is. A process that has the store open has these tables in memory."""
        if lock_holder(self._root) is not None:
            return
        retry = retry_topic(self._group)
        group, topic = GroupConfig(self._group), TopicConfig(retry, read_queue_nums=1, write_queue_nums=1)
        self._put(GROUPS, self._group, group)
        self._put(TOPICS, retry, topic)

    def _put(self, table_format: TableFormat[str, V], name: str, entry: V) -> None:
        if not self._files.exists(table_format.path(self._root)):
            return
        table = ConfigTable(self._files, self._root, table_format, SystemClock())
        table.load()
        if not table.is_damaged and name not in table:
            table.put(name, entry)
            table.save()

    def _warn(self, reason: str) -> None:
        """Once, until it has worked again."""
        if not self._has_warned:
            _log.warning("progress not written group=%s file=%s reason=%s", self._group, self._path, reason)
        self._has_warned = True
