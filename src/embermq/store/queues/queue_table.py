"""Which queue is a record's: topic and queue id -> slot -> ConsumeQueue.

A slot is given once per topic and queue id and kept, also when the queue is deleted: a later message
begins the queue anew in the same slot. `queues` holds those that have entries; any thread may look something up
there or take a list() of it, which is one step, and ask `ids_of`. Everything else is for holders of the change lock.
"""

import logging
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from embermq.columns import C_QUEUE_ID, C_TOPIC_AT, C_TOPIC_LEN, RecordColumns, pays, queue_table
from embermq.store.queues.consume_queue import ConsumeQueue
from embermq.store.queues.extension import ExtensionSettings, QueueExtension
from embermq.store.queues.pending_entries import NO_SLOT
from embermq.store.queues.queue_state import SharedQueueState

if TYPE_CHECKING:
    from embermq.columns import QueueTable

log = logging.getLogger(__name__)

_NAME_BYTES_MAX = 255


class Queues:
    """The queues of a store, by name and by slot."""

    def __init__(self, root: Path, books: SharedQueueState, extension: ExtensionSettings | None) -> None:
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.by_slot: list[ConsumeQueue] = []
        self._ids: dict[str, set[int]] = {}  # Of `queues`, by topic: a topic is listed without a look at the others.
        self._root = root
        self._books = books
        self._extension = extension
        self._slots: dict[tuple[bytes, int], int] = {}  # by the topic's bytes in the record
        self._slot_names: dict[tuple[str, int], int] = {}
        self._table: QueueTable | None = None
        self._table_lock = threading.Lock()  # Held while the table is read or changed; nothing is taken inside.
        self._table_slots: NDArray[np.int32] = np.empty(0, np.int32)  # the kernel table's slot -> ours

    def slot_of(self, topic: bytes, queue_id: int) -> int:
        """The slot of a queue, new if need be; NO_SLOT when the topic cannot be a directory."""
        slot = self._slots.get((topic, queue_id))
        if slot is None:
            text = topic.decode("utf-8", "replace")
            slot = self.slot_named(text, queue_id) if is_directory_name(text) else NO_SLOT
            if slot == NO_SLOT:
                log.warning("topic_without_queue topic=%r queue_id=%d", text, queue_id)
            self._slots[topic, queue_id] = slot
            if self._table is not None:
                self._tell_table(topic, queue_id, slot)
        return slot

    def slot_named(self, topic: str, queue_id: int) -> int:
        slot = self._slot_names.get((topic, queue_id))
        if slot is None:
            slot = self._books.new_slot()
            place = Path(topic) / str(queue_id)
            extension = None
            if self._extension is not None:
                extension_directory = self._extension.root / place
                extension = QueueExtension(extension_directory, self._books.files, self._extension.file_bytes)
            self.by_slot.append(ConsumeQueue(self._books, slot, topic, queue_id, self._root / place, extension))
            self._slot_names[topic, queue_id] = slot
        return slot

    def find_slot(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, with or without entries, or None when it was never asked for."""
        slot = self._slot_names.get((topic, queue_id))
        return None if slot is None else self.by_slot[slot]

    def show(self, slots: Iterable[int]) -> None:
        """Queues that have just got their first entry."""
        for slot in slots:
            queue = self.by_slot[slot]
            self.queues[queue.topic, queue.queue_id] = queue
            self._ids.setdefault(queue.topic, set()).add(queue.queue_id)

    def hide(self, queue: ConsumeQueue) -> None:
        """A queue that has no entries any more."""
        self.queues.pop((queue.topic, queue.queue_id), None)
        self._ids.get(queue.topic, set()).discard(queue.queue_id)

    def ids_of(self, topic: str) -> list[int]:
        """The ids of a topic's queues that have entries, in order. Any thread: sorting numbers is one step."""
        return sorted(self._ids.get(topic, ()))

    def route(self, batch: RecordColumns) -> NDArray[np.int32]:
        """The slot of each row. The kernel needs numba, which is slow to load: only when it pays."""
        if self._table is None and pays("derive", len(batch)):
            self._make_table()
        if self._table is None:
            unknown: Iterable[int] = range(len(batch))
            slots = np.empty(len(batch), np.int32)
        else:
            found = batch.routes
            if found is None:
                with self._table_lock:
                    found = self._table.route(batch)
            slots = self._table_slots[found]  # -1 takes the last element, which is replaced below
            unknown = np.flatnonzero(found < 0).tolist()
        for i in unknown:
            row = batch.rows[i]
            at, length = int(row[C_TOPIC_AT]), int(row[C_TOPIC_LEN])
            slots[i] = self.slot_of(batch.data[at : at + length].tobytes(), int(row[C_QUEUE_ID]))
        return slots

    def look_ahead(self, batch: RecordColumns) -> None:
        """Route a batch before it is taken, on the thread that has just scanned it: its bytes are at hand there."""
        if self._table is not None:
            with self._table_lock:
                batch.routes = self._table.route(batch)

    def _make_table(self) -> None:
        self._table = queue_table()
        self._table_slots = np.full(64, NO_SLOT, np.int32)
        for (topic, queue_id), slot in self._slots.items():
            self._tell_table(topic, queue_id, slot)

    def _tell_table(self, topic: bytes, queue_id: int, slot: int) -> None:
        assert self._table is not None
        with self._table_lock:
            number = self._table.add(topic, queue_id)
        if number >= len(self._table_slots):
            grown = np.full(2 * number, NO_SLOT, np.int32)
            grown[: len(self._table_slots)] = self._table_slots
            self._table_slots = grown
        self._table_slots[number] = slot


def is_directory_name(topic: str) -> bool:
    """A topic becomes a directory: it must not lead anywhere else, whatever a damaged record says."""
    return topic not in ("", ".", "..") and not set(topic) & {"/", "\0"} and len(topic.encode()) <= _NAME_BYTES_MAX
