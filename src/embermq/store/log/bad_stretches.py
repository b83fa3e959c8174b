"""Stretches of the log that hold no record, found while the store is read, and remembered.

A queue entry leads to a place of the log where no record begins. Either the log is damaged there, or the entry is. The
records around the place tell: the nearest one before it that is whole, and the nearest one behind it. If the first one
ends before the place, what lies between the two is damaged, and every entry that leads there has lost its record.

Each byte is searched once: what is known is kept, neighbouring stretches are joined, and a search that comes to a known
stretch ends there. Bytes are read and not mapped: a bad disk is an OSError then. Any thread.
"""

import logging
import threading
from bisect import bisect_right, insort

from embermq.format.frame import BLANK_MAGIC, MESSAGE_MAGIC, Frame
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.damage import FILLER_TOPIC
from embermq.store.log.records import Records

log = logging.getLogger(__name__)

# So far from a place a search goes at once; behind that it goes on when a reader comes there. No record is longer.
SEARCH_BYTES_MAX = 64 << 20
STRETCHES_MAX = 4096
_WINDOW_BYTES = 8 << 10
_WINDOW_BYTES_MAX = 1 << 20
_HEAD_BYTES = 36  # of a record, up to its own physical offset
_POSITION = slice(28, 36)
_STEM = MESSAGE_MAGIC.to_bytes(4, "big", signed=True)[:3]
_BLANK = BLANK_MAGIC.to_bytes(4, "big", signed=True)

Stretch = tuple[int, int]  # Start and end.


class BadStretches:
    """What is known of one log."""

    def __init__(self, commit_log: CommitLog, records: Records) -> None:
        self._log, self._records = commit_log, records
        self._lock = threading.Lock()
        self._known: list[Stretch] = []  # Ascending, apart from each other.
        self.found = 0  # How many were found and reported.
        self.searched_bytes = 0

    def known(self) -> list[Stretch]:
        """All stretches that are remembered, in log order."""
        with self._lock:
            return list(self._known)

    def around(self, place: int) -> Stretch | None:
        """The stretch that holds a place; None if the place is in a whole record, in the blank end of a file, or in no
        file of the log."""
        with self._lock:
            stretch = self._at(place)
            if stretch is None:
                stretch = self._look(place)
                if stretch is not None:
                    stretch = self._remember(stretch)
            return stretch

    def _at(self, place: int) -> Stretch | None:
        number = bisect_right(self._known, (place, 1 << 63)) - 1
        return self._known[number] if number >= 0 and place < self._known[number][1] else None

    def _remember(self, stretch: Stretch) -> Stretch:
        """Join a stretch with those it touches, and report it if it touches none."""
        start, end = stretch
        joined = [one for one in self._known if one[0] <= end and one[1] >= start]
        if not joined:
            self.found += 1
            log.error("log damaged physical_offset=%d length=%d found_by=reader", start, end - start)
        for one in joined:
            self._known.remove(one)
            start, end = min(start, one[0]), max(end, one[1])
        if len(self._known) >= STRETCHES_MAX:
            del self._known[: STRETCHES_MAX // 2]
        insort(self._known, (start, end))
        return start, end

    # -- searching -------------------------------------------------------------------------------------------

    def _look(self, place: int) -> Stretch | None:
        segment = self._log.segments.find(place)
        if segment is None:
            return self._gap(place)
        if self._records.frame_at(place) is not None:
            return None
        start = self._start_before(place, segment.start)
        if start is None or self._is_blank(start, segment.end):
            return None
        return start, self._end_behind(place, min(segment.end, self._log.readable_offset))

    def _gap(self, place: int) -> Stretch | None:
        """A log file that is gone while there are some before and behind it."""
        if not self._log.min_offset <= place < self._log.readable_offset:
            return None
        size = self._log.segments.segment_bytes
        start = place - place % size
        return start, min(start + size, self._log.next_segment_start(place))

    def _start_before(self, place: int, lowest: int) -> int | None:
        """Where the nearest whole record before a place ends, or another known stretch begins; None if the record
        reaches over the place."""
        lowest, at, step = max(lowest, place - SEARCH_BYTES_MAX), place, _WINDOW_BYTES
        while at > lowest:
            known = self._at(at - 1)
            if known is not None:
                return known[0]
            window = max(lowest, at - step)
            data = self._read(window, at - window + _HEAD_BYTES)
            found = data.rfind(_STEM, 4, at - window + 6)
            while found >= 0:
                frame = self._record(window, data, found - 4)
                if frame is not None:
                    return self._end_before(frame, place)
                found = data.rfind(_STEM, 4, found + 2)
            at, step = window, min(2 * step, _WINDOW_BYTES_MAX)
        return lowest

    def _end_before(self, frame: Frame, place: int) -> int | None:
        if frame.end <= place:
            return frame.end
        # A filler stands for damage that an opening has met.
        return frame.physical_offset if FILLER_TOPIC.startswith(frame.topic) else None

    def _end_behind(self, place: int, highest: int) -> int:
        """Where the nearest whole record behind a place begins, or another known stretch ends."""
        highest, at, step = min(highest, place + SEARCH_BYTES_MAX), place + 1, _WINDOW_BYTES
        while at < highest:
            known = self._at(at)
            if known is not None:
                return known[1]
            window_end = min(highest, at + step)
            data = self._read(at, window_end - at + _HEAD_BYTES)
            found = data.find(_STEM, 4, window_end - at + 6)
            while found >= 0:
                if self._record(at, data, found - 4) is not None:
                    return at + found - 4
                found = data.find(_STEM, found + 1, window_end - at + 6)
            at, step = window_end, min(2 * step, _WINDOW_BYTES_MAX)
        return highest

    def _read(self, at: int, count: int) -> bytes:
        self.searched_bytes += count
        return self._log.read(at, count)

    def _record(self, base: int, data: bytes, at: int) -> Frame | None:
        """The whole record that begins at data[at]. Its own place is compared first: the magic alone is in every record
        of a log file that lies in the place of another."""
        head = data[at : at + _HEAD_BYTES]
        if int.from_bytes(head[_POSITION], "big") != base + at:
            return None
        return self._records.frame_at(base + at)

    def _is_blank(self, start: int, file_end: int) -> bool:
        """Does the blank begin here that closes a file?"""
        head = self._log.read(start, 8)
        return head[4:] == _BLANK and int.from_bytes(head[:4], "big") == file_end - start
