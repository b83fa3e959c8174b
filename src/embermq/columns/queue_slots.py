"""Topic and queue id to slot: the one table that gives queues dense numbers.

A slot is a number from 0, in order of appearance, and is kept: what belongs to a queue can stand in a list or an array.
Records have a topic as bytes, everything else has it as text; two spellings of which one is damaged can be one
text. Rows of a scan are looked up by a kernel once there is enough to do (choosing.py).

One thread at a time. Only `look_ahead` may run beside one other call: the lock keeps the kernel from reading a table
that is being changed, and nothing else is taken inside it.
"""

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from embermq.columns.choosing import pays
from embermq.columns.operations import queue_table
from embermq.columns.rows import C_QUEUE_ID, RecordColumns, Rows

if TYPE_CHECKING:
    from embermq.columns.compiled.queue_table import QueueTable

QueueName = tuple[str, int]

NO_SLOT = -1


def _accept_all(topic: str, queue_id: int) -> bool:
    return True


class QueueSlots:
    """Slots for queues; `names[slot]` is the topic and queue id."""

    def __init__(self, accepts: Callable[[str, int], bool] = _accept_all, *, exact: bool = False) -> None:
        """`accepts` is asked once about each pair that a record has; one that it refuses gets no slot. `exact`: each
        spelling of a topic has slots of its own."""
        self.names: list[QueueName] = []
        self._accepts, self._exact = accepts, exact
        self._by_name: dict[QueueName, int] = {}
        self._by_spelling: dict[tuple[bytes, int], int] = {}
        self._table: QueueTable | None = None
        self._table_lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.names)

    def find(self, topic: str, queue_id: int) -> int:
        """The slot of a queue; NO_SLOT if it has none."""
        return self._by_name.get((topic, queue_id), NO_SLOT)

    def add(self, topic: str, queue_id: int) -> int:
        """The slot of a queue, a new one if it has none."""
        slot = self._by_name.get((topic, queue_id))
        if slot is None:
            slot = self._by_name[topic, queue_id] = len(self.names)
            self.names.append((topic, queue_id))
        return slot

    def add_spelled(self, topic: bytes, queue_id: int) -> int:
        """The same for a topic as records have it; NO_SLOT if it is refused."""
        slot = self._by_spelling.get((topic, queue_id))
        return self._new_spelling(topic, queue_id) if slot is None else slot

    def spellings(self) -> list[tuple[bytes, int]]:
        """Every pair that was met in records, in order of appearance; by slot if this table is exact."""
        return list(self._by_spelling)

    def route(self, batch: RecordColumns) -> NDArray[np.int32]:
        """The slot of each row's queue, new ones if need be; NO_SLOT for those that are refused."""
        self._use_kernel_if_it_pays(len(batch))
        slots, unknown = self._looked_up(batch)
        for i in unknown:
            slots[i] = self.add_spelled(batch.topic_bytes(i), int(batch.rows[i, C_QUEUE_ID]))
        return slots

    def find_rows(self, batch: RecordColumns) -> NDArray[np.int32]:
        """The slot of each row's queue; NO_SLOT for those that have none. Nothing is added."""
        self._use_kernel_if_it_pays(len(batch))
        slots, unknown = self._looked_up(batch)
        for i in unknown:
            pair = batch.topic_bytes(i), int(batch.rows[i, C_QUEUE_ID])
            slots[i] = self._by_spelling.get(pair, NO_SLOT)
        return slots

    def look_ahead(self, batch: RecordColumns) -> None:
        """Look a batch up before it is routed, on the thread that has just scanned it: its bytes are at hand there."""
        if self._table is not None:
            with self._table_lock:
                batch.routes = self._table.route(batch)

    def lent(self) -> tuple[Rows, NDArray[np.uint8]]:
        """For kernels that look queues up themselves; what is added later is not in it."""
        return self._make_table().lent()

    def _looked_up(self, batch: RecordColumns) -> tuple[NDArray[np.int32], Iterable[int]]:
        """Slots by the kernel, and the rows it knows nothing of; without a kernel, all of them."""
        if self._table is None:
            return np.empty(len(batch), np.int32), range(len(batch))
        if batch.routes is not None:
            slots = batch.routes.copy()  # Callers change what they get.
        else:
            with self._table_lock:
                slots = self._table.route(batch)
        return slots, np.flatnonzero(slots < 0).tolist()

    def _use_kernel_if_it_pays(self, rows: int) -> None:
        """The kernel needs numba, which is slow to load."""
        if self._table is None and pays("queue_table", rows):
            self._make_table()

    def _make_table(self) -> "QueueTable":
        if self._table is None:
            table = queue_table()
            for (topic, queue_id), slot in self._by_spelling.items():
                if slot != NO_SLOT:
                    table.add(topic, queue_id, slot)
            self._table = table
        return self._table

    def _new_spelling(self, topic: bytes, queue_id: int) -> int:
        text = topic.decode("utf-8", "replace")
        if not self._accepts(text, queue_id):
            slot = NO_SLOT
        elif self._exact:
            slot = len(self.names)
            self.names.append((text, queue_id))
        else:
            slot = self.add(text, queue_id)
        self._by_spelling[topic, queue_id] = slot
        if self._table is not None and slot != NO_SLOT:
            with self._table_lock:
                self._table.add(topic, queue_id, slot)
        return slot
