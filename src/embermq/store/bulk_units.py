"""Queue units of a stretch of the log, written to their final places: a record says itself where its unit belongs.

Whoever writes them needs to know nothing of the rest of the log. A queue whose offsets do not run on, in one stretch
or from one to the next, is irregular (damage, holes, repeats): its units here do not count. Any process; others may
write other places of the same files at the same time.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embermq import kernels
from embermq.format.columns import (
    C_PHYSICAL,
    C_QUEUE_ID,
    C_QUEUE_OFFSET,
    C_SIZE,
    C_SYS_FLAG,
    C_TAG_CODE,
    RecordColumns,
)
from embermq.format.names import segment_name
from embermq.format.queue_entry import ENTRY_BYTES, ENTRY_DTYPE
from embermq.model.flags import PREPARED
from embermq.store.consume_queue import BLANK
from embermq.store.queue_table import is_directory_name
from embermq.store.unit_intake import RECORD_BYTES_MIN


@dataclass(frozen=True, slots=True)
class QueueRun:
    """The units one slice has of a queue: offsets [start, end), `is_regular` if each was there once, in order."""

    topic: bytes  # as records have it; the directory is named by the text it makes
    queue_id: int
    start: int
    end: int
    is_regular: bool

    @property
    def names(self) -> tuple[str, int]:
        """Of its directories."""
        return self.topic.decode("utf-8", "replace"), self.queue_id


class SliceUnits:
    """Collects the units of a slice, and writes them queue by queue."""

    def __init__(self, deleted: Mapping[str, int]) -> None:
        """`deleted`: topics that were deleted, and where the log ended then; records before that have no units."""
        self._table = kernels.load("derive").QueueTable()
        self._deleted = deleted
        self._queues: list[tuple[bytes, int]] = []
        self._parts: list[NDArray[np.int64]] = []

    def take(self, batch: RecordColumns) -> None:
        slots = self._table.route(batch)
        while (slots < 0).any():
            first = int(np.argmax(slots < 0))
            self._queues.append((batch.topic_bytes(first), int(batch.rows[first, C_QUEUE_ID])))
            self._table.add(*self._queues[-1])
            slots = self._table.route(batch)
        rows = batch.rows
        has_unit = (rows[:, C_SYS_FLAG] & PREPARED) == 0  # Rolled back ones have this bit too.
        if self._deleted:
            begun = [self._deleted.get(topic.decode("utf-8", "replace"), 0) for topic, _ in self._queues]
            has_unit &= rows[:, C_PHYSICAL] >= np.array(begun, np.int64)[slots]
        if not has_unit.all():
            rows, slots = rows[has_unit], slots[has_unit]
        part = np.empty((5, len(rows)), np.int64)
        part[0] = slots
        for number, column in enumerate((C_QUEUE_OFFSET, C_PHYSICAL, C_SIZE, C_TAG_CODE), 1):
            part[number] = rows[:, column]
        self._parts.append(part)

    def write(self, root: Path, file_bytes: int) -> Iterator[QueueRun]:
        """Put them into the queue files below `root`; answers what there was of each queue."""
        if not self._parts:
            return
        slots, offsets, *rest = np.concatenate(self._parts, axis=1)
        self._parts.clear()
        order = np.argsort(slots.astype(np.int32), kind="stable")
        borders = [0, *(np.flatnonzero(np.diff(slots[order])) + 1).tolist(), len(order)]
        for start, end in pairwise(borders):
            if start == end:
                continue
            rows = order[start:end]
            topic, queue_id = self._queues[int(slots[rows[0]])]
            mine = offsets[rows]
            first, first_physical = int(mine[0]), int(rest[0][rows[0]])
            possible = 0 <= first <= first_physical // RECORD_BYTES_MIN
            regular = possible and bool((np.diff(mine) == 1).all())
            run = QueueRun(topic, queue_id, int(mine.min()), int(mine.max()) + 1, regular)
            if not is_directory_name(run.names[0]):
                continue
            if regular:
                units = np.empty(len(rows), ENTRY_DTYPE)
                for field_name, column in zip(ENTRY_DTYPE.names or (), rest, strict=True):
                    units[field_name] = column[rows]
                write_units(queue_directory(root, run), first, units, file_bytes)
            yield run


def queue_directory(root: Path, run: QueueRun) -> Path:
    return root / run.names[0] / str(run.queue_id)


def write_units(directory: Path, first: int, units: NDArray[np.void], file_bytes: int) -> None:
    """Put units at their places, in as many files as they reach into; files have their full size from the start."""
    directory.mkdir(parents=True, exist_ok=True)
    per_file = file_bytes // ENTRY_BYTES
    data = units.view(np.uint8).data
    at, end = first, first + len(units)
    while at < end:
        file_start = at - at % per_file
        until = min(end, file_start + per_file)
        path = directory / segment_name(file_start * ENTRY_BYTES)
        _pwrite(path, file_bytes, (at - file_start) * ENTRY_BYTES, data[: (until - at) * ENTRY_BYTES])
        data = data[(until - at) * ENTRY_BYTES :]
        at = until


def _pwrite(path: Path, size: int, at: int, data: memoryview) -> None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(handle, size)
        while data:
            written = os.pwrite(handle, data, at)
            data, at = data[written:], at + written
    except OSError as problem:
        problem.filename = str(path)
        raise
    finally:
        os.close(handle)


def blank_before(directory: Path, first: int, file_bytes: int) -> None:
    """A queue that does not begin where a file does begins with blanks there."""
    count = first % (file_bytes // ENTRY_BYTES)
    if count:
        blanks = np.empty(count, ENTRY_DTYPE)
        blanks[:] = BLANK
        write_units(directory, first - count, blanks, file_bytes)
