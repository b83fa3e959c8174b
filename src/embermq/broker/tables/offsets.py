"""Consumer offsets: how far each group has read each queue. Any thread; saved every few seconds."""

from collections.abc import Callable, Mapping

from embermq.settings import BrokerSettings
from embermq.store.tables import ConfigTable, TopicGroup, commit_offsets

QUEUES_MAX = 65_536
NAME_CHARACTERS_MAX = 255


class ConsumerOffsets:
    """The offset table. Nothing else bounds what a client may commit: RocketMQ asks neither for the topic nor for the
    group."""

    def __init__(
        self, table: ConfigTable[TopicGroup, Mapping[int, int]], settings: Callable[[], BrokerSettings]
    ) -> None:
        self._table, self._settings = table, settings
        self.refused = 0

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Set an offset, backwards too. A negative one means that nothing was read, and changes nothing. False, and
        nothing changed, where the table would grow past its bounds."""
        if offset < 0:
            return True
        is_too_long = max(len(topic), len(group)) > NAME_CHARACTERS_MAX
        is_new = TopicGroup(topic, group) not in self._table
        is_full = is_new and len(self._table) >= self._settings().offsets_max
        if not 0 <= queue_id < QUEUES_MAX or is_full or (is_new and is_too_long):
            self.refused += 1
            return False
        commit_offsets(self._table, topic, group, [(queue_id, offset)])
        return True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset to read; -1 if none is known."""
        return (self._table.get(TopicGroup(topic, group)) or {}).get(queue_id, -1)

    def of_group(self, group: str, topic: str) -> Mapping[int, int]:
        return self._table.get(TopicGroup(topic, group)) or {}

    def topics_of(self, group: str) -> list[str]:
        return sorted(topic for topic, known in self._table.entries() if known == group)

    def groups_of(self, topic: str) -> list[str]:
        return sorted(group for known, group in self._table.entries() if known == topic)

    def copy(self, source: str, target: str, topic: str) -> None:
        """Give one group the offsets of another."""
        offsets = self.of_group(source, topic)
        if offsets:
            commit_offsets(self._table, topic, target, offsets.items())

    def remove_group(self, group: str) -> None:
        for topic in self.topics_of(group):
            self._table.remove(TopicGroup(topic, group))

    def take_all(self, entries: Mapping[TopicGroup, Mapping[int, int]]) -> None:
        """On a slave: put the offsets of its master over those that are here."""
        self._table.put_all(entries)

    def document(self) -> str:
        return self._table.text()

    def save(self) -> bool:
        return self._table.save()
