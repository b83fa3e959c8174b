"""After a replay: which queues lie in their files exactly as the walk has met them.

Almost every start finds all of them so, and there may be tens of thousands. For such a queue nothing is written, cut or
synced, and mostly nothing is read: what lies at its end was read when it was loaded (`QueueEnds`). All others are
looked at one by one (`ConsumeQueues.finish_replay`). A queue is as the walk has met it if

    not met     its newest entry leads to a record below the place where the walk began
    met         the entries met are in its files, byte for byte, and are its last ones; the entry before them, if any,
                is of a record below the place where the walk began; if the whole log was walked, zeros lie behind them

For holders of the disk lock and the change lock. Changes nothing.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from embermq.files import Files
from embermq.format.queue_entry import ENTRY, ENTRY_BYTES
from embermq.store.queues.consume_queue import BLANK, ConsumeQueue, is_valid
from embermq.store.queues.file_reader import QueueFileReader
from embermq.store.queues.loading import QueueEnds
from embermq.store.queues.pending_entries import PendingView
from embermq.store.queues.queue_state import NOT_SEEN, SharedQueueState

_ZEROS = bytes(ENTRY_BYTES)


class ReplayCheck:
    """One check, of queues that were loaded before a replay and are compared after it."""

    def __init__(self, books: SharedQueueState, files: Files, ends: QueueEnds, rewritten: Iterable[int]) -> None:
        """`rewritten`: slots whose files the replay has changed since `ends` was read."""
        self._books, self._ends = books, ends
        self._reader = QueueFileReader(files)
        self._rewritten = frozenset(rewritten)

    def settled(self, queues: list[ConsumeQueue], walk_start: int, end_of_unmet: int) -> NDArray[np.bool_]:
        """By slot: is nothing left to do? Queues that the walk has not met end at or before `end_of_unmet`."""
        books = self._books
        count = books.slot_count
        loaded = np.zeros(count, np.bool_)
        loaded[list(self._ends.kept)] = True
        met = books.walk_next[:count] != NOT_SEEN
        settled: NDArray[np.bool_] = loaded & ~met & (books.max_physical[:count] <= end_of_unmet)
        may_be = loaded & met & (books.walk_next[:count] == books.next[:count])
        may_be &= (books.written[:count] == books.next[:count]) & (books.min[:count] <= books.walk_first[:count])
        may_be[[slot for slot in (*books.walk_jumps, *books.pending.fills) if slot < count]] = False
        if may_be.any():
            pending = _PendingBySlot(books.pending.view(), count)
            for queue in queues:
                if may_be[queue.slot]:
                    settled[queue.slot] = self._is_as_met(queue, pending, walk_start)
        return settled

    def _is_as_met(self, queue: ConsumeQueue, pending: "_PendingBySlot", walk_start: int) -> bool:
        books, slot = self._books, queue.slot
        first, end = int(books.walk_first[slot]), int(books.walk_next[slot])
        met = pending.entries(slot, end)
        if met is None or not queue.file_starts:
            return False
        has_before = first > queue.low_offset
        low = min(end - max(len(met) // ENTRY_BYTES, 1), first - 1 if has_before else first)
        data = self._entries(queue, low, end + 1)
        length = (end - low) * ENTRY_BYTES
        if len(data) < length or (met and data[length - len(met) : length] != met):
            return False
        last = ENTRY.unpack_from(data, length - ENTRY_BYTES)
        if not is_valid(last) or last == BLANK:
            return False
        if has_before:
            before = ENTRY.unpack_from(data, (first - 1 - low) * ENTRY_BYTES)
            if not is_valid(before) or before[0] >= walk_start:
                return False
        return walk_start > books.log_min() or data[length:] in (b"", _ZEROS)

    def _entries(self, queue: ConsumeQueue, start: int, end: int) -> bytes:
        """The bytes of entries [start, end) in the files of a queue, up to where they end."""
        kept = self._ends.kept[queue.slot]
        if start >= kept.start and queue.slot not in self._rewritten:
            at = (start - kept.start) * ENTRY_BYTES
            return kept.data[at : at + (end - start) * ENTRY_BYTES]
        per_file, parts = self._books.entries_per_file, []
        while start < end:
            file_start = start - start % per_file
            if file_start not in queue.file_starts:
                break
            stop = min(end, file_start + per_file)
            parts.append(self._reader.read(str(queue.path_of(file_start)), start - file_start, stop - start))
            start = stop
        self._reader.close()
        return b"".join(parts)


class _PendingBySlot:
    """Pending rows grouped by queue."""

    def __init__(self, view: PendingView, slot_count: int) -> None:
        rows = np.flatnonzero(view.slots[: view.count] >= 0)
        rows = rows[np.argsort(view.slots[rows], kind="stable")]
        slots, self._offsets = view.slots[rows], view.offsets[rows]
        bounds = np.searchsorted(slots, np.arange(slot_count + 1))
        follows = np.append(True, (np.diff(self._offsets) == 1) | (np.diff(slots) != 0))
        self._gaps = np.append(0, np.cumsum(~follows)).tolist()
        self._bounds = bounds.tolist()
        self._data = view.entries[rows].tobytes()

    def entries(self, slot: int, end: int) -> bytes | None:
        """The entries of a queue; None unless each follows the one before it and the last is that before `end`."""
        low, high = self._bounds[slot], self._bounds[slot + 1]
        if low == high:
            return b""
        if self._gaps[high] != self._gaps[low] or self._offsets[high - 1] + 1 != end:
            return None
        return self._data[low * ENTRY_BYTES : high * ENTRY_BYTES]
