"""All segments of a log, in order: load, find, roll, truncate, delete.

The set is a tuple that is replaced and never changed, so readers on any thread look at a consistent set
without a lock. `roll` belongs to the writer; deleting, truncating and loading may come from another
thread and exclude each other by a lock. Loading looks and reports (`Finding`), and changes nothing on
the disk: recovery decides, and calls `extend_short` or `truncate_to`.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from embermq.files.files import Files
from embermq.files.limits import allow_log_files
from embermq.files.pool import TransientPool
from embermq.files.segment import Segment
from embermq.files.segment_listing import FoundFile, SegmentFinding, length_findings, list_log
from embermq.format.names import segment_name

_LISTINGS_MAX = 3


class Allocates(Protocol):
    """Where new segments come from."""

    def take(self, start: int) -> Segment:
        """An active, empty segment that starts at `start`."""
        ...

    def seal_soon(self, segment: Segment) -> None:
        """Seal a segment that the writer has left, off the writer's thread."""
        ...


class Segments:
    """The files of one log, possibly spread over several directories."""

    def __init__(
        self,
        directories: Sequence[Path],
        files: Files,
        segment_bytes: int,
        *,
        read_only: bool = False,
        read_only_directories: Sequence[Path] = (),
        fallocate: bool = True,
        is_too_full: Callable[[Path], bool] | None = None,
    ) -> None:
        assert directories
        assert segment_bytes > 0
        self.directories = sorted(directories)
        self.read_only_directories = tuple(read_only_directories)
        self.segment_bytes = self._configured_bytes = segment_bytes
        self.read_only = read_only
        self._allocator: Allocates | None = None
        self.foreign: list[Path] = []  # Names or places that are not ours; never read or touched.
        self._files = files
        self._fallocate = fallocate
        self._is_too_full = is_too_full
        self._all: tuple[Segment, ...] = ()
        self._lock = threading.Lock()

    # -- looking ---------------------------------------------------------------------------------------

    def make_ahead_with(self, allocator: Allocates) -> None:
        """From now on `allocator` makes the next files and seals full ones. It needs these segments first, so it cannot
        be an argument of the constructor."""
        self._allocator = allocator

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._all)

    @property
    def all(self) -> tuple[Segment, ...]:
        return self._all

    @property
    def first(self) -> Segment | None:
        segments = self._all
        return segments[0] if segments else None

    @property
    def last(self) -> Segment | None:
        segments = self._all
        return segments[-1] if segments else None

    @property
    def min_offset(self) -> int:
        """Where the log begins; -1 if there is no file."""
        segments = self._all
        return segments[0].start if segments else -1

    @property
    def max_offset(self) -> int:
        """Where readers must stop; 0 if there is no file."""
        segments = self._all
        if not segments:
            return 0
        last = at = len(segments) - 1
        # Private buffers may not be committed yet, of the file before, or of one further back: where the pool had none
        # to spare, files between were written without.
        for earlier in reversed(range(last)):
            segment = segments[earlier]
            if segment.flushed == segment.size:
                break
            if segment.readable < segment.size:
                at = earlier
        return segments[at].start + segments[at].readable

    @property
    def wrote_offset(self) -> int:
        """Where the writer is; 0 if there is no file."""
        segments = self._all
        return segments[-1].start + segments[-1].wrote if segments else 0

    @property
    def flushed_offset(self) -> int:
        """Everything below is durable; 0 if there is no file."""
        segments = self._all
        tail = _unflushed(segments)
        if tail:
            return tail[0].start + tail[0].flushed
        return segments[-1].end if segments else 0

    def find(self, physical_offset: int) -> Segment | None:
        """The segment that holds `physical_offset`."""
        segments = self._all
        if not segments:
            return None
        last = segments[-1]  # nearly every call
        if physical_offset >= last.start:
            return last if physical_offset < last.end else None
        at = bisect_right(segments, physical_offset, key=_start_of) - 1
        if at < 0 or physical_offset >= segments[at].end:
            return None
        return segments[at]

    def after(self, segment: Segment) -> Segment | None:
        """The segment that follows."""
        segments = self._all
        at = bisect_right(segments, segment.start, key=_start_of)
        return segments[at] if at < len(segments) else None

    # -- loading ---------------------------------------------------------------------------------------

    def load(self) -> list[SegmentFinding]:
        """Open what is on the disk, sealed, in the order of names. Changes nothing on the disk.

        A file shorter than the others is opened with the length it has, an empty one too.
        """
        assert not self._all
        places = [(path, not self.read_only) for path in self.directories]
        places += [(path, False) for path in self.read_only_directories if path not in self.directories]
        listing = list_log(self._files, places, self._configured_bytes)
        for _ in range(_LISTINGS_MAX - 1):
            if not self.read_only or not listing.has_gaps:
                break
            # A file that came while names were read may be missing among them.
            listing = list_log(self._files, places, self._configured_bytes)
        self.foreign, self.segment_bytes = listing.foreign, listing.segment_bytes
        allow_log_files(len(listing.found))
        segments = self._open_all(listing.found)
        opened = listing.found[len(listing.found) - len(segments) :]
        self._all = tuple(segments)
        return listing.findings + length_findings(opened, self.segment_bytes)

    def _open_all(self, found: list[FoundFile]) -> list[Segment]:
        """Open the files, the newest first: retention takes the oldest first, so what a reader misses of the files it
        has seen by name is the beginning of the log, never a part in the middle."""
        segments: list[Segment] = []
        for item in reversed(found):
            try:
                segment = Segment.open(
                    self._files, item.path, item.start, writable=item.writable, size_limit=self.segment_bytes
                )
            except FileNotFoundError:
                if self.read_only:
                    break
                raise
            segments.insert(0, segment)
        return segments

    def extend_short(self, segment: Segment) -> None:
        """Give a short file its full length, zeros at the end, durably."""
        segment.extend(self.segment_bytes)

    def pad_short(self, segment: Segment) -> None:
        """For a reader: the same, in memory alone."""
        segment.pad(self.segment_bytes)

    # -- growing ---------------------------------------------------------------------------------------

    def path_for(self, start: int) -> Path:
        """Where the file that starts at `start` belongs: directories take turns, too full ones excepted."""
        candidates = self.directories
        if self._is_too_full is not None:
            candidates = [path for path in candidates if not self._is_too_full(path)] or self.directories
        return candidates[start // self.segment_bytes % len(candidates)] / segment_name(start)

    def roll(self, start: int | None = None) -> Segment:
        """Go on with a new active segment after the last one. Writer only.

        In an empty log the first one starts at `start` (default 0) rounded down to a whole file.
        """
        assert not self.read_only
        last = self.last
        if last is not None:
            begin = last.end
            assert last.is_full
            assert start in (None, begin)
        else:
            begin = (start or 0) // self.segment_bytes * self.segment_bytes
        allow_log_files(len(self._all) + 1)
        segment = self._allocator.take(begin) if self._allocator is not None else self.create(begin)
        assert segment.start == begin
        with self._lock:
            self._all += (segment,)
        if last is not None and last.is_active:
            self._leave(last)
        return segment

    def begun_after(self, segment: Segment | None) -> Segment | None:
        """The active segment after this one, if a roll has put it there and nothing was stored in it yet."""
        last = self.last
        if last is None or last is segment or not last.is_active or last.wrote:
            return None
        if segment is not None and segment.is_active:
            self._leave(segment)
        return last

    def _leave(self, segment: Segment) -> None:
        if self._allocator is not None:
            self._allocator.seal_soon(segment)
        elif segment.buffer is None:  # one with a buffer is sealed when the rest of it is committed
            segment.seal()

    def create(self, start: int, pool: TransientPool | None = None) -> Segment:
        """Make the file that starts at `start`, on the calling thread. It is not yet one of the set.

        An empty file of that name was made by an earlier try that did not come to its end, and is taken up.
        """
        path = self.path_for(start)
        try:
            return Segment.create(self._files, path, start, self.segment_bytes, fallocate=self._fallocate, pool=pool)
        except FileExistsError:
            if self.find(start) is not None:
                raise
            return Segment.take_up(self._files, path, start, self.segment_bytes, pool=pool)

    def insert(self, start: int) -> Segment:
        """Make the file that starts at `start` in the place of a missing one; sealed, and full of zeros."""
        segment = self.create(start)
        segment.seal()
        segment.reset(segment.size)
        with self._lock:
            self._all = tuple(sorted((*self._all, segment), key=_start_of))
        return segment

    # -- moving data down ------------------------------------------------------------------------------

    def commit(self) -> bool:
        """Commit private buffers, oldest first; True if anything moved. One thread at a time."""
        return sum(segment.commit() for segment in _unflushed(self._all)) > 0

    def flush(self) -> bool:
        """Flush, oldest first; True if anything moved. One thread at a time; errors propagate at once."""
        return sum(segment.flush() for segment in _unflushed(self._all)) > 0

    # -- shrinking -------------------------------------------------------------------------------------

    def truncate_to(self, physical_offset: int) -> list[Path]:
        """Forget everything from `physical_offset` on; answers the files deleted. Nothing may be writing.

        Later files go first, newest before oldest, so that a crash in between leaves a log without a
        hole. The rest of the file that stays is zeroed: a later walk must not find the old records.
        """
        deleted = []
        with self._lock:
            while self._all and self._all[-1].start > physical_offset:
                segment = self._all[-1]
                self._all = self._all[:-1]
                segment.retire()
                deleted.append(segment.path)
            if self._all and physical_offset < self._all[-1].end:
                last = self._all[-1]
                last.reset(physical_offset - last.start)
                last.zero_from(last.wrote)
        return deleted

    def forget_after(self, physical_offset: int) -> None:
        """Let go of files that begin past `physical_offset`, and set the positions of the rest. For readers:
        nothing changes on the disk."""
        with self._lock:
            gone = [segment for segment in self._all if segment.start > physical_offset]
            self._all = tuple(segment for segment in self._all if segment.start <= physical_offset)
            for segment in self._all:
                segment.reset(min(physical_offset - segment.start, segment.size))
        for segment in gone:
            segment.close()

    def delete_first(self) -> Segment | None:
        """Delete the oldest file, never the last one; None if there is nothing to delete.

        An OSError leaves it in the set, unless it was only the directory that could not be synced.
        """
        with self._lock:
            if len(self._all) < 2:
                return None
            segment = self._all[0]
            # Out of the set first: it is not found any more, and those who hold it can go on.
            self._all = self._all[1:]
        try:
            segment.retire()  # Without the lock: a writer that rolls must not wait for the disk.
        except OSError:
            if segment.file is not None:
                with self._lock:
                    self._all = (segment, *self._all)
            raise
        return segment

    def delete_before(self, physical_offset: int) -> list[Path]:
        """Delete the files that end at or before `physical_offset`, oldest first, never the last."""
        deleted: list[Path] = []
        while len(self._all) > 1 and self._all[0].end <= physical_offset:
            segment = self.delete_first()
            if segment is not None:
                deleted.append(segment.path)
        return deleted

    def close(self) -> None:
        """Let go of all files; nothing is flushed here."""
        with self._lock:
            segments, self._all = self._all, ()
        for segment in segments:
            segment.close()


def _start_of(segment: Segment) -> int:
    return segment.start


def _unflushed(segments: tuple[Segment, ...]) -> list[Segment]:
    """The tail of the set that is not completely flushed, oldest first."""
    tail: list[Segment] = []
    for segment in reversed(segments):
        if segment.flushed == segment.size:
            break
        tail.append(segment)
    return tail[::-1]
