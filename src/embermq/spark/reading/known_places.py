"""Reading records whose places are known, from queue entries or from the index, without passing what lies between.

Log files are mapped a stretch at a time, so that a worker's memory does not grow with the log. In tasks only.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from embermq.columns import ANY_SIZE, RecordColumns, new_rows, pick_for
from embermq.files import OpenFile, RealFiles
from embermq.spark.planning.plan import PlacesCut
from embermq.spark.reading.slice_rows import Keep, SliceReader, chooser
from embermq.store.log import MISSING, DamagedRange, LogSegment, segment_at

_STRETCH_BYTES = 64 << 20

Numbers = NDArray[np.int64]
NO_NUMBERS: Numbers = np.zeros(0, np.int64)  # also: no delay levels, as codes of parked records do not matter here


@dataclass(frozen=True, slots=True)
class Candidates:
    """Places to look at, ascending. `part` and `offset` say which entry each comes from."""

    place: Numbers
    size: Numbers
    part: Numbers
    offset: Numbers

    def __len__(self) -> int:
        return len(self.place)

    def take(self, rows: Numbers) -> "Candidates":
        return Candidates(self.place[rows], self.size[rows], self.part[rows], self.offset[rows])

    def range(self, start: int, end: int) -> "Candidates":
        return Candidates(self.place[start:end], self.size[start:end], self.part[start:end], self.offset[start:end])

    @staticmethod
    def joined(parts: "Sequence[Candidates]") -> "Candidates":
        columns = [
            [one.place for one in parts],
            [one.size for one in parts],
            [one.part for one in parts],
            [one.offset for one in parts],
        ]
        return Candidates(*(np.concatenate([NO_NUMBERS, *column]) for column in columns))


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """Some candidates and their records: record i belongs to candidate `found[i]`. No records: their file is gone."""

    candidates: Candidates
    records: RecordColumns | None
    found: Numbers


class Picker:
    """Records at ascending places, as columns, a stretch of one file at a time."""

    def __init__(self, reader: SliceReader) -> None:
        self._reader, self._segments = reader, reader.slice.segments
        self._rows = new_rows(reader.rows_max)
        self._files = RealFiles()

    def pick(self, wanted: Candidates) -> Iterator[FoundRecords]:
        """All candidates, in order. Columns are valid until the next step."""
        at = 0
        while at < len(wanted):
            segment = segment_at(self._segments, int(wanted.place[at]))
            end = at + 1 if segment is None else int(np.searchsorted(wanted.place, segment.end))
            here = wanted.range(at, end)
            at = end
            file = self._opened(segment)
            if segment is None or file is None:
                yield FoundRecords(here, None, NO_NUMBERS)
                continue
            try:
                yield from self._pick_from(file, segment, here)
            finally:
                file.close()

    def _opened(self, segment: LogSegment | None) -> OpenFile | None:
        try:
            return None if segment is None else self._files.open(segment.path, False)
        except FileNotFoundError:
            return None

    def _pick_from(self, file: OpenFile, segment: LogSegment, wanted: Candidates) -> Iterator[FoundRecords]:
        at, size = 0, min(segment.size, file.size)
        pick = pick_for(len(wanted))
        while at < len(wanted):
            stretch = int(np.searchsorted(wanted.place, wanted.place[at] + _STRETCH_BYTES))
            end = min(max(stretch, at + 1), at + len(self._rows))
            here = wanted.range(at, end)
            # A map of its own for each stretch: what was touched before is given back with the old one.
            data = np.frombuffer(file.map(False, size), np.uint8)
            verify = self._reader.slice.reading.verify_crc
            found = pick(data, segment.start, here.place, here.size, self._rows, NO_NUMBERS, verify)
            records = RecordColumns(data, segment.start, self._rows[: len(found)])
            self._reader.count(records)
            yield FoundRecords(here, records, found)
            at = end


def read_places(reader: SliceReader, cut: PlacesCut) -> Iterator[pa.RecordBatch]:
    """Records by places from the index: those that are meant, and some with the same hash."""
    place = np.array(cut.places, np.int64)
    size, none = np.full(len(place), ANY_SIZE, np.int64), np.zeros(len(place), np.int64)
    choose = chooser(reader.slice.selection, len(place) * 1024)
    if not isinstance(reader.slice.files, RealFiles):
        yield from _read_far_places(reader, cut, choose)
        return
    for picked in Picker(reader).pick(Candidates(place, size, none, none)):
        if picked.records is None:
            start, end = int(picked.candidates.place[0]), int(picked.candidates.place[-1]) + 1
            yield from reader.troubles.meet(DamagedRange(start, end, MISSING))
            continue
        yield from reader.batches(picked.records, choose(picked.records))
        for at in np.delete(picked.candidates.place, picked.found).tolist():
            yield from _damage_at(reader, at)


def _read_far_places(
    reader: SliceReader, cut: PlacesCut, choose: Callable[[RecordColumns], Keep | None]
) -> Iterator[pa.RecordBatch]:
    """Where log files cannot be mapped: one record at a time."""
    for at in cut.places:
        for scanned in reader.scan(at, at + 1):
            if isinstance(scanned, DamagedRange):
                yield from reader.troubles.meet(scanned)
            else:
                yield from reader.batches(scanned, choose(scanned))


def _damage_at(reader: SliceReader, physical_offset: int) -> Iterator[pa.RecordBatch]:
    """No record where the index has one: how far does that go?"""
    for scanned in reader.scan(physical_offset, physical_offset + 1):
        if isinstance(scanned, DamagedRange):
            yield from reader.troubles.meet(scanned)
