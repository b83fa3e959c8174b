"""One consume queue: the places of one topic's messages in the log, by queue offset.

The entry of queue offset n lies at byte 20*n of the queue's files, always: an entry's place comes from the
record itself, so writing it twice changes nothing and files can be made again in any order.
Entries not yet written are read from the pending list of all queues (`queue_books`).

Reading is for any thread at any time; what is cut or deleted meanwhile is answered as not there.
The methods that change anything take the books' locks; the caller is the dispatcher, recovery or retention.
"""

from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embermq.files import OpenFile
from embermq.format.names import segment_name
from embermq.format.queue_entry import BLANK_SIZE, ENTRY_BYTES, ENTRY_DTYPE
from embermq.store.queues.extension import QueueExtension
from embermq.store.queues.pending_entries import Entries, Fill
from embermq.store.queues.queue_state import NO_PHYSICAL, SharedQueueState

BLANK = (0, BLANK_SIZE, 0)
UNREADABLE = -1  # what a store_time_of answers for a record it cannot read
_NO_ENTRIES: Entries = np.empty(0, ENTRY_DTYPE)
_FILL_ENTRIES = 50_000
_LOOK_ENTRIES = 4_096

Entry = tuple[int, int, int]
StoreTimeOf = Callable[[int, int], int]


def is_valid(entry: Entry) -> bool:
    """Could be an entry: zeros, as in the unwritten part of a file, could not."""
    return entry[0] >= 0 and entry[1] > 0


