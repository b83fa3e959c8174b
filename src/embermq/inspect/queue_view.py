"""The queues of a store seen from outside: what their files have, and the rest from the log.

Queue files are believed up to a place in the log (queue_files.py says which); from there on the log is
walked, and every record says itself where it belongs. Of the walked part only marks are kept, one per queue and
stretch of log: entries in it are found by walking a stretch again. Where files are missing, cannot be used, or do
not agree with the log, all of the log is walked.

One thread at a time. Reads only.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embermq.columns import C_PHYSICAL, C_QUEUE_OFFSET, C_SIZE, C_SYS_FLAG, C_TAG_CODE, QueueSlots, RecordColumns, Rows
from embermq.files import Files
from embermq.format.queue_entry import ENTRY_DTYPE
from embermq.inspect.log_view import LogView
from embermq.inspect.queue_files import NO_ENTRIES, Entries, FilesDisagree, QueueFilesView, queue_entries_of
from embermq.model.flags import PREPARED
from embermq.store.log import DamagedRange, scan_segments
from embermq.store.queues import ConsumeQueue

STRETCH_BYTES_MIN = 4 << 20
_STRETCHES_MAX = 4096
_MARKS_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """What there is of a queue: offsets, half-open, and a physical range that holds all its records."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    first_physical: int
    end_physical: int


@dataclass(slots=True)
class Queue:
    """A queue: entries below `file_end` are in its files, the marks lead to those from there on."""

    topic: str
    queue_id: int
    files: ConsumeQueue | None = None
    min: int = 0
    file_end: int = 0
    next: int = 0
    first_physical: int = 0
    end_physical: int = 0
    stretch: int = -1  # The last stretch of log that this queue has a mark for.
    mark_offsets: "array[int]" = field(default_factory=lambda: array("q"))
    mark_physicals: "array[int]" = field(default_factory=lambda: array("q"))

    @property
    def span(self) -> QueueSpan:
        return QueueSpan(self.topic, self.queue_id, self.min, self.next, self.first_physical, self.end_physical)

    @property
    def is_empty(self) -> bool:
        return self.min == self.next

    def begin_at(self, queue_offset: int, physical_offset: int) -> None:
        """Nothing from before is left: not in the files either."""
        self.files, self.stretch = None, -1
        self.min = self.file_end = self.next = queue_offset
        self.first_physical = physical_offset
        del self.mark_offsets[:], self.mark_physicals[:]


