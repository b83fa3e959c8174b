"""Queues and index of a whole log in parallel: what each piece of work does, and how the pieces come together.

    derive_slice    any slice of the log: units go to their final places in the queue files (a record says itself where
                    its unit belongs), keys go to a file of their own, a summary comes back
    join_slices     looks at all summaries: a queue whose offsets run on without gap or repeat is finished; others
                    are irregular (damage, holes, repeats)
    derive_queues   irregular queues, by the sinks that the live dispatcher feeds, in log order
    build_index     one index file from the keys of the slices, in log order; a full file is followed by the next

The pieces may run in different processes and machines that see the same directory; nothing is shuffled between them.
All of it lies below one target directory that nobody else uses, so a piece may be done again. The result is byte for
byte what the live dispatcher writes.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embermq import kernels
from embermq.clock import Clock, SystemClock
from embermq.files.files import Files, RealFiles
from embermq.format.columns import (
    C_PHYSICAL,
    C_QUEUE_ID,
    C_QUEUE_OFFSET,
    C_SIZE,
    C_SYS_FLAG,
    C_TAG_CODE,
    RecordColumns,
)
from embermq.format.index import HEADER_BYTES, IndexHeader, encode_header, index_file_bytes
from embermq.format.names import segment_name
from embermq.format.queue_entry import ENTRY_BYTES, ENTRY_DTYPE
from embermq.model.flags import PREPARED, ROLLBACK, TRANSACTION_MASK
from embermq.store.consume_queue import BLANK
from embermq.store.consume_queues import ConsumeQueues
from embermq.store.directory import CONSUME_QUEUE, INDEX
from embermq.store.queue_table import is_directory_name
from embermq.store.survey_scan import Damage, LogSegment, scan_segments
from embermq.store.unit_intake import RECORD_BYTES_MIN

KEYS = "keys"
KEY_ROW_BYTES = 24


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the files to be made."""

    queue_file_bytes: int
    index_slots_max: int
    index_entries_max: int

    @property
    def units_per_file(self) -> int:
        return self.queue_file_bytes // ENTRY_BYTES


@dataclass(frozen=True, slots=True)
class QueueRun:
    """The units one slice has of a queue: offsets [start, end), `is_regular` if each was there once, in order."""

    topic: bytes  # as records have it; the directory is named by the text it makes
    queue_id: int
    start: int
    end: int
    is_regular: bool


@dataclass(frozen=True, slots=True)
class SliceSummary:
    """What became of one slice."""

    number: int
    start: int
    end: int
    records: int
    keys: int
    runs: tuple[QueueRun, ...]
    damages: tuple[Damage, ...]


@dataclass(slots=True)
class Joined:
    """All slices together."""

    records: int = 0
    units: int = 0
    keys: int = 0
    queues: int = 0
    irregular: list[tuple[bytes, int]] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)


def keys_path(target: Path, number: int) -> Path:
    return target / KEYS / f"{number:08d}"


# -- one slice ---------------------------------------------------------------------------------------------------


