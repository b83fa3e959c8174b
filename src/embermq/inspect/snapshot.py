"""A store directory seen from outside: ours or RocketMQ's, being written, stopped, copied or damaged.

    with nothing written, no lock taken and no thread started:
        survey = Survey.open("/data/store")
        survey.queues()                  what topics and queues there are, from where to where
        survey.scan(start, end)          the log as columns
        survey.refresh()                 look again, only at what is new

File sizes are those found on the disk. What may be seen ends at `log_end` (log_view.py says where that is), and
all answers are about the log below it. One thread at a time.
"""

import functools
import weakref
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from embermq.columns import C_PHYSICAL, C_STORE_TIME
from embermq.errors import StorePathInvalid
from embermq.files import Files, RealFiles
from embermq.inspect.key_view import IndexView
from embermq.inspect.log_identity import Identity, LogMatch, compare, identity_at
from embermq.inspect.log_view import LogView, RecordMark
from embermq.inspect.lost_end import newest_end, proven_end
from embermq.inspect.queue_files import NO_ENTRIES
from embermq.inspect.queue_view import Queue, QueueSpan, QueueView
from embermq.store.layout import (
    CONFIG,
    PageNumbers,
    check_directory,
    load_deleted_topics,
    lock_holder,
    was_closed_cleanly,
)
from embermq.store.log import ROWS_MAX, DamagedRange, LogSegment, Scanned, scan_segments

__all__ = ["DamagedRange", "LogMatch", "LogSegment", "QueueSpan", "Scanned", "Survey", "scan_segments"]

_NEAR_BYTES = 1 << 20
_TRIES_MAX = 5


P = ParamSpec("P")
R = TypeVar("R")


def _naming_files(method: Callable[Concatenate["Survey", P], R]) -> Callable[Concatenate["Survey", P], R]:
    """A file that cannot be read is a StorePathInvalid that names it. One that is not there any more is looked for
    again: the store's writer may have removed it, or be replacing it."""

    @functools.wraps(method)
    def call(survey: "Survey", /, *args: P.args, **kwargs: P.kwargs) -> R:
        for left in reversed(range(_TRIES_MAX)):
            try:
                return method(survey, *args, **kwargs)
            except OSError as problem:
                if not isinstance(problem, FileNotFoundError) or not left:
                    where = Path(str(problem.filename or survey.path))
                    raise StorePathInvalid(where, problem.strerror or str(problem)) from problem
                survey.forget_files()
        raise AssertionError("unreachable")

    return call