class QueueView:
    """All queues, up to the end of the log as it was last looked at."""

    def __init__(self, root: Path, files: Files, log: LogView) -> None:
        self._files, self._log = files, log
        self.on_disk = QueueFilesView(root, files, log)
        self._queues: dict[tuple[str, int], Queue] | None = None
        self._generation = -1
        self._log_min = 0
        self._walked = 0  # The log below is in the spans.
        self._stretch = self._stretch_start = 0
        self._stretch_bytes = STRETCH_BYTES_MIN
        self._mark_count = 0
        self._routes = QueueSlots()
        self._by_number: list[Queue] = []

    # -- asking ----------------------------------------------------------------------------------------------

    def spans(self) -> dict[tuple[str, int], QueueSpan]:
        return {key: queue.span for key, queue in self._current().items()}

    def find(self, topic: str, queue_id: int) -> Queue | None:
        return self._current().get((topic, queue_id))

    def entries(self, queue: Queue, start: int, end: int) -> Entries:
        """Entries of queue offsets start..end, as far as the queue has them."""
        start, end = max(start, queue.min), min(end, queue.next)
        parts = [NO_ENTRIES]
        if queue.files is not None and start < queue.file_end:
            parts.append(queue_entries_of(queue.files, start, min(end, queue.file_end)))
        if max(start, queue.file_end) < end:
            parts.append(self._entries_of_log(queue, max(start, queue.file_end), end))
        return np.concatenate(parts, dtype=ENTRY_DTYPE)

    def place_range(self, queue: Queue, start: int, end: int) -> tuple[int, int]:
        """A range of the log that holds the records of these queue offsets; a record begins at its start."""
        start, end = max(start, queue.min), min(end, queue.next)
        if start >= end:
            return queue.end_physical, queue.end_physical
        first = queue.first_physical
        if start < queue.file_end:
            first = self._filed_place(queue, start) or first
        elif mark := bisect_right(queue.mark_offsets, start):
            first = queue.mark_physicals[mark - 1]
        last = queue.end_physical
        if end < queue.file_end:
            last = self._filed_place(queue, end) or last
        elif (mark := bisect_left(queue.mark_offsets, end)) < len(queue.mark_offsets):
            last = queue.mark_physicals[mark]
        return first, last

    def _filed_place(self, queue: Queue, queue_offset: int) -> int | None:
        """Where a record lies by the queue's files, if it does."""
        entry = queue.files.peek(queue_offset) if queue.files is not None else None
        frame = self._log.frame_at(entry[0]) if entry is not None else None
        if frame is None or (frame.topic, frame.queue_id, frame.queue_offset) != (
            queue.topic,
            queue.queue_id,
            queue_offset,
        ):
            return None
        return frame.physical_offset

    def offset_from(self, queue: Queue, physical_offset: int) -> int:
        """The first queue offset whose record lies at or after a place."""
        if physical_offset >= queue.end_physical:
            return queue.next
        marks = queue.mark_physicals
        if queue.files is not None and queue.min < queue.file_end and not (marks and marks[0] < physical_offset):
            files = queue.files

            def is_behind(queue_offset: int) -> bool:
                entry = files.peek(queue_offset)
                return entry is not None and entry[0] >= physical_offset

            return queue.min + bisect_left(range(queue.min, queue.file_end), True, key=is_behind)
        mark = bisect_right(marks, physical_offset) - 1
        if mark < 0:
            return queue.min
        after = queue.mark_offsets[mark + 1] if mark + 1 < len(marks) else queue.next
        entries = self.entries(queue, queue.mark_offsets[mark], after)
        return queue.mark_offsets[mark] + int(
            np.searchsorted(entries["physical_offset"].astype(np.int64), physical_offset)
        )

    # -- bringing up to date ---------------------------------------------------------------------------------

    def _current(self) -> dict[tuple[str, int], Queue]:
        if self._queues is None or self._generation != self._log.generation:
            self._begin()
        assert self._queues is not None
        if self._log.min != self._log_min:
            self._drop_expired()
        try:
            self._walk_on()
        except FilesDisagree:
            self._begin_with_log_alone()
            self._walk_on()
        return self._queues

    def _begin(self) -> None:
        """Take what the files have."""
        place = self.on_disk.complete_below()
        if place <= self._log.min:
            self._begin_with_log_alone()
            return
        self._reset(place)
        try:
            with self._log.holding_files():
                self._adopt_files(place)
        except FilesDisagree:
            self._begin_with_log_alone()

    def _begin_with_log_alone(self) -> None:
        """All of the log is to be walked. Of the files only queues without any record in it are taken: their
        next message goes on with their offsets."""
        self._reset(self._log.min)
        self._adopt_files(self._log.min)

    def _reset(self, place: int) -> None:
        self._queues = {}
        self._routes, self._by_number = QueueSlots(), []
        self._generation, self._log_min = self._log.generation, self._log.min
        self._walked = self._stretch_start = place
        self._stretch = self._mark_count = 0
        self._stretch_bytes = max(STRETCH_BYTES_MIN, (self._log.end - self._log.min) // _STRETCHES_MAX)

    def _adopt_files(self, place: int) -> None:
        assert self._queues is not None
        for on_disk in self.on_disk.all():
            part = self.on_disk.part_below(on_disk, place)
            if part is None or part.end == on_disk.low_offset:
                continue  # Of other topics; or nothing of it lies below that place.
            self._queues[on_disk.topic, on_disk.queue_id] = Queue(
                on_disk.topic,
                on_disk.queue_id,
                on_disk,
                part.min,
                part.end,
                part.end,
                part.first_physical,
                part.end_physical,
            )

    def _walk_on(self) -> None:
        end = self._log.end
        while self._walked < end:
            for scanned in scan_segments(self._log.segments, self._walked, end, files=self._files):
                if isinstance(scanned, DamagedRange):
                    continue
                start = int(scanned.rows[0, C_PHYSICAL])
                if start - self._stretch_start >= self._stretch_bytes:
                    self._stretch, self._stretch_start = self._stretch + 1, start
                self._take(scanned)
            self._walked = end
        if self._mark_count > _MARKS_MAX:
            self._thin_out()

    def _take(self, batch: RecordColumns) -> None:
        """Note what a batch has of each queue."""
        numbers = self._numbers_of(batch)
        rows = np.flatnonzero((batch.column(C_SYS_FLAG) & PREPARED) == 0)
        rows = rows[np.argsort(numbers[rows], kind="stable")]
        if len(rows):
            for part in np.split(rows, np.flatnonzero(np.diff(numbers[rows])) + 1):
                self._extend(self._by_number[int(numbers[part[0]])], batch.rows[part])

    def _numbers_of(self, batch: RecordColumns) -> NDArray[np.int32]:
        numbers = self._routes.route(batch)
        assert self._queues is not None
        for name in self._routes.names[len(self._by_number) :]:
            self._by_number.append(self._queues.get(name) or Queue(*name))
        return numbers

    def _extend(self, queue: Queue, rows: Rows) -> None:
        """Add records that follow one another in the log; a queue that was deleted begins anew among them."""
        assert self._queues is not None
        restarts = np.flatnonzero(np.diff(rows[:, C_QUEUE_OFFSET]) <= 0)
        if len(restarts):
            rows = rows[int(restarts[-1]) + 1 :]
        first, physical = int(rows[0, C_QUEUE_OFFSET]), int(rows[0, C_PHYSICAL])
        if len(restarts) or first < queue.next or (queue.topic, queue.queue_id) not in self._queues:
            queue.begin_at(first, physical)
            self._queues[queue.topic, queue.queue_id] = queue
        elif first > queue.next == queue.file_end and queue.files is not None and not queue.is_empty:
            raise FilesDisagree  # Records between: either the files lack them, or they are lost.
        elif queue.is_empty:
            queue.min, queue.first_physical = first, physical
        if queue.stretch != self._stretch:
            queue.mark_offsets.append(first)
            queue.mark_physicals.append(physical)
            queue.stretch = self._stretch
            self._mark_count += 1
        queue.next = int(rows[-1, C_QUEUE_OFFSET]) + 1
        queue.end_physical = int(rows[-1, C_PHYSICAL] + rows[-1, C_SIZE])

    def _thin_out(self) -> None:
        """Keep every other mark: stretches become twice as long."""
        assert self._queues is not None
        for queue in self._queues.values():
            queue.mark_offsets, queue.mark_physicals = queue.mark_offsets[::2], queue.mark_physicals[::2]
        self._stretch_bytes *= 2
        self._mark_count = sum(len(queue.mark_offsets) for queue in self._queues.values())

    # -- old log files go ------------------------------------------------------------------------------------

    def _drop_expired(self) -> None:
        """Records of log files that were deleted are in no queue any more."""
        assert self._queues is not None
        self._log_min = self._log.min
        if self._walked < self._log.min:
            self._begin()
            return
        for queue in self._queues.values():
            if queue.is_empty or queue.first_physical >= self._log.min:
                continue
            if queue.files is not None:
                queue.min = self.on_disk.first_in_log(queue.files, queue.file_end)
                entry = queue.files.peek(queue.min) if queue.min < queue.file_end else None
                if entry is not None:
                    queue.first_physical = entry[0]
                    continue
            self._drop_expired_marks(queue)

    def _drop_expired_marks(self, queue: Queue) -> None:
        """Only the log knows the entries: walk the stretch in which the deleted ones end."""
        next_offset = queue.next
        keep = max(bisect_right(queue.mark_physicals, self._log.min) - 1, 0)
        offsets, physicals = queue.mark_offsets[keep:], queue.mark_physicals[keep:]
        stretch = queue.stretch
        queue.begin_at(next_offset, max(queue.end_physical, self._log.min))
        if not physicals or queue.end_physical <= self._log.min:
            return
        end = physicals[1] + 1 if len(physicals) > 1 else queue.end_physical
        for rows in self._rows_of(queue, max(physicals[0], self._log.min), end):
            offsets[0], physicals[0] = int(rows[0, C_QUEUE_OFFSET]), int(rows[0, C_PHYSICAL])
            queue.begin_at(offsets[0], physicals[0])
            queue.next, queue.stretch = next_offset, stretch
            queue.mark_offsets, queue.mark_physicals = offsets, physicals
            return

    # -- entries that are in no file ---------------------------------------------------------------------------

    def _rows_of(self, queue: Queue, start: int, end: int) -> Iterator[Rows]:
        """Rows of one queue's records that begin in [start, end) of the log; one begins at `start`, or the log."""
        for scanned in scan_segments(self._log.segments, start, min(end, self._log.end), files=self._files):
            if isinstance(scanned, DamagedRange):
                continue
            numbers = self._numbers_of(scanned)  # First: where nothing was walked yet, this is what makes it known.
            number = self._routes.find(queue.topic, queue.queue_id)
            mine = (numbers == number) & ((scanned.column(C_SYS_FLAG) & PREPARED) == 0)
            if mine.any():
                yield scanned.rows[mine]

    def _entries_of_log(self, queue: Queue, start: int, end: int) -> Entries:
        first = max(bisect_right(queue.mark_offsets, start) - 1, 0)
        after = bisect_left(queue.mark_offsets, end)
        place = queue.mark_physicals[after] if after < len(queue.mark_physicals) else queue.end_physical
        entries: Entries = np.zeros(end - start, ENTRY_DTYPE)
        for rows in self._rows_of(queue, queue.mark_physicals[first], place):
            rows = rows[(rows[:, C_QUEUE_OFFSET] >= start) & (rows[:, C_QUEUE_OFFSET] < end)]
            places = rows[:, C_QUEUE_OFFSET] - start
            entries["physical_offset"][places] = rows[:, C_PHYSICAL]
            entries["size"][places] = rows[:, C_SIZE]
            entries["tag_code"][places] = rows[:, C_TAG_CODE]
        return _without_holes(entries)


def _without_holes(entries: Entries) -> Entries:
    """A hole (records lost to damage) holds copies of the entry behind it, as it does in queue files."""
    there = np.flatnonzero(entries["size"] > 0)
    if len(there) == len(entries):
        return entries
    return entries[there[np.searchsorted(there, np.arange(there[-1] + 1))]] if len(there) else NO_ENTRIES