class _Units:
    """Collects the units of a slice, and writes them queue by queue."""

    def __init__(self) -> None:
        self._table = kernels.load("derive").QueueTable()
        self._queues: list[tuple[bytes, int]] = []
        self._parts: list[NDArray[np.int64]] = []

    def take(self, batch: RecordColumns) -> None:
        slots = self._table.route(batch)
        while (slots < 0).any():
            first = int(np.argmax(slots < 0))
            self._queues.append((batch.topic_bytes(first), int(batch.rows[first, C_QUEUE_ID])))
            self._table.add(*self._queues[-1])
            slots = self._table.route(batch)
        kind = batch.column(C_SYS_FLAG) & TRANSACTION_MASK
        wanted = np.flatnonzero((kind != PREPARED) & (kind != ROLLBACK))
        part = np.empty((5, len(wanted)), np.int64)
        part[0] = slots[wanted]
        for row, column in enumerate((C_QUEUE_OFFSET, C_PHYSICAL, C_SIZE, C_TAG_CODE), 1):
            part[row] = batch.rows[wanted, column]
        self._parts.append(part)

    def write(self, root: Path, shape: Shape) -> Iterator[QueueRun]:
        if not self._parts:
            return
        slots, offsets, *rest = np.concatenate(self._parts, axis=1)
        order = np.argsort(slots.astype(np.int32), kind="stable")
        borders = [0, *(np.flatnonzero(np.diff(slots[order])) + 1).tolist(), len(order)]
        for start, end in pairwise(borders):
            if start == end:
                continue
            rows = order[start:end]
            topic, queue_id = self._queues[int(slots[rows[0]])]
            if not is_directory_name(_text(topic)):
                continue
            first, first_physical = int(offsets[rows[0]]), int(rest[0][rows[0]])
            possible = 0 <= first <= first_physical // RECORD_BYTES_MIN
            regular = possible and bool((np.diff(offsets[rows]) == 1).all())
            if regular:
                units = np.empty(len(rows), ENTRY_DTYPE)
                for field_name, column in zip(ENTRY_DTYPE.names or (), rest, strict=True):
                    units[field_name] = column[rows]
                write_units(_directory(root, topic, queue_id), first, units, shape)
            yield QueueRun(topic, queue_id, int(offsets[rows].min()), int(offsets[rows].max()) + 1, regular)


def _text(topic: bytes) -> str:
    return topic.decode("utf-8", "replace")


def _directory(root: Path, topic: bytes, queue_id: int) -> Path:
    return root / _text(topic) / str(queue_id)


