"""Finding a consume queue on disk: which of its files can be used, and where it ends.

A queue is usable from its first file up to the first thing that cannot be; the rest is reported and comes
back from the log. Nothing here writes. Called while the store is being opened, by one thread.

A store may have tens of thousands of queues, so a queue costs one listing of its directory, and one open and one read
of a file where it has one file with few entries. What was read near the end of a queue is kept for the replay that
follows (`QueueEnds`), which needs to look at the same place.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from embermq.errors import StorePathInvalid
from embermq.files import Files, OpenFiles, entries_of
from embermq.format.names import parse_segment_name, segment_name
from embermq.format.queue_entry import ENTRY, ENTRY_BYTES, ENTRY_DTYPE
from embermq.store.queues.consume_queue import BLANK, ConsumeQueue, Entry, is_valid
from embermq.store.queues.file_reader import HEAD_ENTRIES, QueueFileReader
from embermq.store.queues.queue_state import SharedQueueState
from embermq.store.sink import Finding

QUEUE_FAMILY = "consumequeue"
_IS_DIRECTORY = -1  # As the size of a file: it is none.
_SCAN_ENTRIES = 3276  # just under 64 KiB
_KEPT_ENTRIES = 16


class QueueState(NamedTuple):
    """One queue as it was after a clean close; file numbers are in entries."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    max_physical: int
    first_file: int
    file_count: int

    @classmethod
    def of(cls, queue: ConsumeQueue) -> "QueueState":
        return cls(
            queue.topic,
            queue.queue_id,
            queue.min_offset,
            queue.max_offset,
            queue.max_physical,
            min(queue.file_starts, default=0),
            len(queue.file_starts),
        )

    def row(self) -> list[str | int]:
        return list(self)

    @staticmethod
    def parse(state: Any, file_bytes: int) -> "dict[tuple[str, int], QueueState] | None":
        """A state() that came back from JSON, or None when it is none, or of another file size."""
        try:
            known = msgspec.convert(state, _States)
        except msgspec.ValidationError:
            return None
        if known.file_bytes != file_bytes:
            return None
        return {(row[0], row[1]): QueueState._make(row) for row in known.queues}

    def file_starts(self, entries_per_file: int) -> list[int]:
        return [self.first_file + i * entries_per_file for i in range(self.file_count)]

    @property
    def where(self) -> str:
        return f"{self.topic}/{self.queue_id}"


class _States(msgspec.Struct):
    file_bytes: int
    queues: list[tuple[str, int, int, int, int, int, int]]


class _FoundQueueFile(NamedTuple):
    """A file of a queue: start in entries (None: no place a file of this size can have), path, length."""

    start: int | None
    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class Written:
    """What is known of the log before queues are loaded: entries of all records below `proven` were written, so a gap
    before one of them is damage; no record lies past `log_end`."""

    proven: int = 0
    log_end: int = 1 << 62


class KeptEntries(NamedTuple):
    """The last entries of a queue as they were found, and what lies behind them if the file goes on."""

    start: int  # Queue offset of the first.
    data: bytes


@dataclass(slots=True)
class QueueEnds:
    """What a loading found out about queues and a replay after it can use: of each queue, by slot, that has entries and
    whose newest one leads to a record."""

    as_known: dict[int, QueueState] = field(default_factory=dict)  # Those that are as the last clean close left them.
    kept: dict[int, KeptEntries] = field(default_factory=dict)
    first_physical: dict[int, int] = field(default_factory=dict)  # Of the first entry; not of those in `as_known`.

    def forget(self, slot: int) -> None:
        """The queue is removed."""
        self.as_known.pop(slot, None)
        self.kept.pop(slot, None)
        self.first_physical.pop(slot, None)

    def clear(self) -> None:
        self.as_known.clear()
        self.kept.clear()
        self.first_physical.clear()


