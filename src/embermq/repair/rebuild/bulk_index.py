"""One index file of the keys that slices left, in log order; a full file is followed by the next. A piece of work
of bulk.py.

What was put is compared behind the putting thread, on a second one: every entry, as it lies in the file, with its key,
then the header, links and slots. The checksum of all keys goes back, to be compared with that of the log's slices.
Pages that are done with are let go of, so that memory does not grow with the file. Any process.
"""

import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from embermq.columns import check_index_links, compiled_put_index_keys
from embermq.files import OpenFile, RealFiles, drop
from embermq.format.index import (
    ENTRY_BYTES,
    HEADER_BYTES,
    SLOT_BYTES,
    IndexHeader,
    decode_header,
    encode_header,
    entry_at,
    index_file_bytes,
)
from embermq.repair.rebuild.bulk import KEY_ROW_BYTES, Site
from embermq.repair.rebuild.bulk_checksums import added, key_checksum
from embermq.store.index import ENTRY_DTYPE
from embermq.store.layout import INDEX

PARTS = "parts"
_KEYS_AT_ONCE = 1 << 18
_SLOTS_AT_ONCE = 1 << 18
_SECONDS_MAX = 0x7FFF_FFFF

Keys = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BulkIndexFile:
    """One index file: the keys numbered [start, end) of the whole log, and the name it gets."""

    name: str
    start: int
    end: int
    counts: tuple[int, ...]  # of keys, by slice


@dataclass(frozen=True, slots=True)
class IndexBuilt:
    """What became of it."""

    key_checksum: int
    fault: str | None


def index_borders(keys: int, entries_max: int) -> list[tuple[int, int]]:
    """Which keys go into which file: a file holds one key less than it has entries."""
    room = entries_max - 1
    return [(at, min(at + room, keys)) for at in range(0, keys, room)]


def build_index(site: Site, part: BulkIndexFile) -> IndexBuilt:
    """Make one index file of the keys that slices left."""
    slots_max, entries_max = site.settings.index_slots_max, site.settings.index_entries_max
    target = site.target / INDEX / part.name
    path = site.work / PARTS / f"{part.name}-{secrets.token_hex(4)}"  # Another task may be doing the same.
    with site.turn.writing():
        path.parent.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        file = RealFiles().create(path, index_file_bytes(slots_max, entries_max), fallocate=True)
        try:
            built = _put_all(site, part, file)
        finally:
            file.close()
        path.rename(target)
    return built


def _put_all(site: Site, part: BulkIndexFile, file: OpenFile) -> IndexBuilt:
    slots_max, entries_max = site.settings.index_slots_max, site.settings.index_entries_max
    view = file.map(True)
    carried = IndexHeader()
    if part.start:
        (last,) = _keys(site, part.counts, part.start - 1, part.start)
        _, physical_offset, store_time = last[0].tolist()
        carried = IndexHeader(store_time, store_time, physical_offset, physical_offset, 0, 0)
        view[:HEADER_BYTES] = encode_header(carried)
    data = np.frombuffer(view, np.uint8)
    put_keys = compiled_put_index_keys()
    check = _Check(file, carried, slots_max)
    waiting: deque[Future[None]] = deque()
    number = 1
    with ThreadPoolExecutor(1, "embermq-compare") as behind:
        for keys in _keys(site, part.counts, part.start, part.end):
            put = put_keys(data, slots_max, entries_max, keys, 0)
            assert put == len(keys), (put, len(keys))
            waiting.append(behind.submit(check.take, keys))
            if len(waiting) > 1:
                waiting.popleft().result()
            drop(view, entry_at(number, slots_max), entry_at(number + put, slots_max))
            number += put
        drop(view, 0, entry_at(1, slots_max))
        finished = behind.submit(check.finished)
        file.sync()
        fault = finished.result()  # Then the checksum is complete.
    return IndexBuilt(check.key_checksum, fault)


def _keys(site: Site, counts: Sequence[int], start: int, end: int) -> Iterator[Keys]:
    """Keys [start, end) of the whole log, from the files of the slices that have them, some at a time."""
    first = 0
    for number, count in enumerate(counts):
        low, high = max(start - first, 0), min(end - first, count)
        for at in range(low, high, _KEYS_AT_ONCE):
            some = min(_KEYS_AT_ONCE, high - at)
            found = np.fromfile(site.keys_path(number), np.int64, 3 * some, offset=KEY_ROW_BYTES * at)
            yield found.reshape(-1, 3)
        first += count


class _Check:
    """Reads entries that were just put, and then header and slots. One thread at a time."""

    def __init__(self, file: OpenFile, carried: IndexHeader, slots_max: int) -> None:
        self._file, self._slots_max = file, slots_max
        self._check_links = check_index_links
        self._begin_ms = carried.begin_timestamp  # That of the file before, until the first entry is there.
        self._newest = np.zeros(slots_max, np.int32)  # Number of the newest entry of each slot.
        self._next_number = 1
        self._first: list[int] = []
        self._last: list[int] = []
        self._fault: str | None = None
        self.key_checksum = 0

    def take(self, keys: Keys) -> None:
        """The keys whose entries come next."""
        self.key_checksum = added((self.key_checksum, key_checksum(keys)))
        data = self._file.pread(len(keys) * ENTRY_BYTES, entry_at(self._next_number, self._slots_max))
        entries = np.frombuffer(data, ENTRY_DTYPE)
        is_first = not self._first
        if is_first:
            self._first = keys[0].tolist()
            self._compare(entries[:1], keys[:1])
            self._begin_ms = self._first[2]
        self._compare(entries[is_first:], keys[is_first:])
        links = self._check_links(entries.view(np.uint8), self._next_number, self._newest)
        if links.wrong:
            self._note(f"entry {links.first} does not link to the one before it in its slot ({links.expected})")
        self._last = keys[-1].tolist()
        self._next_number += len(keys)

    def _compare(self, entries: NDArray[np.void], keys: Keys) -> None:
        elapsed = keys[:, 2] - self._begin_ms
        seconds = np.where((elapsed > 0) & (self._begin_ms > 0), np.minimum(elapsed // 1000, _SECONDS_MAX), 0)
        for name, column in (("key_hash", keys[:, 0]), ("physical_offset", keys[:, 1]), ("seconds", seconds)):
            if not (entries[name] == column).all():
                self._note(f"entries from {self._next_number} on are not those of their keys")

    def _note(self, fault: str) -> None:
        self._fault = self._fault or fault

    def finished(self) -> str | None:
        """Header and slots, now that all keys were put; the first fault there is."""
        header = decode_header(self._file.pread(HEADER_BYTES, 0))
        used = int(np.count_nonzero(self._newest))
        expected = IndexHeader(self._first[2], self._last[2], self._first[1], self._last[1], used, self._next_number)
        if header != expected:
            self._note(f"its header is {header}, and should be {expected}")
        for at in range(0, self._slots_max, _SLOTS_AT_ONCE):
            newest = self._newest[at : at + _SLOTS_AT_ONCE]
            data = self._file.pread(len(newest) * SLOT_BYTES, HEADER_BYTES + at * SLOT_BYTES)
            if not (np.frombuffer(data, ">i4") == newest).all():
                self._note(f"slots from {at} on do not name their newest entries")
        return self._fault
