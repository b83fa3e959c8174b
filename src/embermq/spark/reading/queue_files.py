"""Entries of a queue straight from its files, for processes that know nothing but the store's path.

What the files do not have comes as an entry of size 0; whether an entry leads to its record is for the caller to see.
Reads only, one thread; files may come and go meanwhile.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embermq.files import Files, RealFiles, entries_of
from embermq.format.names import parse_segment_name
from embermq.format.queue_entry import BLANK_SIZE, ENTRY_BYTES, ENTRY_DTYPE
from embermq.store.layout import CONSUME_QUEUE
from embermq.store.queues import QueueFileReader

Entries = NDArray[np.void]


class QueueEntryFiles:
    """The files of one queue, as they lay there when it was made."""

    def __init__(self, store: Path, topic: str, queue_id: int, files: Files | None = None) -> None:
        files = files or RealFiles()
        self._reader = QueueFileReader(files)
        directory = store / CONSUME_QUEUE / topic / str(queue_id)
        self._parts: list[tuple[int, int, str]] = []  # first entry, entries, file
        for entry in entries_of(files, directory):
            start = parse_segment_name(entry.name) if entry.is_file else None
            if start is not None and start % ENTRY_BYTES == 0:
                place = (start // ENTRY_BYTES, entry.size // ENTRY_BYTES, f"{directory}/{entry.name}")
                self._parts.append(place)
        self._parts.sort()

    @property
    def end(self) -> int:
        """The first offset behind the files; entries before it may still be blank."""
        return self._parts[-1][0] + self._parts[-1][1] if self._parts else 0

    def entries(self, start: int, end: int) -> Entries:
        """Entries of queue offsets [start, end): as many as asked for, of size 0 where there is none."""
        try:
            return self._read(start, end)
        finally:
            self._reader.close()

    def known_end(self, start: int, end: int) -> int:
        """Where in [start, end) the entries written so far end, by bisection: they are written in order."""
        low, high = start, min(end, self.end)
        try:
            if low < high == end and self._is_written(end - 1):
                return end
            while low < high:
                middle = (low + high) // 2
                if self._is_written(middle):
                    low = middle + 1
                else:
                    high = middle
            return low
        finally:
            self._reader.close()

    def _is_written(self, offset: int) -> bool:
        return int(self._read(offset, offset + 1)["size"][0]) > 0

    def _read(self, start: int, end: int) -> Entries:
        """The reader keeps a file open, which is for the caller to close."""
        found: Entries = np.zeros(max(0, end - start), ENTRY_DTYPE)
        for first, count, path in self._parts:
            low, high = max(start, first), min(end, first + count)
            if low < high:
                data = self._reader.read(path, low - first, high - low)
                read = np.frombuffer(data, ENTRY_DTYPE, len(data) // ENTRY_BYTES)
                found[low - start : low - start + len(read)] = read
        found["size"][found["size"] == BLANK_SIZE] = 0
        return found
