"""The queues of a store seen from outside: what their files have, and the rest from the log.

Queue files are believed up to a place in the log (`_trusted_end` says which); from there on the log is walked,
and every record says itself where it belongs. Of the walked part only marks are kept, one per queue and
stretch of log: units in it are found by walking a stretch again. Where files are missing, cannot be used, or
do not agree with the log, all of the log is walked.

Queues that hold records of other topics (light queues, multi dispatch) are left out: here a record is in the
queue it names. One thread at a time. Reads only.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from embermq import kernels
from embermq.clock import SystemClock
from embermq.files.files import Files
from embermq.format.columns import (
    C_PHYSICAL,
    C_QUEUE_ID,
    C_QUEUE_OFFSET,
    C_SIZE,
    C_SYS_FLAG,
    C_TAG_CODE,
    C_TOPIC_AT,
    C_TOPIC_LEN,
    RecordColumns,
)
from embermq.format.names import parse_segment_name
from embermq.format.queue_entry import BLANK_SIZE, ENTRY_BYTES, ENTRY_DTYPE
from embermq.model.flags import PREPARED
from embermq.model.properties import MULTI_DISPATCH
from embermq.store import directory
from embermq.store.consume_queue import ConsumeQueue, is_valid
from embermq.store.consume_queues import ConsumeQueues
from embermq.store.survey_log import LogView, is_held
from embermq.store.survey_scan import Damage, scan_segments

if TYPE_CHECKING:
    from embermq.kernels.derive import QueueTable

Units = NDArray[np.void]
_NO_UNITS: Units = np.empty(0, ENTRY_DTYPE)
_STRETCH_BYTES_MIN = 4 << 20
_STRETCHES_MAX = 4096
_SIZE_SAMPLES = 64
_KERNEL_ROWS = 2_000
_FILE_BYTES_DEFAULT = 300_000 * ENTRY_BYTES


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
class _Queue:
    """A queue: units below `file_end` are in its files, those from there on are in the log."""

    topic: str
    queue_id: int
    files: ConsumeQueue | None = None
    min: int = 0
    first_physical: int = 0
    file_end: int = 0
    next: int = 0
    end_physical: int = 0
    stretch: int = -1  # The last stretch of log that this queue has a mark for.
    mark_offsets: "array[int]" = field(default_factory=lambda: array("q"))
    mark_physicals: "array[int]" = field(default_factory=lambda: array("q"))


class QueueView:
    """All queues; `update` brings them to the end of the log."""

    def __init__(self, root: Path, files: Files, log: LogView) -> None:
        self._root, self._files, self._log = root / directory.CONSUME_QUEUE, files, log
        self._store_root = root
        self._on_disk: ConsumeQueues | None = None
        self._queues: dict[tuple[str, int], _Queue] | None = None
        self._routes = _Routes()
        self._by_slot: list[_Queue] = []
        self._walked = 0  # The log below is in the spans.
        self._stretch_start = 0
        self._stretch = 0
        self._stretch_bytes = _STRETCH_BYTES_MIN
        self._log_min = 0

    def forget(self) -> None:
        """Begin anew: another log lies there, or it was cut."""
        self._on_disk = self._queues = None

    # -- asking ----------------------------------------------------------------------------------------------

    def spans(self) -> dict[tuple[str, int], QueueSpan]:
        self._update()
        assert self._queues is not None
        return {
            key: QueueSpan(one.topic, one.queue_id, one.min, one.next, one.first_physical, one.end_physical)
            for key, one in self._queues.items()
        }

    def find(self, topic: str, queue_id: int) -> QueueSpan | None:
        return self.spans().get((topic, queue_id))

    def units(self, topic: str, queue_id: int, start: int, end: int) -> Units:
        """Units of queue offsets start..end, as far as the queue has them."""
        self._update()
        assert self._queues is not None
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return _NO_UNITS
        start, end = max(start, queue.min), min(end, queue.next)
        if start >= end:
            return _NO_UNITS
        parts = [self._units_of_files(queue, start, min(end, queue.file_end))]
        if end > queue.file_end:
            parts.append(self._units_of_log(queue, max(start, queue.file_end), end))
        return np.concatenate(parts)

    def marks(self, topic: str, queue_id: int) -> list[tuple[int, int]]:
        """Queue offset and place of some records that are in the log and not yet in files, ascending."""
        assert self._queues is not None
        queue = self._queues[topic, queue_id]
        return list(zip(queue.mark_offsets, queue.mark_physicals, strict=True))

    def file_end(self, topic: str, queue_id: int) -> int:
        assert self._queues is not None
        return self._queues[topic, queue_id].file_end

    def newest_unit_end(self) -> int:
        """The end of the newest record that queue files know and the log confirms; 0 if there is none."""
        on_disk = self._load_files()
        newest = sorted(on_disk.all(), key=lambda queue: queue.max_physical, reverse=True)
        for queue in islice(newest, 8):
            unit = queue.peek(queue.max_offset - 1)
            frame = self._log.frame_at(unit[0]) if unit is not None else None
            if unit is not None and frame is not None and frame.size == unit[1]:
                return frame.end
        return 0

    # -- the files -------------------------------------------------------------------------------------------

    def _load_files(self) -> ConsumeQueues:
        if self._on_disk is None:
            on_disk = ConsumeQueues(
                self._root, self._files, self._file_bytes(), SystemClock(), read_only=True,
                log_min=lambda: self._log.min,
            )  # fmt: skip
            self._findings = on_disk.load()
            self._on_disk = on_disk
        return self._on_disk

    def _file_bytes(self) -> int:
        """The file size that most queue files have."""
        sizes = Counter(islice(self._sizes(), _SIZE_SAMPLES))
        return sizes.most_common(1)[0][0] if sizes else _FILE_BYTES_DEFAULT

    def _sizes(self) -> Iterator[int]:
        for directory_of_queue in self._queue_directories():
            for entry in self._files.list_directory(directory_of_queue):
                is_unit_file = entry.is_file and parse_segment_name(entry.name) is not None
                if is_unit_file and entry.size and entry.size % ENTRY_BYTES == 0:
                    yield entry.size

    def _queue_directories(self) -> Iterator[Path]:
        if not self._files.exists(self._root):
            return
        for topic in self._files.list_directory(self._root):
            if not topic.is_file:
                for queue in self._files.list_directory(self._root / topic.name):
                    if not queue.is_file:
                        yield self._root / topic.name / queue.name

    def _trusted_end(self, on_disk: ConsumeQueues) -> int:
        """Units of all records below this place are in the files. 0: nobody vouches."""
        page, log = self._log.page, self._log
        if page is not None:
            if sum(len(queue.file_starts) for queue in on_disk.all()) < page.queue_files:
                return 0
            same_boot = page.boot != 0 and page.boot == self._files.boot()
            closed = directory.was_closed_cleanly(self._files, self._store_root)
            return min(page.queues_written if same_boot or closed else page.queues_durable, log.end)
        if self._files.exists(self._store_root / "embermq.state"):
            # Ours, copied or damaged: units are not written in the order of the log, only a clean close has all.
            if not directory.was_closed_cleanly(self._files, self._store_root):
                return 0
        elif not directory.was_closed_cleanly(self._files, self._store_root) and not is_held(self._store_root):
            return 0  # Killed, or copied while it ran: some queues may have less than others.
        return min(self.newest_unit_end(), log.end)

    def _load(self) -> None:
        self._routes, self._by_slot, self._queues = _Routes(), [], {}
        self._log_min = self._log.min
        self._stretch = 0
        self._stretch_bytes = max(_STRETCH_BYTES_MIN, (self._log.end - self._log.min) // _STRETCHES_MAX)
        self._on_disk = None
        on_disk = self._load_files()
        base = min([self._trusted_end(on_disk), *(finding.replay_from for finding in self._findings)])
        base = max(base, self._log.min)
        if base > self._log.min and not all(self._adopt(queue, base) for queue in on_disk.all()):
            base = self._log.min
        if base == self._log.min:
            self._queues.clear()
            for queue in on_disk.all():
                if queue.max_physical <= self._log.min:
                    self._adopt(queue, base)
        self._walked = self._stretch_start = base

    def _adopt(self, on_disk: ConsumeQueue, base: int) -> bool:
        """Take what a queue's files have of records below `base`; False if they do not agree with the log."""
        assert self._queues is not None
        end = on_disk.proven_before(on_disk.max_offset, base)
        low = self._first_in_log(on_disk, end)
        queue = _Queue(on_disk.topic, on_disk.queue_id, on_disk, low, base, end, end, base)
        if low < end:
            first, last = on_disk.peek(low), on_disk.peek(end - 1)
            if first is None or last is None:
                return False
            frame = self._log.frame_at(last[0])
            if frame is None or frame.size != last[1]:
                return False
            if frame.topic != on_disk.topic:
                return MULTI_DISPATCH.encode() in frame.properties
            if (frame.queue_id, frame.queue_offset) != (on_disk.queue_id, end - 1):
                return False
            queue.first_physical, queue.end_physical = first[0], frame.end
        elif end == on_disk.low_offset:
            return True  # All of it lies in the part that is walked.
        self._queues[on_disk.topic, on_disk.queue_id] = queue
        return True

    def _first_in_log(self, on_disk: ConsumeQueue, end: int) -> int:
        """The first queue offset whose record is still in the log."""
        log_min = self._log.min

        def is_there(queue_offset: int) -> bool:
            unit = on_disk.peek(queue_offset)
            return unit is not None and is_valid(unit) and unit[1] != BLANK_SIZE and unit[0] >= log_min

        low = on_disk.low_offset
        return bisect_left(range(low, end), True, key=is_there) + low if low < end else end

    def _units_of_files(self, queue: _Queue, start: int, end: int) -> Units:
        parts = []
        while queue.files is not None and start < end:
            found = queue.files.units(start, end - start)
            if not len(found):
                break
            parts.append(found)
            start += len(found)
        return np.concatenate(parts) if parts else _NO_UNITS

    # -- the log ---------------------------------------------------------------------------------------------

    def _update(self) -> None:
        if self._queues is None or self._log.end < self._walked:
            self._load()
        assert self._queues is not None
        if self._log.min != self._log_min:
            self._drop_expired()
        if self._walked < self._log.end:
            for scanned in scan_segments(self._log.segments, self._walked, self._log.end, files=self._files):
                if isinstance(scanned, Damage):
                    continue
                if int(scanned.rows[0, C_PHYSICAL]) - self._stretch_start >= self._stretch_bytes:
                    self._stretch += 1
                    self._stretch_start = int(scanned.rows[0, C_PHYSICAL])
                self._take(scanned)
            self._walked = self._log.end

    def _take(self, batch: RecordColumns) -> None:
        """Note what a batch has of each queue."""
        slots = self._routes.route(batch)
        self._meet_new_queues()
        rows = np.flatnonzero((slots >= 0) & ((batch.column(C_SYS_FLAG) & PREPARED) == 0))
        rows = rows[np.argsort(slots[rows], kind="stable")]
        if not len(rows):
            return
        breaks = np.flatnonzero(np.diff(slots[rows])) + 1
        for part in np.split(rows, breaks):
            self._extend(self._by_slot[int(slots[part[0]])], batch, part)

    def _extend(self, queue: _Queue, batch: RecordColumns, rows: NDArray[np.intp]) -> None:
        offsets = batch.column(C_QUEUE_OFFSET)[rows]
        restarts = np.flatnonzero(np.diff(offsets) <= 0)
        if len(restarts):
            rows, offsets = rows[restarts[-1] + 1 :], offsets[restarts[-1] + 1 :]
        first, physical = int(offsets[0]), int(batch.rows[rows[0], C_PHYSICAL])
        is_new = queue.next == queue.min == queue.file_end == 0 and not queue.mark_offsets
        if is_new or len(restarts) or first < queue.next:
            # The queue begins, or was deleted and began anew.
            queue.files, queue.file_end, queue.stretch = None, first, -1
            queue.min, queue.first_physical = first, physical
            del queue.mark_offsets[:], queue.mark_physicals[:]
        elif queue.min == queue.next:
            queue.min, queue.first_physical = first, physical
        if queue.stretch != self._stretch:
            queue.mark_offsets.append(first)
            queue.mark_physicals.append(physical)
            queue.stretch = self._stretch
        queue.next = int(offsets[-1]) + 1
        queue.end_physical = int(batch.rows[rows[-1], C_PHYSICAL] + batch.rows[rows[-1], C_SIZE])

    def _meet_new_queues(self) -> None:
        assert self._queues is not None
        for topic, queue_id in self._routes.names[len(self._by_slot) :]:
            queue = self._queues.get((topic, queue_id))
            if queue is None:
                queue = self._queues[topic, queue_id] = _Queue(topic, queue_id)
            self._by_slot.append(queue)

    def _drop_expired(self) -> None:
        """Old log files are gone: their records are no part of any queue."""
        assert self._queues is not None
        self._log_min = log_min = self._log.min
        for queue in self._queues.values():
            if queue.first_physical >= log_min or queue.min == queue.next:
                continue
            if queue.files is not None:
                queue.min = self._first_in_log(queue.files, queue.file_end)
            if queue.files is None or queue.min == queue.file_end:
                self._drop_expired_marks(queue, log_min)
            else:
                unit = queue.files.peek(queue.min)
                queue.first_physical = unit[0] if unit is not None else log_min

    def _drop_expired_marks(self, queue: _Queue, log_min: int) -> None:
        """Only the log knows the units: walk the stretch in which the old ones end."""
        kept = max(bisect_right(queue.mark_physicals, log_min) - 1, 0)
        del queue.mark_offsets[:kept], queue.mark_physicals[:kept]
        queue.min, queue.first_physical = queue.next, max(queue.end_physical, log_min)
        if queue.end_physical <= log_min or not queue.mark_offsets:
            return
        queue.mark_physicals[0] = max(queue.mark_physicals[0], log_min)
        end = queue.mark_physicals[1] + 1 if len(queue.mark_physicals) > 1 else queue.end_physical
        for rows in self._rows_of(queue, queue.mark_physicals[0], end):
            queue.min, queue.first_physical = int(rows[0, C_QUEUE_OFFSET]), int(rows[0, C_PHYSICAL])
            queue.mark_offsets[0], queue.mark_physicals[0] = queue.min, queue.first_physical
            queue.file_end = queue.min
            return

    def _rows_of(self, queue: _Queue, start: int, end: int) -> Iterator[NDArray[np.int64]]:
        """Rows of one queue's records that begin in a range of the log."""
        start = self._log.record_start(start) if start == self._log.min else start
        for scanned in scan_segments(self._log.segments, start, min(end, self._log.end), files=self._files):
            if isinstance(scanned, Damage):
                continue
            slots = self._routes.route(scanned)
            self._meet_new_queues()
            wanted = [self._by_slot[slot] is queue if slot >= 0 else False for slot in range(-1, len(self._by_slot))]
            mine = np.array(wanted, np.bool_)[slots + 1] & ((scanned.column(C_SYS_FLAG) & PREPARED) == 0)
            if mine.any():
                yield scanned.rows[mine]

    def _units_of_log(self, queue: _Queue, start: int, end: int) -> Units:
        """Units from the log; a hole is filled with copies of the unit behind it, as in queue files."""
        first = max(bisect_right(queue.mark_offsets, start) - 1, 0)
        last = bisect_left(queue.mark_offsets, end)
        log_end = queue.mark_physicals[last] if last < len(queue.mark_physicals) else queue.end_physical
        units: Units = np.zeros(end - start, ENTRY_DTYPE)
        for rows in self._rows_of(queue, queue.mark_physicals[first], log_end):
            offsets = rows[:, C_QUEUE_OFFSET]
            rows = rows[(offsets >= start) & (offsets < end)]
            places = rows[:, C_QUEUE_OFFSET] - start
            units["physical_offset"][places] = rows[:, C_PHYSICAL]
            units["size"][places] = rows[:, C_SIZE]
            units["tag_code"][places] = rows[:, C_TAG_CODE]
        return _with_holes_filled(units)


