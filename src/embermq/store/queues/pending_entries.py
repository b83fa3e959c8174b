"""Queue entries that were taken from the log and are not yet in their files.

All queues share one list in log order. Writing each entry to its own file at once would cost a system call
per message as soon as traffic is spread over many topics; here a message costs the same with one topic and
with thousands, and the entries of one queue leave together.

Appended to by the thread that takes; read from any thread: a reader takes a `view` under the owner's lock
and may use it as long as it likes, since rows below its count never move (a dropped row only loses its slot).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from embermq.columns import NO_SLOT
from embermq.format.queue_entry import ENTRY_BYTES, ENTRY_DTYPE

Entries = NDArray[np.void]
_T = TypeVar("_T", bound=np.generic)
_ROWS_MIN = 1024
_TAIL_ROWS = 512


@dataclass(frozen=True, slots=True)
class Fill:
    """The same entry for every queue offset in [start, end): the blanks before a queue's first message,
    or what stands in a hole."""

    slot: int
    start: int
    end: int
    entry: tuple[int, int, int]  # physical offset, size, tag code


@dataclass(frozen=True, slots=True)
class RowIndex:
    """The first `count` rows sorted by slot, in log order within a slot."""

    count: int
    order: NDArray[np.intp]
    slots: NDArray[np.int32]

    @classmethod
    def of(cls, slots: NDArray[np.int32]) -> "RowIndex":
        order = np.argsort(slots, kind="stable")
        return cls(len(slots), order, slots[order])

    def rows(self, slot: int) -> NDArray[np.intp]:
        low, high = np.searchsorted(self.slots, (slot, slot + 1))
        return self.order[low:high]


_NOT_INDEXED = RowIndex.of(np.empty(0, np.int32))


@dataclass(frozen=True, slots=True)
class PendingView:
    """What was pending at one moment. Fills are those of now, by slot: they lie past the end that a reader knows."""

    slots: NDArray[np.int32]
    offsets: NDArray[np.int64]
    entries: Entries
    count: int
    fills: Mapping[int, tuple[Fill, ...]]
    index: RowIndex = _NOT_INDEXED

    def overlay(self, slot: int, start: int, out: Entries, *, first: int | None) -> None:
        """Put the pending entries of a queue over `out`, whose element 0 is queue offset `start`.

        `first` is the queue's first pending offset if its offsets ascend without gaps, as they do except
        while a log is replayed: a reader close to the end then finds all it needs in the last rows.
        """
        end = start + len(out)
        for fill in self.fills.get(slot, ()):
            if fill.start < end and fill.end > start:
                out[max(fill.start, start) - start : min(fill.end, end) - start] = fill.entry
        rows = self._rows(slot) if first is None else self._last_rows(slot, max(start, first))
        offsets = self.offsets[rows]
        inside: slice | NDArray[np.bool_]
        if first is None:
            inside = (offsets >= start) & (offsets < end)
        else:  # They ascend, which saves comparing all.
            inside = slice(*offsets.searchsorted((start, end)).tolist())
        out[offsets[inside] - start] = self.entries[rows[inside]]

    def _rows(self, slot: int) -> NDArray[np.intp]:
        """All rows of a queue, in log order."""
        index = self.index
        indexed = index.rows(slot)
        rows: NDArray[np.intp] = indexed[self.slots[indexed] == slot]  # Some may have been dropped since.
        if index.count == self.count:
            return rows
        newer = np.flatnonzero(self.slots[index.count : self.count] == slot) + index.count
        both: NDArray[np.intp] = np.concatenate([rows, newer])
        return both

    def _last_rows(self, slot: int, first: int) -> NDArray[np.intp]:
        """The rows of a queue whose offsets ascend, from queue offset `first` on at least."""
        low = max(self.count - _TAIL_ROWS, 0)
        while True:
            rows = np.flatnonzero(self.slots[low : self.count] == slot) + low
            if low == 0 or (len(rows) and self.offsets[rows[0]] <= first):
                return rows
            low = max(self.count - 8 * (self.count - low), 0)


class PendingEntries:
    """Columns that grow: slot, queue offset, entry."""

    def __init__(self) -> None:
        self.count = 0
        self.fills: dict[int, tuple[Fill, ...]] = {}  # by slot
        self._index = _NOT_INDEXED
        self._slots = np.empty(_ROWS_MIN, np.int32)
        self._offsets = np.empty(_ROWS_MIN, np.int64)
        self._entries: Entries = np.empty(_ROWS_MIN, ENTRY_DTYPE)
        self._entry_bytes = _bytes_of(self._entries)

    def __bool__(self) -> bool:
        return self.count > 0 or bool(self.fills)

    def view(self, *, ordered: bool = True) -> PendingView:
        """What is pending now. Where offsets do not just ascend, rows of a queue are found by an index, which is made
        anew when many have come: scanning all rows for each of many queues would take minutes."""
        count = self.count
        if not ordered and count - self._index.count > max(_TAIL_ROWS, self._index.count // 2):
            self._index = RowIndex.of(self._slots[:count])
        return PendingView(self._slots, self._offsets, self._entries, count, self.fills, self._index)

    def append_one(self, slot: int, offset: int, entry: bytes) -> None:
        at = self.count
        end = self.reserve(1)
        self._slots[at] = slot
        self._offsets[at] = offset
        self._entry_bytes[at * ENTRY_BYTES : end * ENTRY_BYTES] = entry
        self.count = end

    def append_all(self, other: PendingView) -> None:
        """What `other` holds, behind what is here."""
        end = self.reserve(other.count)
        self._slots[self.count : end] = other.slots[: other.count]
        self._offsets[self.count : end] = other.offsets[: other.count]
        self._entries[self.count : end] = other.entries[: other.count]
        self.count = end
        for fills in other.fills.values():
            for fill in fills:
                self.add_fill(fill)

    def append_columns(
        self,
        slots: NDArray[np.int32],
        offsets: NDArray[np.int64],
        physicals: NDArray[np.int64],
        sizes: NDArray[np.int64],
        tag_codes: NDArray[np.int64],
    ) -> None:
        end = self.reserve(len(slots))
        self._slots[self.count : end] = slots
        self._offsets[self.count : end] = offsets
        entries = self._entries[self.count : end]
        entries["physical_offset"] = physicals
        entries["size"] = sizes
        entries["tag_code"] = tag_codes
        self.count = end

    def reserve(self, more: int) -> int:
        """Make room for `more` rows; answers the count after them. Views taken before keep the old arrays."""
        end = self.count + more
        if end > len(self._slots):
            capacity = max(end, 2 * len(self._slots))
            self._slots = _grown(self._slots, self.count, capacity)
            self._offsets = _grown(self._offsets, self.count, capacity)
            self._entries = _grown(self._entries, self.count, capacity)
            self._entry_bytes = _bytes_of(self._entries)
        return end

    def add_fill(self, fill: Fill) -> None:
        if fill.start < fill.end:
            self.fills[fill.slot] = (*self.fills.get(fill.slot, ()), fill)

    def drop_from(self, slot: int, queue_offset: int) -> None:
        """Forget a queue's entries at and past `queue_offset`."""
        slots = self._slots[: self.count]
        slots[(slots == slot) & (self._offsets[: self.count] >= queue_offset)] = NO_SLOT
        kept = [Fill(slot, fill.start, min(fill.end, queue_offset), fill.entry) for fill in self.fills.pop(slot, ())]
        for fill in kept:
            self.add_fill(fill)

    def without(self, slots: NDArray[np.bool_]) -> "PendingEntries":
        """These rows without those of the queues that are marked, by slot, and without dropped ones."""
        rows = self._slots[: self.count]
        keep = rows >= 0
        keep[keep] = ~slots[rows[keep]]
        kept = PendingEntries()
        count = int(np.count_nonzero(keep))
        kept.append_all(
            PendingView(
                rows[keep], self._offsets[: self.count][keep], self._entries[: self.count][keep], count, self.fills
            )
        )
        return kept


def order_by_slot(slots: NDArray[np.int32], slot_count: int) -> NDArray[np.intp]:
    """Rows sorted by slot, in log order within a slot. 16-bit numbers are sorted by radix, several times faster."""
    return np.argsort(slots.astype(np.uint16) if slot_count <= 1 << 16 else slots, kind="stable")


def _grown(array: NDArray[_T], count: int, capacity: int) -> NDArray[_T]:
    new = np.empty(capacity, array.dtype)
    new[:count] = array[:count]
    return new


def _bytes_of(entries: Entries) -> memoryview:
    return entries.view(np.uint8).data
