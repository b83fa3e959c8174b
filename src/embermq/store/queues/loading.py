"""Finding a consume queue on disk: which of its files can be used, and where it ends.

A queue is usable from its first file up to the first thing that cannot be; the rest is reported and comes
back from the log. Nothing here writes. Called while the store is being opened, by one thread.

A store may have tens of thousands of queues, so a queue costs one listing of its directory, and one open and one read
of a file where it has one file with few entries (`Files.read_ends`). What was read near the end of a queue is kept for
the replay that follows (`QueueEnds`), which needs to look at the same place.

Files are opened for writing where the store may write: one that could not be written is reported by the opening and not
by the first append.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from embermq.errors import StorePathInvalid
from embermq.files import FileEnds, Files, OpenFiles, entries_of, names_of
from embermq.format.names import parse_segment_name, segment_name
from embermq.format.queue_entry import ENTRY, ENTRY_BYTES, ENTRY_DTYPE
from embermq.store.queues.consume_queue import BLANK, ConsumeQueue, Entry, is_valid
from embermq.store.queues.file_reader import QueueFileReader
from embermq.store.queues.queue_state import SharedQueueState
from embermq.store.sink import Finding

QUEUE_FAMILY = "consumequeue"
_NO_FILE = FileEnds(-1, b"", b"", False)  # There is a directory.
_HEAD_BYTES = 4096  # one page
_HEAD_ENTRIES = _HEAD_BYTES // ENTRY_BYTES
_FEW_ENTRIES = 32  # Up to so many one by one is the faster way.
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
    """A file of a queue: start in entries (None: no place a file of this size can have), path, and its two ends."""

    start: int | None
    path: str
    ends: FileEnds

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


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
    blank_behind: set[int] = field(
        default_factory=set
    )  # Known to have nothing behind their last entry; there may be more.

    def forget(self, slot: int) -> None:
        """The queue is removed."""
        self.as_known.pop(slot, None)
        self.kept.pop(slot, None)
        self.first_physical.pop(slot, None)
        self.blank_behind.discard(slot)

    def clear(self) -> None:
        self.as_known.clear()
        self.kept.clear()
        self.first_physical.clear()
        self.blank_behind.clear()


class QueueLoader:
    """Loads queues one after another; the same files and sizes for all."""

    def __init__(self, books: SharedQueueState, files: Files, written: Written, ends: QueueEnds) -> None:
        """`ends` is filled."""
        self._books = books
        self._written = written
        self._files = files
        self._ends = ends
        self._reader = QueueFileReader(files)
        self._file_bytes = books.entries_per_file * ENTRY_BYTES
        self._first_name = segment_name(0)

    def load(self, queue: ConsumeQueue, directory: str, known: QueueState | None) -> list[Finding]:
        """Give `queue` its numbers and files; what is wrong with it is the answer."""
        try:
            return self._load(queue, directory, known)
        finally:
            self._reader.close()

    def _load(self, queue: ConsumeQueue, directory: str, known: QueueState | None) -> list[Finding]:
        found = self._list(directory)
        if known is not None and self._is_as_known(queue.slot, found, known):
            queue.file_starts.update([file.start for file in found if file.start is not None])
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

    def _list(self, directory: str) -> list[_FoundQueueFile]:
        found = []
        names = names_of(self._files, directory)
        for name, is_file, is_directory, _ in names:
            start = 0 if name == self._first_name else parse_segment_name(name)
            if start is None or not (is_file or is_directory):
                continue
            first = None if start % self._file_bytes else start // ENTRY_BYTES
            path = f"{directory}/{name}"
            if is_file:
                ends = self._look_at(path, ENTRY_BYTES if name != names[-1].name else 0)
                if ends is not None:
                    found.append(_FoundQueueFile(first, path, ends))
            elif first is not None:
                found.append(_FoundQueueFile(first, path, _NO_FILE))
        return found

    def _look_at(self, path: str, tail_bytes: int) -> FileEnds | None:
        """The ends of a file; None if it is gone. One that cannot be opened is an error if it has our length."""
        try:
            return self._files.read_ends(path, _HEAD_BYTES, tail_bytes, not self._books.read_only)
        except OSError:
            size = self._files.stat(Path(path)).size
            if size == self._file_bytes:
                raise
            return FileEnds(size, b"", b"", False)

    def _is_as_known(self, slot: int, found: list[_FoundQueueFile], known: QueueState) -> bool:
        per_file = self._books.entries_per_file
        if len(found) != known.file_count or not found or found[0].start != known.first_file:
            return False
        if len(found) > 1 and [file.start for file in found] != known.file_starts(per_file):
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
        data = self._read(file, first, min(count + 1, self._books.entries_per_file) - first)
        length = (count - first) * ENTRY_BYTES
        last = ENTRY.unpack_from(data, length - ENTRY_BYTES) if 0 < length <= len(data) else _NO_ENTRY
        after = ENTRY.unpack_from(data, length) if len(data) >= length + ENTRY_BYTES else None
        return KeptEntries(file.start + first, data), last, after

    def _read(self, file: _FoundQueueFile, number: int, count: int) -> bytes:
        """The bytes of `count` entries; fewer at the end of the file."""
        start, end = number * ENTRY_BYTES, (number + count) * ENTRY_BYTES
        head = file.ends.head
        if end <= len(head) or len(head) == file.ends.size:
            return head[start:end]
        return self._reader.read(file.path, number, count)

    def _scan(self, queue: ConsumeQueue, found: list[_FoundQueueFile]) -> list[Finding]:
        usable, problem = self._usable(found)
        queue.stale_files = [Path(file.path) for file in found if file not in usable]
        end, last = self._end_of(usable[-1]) if usable else (0, None)
        findings = []
        if last is None or last == BLANK:
            queue.stale_files = [Path(file.path) for file in found]
            problem = problem or (found[0], "holds no entry") if found else None
        else:
            queue.file_starts.update(file.start for file in usable if file.start is not None)
            self._adopt(queue, usable, end, last)
            if problem is None and self._goes_on(usable[-1], end, last):
                problem = usable[-1], f"has a gap at {end}"
        if problem is not None:
            file, reason = problem
            where = f"{queue.topic}/{queue.queue_id}/{file.name}"
            findings.append(Finding(QUEUE_FAMILY, where, reason, max(queue.max_physical, 0)))
        return findings

    def _adopt(self, queue: ConsumeQueue, usable: list[_FoundQueueFile], end: int, last: Entry) -> None:
        """Take the files that can be used as the queue, up to `end`."""
        start = usable[0].start
        assert start is not None
        self._books.restore(queue.slot, start, end, last[0] + last[1])
        self._ends.kept[queue.slot] = self._read_end(usable[-1], end)[0]
        newest = usable[-1].ends
        if newest.rest_is_hole and not newest.head[end % self._books.entries_per_file * ENTRY_BYTES :].strip(b"\0"):
            self._ends.blank_behind.add(queue.slot)
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
            if file.ends is _NO_FILE:
                return usable, (file, "is a directory where a file should be")
            if file.ends.size != self._file_bytes:
                return usable, (file, f"is {file.ends.size} bytes long, not {self._file_bytes}")
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
        """The first entry of a file, or the last, -1, of one that is not the last file."""
        data = file.ends.tail if number < 0 else file.ends.head[:ENTRY_BYTES]
        return ENTRY.unpack(data) if len(data) == ENTRY_BYTES else _NO_ENTRY

    def _end_of(self, file: _FoundQueueFile) -> tuple[int, Entry | None]:
        """Queue offset after the last entry of a file, and that entry. Physical offsets never go down."""
        assert file.start is not None
        count, last = _few_entries(file.ends.head)
        if count < _FEW_ENTRIES:
            return file.start + count, last
        count, last, at_once = 0, None, _HEAD_ENTRIES
        while count < self._books.entries_per_file:
            data = self._read(file, count, min(at_once, self._books.entries_per_file - count))
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
        if self._is_zero(file, behind, min(behind + 2 * _SCAN_ENTRIES, per_file)):
            return False
        before = last[0] if last[0] < known.proven else 0
        for at in range(behind, per_file, _SCAN_ENTRIES):
            data = self._read(file, at, min(_SCAN_ENTRIES, per_file - at))
            entries = np.frombuffer(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES], ENTRY_DTYPE)
            physicals = entries["physical_offset"].astype(np.int64)
            if ((physicals > before) & (physicals < known.proven) & (entries["size"] > 0)).any():
                return True
            if at > behind and not entries["size"].any():
                return False  # Nothing was written here any more.
        return False

    def _is_zero(self, file: _FoundQueueFile, number: int, end_number: int) -> bool:
        """Do the entries from `number` up to `end_number` read as zero? Holes of the file are not read."""
        start, end = number * ENTRY_BYTES, end_number * ENTRY_BYTES
        head = file.ends.head
        if head[start:end].strip(b"\0"):
            return False
        return file.ends.rest_is_hole or self._reader.is_zero(file.path, max(start, len(head)), end)


_NO_ENTRY: Entry = (0, 0, 0)


def _few_entries(head: bytes) -> tuple[int, Entry | None]:
    """How many entries a file begins with, up to _FEW_ENTRIES, and the last of them."""
    last: Entry | None = None
    for count in range(min(len(head) // ENTRY_BYTES, _FEW_ENTRIES)):
        entry: Entry = ENTRY.unpack_from(head, count * ENTRY_BYTES)
        if not is_valid(entry) or (last is not None and entry[0] < last[0]):
            return count, last
        last = entry
    return min(len(head) // ENTRY_BYTES, _FEW_ENTRIES), last


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