def _with_holes_filled(units: Units) -> Units:
    there = np.flatnonzero(units["size"] > 0)
    if len(there) in (0, len(units)):
        return units[: len(there)]
    return units[there[np.searchsorted(there, np.arange(there[-1] + 1))]]


class _Routes:
    """Topic and queue id of records -> a number, in order of appearance."""

    def __init__(self) -> None:
        self.names: list[tuple[str, int]] = []
        self._slots: dict[tuple[bytes, int], int] = {}
        self._by_name: dict[tuple[str, int], int] = {}
        self._table: QueueTable | None = None
        self._table_slots: list[int] = []

    def route(self, batch: RecordColumns) -> NDArray[np.int64]:
        """The number of each row. The kernel needs numba, which is slow to load: only when it pays."""
        if self._table is None and (len(batch) >= _KERNEL_ROWS or kernels.is_loaded("derive")):
            self._table = kernels.load("derive").QueueTable()
            for topic, queue_id in self._slots:
                self._table_slots.append(self._slots[topic, queue_id])
                self._table.add(topic, queue_id)
        if self._table is None:
            return np.array([self._slot(batch, i) for i in range(len(batch))], np.int64)
        found = self._table.route(batch)
        if (found < 0).any():
            for i in np.flatnonzero(found < 0).tolist():
                self._slot(batch, i)
            found = self._table.route(batch)
        return np.array(self._table_slots, np.int64)[found]

    def _slot(self, batch: RecordColumns, i: int) -> int:
        row = batch.rows[i]
        at, queue_id = int(row[C_TOPIC_AT]), int(row[C_QUEUE_ID])
        topic = batch.data[at : at + int(row[C_TOPIC_LEN])].tobytes()
        slot = self._slots.get((topic, queue_id))
        if slot is None:
            name = topic.decode("utf-8", "replace"), queue_id
            slot = self._by_name.setdefault(name, len(self.names))
            if slot == len(self.names):
                self.names.append(name)
            self._slots[topic, queue_id] = slot
            if self._table is not None:
                self._table_slots.append(slot)
                self._table.add(topic, queue_id)
        return slot