class QueueLoader:
    """Loads queues one after another; the same files and sizes for all."""

    def __init__(self, books: SharedQueueState, files: Files, written: Written, ends: QueueEnds) -> None:
        """`ends` is filled."""
        self._books = books
        self._written = written
        self._files = files
        self._ends = ends
        self._reader = QueueFileReader(files, writable=not books.read_only)
        self._file_bytes = books.entries_per_file * ENTRY_BYTES

    def load(self, queue: ConsumeQueue, directory: Path, known: QueueState | None) -> list[Finding]:
        """Give `queue` its numbers and files; what is wrong with it is the answer."""
        try:
            return self._load(queue, directory, known)
        finally:
            self._reader.close()

    def _load(self, queue: ConsumeQueue, directory: Path, known: QueueState | None) -> list[Finding]:
        found = self._list(directory)
        if known is not None and self._is_as_known(queue.slot, found, known):
            queue.file_starts = set(known.file_starts(self._books.entries_per_file))
            self._books.restore(queue.slot, known.min_offset, known.max_offset, known.max_physical)
            return []
        findings = self._scan(queue, found)
        if known is None or findings:
            return findings
        if min(queue.file_starts, default=0) > known.first_file:
            findings.append(Finding(QUEUE_FAMILY, known.where, "has lost its first file", 0))
        elif queue.max_offset != known.max_offset:
            reason = f"ends at {queue.max_offset}, was closed at {known.max_offset}"
            replay_from = max(min(queue.max_physical, known.max_physical), 0)
            findings.append(Finding(QUEUE_FAMILY, known.where, reason, replay_from))
        return findings

    def check_linked(self, queue: ConsumeQueue) -> None:
        """Of a queue whose directory, or its topic's, is a link. What cannot be used is removed and made again: only
        if it has a length that a file of ours can have. StorePathInvalid if not: the link may lead anywhere."""
        for path in queue.stale_files:
            size = self._files.stat(path).size
            if size not in (0, self._file_bytes):
                raise StorePathInvalid(
                    path,
                    f"no queue file ({size} bytes, not {self._file_bytes}), in a directory that is a link: it is"
                    " not removed there; move it away, or remove the link",
                )

    def _list(self, directory: Path) -> list[_FoundQueueFile]:
        found = []
        for entry in entries_of(self._files, directory):
            start = parse_segment_name(entry.name)
            if entry.is_file and start is not None:
                first = None if start % self._file_bytes else start // ENTRY_BYTES
                found.append(_FoundQueueFile(first, directory / entry.name, entry.size))
            elif entry.is_directory and start is not None and start % self._file_bytes == 0:
                found.append(_FoundQueueFile(start // ENTRY_BYTES, directory / entry.name, _IS_DIRECTORY))
        return found

    def _is_as_known(self, slot: int, found: list[_FoundQueueFile], known: QueueState) -> bool:
        per_file = self._books.entries_per_file
        if [file.start for file in found] != known.file_starts(per_file) or not found:
            return False
        if self._usable(found) != (found, None):
            return False
        last_start = found[-1].start
        assert last_start is not None
        if not last_start < known.max_offset <= last_start + per_file:
            return False
        kept, last, after = self._read_end(found[-1], known.max_offset)
        if not is_valid(last) or last[0] + last[1] != known.max_physical:
            return False
        if after is not None and is_valid(after):
            return False
        if last != BLANK:
            self._ends.as_known[slot] = known
            self._ends.kept[slot] = kept
        return True

    def _read_end(self, file: _FoundQueueFile, end: int) -> tuple[KeptEntries, Entry, Entry | None]:
        """Some entries before queue offset `end`, the last of them, and what lies behind it; None if the file ends."""
        assert file.start is not None
        count = end - file.start
        first = max(count - _KEPT_ENTRIES, 0)
        data = self._reader.read(file.path, first, min(count + 1, self._books.entries_per_file) - first)
        length = (count - first) * ENTRY_BYTES
        last = ENTRY.unpack_from(data, length - ENTRY_BYTES) if 0 < length <= len(data) else _NO_ENTRY
        after = ENTRY.unpack_from(data, length) if len(data) >= length + ENTRY_BYTES else None
        return KeptEntries(file.start + first, data), last, after

    def _scan(self, queue: ConsumeQueue, found: list[_FoundQueueFile]) -> list[Finding]:
        usable, problem = self._usable(found)
        queue.stale_files = [file.path for file in found if file not in usable]
        end, last = self._end_of(usable[-1]) if usable else (0, None)
        findings = []
        if last is None or last == BLANK:
            queue.stale_files = [file.path for file in found]
            problem = problem or (found[0], "holds no entry") if found else None
        else:
            queue.file_starts = {file.start for file in usable if file.start is not None}
            self._adopt(queue, usable, end, last)
            if problem is None and self._goes_on(usable[-1], end, last):
                problem = usable[-1], f"has a gap at {end}"
        if problem is not None:
            file, reason = problem
            where = f"{queue.topic}/{queue.queue_id}/{file.path.name}"
            findings.append(Finding(QUEUE_FAMILY, where, reason, max(queue.max_physical, 0)))
        return findings

    def _adopt(self, queue: ConsumeQueue, usable: list[_FoundQueueFile], end: int, last: Entry) -> None:
        """Take the files that can be used as the queue, up to `end`."""
        start = usable[0].start
        assert start is not None
        self._books.restore(queue.slot, start, end, last[0] + last[1])
        self._ends.kept[queue.slot] = self._read_end(usable[-1], end)[0]
        first = self._entry(usable[0], 0)
        if is_valid(first) and first[1] != BLANK[1]:
            self._ends.first_physical[queue.slot] = first[0]
        else:
            queue.skip_blanks()

    def _usable(self, found: list[_FoundQueueFile]) -> tuple[list[_FoundQueueFile], tuple[_FoundQueueFile, str] | None]:
        """The files from the first on that can be used, and the first that cannot, with the reason."""
        usable: list[_FoundQueueFile] = []
        for file in found:
            if file.start is None:
                return usable, (file, "its name is no multiple of the file size")
            if file.size == _IS_DIRECTORY:
                return usable, (file, "is a directory where a file should be")
            if file.size != self._file_bytes:
                return usable, (file, f"is {file.size} bytes long, not {self._file_bytes}")
            if usable:
                before = self._entry(usable[-1], -1)
                if not is_valid(before):
                    return usable, (usable[-1], "does not end with an entry, and is not the last file")
                if file.start != (usable[-1].start or 0) + self._books.entries_per_file:
                    if before[0] >= self._books.log_min():
                        return usable, (file, "the file before it is missing")
                    usable = []  # Left over from deletion: its records are gone.
                elif is_valid(first := self._entry(file, 0)) and first[0] < before[0]:
                    return usable, (file, "begins before the end of the file before it")
            if not is_valid(self._entry(file, 0)):
                return usable, (file, "does not begin with an entry")
            usable.append(file)
        return usable, None

    def _entry(self, file: _FoundQueueFile, number: int) -> Entry:
        return self._reader.entry(file.path, number % self._books.entries_per_file)

    def _end_of(self, file: _FoundQueueFile) -> tuple[int, Entry | None]:
        """Queue offset after the last entry of a file, and that entry. Physical offsets never go down."""
        assert file.start is not None
        if not self._reader.is_there(file.path):
            return file.start, None  # Its writer has removed it.
        count, last, at_once = 0, None, HEAD_ENTRIES
        while count < self._books.entries_per_file:
            data = self._reader.read(file.path, count, min(at_once, self._books.entries_per_file - count))
            entries = np.frombuffer(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES], ENTRY_DTYPE)
            physicals = entries["physical_offset"].astype(np.int64)
            good = (physicals >= 0) & (entries["size"] > 0)
            good[1:] &= physicals[1:] >= physicals[:-1]
            if last is not None and len(good):
                good[0] &= physicals[0] >= last[0]
            valid = len(entries) if good.all() else int(np.argmin(good))
            if valid:
                last = entries[valid - 1].item()
            count += valid
            if valid < len(entries) or not valid:
                break
            at_once = _SCAN_ENTRIES
        return file.start + count, last

    def _goes_on(self, file: _FoundQueueFile, end: int, last: Entry) -> bool:
        """Are there entries of proven records behind what looks like the end of a queue?"""
        assert file.start is not None
        known = self._written
        if known.proven <= last[0] + last[1] <= known.log_end:
            return False
        per_file = self._books.entries_per_file
        behind = end - file.start
        if self._reader.is_zero(file.path, behind, min(2 * _SCAN_ENTRIES, per_file - behind)):
            return False
        before = last[0] if last[0] < known.proven else 0
        for at in range(behind, per_file, _SCAN_ENTRIES):
            data = self._reader.read(file.path, at, min(_SCAN_ENTRIES, per_file - at))
            entries = np.frombuffer(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES], ENTRY_DTYPE)
            physicals = entries["physical_offset"].astype(np.int64)
            if ((physicals > before) & (physicals < known.proven) & (entries["size"] > 0)).any():
                return True
            if at > behind and not entries["size"].any():
                return False  # Nothing was written here any more.
        return False


