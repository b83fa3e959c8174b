"""The commit log: every record of every topic, one after another, in fixed-size segments.

Append, read, positions, truncate: small on purpose, so that another log can take its place. It knows
bytes and places, nothing of queues or messages.

    min_offset <= flushed_offset <= readable_offset <= wrote_offset

Threads: `active` and `roll` belong to the holder of the put lock; flush and commit to the flusher; reads
to any thread.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from embermq.columns import resync
from embermq.errors import SegmentUnavailable
from embermq.files import Bytes, Segment, Segments
from embermq.format.frame import BLANK_BYTES, encode_blank


class Lent(NamedTuple):
    """Readable bytes of one segment: data[start:end] is physical [base + start, base + end)."""

    data: Bytes
    base: int
    start: int
    end: int


class CommitLog:
    """Segments in order, the last of which is written."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.active: Segment | None = None  # Put lock.
        self.flushed_offset = 0
        self.flushed_timestamp = 0  # Store time of the newest record known to be durable.

    def adopt_end(self, end: int) -> None:
        """Recovery has put the segments' positions in order: go on from `end`."""
        last = self.segments.last
        self.active = last if last is not None and last.is_active else None
        self.flushed_offset = end

    # -- positions -------------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        return max(0, self.segments.min_offset)

    @property
    def wrote_offset(self) -> int:
        return self.segments.wrote_offset

    @property
    def readable_offset(self) -> int:
        """Everything below may be read: with private buffers, what was committed to the files."""
        return self.segments.max_offset

    # -- append side -----------------------------------------------------------------------------------

    def roll(self, start: int | None = None) -> Segment:
        """Close the active segment with a blank and go on in a new one; SegmentUnavailable if there is none.

        The first one of an empty log starts at `start`, or at 0.
        """
        full = self.active
        begun = self.segments.begun_after(full)
        if begun is not None:  # A roll that a signal handler has interrupted got so far.
            self.active = begun
            return begun
        if full is not None and full.wrote < full.size:
            full.target[full.wrote : full.wrote + BLANK_BYTES] = encode_blank(full.size - full.wrote)
            full.wrote = full.size
        try:
            self.active = self.segments.roll(start)
        except OSError as problem:
            place = f"{problem.filename}: " if problem.filename else ""
            raise SegmentUnavailable(place + (problem.strerror or str(problem))) from problem
        return self.active

    # -- reading ---------------------------------------------------------------------------------------

    def read(self, physical_offset: int, count: int) -> bytes:
        """Up to `count` readable bytes of the segment that holds `physical_offset`; b"" if none does."""
        segment = self.segments.find(physical_offset)
        return b"" if segment is None else segment.read(physical_offset - segment.start, count)

    @contextmanager
    def lend(self, physical_offset: int, limit: int) -> Iterator[Lent | None]:
        """The readable bytes from `physical_offset` to the end of its segment or `limit`, for a scan."""
        segment = self.segments.find(physical_offset)
        if segment is None:
            yield None
            return
        start = physical_offset - segment.start
        with segment.array_for_scan() as data:
            end = min(segment.readable, limit - segment.start, len(data))
            yield Lent(data, segment.start, start, max(start, end))

    def next_record(self, physical_offset: int, limit: int) -> int | None:
        """Where the first sound record at or after a place begins; None if none ends in its segment before `limit`.

        Searched through the map, a piece at a time: the rest of the segment is not copied.
        """
        with self.lend(physical_offset, limit) as lent:
            found = -1 if lent is None else resync(lent.data, lent.base, lent.start, lent.end)
            return None if lent is None or found < 0 else lent.base + found

    def next_segment_start(self, physical_offset: int) -> int:
        """Where the segment after this place begins: the end of its own one, or, in a gap, the next there is."""
        segment = self.segments.find(physical_offset)
        if segment is not None:
            return segment.end
        return next((later.start for later in self.segments.all if later.start > physical_offset), self.wrote_offset)

    # -- durability ------------------------------------------------------------------------------------

    def flush(self, confirm: Callable[[], None] | None = None) -> int:
        """fdatasync everything readable and return the new flushed offset. Flusher only.

        An OSError leaves the position where the last good sync put it, also one of `confirm`, which is called after
        each sync. A segment's time is taken before its sync: it may only stand for what was there.
        """
        for segment in self.segments.all:
            if segment.end <= self.flushed_offset:
                continue
            timestamp = segment.store_timestamp
            segment.flush()
            if confirm is not None:
                confirm()
            if segment.flushed:
                self.flushed_offset = segment.start + segment.flushed
                self.flushed_timestamp = max(self.flushed_timestamp, timestamp)
            if segment.flushed < segment.size:
                break  # Not all of it is readable yet, so nothing after it counts as durable.
        return self.flushed_offset

    def commit(self) -> bool:
        """Move private buffers to the files; True if anything moved. Flusher only."""
        return self.segments.commit()

    def close(self) -> None:
        self.active = None
        self.segments.close()