def derive_slice(
    segments: Sequence[LogSegment], number: int, start: int, end: int, target: Path, shape: Shape, *,
    queues: bool = True, index: bool = True, check_crc: bool = False,
) -> SliceSummary:  # fmt: skip
    """Derive what the records that begin in [start, end) are in need of; `start` is where a record begins."""
    kernels.load("scan")
    units, key_parts = _Units(), []
    records, damages = 0, []
    for item in scan_segments(segments, start, end, check_crc=check_crc, rows_max=4096):
        if isinstance(item, Damage):
            damages.append(item)
            continue
        records += len(item)
        if queues:
            units.take(item)
        if index:
            key_parts.append(kernels.load("derive").index_keys(item))
    keys = np.concatenate(key_parts) if key_parts else np.empty((0, 3), np.int64)
    if len(keys):
        path = keys_path(target, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(keys.tobytes())
    runs = tuple(units.write(target / CONSUME_QUEUE, shape))
    return SliceSummary(number, start, end, records, len(keys), runs, tuple(damages))


def write_units(directory: Path, first: int, units: NDArray[np.void], shape: Shape) -> None:
    """Put units at their places, in as many files as they reach into; files have their full size from the start."""
    directory.mkdir(parents=True, exist_ok=True)
    data = memoryview(units.tobytes())
    at, end = first, first + len(units)
    while at < end:
        file_start = at - at % shape.units_per_file
        until = min(end, file_start + shape.units_per_file)
        path = directory / segment_name(file_start * ENTRY_BYTES)
        _pwrite(path, shape.queue_file_bytes, (at - file_start) * ENTRY_BYTES, data[: (until - at) * ENTRY_BYTES])
        data = data[(until - at) * ENTRY_BYTES :]
        at = until


def _pwrite(path: Path, size: int, at: int, data: memoryview) -> None:
    """Others may write other places of the same file at the same time."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(handle, size)
        while data:
            written = os.pwrite(handle, data, at)
            data, at = data[written:], at + written
    finally:
        os.close(handle)


# -- all slices --------------------------------------------------------------------------------------------------


def join_slices(summaries: Iterable[SliceSummary], target: Path, shape: Shape) -> Joined:
    """Find out which queues are finished, and fill what lies before their first unit. Summaries in log order."""
    joined = Joined()
    runs: dict[tuple[str, int], list[QueueRun]] = {}  # by the names of directories
    for summary in summaries:
        joined.records += summary.records
        joined.keys += summary.keys
        joined.damages += summary.damages
        for run in summary.runs:
            runs.setdefault((_text(run.topic), run.queue_id), []).append(run)
    joined.queues = len(runs)
    for _, found in sorted(runs.items()):
        joined.units += sum(run.end - run.start for run in found)
        first = found[0]
        runs_on = all(before.end == after.start for before, after in pairwise(found))
        names = {(run.topic, run.queue_id) for run in found}
        if runs_on and len(names) == 1 and all(run.is_regular for run in found):
            _blank_before(_directory(target / CONSUME_QUEUE, first.topic, first.queue_id), first.start, shape)
        else:
            joined.irregular += sorted(names)
    return joined


def _blank_before(directory: Path, first: int, shape: Shape) -> None:
    """A queue that does not begin where a file does begins with blanks there."""
    count = first % shape.units_per_file
    if count:
        blanks = np.empty(count, ENTRY_DTYPE)
        blanks[:] = BLANK
        write_units(directory, first - count, blanks, shape)


def derive_queues(
    segments: Sequence[LogSegment], start: int, end: int, target: Path, shape: Shape,
    wanted: Sequence[tuple[bytes, int]], *, files: Files | None = None, clock: Clock | None = None,
) -> None:  # fmt: skip
    """Derive these queues again by the dispatcher's own rules, from the whole log."""
    disk = files or RealFiles()
    root = target / CONSUME_QUEUE
    table = kernels.load("derive").QueueTable()
    for topic, queue_id in wanted:
        _remove_files(_directory(root, topic, queue_id))
        table.add(topic, queue_id)
    queues = ConsumeQueues(root, disk, shape.queue_file_bytes, clock or SystemClock(), log_min=lambda: start)
    for item in scan_segments(segments, start, end, check_crc=False):
        if isinstance(item, RecordColumns):
            rows = item.rows[table.route(item) >= 0]
            if len(rows):
                queues.take(RecordColumns(item.data, item.base, rows), int(rows[-1, C_PHYSICAL] + rows[-1, C_SIZE]))
    queues.close()


def _remove_files(directory: Path) -> None:
    if directory.is_dir():
        for path in directory.iterdir():
            path.unlink()


# -- the index ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IndexPart:
    """One index file: the keys numbered [start, end) of the whole log."""

    number: int
    start: int
    end: int


def index_parts(keys: int, shape: Shape) -> list[IndexPart]:
    """Which keys go into which file: a file holds one key less than it has entries."""
    room = shape.index_entries_max - 1
    return [IndexPart(number, at, min(at + room, keys)) for number, at in enumerate(range(0, keys, room))]


def build_index(part: IndexPart, counts: Sequence[int], target: Path, shape: Shape, name: str) -> None:
    """Make one index file of the keys that slices left; `counts` are their numbers of keys."""
    path = target / INDEX / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # of an attempt that did not come to its end
    file = RealFiles().create(path, index_file_bytes(shape.index_slots_max, shape.index_entries_max), fallocate=True)
    try:
        view = file.map(True)
        if part.start:
            _, physical_offset, store_time = _keys(target, counts, part.start - 1, part.start)[0].tolist()
            carried = IndexHeader(store_time, store_time, physical_offset, physical_offset, 0, 0)
            view[:HEADER_BYTES] = encode_header(carried)
        keys = _keys(target, counts, part.start, part.end)
        data = np.frombuffer(view, np.uint8)
        put = kernels.load("derive").index_put_keys(data, shape.index_slots_max, shape.index_entries_max, keys, 0)
        assert put == len(keys), (put, len(keys))
        file.sync()
    finally:
        file.close()


def _keys(target: Path, counts: Sequence[int], start: int, end: int) -> NDArray[np.int64]:
    """Keys [start, end) of the whole log, from the files of the slices that have them."""
    parts, first = [], 0
    for number, count in enumerate(counts):
        low, high = max(start - first, 0), min(end - first, count)
        if low < high:
            found = np.fromfile(keys_path(target, number), np.int64, 3 * (high - low), offset=KEY_ROW_BYTES * low)
            parts.append(found.reshape(-1, 3))
        first += count
    return np.concatenate(parts)
