"""Keys of a store seen from outside: its index files, and the log where they do not reach.

An index is used when nothing speaks against it: its files are whole and in order, and the store was closed, is
running, or was only killed and has a state page that proves it. What has a checksum is compared with it, and of
a file that is not what was written the log is read instead. Stretches of log before, between and
behind its files are walked for the key, if they are short together. One thread at a time. Reads only.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embermq.clock import SystemClock
from embermq.files import Files, entries_of
from embermq.format.index import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES, decode_header, index_file_bytes
from embermq.format.names import parse_index_name
from embermq.inspect.log_view import LogView
from embermq.store.index import IndexFiles, load_index_proof, places_with
from embermq.store.layout import INDEX, lock_holder, was_closed_cleanly
from embermq.store.layout import STATE_FILE as STATE_PAGE
from embermq.store.log import DamagedRange, scan_segments

WALK_BYTES_MAX = 64 << 20
_FOREVER_MS = (1 << 63) - 1
# The newest file of a live store may be looked at between an entry and the header.
_LOADS_MAX = 10
_LOAD_AGAIN_SECONDS = 0.002
_SHAPE_DEFAULT = (5_000_000, 20_000_000)
_FILE_BYTES_MAX = 2**31 - 1  # RocketMQ maps a file as a whole, and Java maps no more.
_ENTRIES_PER_SLOT = 4

Shape = tuple[int, int]  # slots, entries


class IndexView:
    """The index below `root`."""

    def __init__(self, root: Path, files: Files, log: LogView) -> None:
        self._root, self._files, self._log = root, files, log

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int) -> list[int] | None:
        """Places of records in [begin_ms, end_ms) that may have the key, ascending; None: no index knows."""
        index = self._load() if self._is_believable() else None
        if index is None:
            return None
        with closing(index):
            return self._find_in(index, topic, key, begin_ms, end_ms)

    def _find_in(self, index: IndexFiles, topic: str, key: str, begin_ms: int, end_ms: int) -> list[int] | None:
        gaps = list(self._gaps(index))
        if sum(end - start for start, end in gaps) > WALK_BYTES_MAX:
            return None
        index.search_log = self._search_log
        try:
            places = set(index.query(topic, key, None, 0, _FOREVER_MS))
        except _TooMuchToRead:
            return None
        for start, end in gaps:
            places.update(self._walk(topic, key, start, end))
        if begin_ms < 0 and end_ms >= _FOREVER_MS:
            return sorted(places)  # Whatever their times: reading a record costs more than finding it.
        return sorted(place for place in places if begin_ms <= self._time_at(place) < end_ms)

    def _time_at(self, physical_offset: int) -> int:
        frame = self._log.frame_at(physical_offset) if physical_offset < self._log.end else None
        return -1 if frame is None else frame.store_timestamp

    def _is_believable(self) -> bool:
        if was_closed_cleanly(self._files, self._root):
            return True
        page = self._log.page
        if page is not None:
            return page.boot != 0 and page.boot == self._files.boot() and len(self._names()) >= page.index_files
        return not self._files.exists(self._root / STATE_PAGE) and lock_holder(self._root) is not None

    def _names(self) -> list[str]:
        """All of them; first those of the length that most have."""
        path = self._root / INDEX
        found = [entry for entry in entries_of(self._files, path) if entry.is_file and _is_index(entry.name)]
        alike = Counter(entry.size for entry in found)
        return [entry.name for entry in sorted(found, key=lambda entry: -alike[entry.size])]

    def _load(self) -> IndexFiles | None:
        for left in reversed(range(_LOADS_MAX)):
            shape = self.shape()
            if shape is not None:
                index = IndexFiles(self._root / INDEX, self._files, *shape, SystemClock(), read_only=True)
                self._adopt_checksums(index)
                if not index.load():
                    return index
            if not left or not self._names() or lock_holder(self._root) is None:
                break
            time.sleep(_LOAD_AGAIN_SECONDS)
        return None

    def _adopt_checksums(self, index: IndexFiles) -> None:
        proof = load_index_proof(self._files, self._root)
        if proof is not None:
            closed = was_closed_cleanly(self._files, self._root)
            index.adopt_checksums(proof.checksums, proof.state, closed=closed)

    def shape(self) -> Shape | None:
        """How many slots and entries a file has; its length alone does not say. Of files that were all damaged, what
        the last writer of ours wrote down."""
        names = self._names()
        for name in names:
            with suppress(FileNotFoundError):  # Retention took it.
                shape = self._shape_of(self._root / INDEX / name)
                if shape is not None:
                    return shape
        written = self._written_shape()
        return written if names and written is not None and min(written) > 0 else None

    def _written_shape(self) -> Shape | None:
        proof = load_index_proof(self._files, self._root)
        return None if proof is None else (proof.state.get("slots_max", 0), proof.state.get("entries_max", 0))

    def _shape_of(self, path: Path) -> Shape | None:
        size = self._files.stat(path).size
        written = self._written_shape()
        candidates = [_SHAPE_DEFAULT] if written is None else [written, _SHAPE_DEFAULT]
        slots = (size - HEADER_BYTES) // (SLOT_BYTES + _ENTRIES_PER_SLOT * ENTRY_BYTES)
        candidates.append((slots, _ENTRIES_PER_SLOT * slots))
        for shape in candidates:
            if size == index_file_bytes(*shape) and self._has_shape(path, shape[0]):
                return shape
        return self._search_shape(path, size)

    def _has_shape(self, path: Path, slots: int) -> bool:
        return slots in self._possible_slots(path, np.array([slots], np.int64))

    def _search_shape(self, path: Path, size: int) -> Shape | None:
        """Try every number of slots that leaves room for whole entries."""
        if size > _FILE_BYTES_MAX:
            return None
        room = size - HEADER_BYTES
        least = room // SLOT_BYTES % (ENTRY_BYTES // SLOT_BYTES)
        found = self._possible_slots(path, np.arange(least, room // SLOT_BYTES, ENTRY_BYTES // SLOT_BYTES))
        if room % SLOT_BYTES or len(found) != 1:
            return None
        return int(found[0]), (room - SLOT_BYTES * int(found[0])) // ENTRY_BYTES

    def _possible_slots(self, path: Path, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which of these numbers of slots a file can have.

        The first and the last entry are then those the header names, and the last one is the newest of its slot.
        A file without entries can have any.
        """
        file = self._files.open(path, False)
        try:
            data = file.map(False)
        finally:
            file.close()
        if len(data) < HEADER_BYTES:
            return slots[:0]
        header = decode_header(data)
        words = np.frombuffer(data, ">i4", len(data) // 4)
        first = (HEADER_BYTES + ENTRY_BYTES) // 4 + slots
        last = first + (header.count - 2) * (ENTRY_BYTES // 4)
        slots, first, last = (column[(slots > 0) & (last + 5 <= len(words))] for column in (slots, first, last))
        if header.count <= 1:
            return slots
        names_first = _long_at(words, first + 1) == header.begin_physical
        names_last = _long_at(words, last + 1) == header.end_physical
        fits = names_first & names_last & (words[first + 3] == 0) & (words[first + 4] == 0) & (words[last] >= 0)
        slots, last = slots[fits], last[fits]
        newest = words[HEADER_BYTES // 4 + words[last].astype(np.int64) % slots]
        possible: NDArray[np.int64] = slots[newest == header.count - 1]
        return possible

    def _gaps(self, index: IndexFiles) -> Iterator[tuple[int, int]]:
        """Ranges of the log whose keys are in no file, as far as the files' own ranges tell."""
        at = self._log.min
        for _, count, _, _, begin_physical, end_physical in index.state()["files"]:
            if count > 1:
                if at < begin_physical:
                    # With the record there: its first keys may have been in a file before.
                    yield at, min(begin_physical + 1, self._log.end)
                at = max(at, end_physical)  # All keys of that record may not be in yet.
        if at < self._log.end:
            yield at, self._log.end

    def _walk(self, topic: str, key: str, start: int, end: int) -> Iterator[int]:
        """Places of records with the key in a range of the log."""
        start = self._log.record_start(start)
        for scanned in scan_segments(self._log.segments, start, end, files=self._files):
            if not isinstance(scanned, DamagedRange):
                yield from places_with(scanned, topic, key)

    def _search_log(self, topic: str, key: str, start: int, end: int) -> list[int]:
        """In the place of an index file that is damaged."""
        start, end = max(start, self._log.min), min(end + 1, self._log.end)
        if end - start > WALK_BYTES_MAX:
            raise _TooMuchToRead
        return list(self._walk(topic, key, start, end))


class _TooMuchToRead(Exception):
    """More log would have to be read than a look-up may read."""


def _is_index(name: str) -> bool:
    return parse_index_name(name) is not None


def _long_at(words: NDArray[np.int32], at: NDArray[np.int64]) -> NDArray[np.int64]:
    high: NDArray[np.int64] = words[at].astype(np.int64) << 32
    return high | (words[at + 1].astype(np.int64) & 0xFFFF_FFFF)
