"""Parked records as rows of a run: messages that waited in a topic of the broker's, for their own topics.

A row points into the bytes the parked record was read from, its topic into the value of REAL_TOPIC there: nothing is
copied before the record is written again. A record becomes a row only if it is *ordinary*: it passes every check of the
format, belongs to its place of the queue it was parked in, has IPv4 addresses and the store's own one, names a queue
that is known, and breaks no limit. What is not is for the plain way (store/services/redelivery.py), which gives the
same bytes, or says why there are none.

`read_parked` is the plain twin of the kernel of the same name.
"""

from collections.abc import Callable
from enum import IntEnum, unique
from typing import Any, NamedTuple

from embermq.columns.plain import runs as r
from embermq.columns.plain.runs import BORN_NOW, I32_MAX, P_PHYSICAL, P_QUEUE_OFFSET, P_SIZE, RowLimits
from embermq.columns.rows import Rows, as_view
from embermq.format.frame import HOST_V4_BYTES, TOPIC_BYTES_MAX, RecordParts, measure, record_size
from embermq.model.flags import HOST_V6_MASK, PREPARED
from embermq.model.properties import HALF_TOPIC, REAL_QUEUE_ID, REAL_TOPIC

QUEUE_ID_DIGITS_MAX = 10
BORN_HOST_AT, STORE_HOST_AT = 48, 64  # in a record with IPv4 addresses
_NAMES = REAL_TOPIC.encode() + b"\x01", REAL_QUEUE_ID.encode() + b"\x01"
_HALF_TOPIC = HALF_TOPIC.encode()


@unique
class ParkedStop(IntEnum):
    """Why reading parked records stopped."""

    ALL = 0  # All have become rows.
    PLACE = 1  # The next one goes to a queue that is not known yet: its row has topic and queue id.
    PLAIN = 2  # The next one is not ordinary.
    ELSEWHERE = 3  # The next one does not lie in these bytes.


class ParkedIn(NamedTuple):
    """The queue the records are parked in, and the packed host of the store."""

    topic: bytes
    queue_id: int
    store_host: bytes


class ParkedRead(NamedTuple):
    """How far a call came: the record it stopped at, the bytes of those before it once written, why it stopped."""

    stopped_at: int
    record_bytes: int
    stop: ParkedStop


def read_parked(
    data: Any,
    base: int,
    places: Rows,
    start: int,
    parked_in: ParkedIn,
    find_place: Callable[[bytes, int], int],
    limits: RowLimits,
    rows: Rows,
) -> ParkedRead:
    """Make rows of the records at places[start:] (columns P_PHYSICAL, P_SIZE, P_QUEUE_OFFSET).

    `base` is the physical offset of data[0]. All parts of a row lie in `data`."""
    view = as_view(data)
    total = 0
    for i in range(start, len(places)):
        place, size, queue_offset = (int(places[i, column]) for column in (P_PHYSICAL, P_SIZE, P_QUEUE_OFFSET))
        if size <= 0 or place < 0:
            return ParkedRead(i, total, ParkedStop.PLAIN)
        if place < base or place - base > len(view) - size:
            return ParkedRead(i, total, ParkedStop.ELSEWHERE)
        row = _row_of(view, base, place - base, size, queue_offset, parked_in)
        if row is None:
            return ParkedRead(i, total, ParkedStop.PLAIN)
        written = record_size(row[r.R_BODY_LEN], row[r.R_TOPIC_LEN], row[r.R_PROPS_LEN])
        if row[r.R_BODY_LEN] > limits.body_bytes_max or written > limits.record_bytes_max:
            return ParkedRead(i, total, ParkedStop.PLAIN)
        topic = bytes(view[row[r.R_TOPIC_AT] :][: row[r.R_TOPIC_LEN]])
        row[r.R_QUEUE] = find_place(topic, row[r.R_QUEUE_ID])
        rows[i] = row
        if row[r.R_QUEUE] < 0:
            return ParkedRead(i, total, ParkedStop.PLACE)
        total += written
    return ParkedRead(len(places), total, ParkedStop.ALL)


def _row_of(
    view: memoryview, base: int, at: int, size: int, queue_offset: int, parked_in: ParkedIn
) -> list[int] | None:
    """The row of a record, but for its queue; None if it is not ordinary."""
    parts = measure(view, at, at + size, base + at, True)
    if not isinstance(parts, RecordParts) or not _belongs(view, parts, size, queue_offset, parked_in):
        return None
    own = bytes(view[at + STORE_HOST_AT : at + STORE_HOST_AT + HOST_V4_BYTES])
    if parts.head[7] & (HOST_V6_MASK | PREPARED) or own != parked_in.store_host or parts.head[8] == BORN_NOW:
        return None
    topic_at, topic_len = property_value(view, parts, _NAMES[0])
    number_at, number_len = property_value(view, parts, _NAMES[1])
    digits = bytes(view[number_at : number_at + number_len])
    if not 0 < topic_len <= TOPIC_BYTES_MAX or bytes(view[topic_at : topic_at + topic_len]) == _HALF_TOPIC:
        return None
    if not 0 < number_len <= QUEUE_ID_DIGITS_MAX or not digits.isdigit() or int(digits) > I32_MAX:
        return None
    row = [0] * r.N_RUN_COLUMNS
    row[r.R_BODY_AT], row[r.R_BODY_LEN] = parts.body_at, parts.head[14]
    row[r.R_TOPIC_AT], row[r.R_TOPIC_LEN] = topic_at, topic_len
    row[r.R_PROPS_AT], row[r.R_PROPS_LEN] = parts.properties_at, parts.properties_len
    row[r.R_QUEUE_ID], row[r.R_FLAG], row[r.R_SYS_FLAG] = int(digits), parts.head[4], parts.head[7]
    row[r.R_BORN_TIME], row[r.R_RECONSUME] = parts.head[8], parts.head[12]
    row[r.R_HOST_AT], row[r.R_HOST_LEN] = at + BORN_HOST_AT, HOST_V4_BYTES
    return row


def _belongs(view: memoryview, parts: RecordParts, size: int, queue_offset: int, parked_in: ParkedIn) -> bool:
    return (
        parts.head[0] == size
        and parts.head[3] == parked_in.queue_id
        and parts.head[5] == queue_offset
        and view[parts.topic_at : parts.topic_at + parts.topic_len] == parked_in.topic
    )


def property_value(view: memoryview, parts: RecordParts, name: bytes) -> tuple[int, int]:
    """Where the last value of a property that is not empty lies, and its length; -1 for none."""
    found = -1, -1
    at, end = parts.properties_at, parts.properties_at + parts.properties_len
    for pair in bytes(view[at:end]).split(b"\x02"):
        if pair.startswith(name) and len(pair) > len(name):
            found = at + len(name), len(pair) - len(name)
        at += len(pair) + 1
    return found
