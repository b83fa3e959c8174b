"""What all consume queues share: their numbers, the pending entries, the open files, and the locks.

A queue has a slot, its row in every array here, for the life of the process. The locks, in the order in which
they are taken:

    disk     held to write, cut or delete queue files. Never by one who only takes records, so that
             writing out thousands of files does not hold up dispatch.
    change   held to change what queues there are and what is in them: taking, cutting, deleting.
             Held over disk access only by those who hold `disk` too.
    lock     held for a moment, by changers while they change numbers or pending entries and by readers while
             they look at them together. Never held over disk access.
"""

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embermq.files import OpenFiles
from embermq.store.queues.pending_entries import PendingEntries

NOT_SEEN = -1
NO_PHYSICAL = -1
_SLOTS_MIN = 64


class Jump(NamedTuple):
    """A record, met in a replay, whose queue offset `to` is not the one that its queue had come to."""

    start: int  # where the queue was; NOT_SEEN: the record is the first of it
    to: int
    next: int  # the queue's end before


class Restart(NamedTuple):
    """A record of queue offset 0, met in a replay after others of its queue: the begin of a new incarnation of its
    topic, if 1 comes next; a damaged offset if anything else does."""

    entry: tuple[int, int, int]


class SharedQueueState:
    """The arrays have one element per slot; they are replaced when they grow, so look them up each time."""

    def __init__(self, entries_per_file: int, files: OpenFiles, *, read_only: bool, log_min: Callable[[], int]) -> None:
        self.entries_per_file = entries_per_file
        self.files = files
        self.read_only = read_only
        self.log_min = log_min
        self.disk = threading.RLock()
        self.change = threading.RLock()
        self.lock = threading.Lock()
        self.pending = PendingEntries()
        self.leaving: PendingEntries | None = None  # being written out; nothing is added any more
        self.replaying = False
        self.ordered = True  # pending entries of a queue follow one another; not so while a log is replayed
        self.slot_count = 0
        self.min = np.zeros(_SLOTS_MIN, np.int64)  # first queue offset that can be read
        self.next = np.zeros(_SLOTS_MIN, np.int64)  # queue offset of the next entry, pending ones included
        self.written = np.zeros(_SLOTS_MIN, np.int64)  # everything below was written to files
        self.max_physical = np.full(_SLOTS_MIN, NO_PHYSICAL, np.int64)  # end of the newest entry's record
        self.born = np.zeros(_SLOTS_MIN, np.bool_)  # has, or had and kept, an entry
        self.walk_first = np.full(_SLOTS_MIN, NOT_SEEN, np.int64)  # first queue offset seen in this replay
        self.walk_next = np.full(_SLOTS_MIN, NOT_SEEN, np.int64)  # one past the newest seen in this replay
        self.walk_jumps: dict[int, Jump] = {}  # the newest one of each slot
        self.walk_restarts: dict[int, Restart] = {}  # by slot; what comes next decides

    def new_slot(self) -> int:
        """A slot without entries."""
        with self.lock:
            if self.slot_count == len(self.min):
                self._grow()
            self.slot_count += 1
            return self.slot_count - 1

    def _grow(self) -> None:
        capacity = 2 * len(self.min)
        self.min = _extended(self.min, capacity, 0)
        self.next = _extended(self.next, capacity, 0)
        self.written = _extended(self.written, capacity, 0)
        self.max_physical = _extended(self.max_physical, capacity, NO_PHYSICAL)
        self.walk_first = _extended(self.walk_first, capacity, NOT_SEEN)
        self.walk_next = _extended(self.walk_next, capacity, NOT_SEEN)
        born = np.zeros(capacity, np.bool_)
        born[: len(self.born)] = self.born
        self.born = born

    def reset(self, slot: int) -> None:
        """Make a slot empty again."""
        with self.lock:
            self.pending.drop_from(slot, 0)
            self.min[slot] = self.next[slot] = self.written[slot] = 0
            self.max_physical[slot] = NO_PHYSICAL
            self.born[slot] = False
            self.walk_first[slot] = self.walk_next[slot] = NOT_SEEN
            self.walk_jumps.pop(slot, None)
            self.walk_restarts.pop(slot, None)

    def forget_walk(self) -> None:
        self.walk_jumps.clear()
        self.walk_restarts.clear()
        self.walk_first[:] = NOT_SEEN
        self.walk_next[:] = NOT_SEEN

    def restore(self, slot: int, min_offset: int, next_offset: int, max_physical: int) -> None:
        """A queue found on disk."""
        with self.lock:
            self.min[slot] = min_offset
            self.next[slot] = self.written[slot] = next_offset
            self.max_physical[slot] = max_physical
            self.born[slot] = True


def _extended(array: NDArray[np.int64], capacity: int, value: int) -> NDArray[np.int64]:
    new = np.full(capacity, value, np.int64)
    new[: len(array)] = array
    return new