class ConsumeQueue:
    """The queue of one topic and queue id. Made by ConsumeQueues only."""

    __slots__ = (
        "_books",
        "_directory",
        "_last_path",
        "_root",
        "_topic_bytes",
        "extension",
        "file_starts",
        "let_go",
        "queue_id",
        "slot",
        "stale_files",
        "topic",
    )

    def __init__(
        self,
        books: SharedQueueState,
        slot: int,
        topic: str,
        queue_id: int,
        root: Path,
        extension: QueueExtension | None = None,
    ) -> None:
        """`root` is the directory of all queues."""
        self.topic, self.queue_id = topic, queue_id
        self._root = root
        # Made when they are asked for: most of very many queues lie idle.
        self._directory: Path | None = None
        self._topic_bytes: NDArray[np.uint8] | None = None
        self.slot = slot
        self.extension = extension
        self._books = books
        self._last_path: tuple[int, Path] | None = None  # What path_of was asked last: making a path takes longer.
        # Start offsets (in entries) of the files that hold this queue. Changers only.
        self.file_starts: set[int] = set()
        # Files found at load that are not proven; gone before a replay writes the queue again.
        self.stale_files: list[Path] = []
        # Files whose records have left the log, on their way off the disk; oldest first.
        self.let_go: list[Path] = []

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}@{self.queue_id} {self.min_offset}..{self.max_offset}>"

    @property
    def directory(self) -> Path:
        if self._directory is None:
            self._directory = self._root / self.topic / str(self.queue_id)
        return self._directory

    @property
    def topic_bytes(self) -> NDArray[np.uint8]:
        """The topic as records have it."""
        if self._topic_bytes is None:
            self._topic_bytes = np.frombuffer(self.topic.encode("utf-8", "surrogatepass"), np.uint8)
        return self._topic_bytes

    # Numbers

    @property
    def min_offset(self) -> int:
        return int(self._books.min[self.slot])

    @property
    def max_offset(self) -> int:
        """The next queue offset to be written."""
        return int(self._books.next[self.slot])

    @property
    def written_offset(self) -> int:
        """Entries below this queue offset are in files."""
        return int(self._books.written[self.slot])

    @property
    def max_physical(self) -> int:
        """End of the newest entry's record, or -1."""
        return int(self._books.max_physical[self.slot])

    def roll_next_file(self, queue_offset: int) -> int:
        """The first queue offset of the file after the one that holds `queue_offset`."""
        per_file = self._books.entries_per_file
        return queue_offset + per_file - queue_offset % per_file

    # Reading

    def entries(self, start: int, limit: int) -> Entries:
        """Up to `limit` entries from queue offset `start` on, as a copy; never past the file that holds
        `start`, and none when `start` lies outside the queue."""
        return self._read(start, start + limit) if start >= self.min_offset else _NO_ENTRIES

    def entry(self, queue_offset: int) -> Entry | None:
        """Physical offset, record size and tag code (or extension address) of one entry."""
        return self.peek(queue_offset) if queue_offset >= self.min_offset else None

    def peek(self, queue_offset: int) -> Entry | None:
        """As entry(), below the minimum too."""
        found = self._read(queue_offset, queue_offset + 1)
        return None if not len(found) else found[0].item()

    def _read(self, start: int, end: int) -> Entries:
        """Entries start..end, up to the end of the first one's file, wherever the queue's minimum is."""
        books, slot = self._books, self.slot
        with books.lock:
            written, ordered = int(books.written[slot]), books.ordered
            end = min(end, int(books.next[slot]), self.roll_next_file(start))
            all_in_files = end <= written and ordered
            pending = None if all_in_files else books.pending.view(ordered=ordered)
            leaving = None if all_in_files or books.leaving is None else books.leaving.view(ordered=ordered)
        if start < 0 or start >= end:
            return _NO_ENTRIES
        if all_in_files:
            return self._read_file(start, end)
        out: Entries = np.zeros(end - start, ENTRY_DTYPE)
        if start < written:
            found = self._read_file(start, min(end, written))
            if not len(found) and ordered:
                return _NO_ENTRIES  # The file was deleted meanwhile.
            out[: len(found)] = found
        for view in (leaving, pending):
            if view is not None:
                view.overlay(slot, start, out, first=written if ordered else None)
        return out

    def entries_on_disk(self, start: int, limit: int) -> Entries:
        """As entries(), of whatever lies in the file that holds `start`: also past the queue's end as it is known,
        and of entries that were never written. None if there is no such file."""
        return self._read_file(start, min(start + limit, self.roll_next_file(start)))

    def _read_file(self, start: int, end: int) -> Entries:
        per_file = self._books.entries_per_file
        file = self._books.files.find(self.path_of(start - start % per_file))
        if file is None:
            return _NO_ENTRIES
        data = file.pread((end - start) * ENTRY_BYTES, start % per_file * ENTRY_BYTES)
        return np.frombuffer(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES], ENTRY_DTYPE)

    def path_of(self, file_start: int) -> Path:
        """The file whose first entry has queue offset `file_start`."""
        known = self._last_path
        if known is not None and known[0] == file_start:
            return known[1]
        path = self.directory / segment_name(file_start * ENTRY_BYTES)
        self._last_path = file_start, path
        return path

    def _first(self, start: int, end: int, wanted: Callable[[Entry], bool]) -> int:
        """The first queue offset in [start, end) whose entry is `wanted`, else `end`. Entries that cannot be
        read are not; all after a wanted one are wanted too. A damaged entry counts as the next sound one does."""

        def is_wanted(queue_offset: int) -> bool:
            entry = self.peek(queue_offset)
            if entry is not None and not self._could_be(entry):
                entry = self._next_sound(queue_offset, end) or entry
            return entry is not None and wanted(entry)

        return bisect_left(range(start, end), True, key=is_wanted) + start

    def _could_be(self, entry: Entry) -> bool:
        """Can this be an entry of the queue? It leads to no record past the newest one, then, or is a blank."""
        return is_valid(entry) and (entry[1] == BLANK_SIZE or entry[0] + entry[1] <= self.max_physical)

    def _next_sound(self, start: int, end: int) -> Entry | None:
        """The first entry in [start, end) that can be one; None if there is none. Of zeroed and overwritten pages."""
        while start < end:
            entries = self._read(start, min(end, start + _LOOK_ENTRIES))
            physicals, sizes = entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int64)
            sound = (physicals >= 0) & (sizes > 0) & ((sizes == BLANK_SIZE) | (physicals <= self.max_physical - sizes))
            if sound.any():
                entry: Entry = entries[int(np.argmax(sound))].item()
                return entry
            start = start + len(entries) if len(entries) else self.roll_next_file(start)
        return None

    # By time

    def offset_at(self, timestamp: int, store_time_of: StoreTimeOf, log_min: int) -> int:
        """The queue offset whose record was stored nearest to `timestamp`, as RocketMQ answers it.

        One file is searched: the first whose newest message is not older than `timestamp`, else the last.
        Of several messages of one time any may be the answer; 0 for an empty queue or an unreadable record.
        """
        low, end = self.min_offset, self.max_offset
        if low >= end:
            return 0
        while self.roll_next_file(low) < end:
            last = self.peek(self.roll_next_file(low) - 1)
            if last is not None and last[0] >= log_min and store_time_of(last[0], last[1]) >= timestamp:
                break
            low = self.roll_next_file(low)
        end = min(end, self.roll_next_file(low))
        return self._nearest(low, end, timestamp, store_time_of, log_min)

    def _nearest(self, low: int, end: int, timestamp: int, store_time_of: StoreTimeOf, log_min: int) -> int:
        """Bisection over [low, end) of one file, step by step as RocketMQ does it."""
        per_file = self._books.entries_per_file
        base = low - low % per_file  # The middle is taken from positions inside the file.
        low, high = low - base, end - base - 1
        left = right = -1
        left_time: int | None = None
        right_time: int | None = None
        while high >= low:
            middle = (low + high) // 2
            entry = self.peek(base + middle)
            if entry is None:
                return 0
            if entry[0] < log_min:
                left, low = middle, middle + 1
                continue
            time_ms = store_time_of(entry[0], entry[1])
            if time_ms == UNREADABLE:
                return 0
            if time_ms == timestamp:
                return base + middle
            if time_ms > timestamp:
                right, right_time, high = middle, time_ms, middle - 1
            else:
                left, left_time, low = middle, time_ms, middle + 1
        if left_time is None:
            return base + right if right >= 0 else base + left
        if right_time is None:
            return base + left
        return base + (left if timestamp - left_time <= right_time - timestamp else right)

    # Changing: write and write_fill with the disk lock held, the others take what they need

    @property
    def low_offset(self) -> int:
        """Queue offset of the first entry there is, expired and blank ones included."""
        return min(self.file_starts | {self.min_offset})

    def write(self, queue_offset: int, entries: Entries) -> None:
        """Write entries that lie in one file."""
        at = queue_offset % self._books.entries_per_file
        file = self._obtain(queue_offset - at)
        file.pwrite(entries.view(np.uint8).data, at * ENTRY_BYTES)
        self._books.files.touch(file.path)

    def write_fill(self, fill: Fill) -> None:
        at = fill.start
        while at < fill.end:
            end = min(fill.end, self.roll_next_file(at), at + _FILL_ENTRIES)
            self.write(at, np.full(end - at, np.array(fill.entry, ENTRY_DTYPE), ENTRY_DTYPE))
            at = end

    def _obtain(self, file_start: int) -> OpenFile:
        path = self.path_of(file_start)
        known = file_start in self.file_starts
        # A file that is there without being known holds nothing that is proven.
        file = self._books.files.obtain(path, self._books.entries_per_file * ENTRY_BYTES, fresh=not known)
        if not known:
            self.file_starts.add(file_start)
            if path in self.stale_files:
                self.stale_files.remove(path)
        return file

    def cut(self, next_offset: int) -> None:
        """Make `next_offset` the end of the queue. What lies past it is zeroed, so that no later start
        takes it for entries."""
        books, slot = self._books, self.slot
        with books.disk, books.change:
            last = self.peek(next_offset - 1)
            if not books.read_only:
                self._cut_files(next_offset)
            with books.lock:
                books.pending.drop_from(slot, next_offset)
                books.next[slot] = next_offset
                books.written[slot] = min(int(books.written[slot]), next_offset)
                books.min[slot] = min(int(books.min[slot]), next_offset)
                books.max_physical[slot] = NO_PHYSICAL if last is None else last[0] + last[1]

    def has_bytes_at(self, queue_offset: int) -> bool:
        """Is there anything but zeros where the entry of this offset is, or will be, in its file?"""
        per_file = self._books.entries_per_file
        start = queue_offset - queue_offset % per_file
        file = self._books.files.find(self.path_of(start)) if start in self.file_starts else None
        return file is not None and any(file.pread(ENTRY_BYTES, (queue_offset - start) * ENTRY_BYTES))

    def _cut_files(self, next_offset: int) -> None:
        per_file = self._books.entries_per_file
        for start in sorted(self.file_starts, reverse=True):  # The newest first: never a gap.
            if start >= next_offset:
                self._books.files.remove(self.path_of(start))
                self.file_starts.discard(start)
            elif start + per_file > next_offset:
                file = self._obtain(start)
                file.zero((next_offset - start) * ENTRY_BYTES, per_file * ENTRY_BYTES)
                self._books.files.touch(file.path)

    def truncate_to(self, physical_offset: int) -> bool:
        """Cut the entries of records at or past `physical_offset`; False when no entry is left."""
        with self._books.disk, self._books.change:
            if self.max_physical > physical_offset:
                end = self.max_offset
                self.cut(self._first(self.low_offset, end, lambda entry: entry[0] >= physical_offset))
            return self.has_entries()

    def has_entries(self) -> bool:
        """Whether a record stands behind the newest entry (blanks have none)."""
        newest = self.peek(self.max_offset - 1)
        return newest is not None and is_valid(newest) and newest != BLANK

    def skip_blanks(self) -> None:
        """Make the first entry with a record the minimum."""
        first = self._first(self.low_offset, self.max_offset, lambda entry: is_valid(entry) and entry != BLANK)
        with self._books.lock:
            self._books.min[self.slot] = first

    def proven_before(self, queue_offset: int, physical_offset: int) -> int:
        """The end of the entries below `queue_offset` that are of records before `physical_offset`."""

        def is_beyond(entry: Entry) -> bool:
            return not is_valid(entry) or entry[0] >= physical_offset

        low = self.low_offset
        newest = self.peek(queue_offset - 1)
        if queue_offset <= low or (newest is not None and not is_beyond(newest)):
            return queue_offset
        return self._first(low, queue_offset, is_beyond)

    def drop_files_before(self, queue_offset: int) -> None:
        """Remove the files that end at or before `queue_offset`."""
        for start in sorted(self.file_starts):
            if start + self._books.entries_per_file > queue_offset:
                break
            self._books.files.remove(self.path_of(start))
            self.file_starts.discard(start)

    def correct_min(self, log_min: int) -> None:
        """Make the first entry whose record is still in the log the queue's minimum; if there is none,
        the minimum stays."""
        books = self._books
        with books.disk:
            low, end = self.low_offset, self.max_offset
            first = self._first(low, end, lambda entry: entry[0] >= log_min and is_valid(entry) and entry != BLANK)
            if first == end:
                return
            with books.lock:
                books.min[self.slot] = first
            entry = self.peek(first)
            if self.extension is not None and entry is not None and not books.read_only:
                self.extension.delete_before(entry[2])

    def let_go_before(self, log_min: int) -> int:
        """Take the files all of whose records have left the log out of the queue, never the last file; answers
        how many. They lie on the disk until `remove_let_go`: what counts files must count fewer before."""
        books = self._books
        gone = 0
        with books.disk:
            for start, following in pairwise(sorted(self.file_starts)):
                last = self.peek(following - 1)
                if last is None or last[0] >= log_min:
                    break
                with books.lock:
                    books.min[self.slot] = max(int(books.min[self.slot]), following)
                self.file_starts.discard(start)
                self.let_go.append(self.path_of(start))
                gone += 1
            self.correct_min(log_min)
        return gone

    def remove_let_go(self) -> int:
        """Delete what was let go, oldest first; answers how many. After an OSError the rest is still there."""
        books = self._books
        removed = 0
        with books.disk:
            while self.let_go:
                books.files.remove(self.let_go[0])
                books.files.sync_directory(self.directory)  # In this order on disk too: never a gap.
                del self.let_go[0]
                removed += 1
        return removed

    def delete_before(self, log_min: int) -> int:
        """Delete files all of whose records have left the log, never the last file; answers how many."""
        self.let_go_before(log_min)
        return self.remove_let_go()

    def remove_stale_files(self) -> None:
        """Files that load refused. Their entries come back from the log, or their records are gone."""
        for path in self.stale_files:
            self._books.files.remove(path)
        self.stale_files.clear()

    def destroy(self) -> None:
        """Remove the queue and its files."""
        books = self._books
        with books.disk, books.change:
            books.reset(self.slot)
            # If a removal fails, the queue is gone all the same and may begin anew; a later call finds the rest.
            self.stale_files += [self.path_of(start) for start in sorted(self.file_starts, reverse=True)]
            self.stale_files += reversed(self.let_go)
            self.file_starts.clear()
            self.let_go.clear()
            if books.read_only:
                return
            self.remove_stale_files()
            if self.extension is not None:
                self.extension.destroy()
            books.files.remove_directory(self.directory)
            books.files.remove_directory(self.directory.parent)
