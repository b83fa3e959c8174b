"""Finding a consume queue on disk: which of its files can be used, and where it ends.

A queue is usable from its first file up to the first thing that cannot be; the rest is reported and comes
back from the log. Nothing here writes. Called while the store is being opened, by one thread.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from embermq.errors import StorePathInvalid
from embermq.files import Files, OpenFiles, entries_of
from embermq.format.names import parse_segment_name, segment_name
from embermq.format.queue_entry import ENTRY, ENTRY_BYTES, ENTRY_DTYPE
from embermq.store.queues.consume_queue import BLANK, ConsumeQueue, Entry, is_valid
from embermq.store.queues.queue_state import SharedQueueState
from embermq.store.sink import Finding

QUEUE_FAMILY = "consumequeue"
_IS_DIRECTORY = -1  # As the size of a file: it is none.
_SCAN_ENTRIES = 3276  # just under 64 KiB


@dataclass(frozen=True, slots=True)
class QueueState:
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
        return [
            self.topic,
            self.queue_id,
            self.min_offset,
            self.max_offset,
            self.max_physical,
            self.first_file,
            self.file_count,
        ]

    @staticmethod
    def parse(state: Any, file_bytes: int) -> "dict[tuple[str, int], QueueState] | None":
        """A state() that came back from JSON, or None when it is none, or of another file size."""
        try:
            known = msgspec.convert(state, _States)
        except msgspec.ValidationError:
            return None
        if known.file_bytes != file_bytes:
            return None
        return {(row[0], row[1]): QueueState(*row) for row in known.queues}

    def file_starts(self, entries_per_file: int) -> list[int]:
        return [self.first_file + i * entries_per_file for i in range(self.file_count)]

    @property
    def where(self) -> str:
        return f"{self.topic}/{self.queue_id}"


class _States(msgspec.Struct):
    file_bytes: int
    queues: list[tuple[str, int, int, int, int, int, int]]


@dataclass(frozen=True, slots=True)
class _FoundQueueFile:
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


class QueueLoader:
    """Loads queues one after another; the same files and sizes for all."""

    def __init__(self, books: SharedQueueState, files: Files, written: Written) -> None:
        self._books = books
        self._written = written
        self._files = files
        self._file_bytes = books.entries_per_file * ENTRY_BYTES

    def load(self, queue: ConsumeQueue, known: QueueState | None) -> list[Finding]:
        """Give `queue` its numbers and files; what is wrong with it is the answer."""
        found = self._list(queue.directory)
        if known is not None and self._is_as_known(found, known):
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

    def _is_as_known(self, found: list[_FoundQueueFile], known: QueueState) -> bool:
        per_file = self._books.entries_per_file
        if [file.start for file in found] != known.file_starts(per_file) or not found:
            return False
        if self._usable(found) != (found, None):
            return False
        if not found[0].start <= known.max_offset - 1 < found[-1].start + per_file:  # type: ignore[operator]
            return False
        end = known.max_offset % per_file
        last = self._entry(found[-1], (end or per_file) - 1)
        after = self._entry(found[-1], end) if end else None
        return is_valid(last) and sum(last[:2]) == known.max_physical and (after is None or not is_valid(after))

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
            first = usable[0].start
            assert first is not None
            self._books.restore(queue.slot, first, end, last[0] + last[1])
            queue.skip_blanks()
            if problem is None and self._goes_on(usable[-1], end, last):
                problem = usable[-1], f"has a gap at {end}"
        if problem is not None:
            file, reason = problem
            where = f"{queue.topic}/{queue.queue_id}/{file.path.name}"
            findings.append(Finding(QUEUE_FAMILY, where, reason, max(queue.max_physical, 0)))
        return findings

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
        return read_entry(self._books.files, file.path, number % self._books.entries_per_file)

    def _end_of(self, file: _FoundQueueFile) -> tuple[int, Entry | None]:
        """Queue offset after the last entry of a file, and that entry. Physical offsets never go down."""
        opened = self._books.files.find(file.path)
        assert file.start is not None
        if opened is None:
            return file.start, None  # Its writer has removed it.
        count, last = 0, None
        while count < self._books.entries_per_file:
            data = opened.pread(_SCAN_ENTRIES * ENTRY_BYTES, count * ENTRY_BYTES)
            entries = np.frombuffer(data, ENTRY_DTYPE)
            physicals = entries["physical_offset"].astype(np.int64)
            good = (physicals >= 0) & (entries["size"] > 0)
            good[1:] &= physicals[1:] >= physicals[:-1]
            if last is not None:
                good[0] &= physicals[0] >= last[0]
            valid = len(entries) if good.all() else int(np.argmin(good))
            if valid:
                last = entries[valid - 1].item()
            count += valid
            if valid < len(entries) or not valid:
                break
        return file.start + count, last

    def _goes_on(self, file: _FoundQueueFile, end: int, last: Entry) -> bool:
        """Are there entries of proven records behind what looks like the end of a queue?"""
        opened = self._books.files.find(file.path)
        assert opened is not None
        assert file.start is not None
        known = self._written
        if known.proven <= last[0] + last[1] <= known.log_end:
            return False
        before = last[0] if last[0] < known.proven else 0
        for at in range(end - file.start, self._books.entries_per_file, _SCAN_ENTRIES):
            count = min(_SCAN_ENTRIES, self._books.entries_per_file - at)
            entries = np.frombuffer(opened.pread(count * ENTRY_BYTES, at * ENTRY_BYTES), ENTRY_DTYPE)
            physicals = entries["physical_offset"].astype(np.int64)
            if ((physicals > before) & (physicals < known.proven) & (entries["size"] > 0)).any():
                return True
            if at > end - file.start and not entries["size"].any():
                return False  # Nothing was written here any more.
        return False


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
