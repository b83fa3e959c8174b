"""Reading records by the entries of their queues.

An entry is believed only when the record at its place has the entry's size, topic, queue and offset. Where it does not,
the record is looked for in the log between those of its neighbours, as entries of one queue ascend; what is found there
is read, what is damaged there is damage like any other. Entries that the files do not have yet are found the same way.
In tasks only.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from embermq.columns import C_QUEUE_ID, C_QUEUE_OFFSET, QueueSlots, RecordColumns
from embermq.files import RealFiles
from embermq.format.frame import FIXED_BYTES, Frame
from embermq.inspect import even_edges
from embermq.spark.planning.plan import ENTRY_BYTES, QueueCut
from embermq.spark.planning.size_samples import can_match, tag_codes
from embermq.spark.reading.known_places import Candidates, Picker
from embermq.spark.reading.queue_files import QueueEntryFiles
from embermq.spark.reading.slice_rows import SliceReader, chooser
from embermq.store.log import MISSING, DamagedRange, LogSegment, frame_at, segment_at

STEP_ENTRIES = 1 << 17  # entries held at a time, over all queues of a slice
_NEIGHBOURS = 64  # so many entries before and behind a step are tried, before the whole queue's range is searched

Ranges = Sequence[tuple[int, int]]  # queue offsets, one range for each part


class QueueReader:
    """The wanted records of one slice of some queues."""

    def __init__(self, reader: SliceReader, cut: QueueCut) -> None:
        self._reader, self._parts = reader, cut.parts
        slice_ = reader.slice
        self._queues = [QueueEntryFiles(slice_.store, part.topic, part.queue_id) for part in cut.parts]
        self._queue_ids = np.array([part.queue_id for part in cut.parts], np.int64)
        self._first = np.array([part.first_physical for part in cut.parts], np.int64)
        self._end = np.array([part.end_physical for part in cut.parts], np.int64)
        self._slots = QueueSlots(exact=True)
        for part in cut.parts:  # They are different queues: the slot is the part's number.
            self._slots.add_spelled(part.topic.encode(), part.queue_id)
        tags = slice_.selection.tags
        self._codes = None if tags is None else tag_codes(tags)
        self._entries = sum(part.end - part.start for part in cut.parts)
        self._choose = chooser(slice_.selection, self._entries * 1024)

    def read(self) -> Iterator[pa.RecordBatch]:
        steps = max(1, -(-self._entries // STEP_ENTRIES))
        edges = [even_edges(part.start, part.end, steps) for part in self._parts]
        for k in range(steps):
            yield from self._read_step([(at[k], at[k + 1]) for at in edges])

    def _read_step(self, ranges: Ranges) -> Iterator[pa.RecordBatch]:
        usable, unusable = self._candidates(ranges)
        lost, good = [unusable], []
        for picked in Picker(self._reader).pick(usable):
            here, records, found = picked.candidates, picked.records, picked.found
            if records is None:
                gone = DamagedRange(int(here.place[0]), int(here.place[-1] + here.size[-1]), MISSING)
                yield from self._reader.troubles.meet(gone)
                continue
            right = self._are_right(records, here.take(found))
            good.append(here.take(found[right]))
            lost.append(here.take(np.delete(np.arange(len(here)), found[right])))
            chosen = self._choose(records)
            yield from self._reader.batches(records, np.flatnonzero(right) if chosen is None else chosen[right[chosen]])
        missing = Candidates.joined(lost)
        if len(missing):
            yield from self._search(missing, Candidates.joined(good), ranges)

    def _candidates(self, ranges: Ranges) -> tuple[Candidates, Candidates]:
        """What the entries of some offsets say: places worth a look, in log order, and entries of no use."""
        found = []
        for number, (queue, (start, end)) in enumerate(zip(self._queues, ranges, strict=True)):
            entries = queue.entries(start, end)
            self._reader.counts.bytes_read += ENTRY_BYTES * len(entries)
            offset = np.arange(start, end, dtype=np.int64)
            if self._codes is not None:
                rows = np.flatnonzero((entries["size"] <= 0) | can_match(entries["tag_code"], self._codes))
                entries, offset = entries[rows], offset[rows]
            place, size = entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int64)
            found.append(Candidates(place, size, np.full(len(place), number, np.int64), offset))
        every = Candidates.joined(found)
        in_log = (every.place >= self._first[every.part]) & (every.place < self._end[every.part])
        is_usable = in_log & (every.size >= FIXED_BYTES)
        usable = every.take(np.flatnonzero(is_usable))
        return usable.take(np.argsort(usable.place, kind="stable")), every.take(np.flatnonzero(~is_usable))

    def _are_right(self, records: RecordColumns, here: Candidates) -> NDArray[np.bool_]:
        """Is each record the one its entry stands for?"""
        right: NDArray[np.bool_] = records.column(C_QUEUE_ID) == self._queue_ids[here.part]
        right &= records.column(C_QUEUE_OFFSET) == here.offset
        right &= self._slots.find_rows(records) == here.part
        return right

    # -- entries that do not lead to their record --------------------------------------------------------------

    def _search(self, lost: Candidates, good: Candidates, ranges: Ranges) -> Iterator[pa.RecordBatch]:
        """Look for lost records where they must be: between their neighbours in the queue."""
        wanted = {
            (self._parts[part].topic, self._parts[part].queue_id, offset)
            for part, offset in zip(lost.part.tolist(), lost.offset.tolist(), strict=True)
        }
        for start, end in merged(self._between(lost, good, ranges)):
            for scanned in self._reader.scan(start, end):
                if isinstance(scanned, DamagedRange):
                    yield from self._reader.troubles.meet(scanned)
                    continue
                chosen = self._choose(scanned)
                rows = range(len(scanned)) if chosen is None else chosen.tolist()
                keep = [i for i in rows if _name(scanned, i) in wanted]
                yield from self._reader.batches(scanned, np.array(keep, np.int64))

    def _between(self, lost: Candidates, good: Candidates, ranges: Ranges) -> Iterator[tuple[int, int]]:
        """Ranges of the log that hold the lost records, if there are any."""
        for number in np.unique(lost.part).tolist():
            mine = np.flatnonzero(good.part == number)
            known = good.take(mine[np.argsort(good.offset[mine])])
            gaps = np.unique(np.searchsorted(known.offset, lost.offset[lost.part == number]))
            for gap in gaps.tolist():
                low = int(known.place[gap - 1] + known.size[gap - 1]) if gap else None
                high = int(known.place[gap]) if gap < len(known) else None
                start, end = ranges[number]
                yield (
                    self._end_before(number, start) if low is None else low,
                    self._start_after(number, end) if high is None else high,
                )

    def _end_before(self, number: int, offset: int) -> int:
        """Where the record before a queue offset ends, or the queue's records begin."""
        frame = self._first_right(number, range(offset - 1, max(-1, offset - 1 - _NEIGHBOURS), -1))
        return self._parts[number].first_physical if frame is None else frame.end

    def _start_after(self, number: int, offset: int) -> int:
        """Where the record of a queue offset or the next one begins, or the queue's records end."""
        frame = self._first_right(number, range(offset, offset + _NEIGHBOURS))
        return self._parts[number].end_physical if frame is None else frame.physical_offset

    def _first_right(self, number: int, offsets: Iterable[int]) -> Frame | None:
        """The record of the first of some entries, outside this step, that leads to its own."""
        part, queue = self._parts[number], self._queues[number]
        for offset in offsets:
            entry = queue.entries(offset, offset + 1)
            frame = _frame(self._reader.slice.segments, int(entry["physical_offset"][0]), int(entry["size"][0]))
            if frame and (frame.topic, frame.queue_id, frame.queue_offset) == (part.topic, part.queue_id, offset):
                return frame
        return None


def _name(records: RecordColumns, i: int) -> tuple[str, int, int]:
    return records.topic(i), int(records.rows[i, C_QUEUE_ID]), int(records.rows[i, C_QUEUE_OFFSET])


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, those that overlap or touch made one; empty ones left out."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif start < end:
            merged.append((start, end))
    return merged


def _frame(segments: Sequence[LogSegment], physical_offset: int, size: int) -> Frame | None:
    """The record at a place, if it is whole and of this size."""
    segment = segment_at(segments, physical_offset)
    if segment is None:
        return None
    try:
        file = RealFiles().open(segment.path, False)
    except FileNotFoundError:
        return None
    try:
        frame = frame_at(file, segment, physical_offset)
    finally:
        file.close()
    return frame if frame is not None and frame.size == size else None
