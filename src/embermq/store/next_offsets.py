"""Next queue offsets, from the log alone: for a store without consume queues (`dispatch="none"`).

A sink of recovery only: it remembers, for each queue it meets, the offset after the newest record.
"""

from collections.abc import Iterable

from embermq.format.columns import C_QUEUE_ID, C_QUEUE_OFFSET, C_SYS_FLAG, RecordColumns
from embermq.model.flags import has_queue_entry


class NextOffsets:
    """Topic and queue -> offset of the next message."""

    name = "next offsets"

    def __init__(self) -> None:
        self.position = 0
        self._next: dict[tuple[str, int], int] = {}

    def take(self, batch: RecordColumns, end: int) -> None:
        for i, row in enumerate(batch.rows):
            if has_queue_entry(int(row[C_SYS_FLAG])):
                self._raise(batch.topic(i), int(row[C_QUEUE_ID]), int(row[C_QUEUE_OFFSET]) + 1)
        self.position = end

    def add_all(self, known: Iterable[tuple[str, int, int]]) -> None:
        """What an earlier close knew; what the walk has seen since is newer."""
        for topic, queue_id, next_offset in known:
            self._raise(topic, queue_id, next_offset)

    def _raise(self, topic: str, queue_id: int, next_offset: int) -> None:
        key = topic, queue_id
        self._next[key] = max(self._next.get(key, 0), next_offset)

    def all(self) -> list[tuple[str, int, int]]:
        return [(topic, queue_id, next_offset) for (topic, queue_id), next_offset in sorted(self._next.items())]

    def flush(self) -> None:
        """Nothing is kept on disk."""

    def truncate_to(self, physical_offset: int) -> None:
        self.position = min(self.position, physical_offset)

    def close(self) -> None:
        """Nothing to close."""
