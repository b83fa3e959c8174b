"""Queue tails: where the next message of each queue goes.

Next offsets stand in one array with a place (`slot`) per queue, so that the batch kernel can give out and
advance offsets of any number of queues in one call. The array is replaced when it is full, never resized. A queue is
known from one assignment on, the last of its making: a signal handler that raises before leaves nothing behind.
Looking a queue up needs no lock; everything else belongs to the holder of the put lock.
"""

from array import array
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

QueueKey = tuple[str, int]

_SLOTS_MIN = 64


class QueueTail:
    """One queue: its name as it stands in records, and its place in the array.

    `topic_part`, the name with its length before it, is set by the first message that was admitted: names found
    on the disk are not known to be allowed.
    """

    __slots__ = ("name", "queue_id", "slot", "topic", "topic_part")

    def __init__(self, topic: str, queue_id: int, slot: int) -> None:
        self.topic, self.queue_id, self.slot = topic, queue_id, slot
        self.name = topic.encode()
        self.topic_part: bytes | None = None


class QueueTails:
    """All queues of a store."""

    def __init__(self) -> None:
        self.by_key: dict[QueueKey, QueueTail] = {}
        self.next = array("q", bytes(8 * _SLOTS_MIN))  # Next offset by slot. Put lock.

    def __iter__(self) -> Iterator[QueueTail]:
        return iter(list(self.by_key.values()))

    def adopt(self, known: Iterable[tuple[str, int, int]]) -> None:
        """Continue these queues: topic, queue id, next offset."""
        for topic, queue_id, next_offset in known:
            slot = self.obtain(topic, queue_id).slot  # Before `next` is looked at: this may replace it.
            self.next[slot] = next_offset

    def obtain(self, topic: str, queue_id: int) -> QueueTail:
        """The tail of a queue; a new one begins at offset 0."""
        tail = self.by_key.get((topic, queue_id))
        if tail is None:
            slot = len(self.by_key)
            if slot >= len(self.next):
                self.next = self.next + array("q", bytes(8 * len(self.next)))
            tail = self.by_key[topic, queue_id] = QueueTail(topic, queue_id, slot)
        return tail

    def numbers(self) -> NDArray[np.int64]:
        """The array itself, for the kernel. Not to be kept: it may be replaced."""
        return np.frombuffer(self.next, np.int64)

    def all_next(self) -> dict[QueueKey, int]:
        return {key: self.next[tail.slot] for key, tail in self.by_key.items()}

    def forget(self, topic: str) -> None:
        """A deleted topic starts again at offset 0."""
        for key in [key for key in self.by_key if key[0] == topic]:
            self.next[self.by_key[key].slot] = 0
