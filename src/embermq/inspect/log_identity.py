"""Whose log is this? A text that tells a log from another one at the same path, and the comparison.

    epoch : place : digest [ : place : digest ]

`epoch` is that of the state page, or `-`. Then a record that is there for as long as anything after it is (the oldest
of the log, or the first of a log file) by its place and a digest of its head, and, where a position is to be
remembered, the last record before it. What is unknown is `-`. Records decide as long as they are there:

    first record another one      OTHER    another log lies here
    last record another one       CUT      the same log, whose end was lost in a crash and written again
    otherwise                     SAME     also when nothing can be compared; then epochs, if both are known

A state page is made anew when a store is copied or its page damaged, so a different epoch alone says nothing.
"""

from dataclasses import dataclass
from enum import Enum, auto

from embermq.columns import C_PHYSICAL, C_SIZE
from embermq.inspect.log_view import LogView, RecordMark
from embermq.store.log import DamagedRange, scan_segments, segment_at

_NONE = "-"
_LOOK_BACK_BYTES = 64 << 10


class LogMatch(Enum):
    SAME = auto()
    CUT = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Identity:
    epoch: int | None
    first: RecordMark | None
    last: RecordMark | None = None

    def __str__(self) -> str:
        words = [_NONE if self.epoch is None else f"{self.epoch:x}", *_words(self.first)]
        return ":".join(words if self.last is None else [*words, *_words(self.last)])

    @classmethod
    def parse(cls, text: str) -> "Identity":
        """Anything that is no identity says nothing."""
        words = text.split(":")
        try:
            epoch = None if words[0] == _NONE else int(words[0], 16)
            return cls(epoch, _mark(words[1:3]), _mark(words[3:5]))
        except ValueError:
            return cls(None, None)


def _words(mark: RecordMark | None) -> list[str]:
    return [_NONE, _NONE] if mark is None else [str(mark.physical_offset), mark.digest]


def _mark(words: list[str]) -> RecordMark | None:
    return RecordMark(int(words[0]), words[1]) if len(words) == 2 and words[0] != _NONE else None


def identity_at(log: LogView, physical_offset: int, otherwise: RecordMark | None) -> Identity:
    """For one who has read up to here: the first record of the log file before this place, and the last one."""
    segment = segment_at(log.segments, max(physical_offset - 1, log.min))
    start = log.record_start(segment.start) if segment is not None else log.end
    first = log.mark_at(start) if start < log.end else otherwise
    return Identity(log.epoch, first, _last_before(log, physical_offset))


def _last_before(log: LogView, physical_offset: int) -> RecordMark | None:
    """The record that ends here, if it is not too long."""
    segment = segment_at(log.segments, physical_offset - 1) if physical_offset > log.min else None
    if segment is None:
        return None
    start = log.record_start(max(segment.start, physical_offset - _LOOK_BACK_BYTES))
    found = None
    for scanned in scan_segments(log.segments, start, physical_offset, check_crc=False, files=log.files):
        if not isinstance(scanned, DamagedRange):
            place, size = int(scanned.rows[-1, C_PHYSICAL]), int(scanned.rows[-1, C_SIZE])
            found = place if place + size == physical_offset else None
    return None if found is None else log.mark_at(found)


def compare(log: LogView, identity: Identity) -> LogMatch:
    """Is this the log that `identity` was taken from?"""
    if not _may_be(log, identity.first):
        return LogMatch.OTHER
    if not _may_be(log, identity.last):
        return LogMatch.CUT
    if _is_known(log, identity.first) or log.epoch is None or identity.epoch is None:
        return LogMatch.SAME
    return LogMatch.SAME if log.epoch == identity.epoch else LogMatch.OTHER


def _is_known(log: LogView, mark: RecordMark | None) -> bool:
    return mark is not None and mark.physical_offset >= log.min


def _may_be(log: LogView, mark: RecordMark | None) -> bool:
    return mark is None or mark.physical_offset < log.min or log.mark_at(mark.physical_offset) == mark
