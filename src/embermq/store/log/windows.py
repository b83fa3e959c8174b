"""Bytes of the log for readers that know where their records lie: as few reads as possible, and none past a file.

The file that is written is mapped, and lent as it is. Other files are read by pread, so that a bad disk is an OSError
and not a signal: what lies close together is read at once, what lies between it is read along. Any thread.
"""

import struct
from typing import NamedTuple

import numpy as np

from embermq.files import Bytes
from embermq.format.queue_entry import ENTRY_BYTES
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.records import TRUSTED_BYTES

_PLACE_SIZE = struct.Struct(">qi")
_SIZE = struct.Struct(">i")
GAP_BYTES_MAX = 16 << 10
WINDOW_BYTES_MAX = 512 << 10


class Window(NamedTuple):
    """data[0] is physical offset `base`."""

    data: Bytes
    base: int


def tail_window(log: CommitLog, end: int, most: int) -> Window | None:
    """The last bytes of the file that is written, as far as `end`, at most so many; None if there are none."""
    segment = log.active
    array = segment.array if segment is not None else None
    if segment is None or array is None:
        return None
    stop = min(segment.readable, end - segment.start)
    start = max(0, stop - most)
    return Window(array[start:stop], segment.start + start) if stop > 0 else None


def window_at(log: CommitLog, entries: memoryview, mask: memoryview, first: int, count: int) -> Window | None:
    """Bytes that hold the record of entry number `first` of `entries` (bytes of a queue file), and of some of those
    that follow and lie close by: `count` at most, and only those that `mask` has a number other than 0 for, unless it
    is empty. None if there is no such record."""
    place, size = _PLACE_SIZE.unpack_from(entries, first * ENTRY_BYTES)
    segment = log.segments.find(place) if place >= 0 else None
    if segment is None or size <= 0:
        return None
    array, readable = segment.array, segment.readable
    at = place - segment.start
    if at > readable - size:
        return None
    if array is not None:
        return Window(array[:readable], segment.start)
    if size > TRUSTED_BYTES:  # A damaged entry may claim any size; is this one the record's own?
        head = segment.read(at, _SIZE.size)
        if len(head) < _SIZE.size or _SIZE.unpack(head)[0] != size:
            return None
    end = _end_of_neighbours(entries, mask, first, count, place + size)
    return Window(np.frombuffer(segment.read(at, end - place), np.uint8), place)


def _end_of_neighbours(entries: memoryview, mask: memoryview, first: int, count: int, end: int) -> int:
    """Where the last of the records ends that follow one another with small gaps."""
    most = end + WINDOW_BYTES_MAX
    for number in range(first + 1, len(entries) // ENTRY_BYTES):
        if mask and not mask[number]:
            continue
        place, size = _PLACE_SIZE.unpack_from(entries, number * ENTRY_BYTES)
        count -= 1
        if count <= 0 or not end <= place <= end + GAP_BYTES_MAX or not 0 < size <= most - place:
            break
        end = place + size
    return end
