"""Which queue is a record's: topic and queue id -> slot -> ConsumeQueue.

A slot is given once per topic and queue id and kept, also when the queue is deleted: a later message
begins the queue anew in the same slot. `queues` holds those that have entries; any thread may look something up
there or take a list() of it, which is one step, and ask `ids_of`. Everything else is for holders of the change lock.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embermq.columns import NO_SLOT, QueueSlots, RecordColumns
from embermq.store.queues.consume_queue import ConsumeQueue
from embermq.store.queues.extension import ExtensionSettings, QueueExtension
from embermq.store.queues.queue_state import SharedQueueState

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
        self._slots = QueueSlots(_can_have_queue)

    def slot_of(self, topic: bytes, queue_id: int) -> int:
        """The slot of a queue, new if need be; NO_SLOT when the topic cannot be a directory."""
        slot = self._slots.add_spelled(topic, queue_id)
        if slot >= len(self.by_slot):
            self._make_queues()
        return slot

    def slot_named(self, topic: str, queue_id: int) -> int:
        slot = self._slots.add(topic, queue_id)
        if slot >= len(self.by_slot):
            self._make_queues()
        return slot

    def _make_queues(self) -> None:
        """A queue for every slot that has none yet."""
        for topic, queue_id in self._slots.names[len(self.by_slot) :]:
            slot = self._books.new_slot()
            assert slot == len(self.by_slot)
            extension = None
            if self._extension is not None:
                extension_directory = self._extension.root / topic / str(queue_id)
                extension = QueueExtension(extension_directory, self._books.files, self._extension.file_bytes)
            self.by_slot.append(ConsumeQueue(self._books, slot, topic, queue_id, self._root, extension))

    def find_slot(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, with or without entries, or None when it was never asked for."""
        slot = self._slots.find(topic, queue_id)
        return None if slot == NO_SLOT else self.by_slot[slot]

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
        """The slot of each row."""
        slots = self._slots.route(batch)
        if len(self._slots) > len(self.by_slot):
            self._make_queues()
        return slots

    def look_ahead(self, batch: RecordColumns) -> None:
        """Route a batch before it is taken, on the thread that has just scanned it: its bytes are at hand there."""
        self._slots.look_ahead(batch)


def _can_have_queue(topic: str, queue_id: int) -> bool:
    if is_directory_name(topic):
        return True
    log.warning("topic_without_queue topic=%r queue_id=%d", topic, queue_id)
    return False


def is_directory_name(topic: str) -> bool:
    """A topic becomes a directory: it must not lead anywhere else, whatever a damaged record says."""
    return topic not in ("", ".", "..") and not set(topic) & {"/", "\0"} and len(topic.encode()) <= _NAME_BYTES_MAX
