"""Topics of a write, entered into `config/topics.json` of a stopped broker's store, as the broker would have done.

A broker knows the topics of that file alone: without an entry it would have the messages and give no client a route to
them. A store without the file is no broker's, and gets none. Entered before the messages are appended: what a kill
leaves in the log is known. Driver side, while the store is open and ours alone.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from embermq.clock import Clock
from embermq.files import Files
from embermq.model.message import Message
from embermq.store.tables import TOPICS, ConfigTable, TopicConfig

QUEUES = 4  # of a topic that a producer makes by sending to it

_log = logging.getLogger(__name__)


class BrokerTopics:
    """The topics of one store, for the time of one append."""

    def __init__(self, files: Files, root: Path, clock: Clock) -> None:
        self._table: ConfigTable[str, TopicConfig] | None = None
        if files.exists(TOPICS.path(root)):
            self._table = ConfigTable(files, root, TOPICS, clock)
            self._table.load()
            if self._table.is_damaged:
                _log.warning("topics not entered file=%s reason=cannot be read, and is left alone", TOPICS.path(root))
                self._table = None
        self._known: dict[str, int] = {}  # queues that are known to have an entry

    def enter(self, messages: Iterable[Message]) -> None:
        """Have every topic and queue of these messages in the file."""
        if self._table is None:
            return
        used: dict[str, int] = {}
        for message in messages:
            if message.queue_id >= used.get(message.topic, 0):
                used[message.topic] = message.queue_id + 1
        for topic, queues in used.items():
            if queues > self._known.get(topic, 0):
                self._known[topic] = queues
                self._enter(self._table, topic, queues)
        if self._table.has_unsaved_changes:
            self._table.save()

    def _enter(self, table: ConfigTable[str, TopicConfig], topic: str, queues: int) -> None:
        known = table.get(topic)
        if known is None:
            count = max(queues, QUEUES)
            table.put(topic, TopicConfig(topic, read_queue_nums=count, write_queue_nums=count))
        elif known.read_queue_nums < queues:  # Consumers see as many as may be read.
            table.put(topic, replace(known, read_queue_nums=queues))
