"""From records to pending queue entries: which record becomes an entry, where, and what it needs around it.

Two ways of taking. Live: a queue offset that is already there is ignored. Replaying (recovery): every entry
takes its place again, and the walk is remembered so that what it did not meet can be cut afterwards.
And two speeds: one by one in plain Python, which is what light traffic needs and the clear statement of the
rules; and by columns, where only queues with something unusual go one by one.

For holders of the change lock. Writes nothing.
"""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns import (
    C_PHYSICAL,
    C_QUEUE_ID,
    C_QUEUE_OFFSET,
    C_SIZE,
    C_STORE_TIME,
    C_SYS_FLAG,
    C_TAG_CODE,
    C_TOPIC_AT,
    C_TOPIC_LEN,
    NO_SLOT,
    RecordColumns,
    pays,
)
from embermq.format.frame import FIXED_BYTES
from embermq.format.queue_entry import ENTRY, ENTRY_BYTES
from embermq.model.flags import PREPARED, has_queue_entry
from embermq.store.queues.consume_queue import BLANK, ConsumeQueue, Entry
from embermq.store.queues.extension import ExtensionSettings
from embermq.store.queues.multi_dispatch import MultiDispatch
from embermq.store.queues.pending_entries import Fill, order_by_slot
from embermq.store.queues.queue_state import NOT_SEEN, Jump, Restart, SharedQueueState
from embermq.store.queues.queue_table import Queues

log = logging.getLogger(__name__)

# A lost stretch of log leaves a hole. One larger than a whole log file of the smallest records, or with more
# records before it than the log can ever have had, can only come from a damaged queue offset, and filling it
# would fill the disk.
HOLE_ENTRIES_MAX = 1 << 24
RECORD_BYTES_MIN = FIXED_BYTES + 1
QUEUE_OFFSET_MAX = (1 << 62) // ENTRY_BYTES
# Up to so many rows one by one is the faster way; columns pay earlier when the kernel that routes them is at hand.
FEW_ROWS = 64
FEW_ROWS_WITH_KERNEL = 16

Columns = list[NDArray[Any]]  # slot, queue offset, physical offset, size, tag code


def is_possible(queue_offset: int) -> bool:
    """Whether there can be a file with an entry of this queue offset."""
    return 0 <= queue_offset < QUEUE_OFFSET_MAX


def is_too_far(next_offset: int, queue_offset: int, physical_offset: int) -> bool:
    """Whether a queue that has come to `next_offset` cannot have a record of `queue_offset` there in the log."""
    return queue_offset - next_offset > HOLE_ENTRIES_MAX or (
        queue_offset > next_offset and queue_offset > physical_offset // RECORD_BYTES_MIN
    )


class QueueExpired(Exception):
    """All records of a queue have left the log, and it goes on further up: remove it, `begin` it there, and take
    the batch again."""

    def __init__(self, queue: ConsumeQueue, queue_offset: int) -> None:
        super().__init__(queue, queue_offset)
        self.queue, self.queue_offset = queue, queue_offset


