"""Which queue a record is in, for a survey: topic and queue id -> a number, in order of appearance.

One thread at a time. The kernel is used when there is enough to route, or when it is loaded anyway.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from embermq.columns import C_QUEUE_ID, C_TOPIC_AT, C_TOPIC_LEN, RecordColumns, pays, queue_table

if TYPE_CHECKING:
    from embermq.columns import QueueTable


class QueueNumbers:
    """Numbers for queues; `names[n]` is the topic and queue id of number n."""

    def __init__(self) -> None:
        self.names: list[tuple[str, int]] = []
        self._numbers: dict[tuple[str, int], int] = {}
        self._by_bytes: dict[tuple[bytes, int], int] = {}
        self._table: QueueTable | None = None
        self._slots = 0
        # The table's slot -> our number: two spellings can be one name. Longer than needed.
        self._table_numbers: NDArray[np.int64] = np.empty(64, np.int64)

    def find(self, topic: str, queue_id: int) -> int:
        """The number of a queue that was met; -1 if it was not."""
        return self._numbers.get((topic, queue_id), -1)

    def route(self, batch: RecordColumns) -> NDArray[np.int64]:
        """The number of each row's queue."""
        if self._table is None and pays("derive", len(batch)):
            self._make_table()
        if self._table is None:
            return np.array([self._number_of(batch, i) for i in range(len(batch))], np.int64)
        slots = self._table.route(batch)
        if len(slots) and int(slots.min()) < 0:
            for i in np.flatnonzero(slots < 0).tolist():
                self._number_of(batch, i)
            slots = self._table.route(batch)
        return self._table_numbers[slots]

    def lent(self) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]:
        """Table and topics for kernels that route on their own, and our number of each of the table's slots. What is
        added later is not in them."""
        if self._table is None:
            self._make_table()
        assert self._table is not None
        return *self._table.lent(), self._table_numbers.copy()

    def _make_table(self) -> None:
        self._table = queue_table()
        for topic, queue_id in self._by_bytes:
            self._tell_table(topic, queue_id)

    def _tell_table(self, topic: bytes, queue_id: int) -> None:
        assert self._table is not None
        slot = self._table.add(topic, queue_id)
        assert slot == self._slots
        if slot == len(self._table_numbers):
            self._table_numbers = np.concatenate([self._table_numbers, np.empty(slot, np.int64)])
        self._table_numbers[slot] = self._by_bytes[topic, queue_id]
        self._slots += 1

    def _number_of(self, batch: RecordColumns, i: int) -> int:
        row = batch.rows[i]
        at, queue_id = int(row[C_TOPIC_AT]), int(row[C_QUEUE_ID])
        topic = batch.data[at : at + int(row[C_TOPIC_LEN])].tobytes()
        number = self._by_bytes.get((topic, queue_id))
        if number is None:
            name = topic.decode("utf-8", "replace"), queue_id
            number = self._numbers.setdefault(name, len(self.names))
            if number == len(self.names):
                self.names.append(name)
            self._by_bytes[topic, queue_id] = number
            if self._table is not None:
                self._tell_table(topic, queue_id)
        return number