class Survey:
    """One look at a store, and further ones with `refresh`."""

    has_queue_files = True  # May there be any? Where there cannot, entries come from scans of the log.

    def __init__(self, path: Path, files: Files) -> None:
        """Use `open`."""
        self.path = path
        self._files = files
        this = weakref.ref(self)
        self._log = LogView(path, files, lambda: _newest_entry_end(this()))
        self._queues = QueueView(path, files, self._log)
        # Up to READ_OPEN_MAX queue files are held open: they are closed with the survey, not when cycles are collected.
        weakref.finalize(self, self._queues.on_disk.forget).atexit = False
        self._index = IndexView(path, files, self._log)
        self._mark: RecordMark | None = None

    @classmethod
    def open(cls, path: str | Path, *, files: Files | None = None) -> "Survey":
        """Look at the store at `path`; StorePathInvalid if there is none."""
        survey = cls(Path(path), files or RealFiles())
        survey.refresh()
        return survey

    @property
    def files(self) -> Files:
        """What the store is read with."""
        return self._files

    @_naming_files
    def refresh(self) -> None:
        """Look again: what was appended, rolled or deleted since, and whether it is still the same log."""
        self._check_root()
        self._log.look()
        if self._mark is not None and not self._is_there(self._mark):
            self._log.forget()
            self._log.look()
            self._mark = None
        if self._mark is None or self._mark.physical_offset < self.log_min:
            self._mark = self._log.oldest_mark()

    def forget_files(self) -> None:
        """Find queue and index files anew when asked next: some of those that were known are gone."""
        self._log.generation += 1

    def _check_root(self) -> None:
        check_directory(self._files, self.path, read_only=True, has_log_elsewhere=False)

    def _is_there(self, mark: RecordMark) -> bool:
        return mark.physical_offset < self.log_min or self._log.mark_at(mark.physical_offset) == mark

    # -- the log ---------------------------------------------------------------------------------------------

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The log files, oldest first; those made ahead and still empty as well."""
        return self._log.segments

    @property
    def log_min(self) -> int:
        return self._log.min

    @property
    def log_end(self) -> int:
        """Everything below may be shown: no crash takes it back, as far as that can be known."""
        return self._log.end

    @_naming_files
    def lost_end(self) -> int:
        """How far the log once went, if more than there is was proven; else `log_end`."""
        is_closed = was_closed_cleanly(self._files, self.path)
        if not is_closed and (self.state_page is not None or lock_holder(self.path) is not None):
            return self.log_end  # It goes on from where the page says; or it is growing just now.
        once = proven_end(self._files, self.path, lambda: newest_end(self._queues.on_disk.all()))
        return max(once, self.log_end)

    @_naming_files
    def missing_directories(self) -> tuple[Path, ...]:
        """Where log files are looked for, if none of these directories is there."""
        places = self._log.places
        return () if any(map(self._files.exists, places)) else places

    @property
    def identity(self) -> str:
        """Tells this log from another one at the same path, by its oldest record. It changes when that record is
        deleted: compare with `same_log_as`. For one who goes on reading, `identity_at` is better."""
        return str(Identity(self._log.epoch, self._mark))

    @_naming_files
    def identity_at(self, physical_offset: int) -> str:
        """The same for one who has read up to a place: it holds for as long as anything before that place is
        there, and tells whether the log was cut and written again there."""
        return str(identity_at(self._log, physical_offset, self._mark))

    @_naming_files
    def compare(self, identity: str) -> LogMatch:
        """Is this the log that `identity` was taken from, and has nothing up to there changed?"""
        return compare(self._log, Identity.parse(identity))

    def is_behind(self, identity: str) -> bool:
        """Does the log not show all yet that it did when `identity` was taken? So it is while a store is being
        recovered: the state page of one that the power was cut to may be older than its log."""
        last = Identity.parse(identity).last
        return last is not None and last.physical_offset >= self.log_end

    def same_log_as(self, identity: str) -> bool:
        return self.compare(identity) is LogMatch.SAME

    @_naming_files
    def store_time_at(self, physical_offset: int) -> int | None:
        """When the record that begins at a place was stored; None if no whole record below `log_end` does."""
        frame = self._log.frame_at(physical_offset) if physical_offset < self.log_end else None
        return None if frame is None else frame.store_timestamp

    def holding_log_files(self) -> AbstractContextManager[None]:
        """Meanwhile log files stay open: for one who asks for single records of very many queues."""
        return self._log.holding_files()

    @_naming_files
    def record_start(self, physical_offset: int) -> int:
        """The first place at or after this one where a record begins; `log_end` if there is none."""
        return self._log.record_start(physical_offset)

    def scan(
        self,
        start: int,
        end: int,
        *,
        check_crc: bool = True,
        rows_max: int = ROWS_MAX,
        delay_ms: Sequence[int] | None = None,
    ) -> Iterator[Scanned]:
        """Records that begin in [start, end), and ranges without one; `start` is where a record begins."""
        start, end = max(start, self.log_min), min(end, self.log_end)
        return scan_segments(
            self.segments, start, end, check_crc=check_crc, rows_max=rows_max, files=self._log.files, delay_ms=delay_ms
        )

    def files_for(self, segments: tuple[LogSegment, ...], end: int) -> Files:
        """What to read these log files with, up to about a place; picklable, if the survey's own is."""
        return self._files

    # -- queues ----------------------------------------------------------------------------------------------

    @property
    def state_page(self) -> PageNumbers | None:
        """What the last writer of ours has proven, if that is about this log."""
        return self._log.page

    @_naming_files
    def newest_entry_end(self) -> int:
        """The end of the newest record that queue files know and the log confirms; 0 if there is none."""
        return self._queues.on_disk.newest_entry_end()

    @_naming_files
    def queues(self) -> dict[tuple[str, int], QueueSpan]:
        """Every topic and queue with what it has below `log_end`, whether in queue files yet or not."""
        spans = self._queues.spans()
        deleted = self.deleted_topics()
        return {key: span for key, span in spans.items() if not self._is_deleted(span, deleted.get(span.topic))}

    def deleted_topics(self) -> dict[str, int]:
        """Topics that were deleted, and where the log ended then: their records below that place are in no queue."""
        return load_deleted_topics(self._files, self.path)

    def _is_deleted(self, span: QueueSpan, place: int | None) -> bool:
        """Has the queue nothing that came after its topic was deleted, with the log ending at `place`?"""
        if place is None:
            return False
        newest = self.entries(span.topic, span.queue_id, span.max_offset - 1, span.max_offset)
        return len(newest) > 0 and int(newest[0]["physical_offset"]) < place

    @_naming_files
    def entries(self, topic: str, queue_id: int, start: int, end: int) -> NDArray[np.void]:
        """Entries (ENTRY_DTYPE) of queue offsets start..end, fewer where the queue ends.

        The tag code is as stored: of a queue with extension files it may be an address.
        """
        queue = self._queues.find(topic, queue_id)
        return NO_ENTRIES if queue is None else self._queues.entries(queue, start, end)

    @_naming_files
    def place_range(self, topic: str, queue_id: int, start: int, end: int) -> tuple[int, int]:
        """A range of the log that holds the records of queue offsets [start, end). A record begins at its start.

        It may be some MiB too long where entries are not in files yet, and much too long where files are wrong.
        """
        queue = self._queues.find(topic, queue_id)
        return (self.log_end, self.log_end) if queue is None else self._queues.place_range(queue, start, end)

    @_naming_files
    def offset_from(self, topic: str, queue_id: int, physical_offset: int) -> int:
        """The first queue offset whose record lies at or after a place; the queue's end if none does."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else self._queues.offset_from(queue, physical_offset)

    @_naming_files
    def offset_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        """The first queue offset whose record was stored at or after a time; the queue's end if none was.

        Found by bisection: exact while store times ascend. Where the clock was set back, the record found
        is not older than the time and the one before it is older, and there may be more such places.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        start, end = queue.min, max(queue.file_end, queue.min)
        if start == end or not self._is_late(queue, end - 1, time_ms):
            return self._first_late_in_log(queue, end, time_ms)
        return start + bisect_left(range(start, end), True, key=lambda at: self._is_late(queue, at, time_ms))

    def _is_late(self, queue: Queue, queue_offset: int, time_ms: int) -> bool:
        entry = self._queues.entries(queue, queue_offset, queue_offset + 1)
        return len(entry) > 0 and self._time_at(int(entry[0]["physical_offset"])) >= time_ms

    def _first_late_in_log(self, queue: Queue, start: int, time_ms: int) -> int:
        """Among entries that no file has: first by the marks, then in the stretch between two of them."""
        places, offsets = queue.mark_physicals, queue.mark_offsets
        late = bisect_left(places, True, key=lambda place: self._time_at(place) >= time_ms)
        start = offsets[late - 1] if late else start
        entries = self._queues.entries(queue, start, offsets[late] if late < len(offsets) else queue.next)
        return start + bisect_left(entries["physical_offset"], True, key=lambda at: self._time_at(int(at)) >= time_ms)

    def _time_at(self, physical_offset: int) -> int:
        """Store time of the record at a place; -1 if it cannot be read."""
        frame = self._log.frame_at(physical_offset)
        return -1 if frame is None else frame.store_timestamp

    @_naming_files
    def physical_at(self, time_ms: int) -> int:
        """The first place whose record was stored at or after a time; `log_end` if none was.

        By bisection, with what `offset_at` says about clocks that were set back.
        """
        begun = [segment.start for segment in self.segments if segment.start < self.log_end]
        late = bisect_left(begun, True, key=lambda start: self._is_record_late(self.record_start(start), time_ms))
        low = self.record_start(begun[late - 1] if late else self.log_min)
        high = self.record_start(begun[late]) if late < len(begun) else self.log_end
        limit = high
        while limit - low > _NEAR_BYTES:
            middle = (low + limit) // 2
            at = self.record_start(middle)
            if at >= limit:
                limit = middle
            elif self._time_at(at) >= time_ms:
                high = limit = at
            else:
                low = at
        for scanned in self.scan(low, high):
            if not isinstance(scanned, DamagedRange):
                late_rows = np.flatnonzero(scanned.column(C_STORE_TIME) >= time_ms)
                if len(late_rows):
                    return int(scanned.rows[late_rows[0], C_PHYSICAL])
        return high

    def _is_record_late(self, place: int, time_ms: int) -> bool:
        return place >= self.log_end or self._time_at(place) >= time_ms

    def extents(
        self,
        queues: Mapping[tuple[str, int], tuple[int, int]] | None,
        begin_ms: int | None,
        end_ms: int | None,
        keys: Collection[str] | None = None,
    ) -> list[tuple[int, int]] | None:
        """The only parts of the log in which records of these queue offsets and store times, with one of these keys,
        can lie, in order, each begun where a record begins; None if only reading the log would show."""
        return None

    def config_text(self, name: str) -> str | None:
        """A file of the directory config/; None if it is not there. OSError or UnicodeDecodeError if unreadable."""
        path = self.path / CONFIG / name
        return self._files.read_all(path).decode("utf-8") if self._files.exists(path) else None

    # -- keys ------------------------------------------------------------------------------------------------

    def index_shape(self) -> tuple[int, int] | None:
        """Slots and entries of an index file, as far as they are known; None without one."""
        return self._index.shape()

    @_naming_files
    def find_key(self, topic: str, key: str, begin_ms: int, end_ms: int) -> list[int] | None:
        """Places of records in [begin_ms, end_ms) that may have this key, ascending; None when no index can be
        trusted to know them all. Different keys can share a hash: compare the record's own."""
        return self._index.find(topic, key, begin_ms, end_ms)


def _newest_entry_end(survey: Survey | None) -> int:
    assert survey is not None, "its log view is asked by the survey alone"
    return survey._queues.on_disk.newest_entry_end()