_NO_ENTRY: Entry = (0, 0, 0)


def read_entry(files: OpenFiles, path: Path, number: int) -> Entry:
    """Entry `number` of a file; zeros when it is not there."""
    file = files.find(path)
    data = b"" if file is None else file.pread(ENTRY_BYTES, number * ENTRY_BYTES)
    return ENTRY.unpack(data) if len(data) == ENTRY_BYTES else (0, 0, 0)


def compare(known: QueueState, root: Path, files: Files, opened: OpenFiles, file_bytes: int) -> list[Finding]:
    """How the files of one queue differ from its recorded state."""
    directory = root / known.topic / str(known.queue_id)
    per_file = file_bytes // ENTRY_BYTES
    sizes = {entry.name: entry.size for entry in entries_of(files, directory) if entry.is_file}
    replay_from = 0
    for start in known.file_starts(per_file):
        name = segment_name(start * ENTRY_BYTES)
        if sizes.get(name) != file_bytes:
            reason = "is missing" if name not in sizes else f"is {sizes[name]} bytes long, not {file_bytes}"
            return [Finding(QUEUE_FAMILY, f"{known.where}/{name}", reason, replay_from)]
        last = min(known.max_offset - start, per_file) - 1
        for number in (0, last):
            found = read_entry(opened, directory / name, number)
            if not is_valid(found):
                reason = f"holds no entry at {start + number}"
                return [Finding(QUEUE_FAMILY, f"{known.where}/{name}", reason, replay_from)]
            replay_from = found[0] if number == last else replay_from
    return []
