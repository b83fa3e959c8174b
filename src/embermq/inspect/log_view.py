"""The log of a store seen from outside: its files, where it begins, where it ends, and whose it is.

Where it ends:

    ours, running or killed, SYNC_FLUSH      the flushed position of the state page: a crash can take back the rest
    ours, but the machine stopped since      the last record of an unbroken row from there on: recovery keeps these
    anything else                            the last whole record

A record counts as whole when every length fits and the checksum of its body is right. RocketMQ copies records
into the file from front to back, and no checksum covers what lies behind the body: a last record with a NUL in
its properties may be half copied. It counts once something follows it, once it has not changed for a second,
or if the store was closed.

Files that begin where none of the log's size can (segments.py) are none of its files.

One thread at a time. Reads only.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from embermq.columns import C_PHYSICAL, C_SIZE, RecordColumns, new_rows
from embermq.files import Files, OpenFile, found_size, misfits
from embermq.format.frame import BLANK_BYTES, Frame, ScanStop, Torn, TornReason, decode
from embermq.format.names import parse_segment_name
from embermq.store.layout import PageNumbers, PageReader, log_places, must_be_flushed, was_closed_cleanly
from embermq.store.log import (
    LogSegment,
    ScanEnd,
    ScanSettings,
    frame_at,
    is_record,
    next_record,
    records_of,
    segment_at,
)

_HEAD_BYTES = 88  # Up to the body: places, times, hosts.
_LOOK_AHEAD_BYTES = 16 << 20
_DOUBT_SECONDS = 1.0
_WALK_ROWS = 4_096
_LOOKS_MAX = 5
_HELD_MAX = 64


@dataclass(frozen=True, slots=True)
class RecordMark:
    """A record by its place and a digest of its head: tells one log from another."""

    physical_offset: int
    digest: str


@dataclass(frozen=True, slots=True)
class _Last:
    """The newest whole record that was seen."""

    start: int
    end: int
    head: bytes


class _HeldFiles:
    """A few log files that stay open between reads of single records."""

    def __init__(self) -> None:
        self._files: dict[Path, OpenFile] = {}

    def find(self, path: Path) -> OpenFile | None:
        return self._files.get(path)

    def add(self, path: Path, file: OpenFile) -> None:
        if len(self._files) >= _HELD_MAX:
            self.close()
        self._files[path] = file

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


class LogView:
    """Files and bounds of the log below `root`; `look` again whenever they may have changed."""

    def __init__(self, root: Path, files: Files, newest_entry_end: Callable[[], int]) -> None:
        self._root = root
        self.files = files
        self._newest_entry_end = newest_entry_end  # End of the newest record queue files know; 0: none.
        self.segments: tuple[LogSegment, ...] = ()
        self.end = 0
        self.generation = 0  # Another number: what was seen of the log before does not count any more.
        self.page: PageNumbers | None = None  # Of a page that fits the log.
        self._pages = PageReader(root, files)
        self.places = log_places(files, root)
        self._last: _Last | None = None
        self._doubt: tuple[_Last, float] | None = None
        self._rows = new_rows(_WALK_ROWS)
        self._has_missed = False  # A file that was listed is gone.
        self._held: _HeldFiles | None = None
        self._file_bytes = 0
        self._short: dict[int, int] = {}  # Files that are shorter than the others, and how long they are.

    @property
    def min(self) -> int:
        return self.segments[0].start if self.segments else 0

    def forget(self) -> None:
        """Another log lies there, or its end was cut and written again."""
        self._last = self._doubt = None
        self.generation += 1

    def look(self) -> None:
        """See what lies there now. Retention may take files meanwhile: a log that seems to end at one of them is
        looked at again."""
        before = self.end
        for _ in range(_LOOKS_MAX):
            self._has_missed = False
            self._look_once()
            if not self._has_missed:
                break
        if self.end < before:
            self.generation += 1

    def _look_once(self) -> None:
        epoch = self.epoch
        # In this order: whatever the page speaks of has its file by then.
        page = self._pages.read()
        self.segments = self._list()
        self.page = page if page is not None and self._fits(page) else None
        if epoch != self.epoch:
            self.forget()
        # A live writer may be in a file that was not there when they were listed.
        self.end = min(self._find_end(), self.segments[-1].end if self.segments else 0)

    @property
    def epoch(self) -> int | None:
        """Of the state page, if there is one that counts."""
        return None if self.page is None else self.page.epoch

    def _list(self) -> tuple[LogSegment, ...]:
        by_start: dict[int, tuple[Path, int]] = {}
        for place in self.places:
            try:
                entries = self.files.list_directory(place)
            except FileNotFoundError:
                continue
            for entry in entries:
                start = parse_segment_name(entry.name) if entry.is_file else None
                if start is not None:
                    by_start.setdefault(start, (place / entry.name, entry.size))
        self._file_bytes = found_size([(start, by_start[start][1]) for start in sorted(by_start)])
        self._short = {start: size for start, (_, size) in by_start.items() if size < self._file_bytes}
        by_start = {start: found for start, found in by_start.items() if found[1]}
        outside = misfits([(start, by_start[start][1]) for start in sorted(by_start)])
        starts = sorted(by_start.keys() - outside)
        return tuple(
            LogSegment(by_start[start][0], start, min(by_start[start][1], end - start))
            for start, end in zip(starts, [*starts, 1 << 63][1:], strict=True)
        )

    def _fits(self, page: PageNumbers) -> bool:
        """Is the page about this log?"""
        capacity_end = self.segments[-1].end if self.segments else 0
        if not min([self.min, *self._short]) <= page.flushed <= capacity_end:
            return False
        head = self.read(page.flushed, BLANK_BYTES)
        if len(head) < BLANK_BYTES:
            return True
        found = decode(head, 0, BLANK_BYTES, physical_offset=page.flushed, check_crc=False)
        return not isinstance(found, Torn) or found.reason is not TornReason.BAD_MAGIC  # The middle of a record.

    # -- reading ---------------------------------------------------------------------------------------------

    def _open(self, segment: LogSegment) -> OpenFile | None:
        """None if the file was removed since it was listed."""
        try:
            return self.files.open(segment.path, False)
        except FileNotFoundError:
            self._has_missed = True
            return None

    def read(self, physical_offset: int, count: int) -> bytes:
        """Up to `count` bytes of the file that holds a place; b"" if none does."""
        segment = segment_at(self.segments, physical_offset)
        if segment is None:
            return b""
        file = self._open(segment)
        if file is None:
            return b""
        try:
            return file.pread(min(count, segment.end - physical_offset), physical_offset - segment.start)
        finally:
            file.close()

    def frame_at(self, physical_offset: int) -> Frame | None:
        """The record that begins at a place, if it is whole."""
        segment = segment_at(self.segments, physical_offset)
        if segment is None:
            return None
        held = self._held
        file = held.find(segment.path) if held is not None else None
        if file is not None:
            return frame_at(file, segment, physical_offset)
        file = self._open(segment)
        if file is None:
            return None
        try:
            return frame_at(file, segment, physical_offset)
        finally:
            if held is None:
                file.close()
            else:
                held.add(segment.path, file)

    @contextmanager
    def holding_files(self) -> Iterator[None]:
        """Meanwhile log files stay open: for one who asks for single records of very many queues."""
        before, self._held = self._held, _HeldFiles()
        try:
            yield
        finally:
            self._held.close()
            self._held = before

    def record_start(self, physical_offset: int) -> int:
        """Where the first record at or after a place begins; the end of the log if there is none."""
        at = max(physical_offset, self.min)
        for segment in self.segments:
            if segment.end <= at or segment.start >= self.end:
                continue
            try:
                file = self.files.open(segment.path, False)
            except FileNotFoundError:
                continue
            try:
                found = next_record(file, segment, max(at, segment.start), self.end)
            finally:
                file.close()
            if found is not None:
                return found
        return self.end

    # -- the end ---------------------------------------------------------------------------------------------

    def _find_end(self) -> int:
        page = self.page
        if not self.segments:
            return 0
        if page is not None and must_be_flushed(self.files, self._root, page):
            return page.flushed
        at, is_first_look = self._walk_from(page)
        return self._without_doubt(self._walk(at, page.flushed if page is not None else None, deep=is_first_look))

    def _walk_from(self, page: PageNumbers | None) -> tuple[int, bool]:
        """A place where a record begins, as near to the end as one is known; and whether the log is new to us."""
        known = self._last
        if known is not None and self.read(known.start, _HEAD_BYTES) == known.head and known.end >= self.min:
            return (known.end if page is None else max(known.end, page.flushed)), False
        if known is not None:
            self.forget()
        if page is not None:
            return page.flushed, True
        newest = self._newest_entry_end()
        if newest > self.min:
            return newest, True
        return self._last_with_data().start, True

    def _last_with_data(self) -> LogSegment:
        """The last file that was written to; files made ahead begin with zeros."""
        for segment in reversed(self.segments):
            if self.read(segment.start, 8).strip(b"\0"):
                return segment
        return self.segments[0]

    def _walk(self, at: int, unproven_from: int | None, *, deep: bool) -> int:
        """Pass records, and damage with records behind it, to the end of the log."""
        while True:
            segment = segment_at(self.segments, at)
            if segment is None:
                if unproven_from is not None and at >= unproven_from and self._is_cut_off(at):
                    return max(at, self.min)  # As recovery, for which zeros follow there.
                later = self._good_start_after(at)
                if later is None:
                    return at
                at = later.start
                continue
            stop = self._pass_records(segment, at)
            if stop is None:
                return at
            if stop.code == ScanStop.BLANK and segment == self.segments[-1]:
                return stop.at  # RocketMQ, killed before it made the next file, writes here again.
            if stop.code == ScanStop.BLANK or stop.at >= segment.end:
                at = segment.end
                continue
            if unproven_from is not None and stop.at >= unproven_from:
                return stop.at  # Recovery keeps what is unbroken from there on, and no more.
            onward = self._look_beyond(segment, stop, deep=deep)
            if onward is None:
                return stop.at
            at = onward

    def _is_cut_off(self, physical_offset: int) -> bool:
        """Is this where a file should be, which is empty or too short? A file that is not there at all is passed."""
        start = physical_offset - physical_offset % self._file_bytes if self._file_bytes else 0
        return start in self._short and physical_offset >= start + self._short[start]

    def _pass_records(self, segment: LogSegment, at: int) -> ScanEnd | None:
        file = self._open(segment)
        if file is None:
            return None
        try:
            steps = records_of(file, segment, at, segment.end, ScanSettings(self._rows))
            while True:
                try:
                    self._note_last(next(steps))
                except StopIteration as done:
                    stop: ScanEnd = done.value
                    return stop
        finally:
            file.close()

    def _note_last(self, batch: RecordColumns) -> None:
        row = batch.rows[-1]
        start, size = int(row[C_PHYSICAL]), int(row[C_SIZE])
        at = start - batch.base
        self._last = _Last(start, start + size, batch.data[at : at + _HEAD_BYTES].tobytes())

    def _look_beyond(self, segment: LogSegment, stop: ScanEnd, *, deep: bool) -> int | None:
        """Where records go on after a place without one; None if the log ends there.

        The writer may have finished the record meanwhile, and written more: then they go on right there.
        """
        found: int | None = None
        torn = stop.code >= min(TornReason)
        if deep or torn:
            limit = None if deep else stop.at + _LOOK_AHEAD_BYTES
            file = self._open(segment)
            if file is None:
                return None
            try:
                found = next_record(file, segment, stop.at, limit)
                if found is not None and is_record(file, segment, stop.at):
                    found = stop.at
            finally:
                file.close()
        if found is None:
            later = self._good_start_after(stop.at)
            if later is None:
                return None
            if self.frame_at(stop.at) is not None:
                return stop.at
            found = segment.end if segment_at(self.segments, segment.end) is not None else later.start
        return found

    def _good_start_after(self, physical_offset: int) -> LogSegment | None:
        """The first later file that begins with a whole record."""
        for segment in self.segments:
            if segment.start > physical_offset and self.frame_at(segment.start) is not None:
                return segment
        return None

    def _without_doubt(self, end: int) -> int:
        last = self._last
        if last is None or last.end != end or not self._is_doubtful(last):
            self._doubt = None
            return end
        now = monotonic()
        if self._doubt is None or self._doubt[0] != last:
            self._doubt = last, now
        if now - self._doubt[1] >= _DOUBT_SECONDS:
            return end
        return last.start

    def _is_doubtful(self, last: _Last) -> bool:
        if was_closed_cleanly(self.files, self._root):
            return False
        found = self.frame_at(last.start)
        return found is None or b"\0" in found.properties

    # -- whose it is -----------------------------------------------------------------------------------------

    def oldest_mark(self) -> RecordMark | None:
        """The oldest record there is."""
        start = self.record_start(self.min)
        return self.mark_at(start) if start < self.end else None

    def mark_at(self, physical_offset: int) -> RecordMark | None:
        """What lies at a place, as a mark, whether it may be shown or not; None if nothing does."""
        head = self.read(physical_offset, _HEAD_BYTES)
        if len(head) < _HEAD_BYTES:
            return None
        return RecordMark(physical_offset, hashlib.blake2b(head, digest_size=8).hexdigest())
