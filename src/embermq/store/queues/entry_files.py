"""Writing queue entries out: many entries of many queues, grouped by queue, one write per stretch.

With a thousand queues a turn writes to a thousand files, so a file is not looked up by its name each time: the one
a queue was written to last is kept at hand. It is the right one as long as the queue still knows its start: what
removes a queue's file takes it out of `file_starts` first, and only `ConsumeQueue.write` puts it back.

For holders of the disk lock.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from embermq.files import OPEN_MAX, OpenFile
from embermq.format.queue_entry import ENTRY_BYTES
from embermq.store.queues.consume_queue import ConsumeQueue
from embermq.store.queues.loading import KeptEntries
from embermq.store.queues.pending_entries import PendingView, order_by_slot
from embermq.store.queues.queue_state import SharedQueueState

Ends = tuple[NDArray[np.int32], NDArray[np.int64]]


class EntryFiles:
    """The files of all queues, for writing."""

    def __init__(self, books: SharedQueueState, queues: Sequence[ConsumeQueue], at_hand_max: int = OPEN_MAX) -> None:
        """`queues` is the list of them by slot; it grows."""
        self._books, self._queues, self._at_hand_max = books, queues, at_hand_max
        self._at_hand: dict[int, tuple[int, OpenFile]] = {}  # slot -> start of its newest file, and the file
        self.rewritten: set[int] = set()  # Slots whose files were changed while entries were compared.

    def write(self, leaving: PendingView, kept: Mapping[int, KeptEntries] | None = None) -> Ends:
        """Write entries; answers slots and up to where each is written now. With `kept`, which is what was read of some
        queues, entries that are in their files already are not written again, and so not synced."""
        for fills in leaving.fills.values():
            for fill in fills:
                self._at_hand.pop(fill.slot, None)
                if kept is not None:
                    self.rewritten.add(fill.slot)
                self._queues[fill.slot].write_fill(fill)
        rows = np.flatnonzero(leaving.slots[: leaving.count] >= 0)
        rows = rows[order_by_slot(leaving.slots[rows], self._books.slot_count)]
        slots, offsets = leaving.slots[rows], leaving.offsets[rows]
        if not len(slots):
            return slots, offsets
        self._write_stretches(slots, offsets, leaving.entries[rows], kept)
        first = np.flatnonzero(np.append(True, slots[1:] != slots[:-1]))
        return slots[first], np.maximum.reduceat(offsets, first) + 1

    def _write_stretches(
        self,
        slots: NDArray[np.int32],
        offsets: NDArray[np.int64],
        entries: NDArray[np.void],
        kept: Mapping[int, KeptEntries] | None,
    ) -> None:
        """One write per stretch of consecutive entries in one file. A later entry of the same place wins."""
        per_file = self._books.entries_per_file
        breaks = (slots[1:] != slots[:-1]) | (offsets[1:] != offsets[:-1] + 1)
        breaks |= offsets[1:] % per_file == 0
        starts = np.append(0, np.flatnonzero(breaks) + 1)
        ends = np.append(starts[1:], len(slots))
        places = offsets[starts] % per_file
        stretches = (slots[starts], offsets[starts] - places, places, starts, ends)
        data = entries.view(np.uint8).data
        touch = self._books.files.touch
        for slot, file_start, place, start, end in zip(*(column.tolist() for column in stretches), strict=True):
            if kept is not None:
                if self._is_in_file(slot, file_start, place, data[start * ENTRY_BYTES : end * ENTRY_BYTES], kept):
                    continue
                self.rewritten.add(slot)
            known_start, file = self._at_hand.get(slot, _NONE)
            if file is not None and known_start == file_start and file_start in self._queues[slot].file_starts:
                file.pwrite(data[start * ENTRY_BYTES : end * ENTRY_BYTES], place * ENTRY_BYTES)
                touch(file.path)
            else:
                self._queues[slot].write(file_start + place, entries[start:end])
                self._keep_at_hand(slot, file_start)

    def _is_in_file(
        self, slot: int, file_start: int, place: int, data: memoryview, kept: Mapping[int, KeptEntries]
    ) -> bool:
        queue, known = self._queues[slot], kept.get(slot)
        if file_start not in queue.file_starts:
            return False
        if known is not None and file_start + place >= known.start and slot not in self.rewritten:
            at = (file_start + place - known.start) * ENTRY_BYTES
            return known.data[at : at + len(data)] == data
        file = self._books.files.find(queue.path_of(file_start))
        return file is not None and file.pread(len(data), place * ENTRY_BYTES) == data

    def _keep_at_hand(self, slot: int, file_start: int) -> None:
        file = self._books.files.find(self._queues[slot].path_of(file_start))
        assert file is not None
        if len(self._at_hand) >= self._at_hand_max:
            self._at_hand.clear()
        self._at_hand[slot] = file_start, file

    def let_go(self) -> None:
        """Keep no file open any longer."""
        self._at_hand.clear()


_NONE: tuple[int, OpenFile | None] = (0, None)
