"""The queue files of a store seen from outside: what they say, and up to which place in the log to believe it.

Entries of every record below that place are in the files; derived_trust.py says which place that is.

One thread at a time. Reads only.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embermq.clock import SystemClock
from embermq.files import READ_OPEN_MAX, Files, entries_of
from embermq.format.frame import Frame
from embermq.format.names import parse_segment_name, segment_name
from embermq.format.queue_entry import BLANK_SIZE, ENTRY, ENTRY_BYTES, ENTRY_DTYPE
from embermq.inspect.log_view import LogView
from embermq.model.properties import MULTI_DISPATCH
from embermq.store import Finding
from embermq.store.layout import CONSUME_QUEUE, load_inventory, was_closed_cleanly
from embermq.store.queues import BLANK, QUEUE_FAMILY, ConsumeQueue, ConsumeQueues, QueueState, is_valid
from embermq.store.recovery import DerivedTrust

Entries = NDArray[np.void]
Entry = tuple[int, int, int]
NO_ENTRIES: Entries = np.empty(0, ENTRY_DTYPE)
_FILE_BYTES_DEFAULT = 300_000 * ENTRY_BYTES
_SIZE_SAMPLES = 64
_LOOK_ENTRIES = 3276  # just under 64 KiB
_NEWEST_TRIED = 8
_LOADS_MAX = 3  # A file of a live store may be looked at between its making and its first entry.
_FOREIGN_ENTRIES = MULTI_DISPATCH.encode()


@dataclass(frozen=True, slots=True)
class FiledPart:
    """What the files have of one queue, of records in the log: queue offsets [min, end)."""

    queue: ConsumeQueue
    min: int
    end: int
    first_physical: int
    end_physical: int


class FilesDisagree(Exception):
    """Queue files and log do not fit each other: only the log counts."""


class QueueFilesView:
    """The files below `consumequeue`, as they were when first asked for."""

    def __init__(self, root: Path, files: Files, log: LogView) -> None:
        self._store_root, self._root = root, root / CONSUME_QUEUE
        self._files, self._log = files, log
        self._loaded: ConsumeQueues | None = None
        self._findings: list[Finding] = []
        self._has_many = False  # More queues than files may be open.
        self._file_bytes_found = _FILE_BYTES_DEFAULT

    def forget(self) -> None:
        """Look at the disk again when asked next."""
        if self._loaded is not None:
            self._loaded.close()
        self._loaded = None

    def all(self) -> list[ConsumeQueue]:
        if self._loaded is None:
            for _ in range(_LOADS_MAX - 1):
                with suppress(FileNotFoundError):  # A queue was deleted just now.
                    self._loaded, self._findings = self._load()
                    if not self._findings:
                        break
            else:
                self._loaded, self._findings = self._load()
            self._has_many = len(self._loaded.all()) > READ_OPEN_MAX
        return self._loaded.all()

    def _load(self) -> tuple[ConsumeQueues, list[Finding]]:
        self._file_bytes_found = _FILE_BYTES_DEFAULT
        try:
            self._file_bytes_found = self._file_bytes()
            loaded = self._make()
            return loaded, loaded.load()
        except FileNotFoundError:
            raise
        except OSError as problem:  # The log is there all the same.
            return self._make(), [Finding(QUEUE_FAMILY, "", f"cannot be read: {problem.strerror or problem}", 0)]

    def _make(self) -> ConsumeQueues:
        return ConsumeQueues(
            self._root,
            self._files,
            self._file_bytes_found,
            SystemClock(),
            read_only=True,
            log_min=lambda: self._log.min,
        )

    def newest_entry_end(self) -> int:
        """The end of the newest record that queue files know and the log confirms; 0 if there is none."""
        newest = sorted(self.all(), key=lambda queue: queue.max_physical, reverse=True)
        for queue in islice(newest, _NEWEST_TRIED):
            entry = queue.peek(queue.max_offset - 1)
            frame = self._log.frame_at(entry[0]) if entry is not None else None
            if entry is not None and frame is not None and frame.size == entry[1]:
                return frame.end
        return 0

    def complete_below(self) -> int:
        """Entries of all records below this place are in the files; 0 if none is proven.

        Looks at the disk again, and first of all at state page and proofs: files that are read later have at
        least that, however many are written meanwhile.
        """
        trust = DerivedTrust(self._files, self._store_root, self._log.page)
        place, file_count = trust.queues(self.newest_entry_end)
        self.forget()
        queues = self.all()
        if sum(len(queue.file_starts) for queue in queues) < file_count:
            return 0
        if any(map(self._is_cut_short, queues)) or self._differ_from_inventory(queues):
            return 0
        return min([place, self._log.end, *(finding.replay_from for finding in self._findings)])

    def _differ_from_inventory(self, queues: list[ConsumeQueue]) -> bool:
        """Was the store closed by one of ours, with other queues than these?"""
        closed = was_closed_cleanly(self._files, self._store_root)
        inventory = load_inventory(self._files, self._store_root) if closed else None
        if inventory is None or inventory.log_max != self._log.end or inventory.dispatch != "live":
            return False
        known = QueueState.parse(inventory.queues, self._file_bytes_found)
        ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in queues}
        return known is None or {key: state.max_offset for key, state in known.items()} != ends

    def part_below(self, queue: ConsumeQueue, place: int) -> FiledPart | None:
        """What a queue's files have of records below `place`; FilesDisagree if the log has something else there.

        None for a queue of other topics' records (light queues, multi dispatch): here a record is in the queue
        it names, and in no other.
        """
        end, newest = queue.max_offset, self._peek(queue, queue.max_offset - 1)
        if newest is None or not is_valid(newest) or newest[0] >= place:
            end = queue.proven_before(end, place)
        low = self.first_in_log(queue, end)
        if low == end:
            return FiledPart(queue, end, end, place, place)
        first = self._frame_of(queue, low)
        last = first if low == end - 1 else self._frame_of(queue, end - 1)
        if last.topic != queue.topic and _FOREIGN_ENTRIES in last.properties:
            return None
        for frame, queue_offset in ((first, low), (last, end - 1)):
            if (frame.topic, frame.queue_id, frame.queue_offset) != (queue.topic, queue.queue_id, queue_offset):
                raise FilesDisagree
        before = self._peek(queue, low - 1) if low > queue.low_offset else None
        if before is not None and before != BLANK and (not is_valid(before) or before[0] >= self._log.min):
            raise FilesDisagree  # What looks like the beginning is a place behind damage.
        return FiledPart(queue, low, end, first.physical_offset, last.end)

    def _frame_of(self, queue: ConsumeQueue, queue_offset: int) -> Frame:
        """The record that an entry leads to; FilesDisagree if it leads to none."""
        entry = self._peek(queue, queue_offset)
        frame = self._log.frame_at(entry[0]) if entry is not None else None
        if entry is None or frame is None or frame.size != entry[1]:
            raise FilesDisagree
        return frame

    def _peek(self, queue: ConsumeQueue, queue_offset: int) -> Entry | None:
        """As queue.peek. Of very many queues, as the loading found it, if it kept that: their files cannot stay open.
        Those of fewer are opened here and do: entries can be read later though their topic is deleted meanwhile."""
        assert self._loaded is not None
        if self._has_many:
            data = self._loaded.kept_entries(queue, queue_offset, queue_offset + 1)
            if data is not None and len(data) == ENTRY_BYTES:
                return ENTRY.unpack(data)
        return queue.peek(queue_offset)

    def _is_cut_short(self, queue: ConsumeQueue) -> bool:
        """Does the file go on after what looks like the queue's end? Then an entry there was damaged."""
        if self._loaded is not None and self._loaded.is_blank_behind(queue):
            return False
        end, per_file = queue.max_offset, self._file_bytes_found // ENTRY_BYTES
        at = end % per_file
        try:
            file = self._files.open(queue.directory / segment_name((end - at) * ENTRY_BYTES), False)
        except FileNotFoundError:
            return False  # The last file is full.
        try:
            behind = file.pread(min(_LOOK_ENTRIES, per_file - at) * ENTRY_BYTES, at * ENTRY_BYTES)
            if not behind.strip(b"\0"):
                return False
            entry = ENTRY.unpack(file.pread(ENTRY_BYTES, at * ENTRY_BYTES))
        finally:
            file.close()
        last = queue.peek(end - 1)
        return not is_valid(entry) or last is None or entry[0] < last[0]  # Otherwise it has come since.

    def first_in_log(self, queue: ConsumeQueue, end: int) -> int:
        """The first queue offset below `end` whose record is still in the log; `end` if none is."""
        log_min = self._log.min

        def is_there(queue_offset: int) -> bool:
            entry = self._peek(queue, queue_offset)
            return entry is not None and is_valid(entry) and entry[1] != BLANK_SIZE and entry[0] >= log_min

        low = min(queue.low_offset, end)
        return bisect_left(range(low, end), True, key=is_there) + low

    def _file_bytes(self) -> int:
        """The length that most queue files have."""
        sizes = Counter(islice(self._sizes(), _SIZE_SAMPLES))
        return sizes.most_common(1)[0][0] if sizes else _FILE_BYTES_DEFAULT

    def _sizes(self) -> Iterator[int]:
        for path in self._queue_directories():
            for entry in entries_of(self._files, path):
                is_entry_file = entry.is_file and parse_segment_name(entry.name) is not None
                if is_entry_file and entry.size and entry.size % ENTRY_BYTES == 0:
                    yield entry.size

    def _queue_directories(self) -> Iterator[Path]:
        for topic in entries_of(self._files, self._root):
            if topic.is_directory:
                for queue in entries_of(self._files, self._root / topic.name):
                    if queue.is_directory:
                        yield self._root / topic.name / queue.name


def queue_entries_of(queue: ConsumeQueue, start: int, end: int) -> Entries:
    """Entries start..end from a queue's files, up to the first that is not there."""
    parts = []
    while start < end:
        found = queue.entries(start, end - start)
        if not len(found):
            break
        parts.append(found)
        start += len(found)
    return np.concatenate(parts, dtype=ENTRY_DTYPE) if parts else NO_ENTRIES
