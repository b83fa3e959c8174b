"""The stored bytes of the records that entries of one queue lead to, one after another in a buffer.

For readers that pass records on as they are: nothing is decoded. A record is copied only if it passes every check of
the format (place and checksum included) and says that it belongs to this place of this queue. The first entry that is
not ordinary ends the call; what it means is the business of the reader (store/queues/fetch.py).

All numbers of a read are in one vector, so that a read that goes on in other bytes calls again with the same vector.
"""

from enum import IntEnum, unique
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns.rows import as_view
from embermq.format.frame import RecordParts, locate_properties, measure
from embermq.format.queue_entry import ENTRY, ENTRY_BYTES
from embermq.model.flags import has_queue_entry

# How far a read has come.
G_NEXT = 0  # number of the entry to look at next
G_COUNT = 1  # records copied
G_BYTES = 2  # their bytes
G_BILLING = 3  # the sum of their sizes in portions of 64 KiB, each rounded up
G_LAST = 4  # physical offset of the entry looked at last
# What is asked.
G_QUEUE_ID = 5
G_QUEUE_OFFSET = 6  # of entry 0
G_ANY_PLACE = 7  # 1: records need not belong to this place; one record stands in several queues (multi dispatch)
G_LOG_END = 8  # no record reaches past this
G_RECENT_FROM = 9  # records from here on are in memory
G_COUNT_RECENT = 10  # most records, when the next one is in memory
G_BYTES_RECENT = 11  # most bytes, likewise
G_COUNT_OLD = 12  # the same, when the next one is on the disk alone
G_BYTES_OLD = 13
N_GATHER_NUMBERS = 14

# What is said of each record that was copied, if there is room for it.
S_START = 0  # in the buffer
S_SIZE = 1
S_PROPERTIES_AT = 2  # in the buffer
S_PROPERTIES_LEN = 3
S_TAGS_AT = 4  # the value of TAGS, in the buffer; -1 if there is none
S_TAGS_LEN = 5  # likewise
N_PLACE_COLUMNS = 6

BILLING_BYTES = 65_536


@unique
class GatherStop(IntEnum):
    """Why a call ended."""

    END = 0  # all entries were looked at
    FULL = 1  # the next record would be one too many
    ELSEWHERE = 2  # the next record does not lie in these bytes
    NO_ROOM = 3  # the next record does not fit the buffer
    ODD = 4  # the next entry is damaged, or its record is, or does not belong here
    NO_PLACES = 5  # no room to say where the next record lies


def gather_stored(
    data: Any,
    base: int,
    entries: Any,
    may_match: NDArray[np.uint8],
    topic: Any,
    numbers: NDArray[np.int64],
    out: NDArray[np.uint8],
    places: NDArray[np.int64],
) -> GatherStop:
    """Copy the records of `entries` (bytes of a queue file) to `out`, from numbers[G_NEXT] on.

    `base` is the physical offset of data[0]. `may_match` has a number for each entry, 0 to pass over it; empty: none is
    passed over. `places` gets a row for each record copied, unless it has none."""
    view, entry_view, wanted = as_view(data), as_view(entries), bytes(topic)
    asked = numbers.tolist()
    stop = GatherStop.END
    while asked[G_NEXT] < len(entry_view) // ENTRY_BYTES:
        i = asked[G_NEXT]
        place, size, _ = ENTRY.unpack_from(entry_view, i * ENTRY_BYTES)
        if size <= 0 or place < 0 or place > asked[G_LOG_END] - size:
            stop = GatherStop.ODD
            break
        asked[G_LAST] = place
        if asked[G_COUNT] and _is_full(asked, place, size):
            stop = GatherStop.FULL
            break
        if not len(may_match) or may_match[i]:
            if place < base or place - base > len(view) - size:
                stop = GatherStop.ELSEWHERE
                break
            parts = _ordinary(view, base, place - base, size, asked, wanted)
            if parts is None:
                stop = GatherStop.ODD
                break
            start = asked[G_BYTES]
            if size > len(out) - start:
                stop = GatherStop.NO_ROOM
                break
            if len(places):
                if asked[G_COUNT] >= len(places):
                    stop = GatherStop.NO_PLACES
                    break
                places[asked[G_COUNT]] = (start, size, *_parts_of(view, parts, start - (place - base)))
            out[start : start + size] = np.frombuffer(view[place - base : place - base + size], np.uint8)
            asked[G_COUNT] += 1
            asked[G_BYTES] += size
            asked[G_BILLING] += -(-size // BILLING_BYTES)
        asked[G_NEXT] += 1
    numbers[:] = asked
    return stop


def _parts_of(view: memoryview, parts: RecordParts, shift: int) -> tuple[int, int, int, int]:
    """Where properties and tag of a record lie in the buffer."""
    at, length = parts.properties_at, parts.properties_len
    tags_at, tags_len = locate_properties(bytes(view[at : at + length])).get(b"TAGS", (-1, -1))
    return at + shift, length, -1 if tags_len < 0 else at + shift + tags_at, tags_len


def _is_full(asked: list[int], place: int, size: int) -> bool:
    if place >= asked[G_RECENT_FROM]:
        return asked[G_COUNT] >= asked[G_COUNT_RECENT] or asked[G_BYTES] + size > asked[G_BYTES_RECENT]
    return asked[G_COUNT] >= asked[G_COUNT_OLD] or asked[G_BYTES] + size > asked[G_BYTES_OLD]


def _ordinary(view: memoryview, base: int, at: int, size: int, asked: list[int], topic: bytes) -> RecordParts | None:
    """The record at `at`, if it is whole and belongs to the entry."""
    parts = measure(view, at, at + size, base + at, True)
    if not isinstance(parts, RecordParts) or parts.head[0] != size:
        return None
    if asked[G_ANY_PLACE]:
        return parts
    queue_offset = asked[G_QUEUE_OFFSET] + asked[G_NEXT]
    if parts.head[3] != asked[G_QUEUE_ID] or parts.head[5] != queue_offset or not has_queue_entry(parts.head[7]):
        return None
    return parts if view[parts.topic_at : parts.topic_at + parts.topic_len] == topic else None
