"""Queue entries of a stretch of the log, written to their final places: a record says itself where its entry belongs.

Writing them needs nothing of the rest of the log. A queue whose offsets do not run on, in one stretch or from one to
the next, is irregular (damage, holes, repeats): its entries here do not count. Of the others the checksum is taken
before they are written, and `entries_fault` compares it with what lies on the disk. Any process; others may write other
places of the same files at the same time.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embermq.columns import (
    C_PHYSICAL,
    C_QUEUE_OFFSET,
    C_SIZE,
    C_SYS_FLAG,
    C_TAG_CODE,
    QueueSlots,
    RecordColumns,
)
from embermq.format.names import segment_name
from embermq.format.queue_entry import ENTRY_BYTES, ENTRY_DTYPE
from embermq.model.flags import PREPARED
from embermq.repair.rebuild.bulk_checksums import added, entry_terms
from embermq.store.queues import BLANK, RECORD_BYTES_MIN, is_directory_name

_ENTRIES_AT_ONCE = 1 << 16
_NARROW_MAX = 1 << 15  # So many queues have numbers that are sorted in one go over them.


@dataclass(frozen=True, slots=True)
class QueueRun:
    """Entries of a queue that one slice has, or several in a row: offsets [start, end), `is_regular` if each was there
    once, in order."""

    topic: bytes  # as records have it; the directory is named by the text it makes
    queue_id: int
    start: int
    end: int
    is_regular: bool
    physical_end: int  # where its last record ends
    checksum: int  # of its entries, by bulk_checksums.py; of no use if it is irregular

    @property
    def names(self) -> tuple[str, int]:
        """Of its directories."""
        return self.topic.decode("utf-8", "replace"), self.queue_id

    def then(self, after: "QueueRun") -> "QueueRun":
        """This one and what follows it in the log, of the same queue."""
        return QueueRun(
            self.topic,
            self.queue_id,
            min(self.start, after.start),
            max(self.end, after.end),
            self.is_regular and after.is_regular and (self.topic, self.end) == (after.topic, after.start),
            after.physical_end,
            added((self.checksum, after.checksum)),
        )


class SliceEntries:
    """Collects the entries of a slice, and writes them queue by queue."""

    def __init__(self, deleted: Mapping[str, int]) -> None:
        """`deleted`: topics that were deleted, and where the log ended then; records before that have no entries."""
        self._slots = QueueSlots(exact=True)  # What a name that is spelled in two ways has is irregular.
        self._deleted = deleted
        self._parts: list[NDArray[np.int64]] = []
        self.runs: dict[tuple[bytes, int], QueueRun] = {}  # of what was written

    def take(self, batch: RecordColumns) -> None:
        slots = self._slots.route(batch)
        rows = batch.rows
        has_entry = (rows[:, C_SYS_FLAG] & PREPARED) == 0  # Rolled back ones have this bit too.
        if self._deleted:
            begun = [self._deleted.get(topic, 0) for topic, _ in self._slots.names]
            has_entry &= rows[:, C_PHYSICAL] >= np.array(begun, np.int64)[slots]
        if not has_entry.all():
            rows, slots = rows[has_entry], slots[has_entry]
        part = np.empty((5, len(rows)), np.int64)
        part[0] = slots
        for number, column in enumerate((C_QUEUE_OFFSET, C_PHYSICAL, C_SIZE, C_TAG_CODE), 1):
            part[number] = rows[:, column]
        self._parts.append(part)

    def write(self, root: Path, file_bytes: int) -> None:
        """Put what was taken into the queue files below `root`, and let go of it."""
        if not self._parts:
            return
        slots, *columns = np.concatenate(self._parts, axis=1)
        self._parts.clear()
        queues = self._slots.spellings()
        narrow = np.int16 if len(queues) <= _NARROW_MAX else np.int32
        order = np.argsort(slots.astype(narrow), kind="stable")
        slots = slots[order]
        offsets, *rest = (column[order] for column in columns)
        entries = np.empty(len(order), ENTRY_DTYPE)
        for name, column in zip(ENTRY_DTYPE.names or (), rest, strict=True):
            entries[name] = column
        terms = entry_terms(offsets, *rest)
        for start, end in pairwise([0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(order)]):
            if start == end:
                continue
            mine = slice(start, end)
            run = self._run(queues[int(slots[start])], offsets[mine], entries[mine], int(terms[mine].sum()))
            if not is_directory_name(run.names[0]):
                continue
            if run.is_regular:
                write_entries(queue_directory(root, run), run.start, entries[mine], file_bytes)
            queue = run.topic, run.queue_id
            self.runs[queue] = self.runs[queue].then(run) if queue in self.runs else run

    def _run(
        self, queue: tuple[bytes, int], offsets: NDArray[np.int64], entries: NDArray[np.void], total: int
    ) -> QueueRun:
        physical_offset, size, _ = entries[-1].item()
        possible = 0 <= int(offsets[0]) <= int(entries[0]["physical_offset"]) // RECORD_BYTES_MIN
        is_regular = possible and bool((np.diff(offsets) == 1).all())
        return QueueRun(*queue, int(offsets.min()), int(offsets.max()) + 1, is_regular, physical_offset + size, total)


def queue_directory(root: Path, run: QueueRun) -> Path:
    return root / run.names[0] / str(run.queue_id)


def write_entries(directory: Path, first: int, entries: NDArray[np.void], file_bytes: int) -> None:
    """Put entries at their places, in as many files as they reach into; files have their full size from the start."""
    directory.mkdir(parents=True, exist_ok=True)
    per_file = file_bytes // ENTRY_BYTES
    data = entries.view(np.uint8).data
    at, end = first, first + len(entries)
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
        write_entries(directory, first - count, blanks, file_bytes)


def entries_fault(directory: Path, run: QueueRun, file_bytes: int) -> str | None:
    """Is what lies on the disk what the records said when it was written? The text of the fault, if not."""
    per_file, at, checksums = file_bytes // ENTRY_BYTES, run.start, []
    while at < run.end:
        file_start = at - at % per_file
        until = min(run.end, file_start + per_file)
        path = directory / segment_name(file_start * ENTRY_BYTES)
        try:
            with path.open("rb", buffering=0) as file:
                file.seek((at - file_start) * ENTRY_BYTES)
                while at < until:
                    data = file.read(min(until - at, _ENTRIES_AT_ONCE) * ENTRY_BYTES)
                    found = np.frombuffer(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES], ENTRY_DTYPE)
                    if not len(found) or len(data) % ENTRY_BYTES:
                        return f"the file {path.name} ends too soon"
                    columns = (found[name].astype(np.int64) for name in ENTRY_DTYPE.names or ())
                    checksums.append(int(entry_terms(np.arange(at, at + len(found)), *columns).sum()))
                    at += len(found)
        except FileNotFoundError:
            return f"the file {path.name} is missing"
    if added(checksums) == run.checksum:
        return None
    return f"entries {run.start} to {run.end} are not those of their records"