class EntryIntake:
    """Takes batches of records for all queues."""

    def __init__(
        self, books: SharedQueueState, queues: Queues, extension: ExtensionSettings | None, multi: MultiDispatch | None
    ) -> None:
        self._books = books
        self._queues = queues
        self._extension = extension
        self._multi = multi
        self._bits_failing = False
        self._ended: Mapping[str, int] = {}  # In a replay: topics that were deleted, and where the log ended then.
        self._ended_below = 0  # No record from here on is of an ended incarnation.

    def begin_walk(self, ended: Mapping[str, int]) -> None:
        """A replay begins. Records of a deleted topic below the end that the log had then have no entry."""
        self._ended, self._ended_below = ended, max(ended.values(), default=0)

    def take(self, batch: RecordColumns) -> None:
        """Raises QueueExpired when a queue must be removed first; nothing is wrong then with taking again."""
        few = FEW_ROWS_WITH_KERNEL if pays("derive", 0) else FEW_ROWS
        if len(batch) < few or self._extension is not None:
            self._take_one_by_one(batch)
        else:
            self._take_together(batch)

    def places(self, batch: RecordColumns) -> list[tuple[int, int, int]]:
        """Slot, queue offset and row of each entry that a few records have, in log order."""
        found = []
        for i, row in enumerate(batch.rows.tolist()):
            if not has_queue_entry(row[C_SYS_FLAG]):
                continue
            at = row[C_TOPIC_AT]
            slot = self._queues.slot_of(batch.data[at : at + row[C_TOPIC_LEN]].tobytes(), row[C_QUEUE_ID])
            found.append((slot, row[C_QUEUE_OFFSET], i))
            if self._multi is not None:
                for name, queue_id, queue_offset in self._multi.targets(batch, i):
                    found.append((self._queues.slot_of(name, queue_id), queue_offset, i))
        return [place for place in found if place[0] != NO_SLOT]

    def place_columns(self, batch: RecordColumns) -> Columns:
        """The same for many, as columns."""
        slots = self._queues.route(batch)
        slots[(batch.rows[:, C_SYS_FLAG] & PREPARED) != 0] = NO_SLOT
        columns: Columns = [slots, batch.rows[:, C_QUEUE_OFFSET], np.arange(len(batch))]
        if self._multi is not None:
            columns = self._with_copies(self._multi, batch, columns)
        return _chosen(columns, columns[0] >= 0)

    # One by one

    def _take_one_by_one(self, batch: RecordColumns) -> None:
        for i, row in enumerate(batch.rows.tolist()):
            if not has_queue_entry(row[C_SYS_FLAG]):
                continue
            at = row[C_TOPIC_AT]
            slot = self._queues.slot_of(batch.data[at : at + row[C_TOPIC_LEN]].tobytes(), row[C_QUEUE_ID])
            tag_code = row[C_TAG_CODE]
            if self._is_of_ended_life(slot, row[C_PHYSICAL]):
                slot = NO_SLOT
            if slot != NO_SLOT and self._extension is not None:
                tag_code = self._extend(self._queues.by_slot[slot], batch, i)
            self._offer(slot, row[C_QUEUE_OFFSET], (row[C_PHYSICAL], row[C_SIZE], tag_code))
            if self._multi is not None:
                for name, queue_id, queue_offset in self._multi.targets(batch, i):
                    slot = self._queues.slot_of(name, queue_id)
                    self._offer(slot, queue_offset, (row[C_PHYSICAL], row[C_SIZE], row[C_TAG_CODE]))

    def _offer(self, slot: int, queue_offset: int, entry: Entry) -> None:
        if slot == NO_SLOT or self._is_of_ended_life(slot, entry[0]) or not self._accept(slot, queue_offset, entry):
            return
        books = self._books
        with books.lock:
            books.pending.append_one(slot, queue_offset, ENTRY.pack(*entry))
            books.next[slot] = max(int(books.next[slot]), queue_offset + 1)
            books.max_physical[slot] = max(int(books.max_physical[slot]), entry[0] + entry[1])

    def _is_of_ended_life(self, slot: int, physical_offset: int) -> bool:
        """Was the topic of this queue deleted after this record was stored? Known in a replay only."""
        if physical_offset >= self._ended_below or slot == NO_SLOT:
            return False
        return physical_offset < self._ended.get(self._queues.by_slot[slot].topic, 0)

    def _accept(self, slot: int, queue_offset: int, entry: Entry) -> bool:
        """Whether an entry may take its place; prepares the place if the queue does not reach to it."""
        books = self._books
        if not is_possible(queue_offset):
            queue = self._queues.by_slot[slot]
            log.warning("queue_offset_impossible queue=%r queue_offset=%d", queue, queue_offset)
            return False
        if not books.born[slot]:
            self.begin(slot, queue_offset)
        elif books.replaying:
            return self._accept_again(slot, queue_offset, entry)
        elif queue_offset != books.next[slot]:
            return queue_offset > books.next[slot] and self._bridge(slot, int(books.next[slot]), queue_offset, entry)
        return True

    def begin(self, slot: int, queue_offset: int) -> None:
        """The first entry of a queue. One that does not begin at 0 gets blanks before it, in the same file."""
        books = self._books
        with books.lock:
            start = queue_offset - queue_offset % books.entries_per_file
            books.pending.add_fill(Fill(slot, start, queue_offset, BLANK))
            books.born[slot] = True
            books.min[slot] = books.next[slot] = books.written[slot] = queue_offset
            if books.replaying:
                books.walk_first[slot], books.walk_next[slot] = queue_offset, queue_offset + 1
                books.walk_jumps[slot] = Jump(NOT_SEEN, queue_offset, 0)
        self._queues.show([slot])

    def _bridge(self, slot: int, start: int, end: int, entry: Entry) -> bool:
        """Fill a hole with copies of the entry behind it: a reader sees that the record is of another offset."""
        books, queue = self._books, self._queues.by_slot[slot]
        if books.walk_next[slot] == NOT_SEEN and queue.max_physical <= books.log_min():
            raise QueueExpired(queue, end)
        if is_too_far(start, end, entry[0]):
            log.warning("queue_offset_too_far queue=%r queue_offset=%d", queue, end)
            return False
        log.warning("queue_hole queue=%r start=%d end=%d", queue, start, end)
        if books.replaying:
            books.walk_jumps[slot] = Jump(start, end, int(books.next[slot]))
        with books.lock:
            books.pending.add_fill(Fill(slot, start, end, entry))
            books.next[slot] = max(int(books.next[slot]), end)
        return True

    # Replaying

    def _accept_again(self, slot: int, queue_offset: int, entry: Entry) -> bool:
        """As _accept, for a queue that has entries, in a replay."""
        books = self._books
        seen = int(books.walk_next[slot])
        if seen == NOT_SEEN:
            if queue_offset > books.next[slot]:
                if not self._bridge(slot, int(books.next[slot]), queue_offset, entry):
                    return False
            else:
                self._blank_before(slot, queue_offset)
            books.walk_first[slot], books.walk_next[slot] = queue_offset, queue_offset + 1
            return True
        restart = books.walk_restarts.pop(slot, None)
        if queue_offset == 0 and seen > 0:
            books.walk_restarts[slot] = Restart(entry)
            return False
        if restart is not None and queue_offset == 1:
            self._restart(slot, restart)
            seen = 1
        elif restart is not None:
            log.warning("queue_offset_repeated queue=%r queue_offset=0", self._queues.by_slot[slot])
        if queue_offset < seen:
            return self._accept_late(slot, queue_offset, entry)
        if queue_offset > seen and not self._bridge(slot, seen, queue_offset, entry):
            return False
        books.walk_next[slot] = queue_offset + 1
        return True

    def _restart(self, slot: int, restart: Restart) -> None:
        """The queue was deleted and began anew while this part of the log was written."""
        books = self._books
        with books.lock:
            books.pending.drop_from(slot, 0)
            books.pending.append_one(slot, 0, ENTRY.pack(*restart.entry))
        books.walk_first[slot], books.walk_next[slot] = 0, 1
        books.walk_jumps.pop(slot, None)

    def finish_walk(self) -> None:
        """No more records come in this replay: what came last in a queue stands alone for a new incarnation."""
        for slot, restart in self._books.walk_restarts.items():
            self._restart(slot, restart)
        self._books.walk_restarts.clear()
        self.begin_walk({})

    def _accept_late(self, slot: int, queue_offset: int, entry: Entry) -> bool:
        """A record with an offset below the newest one: one of the two is damaged, for no checksum covers it.

        If the newest one came by a jump, and none has followed it yet, it was that one: the queue goes on where it
        was. Otherwise it is this one, and whatever record has the place keeps it.
        """
        books, queue = self._books, self._queues.by_slot[slot]
        jump = books.walk_jumps.get(slot)
        has_jumped = jump is not None and books.walk_next[slot] == jump.to + 1
        if jump is None or not has_jumped or not jump.start <= queue_offset <= jump.to:
            log.warning("queue_offset_repeated queue=%r queue_offset=%d", queue, queue_offset)
            return False
        if queue_offset == jump.to:
            return True  # The same record again, or one that claims the same place.
        log.warning("queue_offset_too_far queue=%r queue_offset=%d", queue, jump.to)
        if jump.start == NOT_SEEN:
            if queue.file_starts:  # It was written out meanwhile.
                raise QueueExpired(queue, queue_offset)
            with books.lock:
                books.pending.drop_from(slot, 0)
            self.begin(slot, queue_offset)
            return True
        with books.lock:
            books.pending.drop_from(slot, jump.start)
            books.next[slot] = max(jump.next, jump.start)
        books.walk_first[slot] = min(int(books.walk_first[slot]), queue_offset)
        books.walk_jumps.pop(slot)
        if queue_offset > jump.start and not self._bridge(slot, jump.start, queue_offset, entry):
            books.walk_next[slot] = jump.start
            return False
        books.walk_next[slot] = queue_offset + 1
        return True

    def _blank_before(self, slot: int, queue_offset: int) -> None:
        """A replay that begins before the queue's first file makes a new first file."""
        books = self._books
        starts = self._queues.by_slot[slot].file_starts
        start = queue_offset - queue_offset % books.entries_per_file
        if starts and start < min(starts):
            with books.lock:
                books.pending.add_fill(Fill(slot, start, queue_offset, BLANK))

    def _extend(self, queue: ConsumeQueue, batch: RecordColumns, i: int) -> int:
        """What goes into the third field of a queue that has an extension: an address, if one can be had."""
        row = batch.rows[i]
        tag_code, store_time, queue_offset = int(row[C_TAG_CODE]), int(row[C_STORE_TIME]), int(row[C_QUEUE_OFFSET])
        settings, extension = self._extension, queue.extension
        assert settings is not None
        assert extension is not None
        if queue_offset < queue.max_offset:
            if not self._books.replaying:
                return tag_code  # It is there already and will not be taken.
            old = queue.peek(queue_offset)
            known = None if old is None else extension.find(old[2])
            if old is not None and known is not None and (known.tag_code, known.store_time) == (tag_code, store_time):
                return old[2]
        address = extension.put(tag_code, store_time, self._filter_bits(settings, batch, i))
        return tag_code if address is None else address

    def _filter_bits(self, settings: ExtensionSettings, batch: RecordColumns, i: int) -> bytes:
        """The user's bits for a record. What goes wrong there costs the bits, which filters do without."""
        if settings.bitmap_for is None:
            return b""
        try:
            bits = bytes(settings.bitmap_for(batch, i))
        except Exception:
            if not self._bits_failing:  # Once for any number of records in a row.
                log.exception("filter bits failed topic=%s", batch.topic(i))
            self._bits_failing = True
            return b""
        self._bits_failing = False
        return bits

    # By columns

    def _take_together(self, batch: RecordColumns) -> None:
        books = self._books
        slots = self._queues.route(batch)
        rows = batch.rows
        slots[(rows[:, C_SYS_FLAG] & PREPARED) != 0] = NO_SLOT
        columns: Columns = [slots, *(rows[:, c] for c in (C_QUEUE_OFFSET, C_PHYSICAL, C_SIZE, C_TAG_CODE))]
        if self._multi is not None:
            columns = self._with_copies(self._multi, batch, columns)
        keep = columns[0] >= 0
        if not books.replaying:
            keep &= columns[1] >= books.next[columns[0]]  # NO_SLOT takes the last element; it is out anyway.
        if len(rows) and rows[0, C_PHYSICAL] < self._ended_below:
            begun = np.array([self._ended.get(queue.topic, 0) for queue in self._queues.by_slot], np.int64)
            keep &= columns[2] >= begun[columns[0]]
        columns = _chosen(columns, keep)
        order = order_by_slot(columns[0], books.slot_count)
        self._meet_new_queues(columns, order)
        unusual = self._unusual_slots(columns[0][order], columns[1][order])
        if unusual:
            plain = ~np.isin(columns[0], unusual)
            for slot, queue_offset, *entry in zip(*(column[~plain].tolist() for column in columns), strict=True):
                self._offer(slot, queue_offset, (entry[0], entry[1], entry[2]))
            columns = _chosen(columns, plain)
            order = order_by_slot(columns[0], books.slot_count)
        if len(order):
            self._append(columns, order)

    def _meet_new_queues(self, columns: Columns, order: NDArray[np.intp]) -> None:
        """Make a place for the first row of queues not met before (in this replay); the others just follow it."""
        books = self._books
        by_slot = columns[0][order]
        heads = order[np.append(True, by_slot[1:] != by_slot[:-1])] if len(order) else order
        slots = columns[0][heads]
        new = ~books.born[slots]
        if books.replaying:
            met_first = books.walk_next[slots] == NOT_SEEN
            offsets = columns[1][heads]
            # Where the queue has an entry at this place, or ends, there is nothing to prepare.
            fits = met_first & ~new & (offsets >= books.min[slots]) & (offsets <= books.next[slots])
            books.walk_first[slots[fits]] = books.walk_next[slots[fits]] = offsets[fits]
            new |= met_first & ~fits
        for row in heads[new].tolist():
            slot, queue_offset, physical, size, tag_code = (int(column[row]) for column in columns)
            if self._accept(slot, queue_offset, (physical, size, tag_code)) and books.replaying:
                books.walk_next[slot] = queue_offset  # The row itself is still to come.

    def _unusual_slots(self, slots: NDArray[np.int32], offsets: NDArray[np.int64]) -> list[int]:
        """Slots (rows come sorted by slot) whose offsets do not follow their queue's last one without a gap."""
        if not len(slots):
            return []
        books = self._books
        first = np.empty(len(slots), np.bool_)
        first[0] = True
        np.not_equal(slots[1:], slots[:-1], out=first[1:])
        heads = slots[first]
        expected = np.empty(len(slots), np.int64)
        expected[1:] = offsets[:-1] + 1
        expected[first] = books.walk_next[heads] if books.replaying else books.next[heads]
        wrong = offsets != expected
        wrong[first] |= ~books.born[heads]
        if books.walk_restarts:
            wrong[first] |= np.isin(heads, list(books.walk_restarts))
        return [int(slot) for slot in np.unique(slots[wrong])] if wrong.any() else []

    def _append(self, columns: Columns, order: NDArray[np.intp]) -> None:
        """Rows that all follow their queue's last one."""
        slots, offsets, physicals, sizes, tag_codes = columns
        books = self._books
        by_slot = slots[order]
        last = order[np.append(by_slot[1:] != by_slot[:-1], True)]
        touched, ends = slots[last], offsets[last] + 1
        with books.lock:
            books.pending.append_columns(slots, offsets, physicals, sizes, tag_codes)
            books.max_physical[touched] = np.maximum(books.max_physical[touched], physicals[last] + sizes[last])
            if books.replaying:
                books.walk_next[touched] = ends
                ends = np.maximum(books.next[touched], ends)
            books.next[touched] = ends

    def _with_copies(self, multi: MultiDispatch, batch: RecordColumns, columns: Columns) -> Columns:
        """The columns with rows for the further queues that some records name, in log order."""
        extra: list[tuple[int, int, int]] = []
        for i in multi.rows_with_targets(batch):
            if has_queue_entry(int(batch.rows[i, C_SYS_FLAG])):
                for name, queue_id, queue_offset in multi.targets(batch, i):
                    extra.append((i, self._queues.slot_of(name, queue_id), queue_offset))
        if not extra:
            return columns
        sources, slots, offsets = (np.array(column, np.int64) for column in zip(*extra, strict=True))
        both = [np.concatenate([column, column[sources]]) for column in columns]
        both[0][len(batch) :] = slots
        both[1][len(batch) :] = offsets
        order = np.argsort(np.concatenate([np.arange(len(batch)), sources]), kind="stable")
        return [column[order] for column in both]


def _chosen(columns: Columns, keep: NDArray[np.bool_]) -> Columns:
    return columns if keep.all() else [column[keep] for column in columns]
