"""Ends of transactions as they come from the network: frames of END_TRANSACTION (37) made into rows of a run.

Pieces are those of sends.py, and so is what a familiar frame is. An end is *ordinary* if its frame is familiar and
commits or rolls back, and the record at the place it names is a sound half message of this queue offset and producer
group that lies in the bytes of the log at hand, has IPv4 addresses and the store's own one; to be committed it names
its own topic and queue, and none of its properties means anything to the store. Of every piece the ordinary ends from
its beginning on are read; the first other frame, and what follows it, is for the caller.

An end becomes one row, the op record, or two: the final record in front of it. Their parts are copied to the output, so
that nothing points into the log. Whether a half message is undecided is for the caller as well.

`read_ends` is the plain twin of the kernel of that name.
"""

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from embermq.columns.plain import runs as r
from embermq.columns.plain.parked import BORN_HOST_AT, QUEUE_ID_DIGITS_MAX, STORE_HOST_AT, property_value
from embermq.columns.plain.runs import BORN_NOW, I32_MAX
from embermq.columns.plain.send_headers import (
    END,
    END_DECISION,
    END_PLACE,
    END_REQUIRED,
    END_STATE,
    GROUP,
    HEAD_BYTES,
    ONEWAY,
    Header,
    NotFamiliar,
    frame_at,
    number_of,
    read_binary,
    read_json,
)
from embermq.columns.plain.sends import G_AT, G_END, G_STOPPED
from embermq.columns.rows import Rows, as_view
from embermq.format.frame import HOST_V4_BYTES, TOPIC_BYTES_MAX, RecordParts, measure
from embermq.model.flags import COMMIT, HOST_V6_MASK, ROLLBACK, TRANSACTION_MASK
from embermq.model.properties import HALF_TOPIC, REAL_QUEUE_ID, REAL_TOPIC, has_meaning_to_store

# Columns of an end: how to answer it, its piece, where its frame begins, the half message, the row of its op record,
# and whether the row in front of that is its final record.
E_OPAQUE, E_IS_BINARY, E_IS_ONEWAY, E_PIECE, E_AT, E_HALF_OFFSET, E_PLACE, E_OP_ROW, E_IS_COMMIT = range(9)
N_END_COLUMNS = 9
OP_BODY_BYTES_MAX = 20
GROUP_NAME, TOPIC_NAME, QUEUE_NAME = (name.encode() + b"\x01" for name in ("PGROUP", REAL_TOPIC, REAL_QUEUE_ID))
_HALF_TOPIC = HALF_TOPIC.encode()


class EndStop(IntEnum):
    """Why reading ends stopped."""

    ALL = 0  # Every piece was read up to its first frame that is no ordinary end.
    FULL = 1  # There is no row, or no room for parts, for the next end.


class EndsRead(NamedTuple):
    """How far a call came: ends and rows filled, bytes of the output used; the piece it stopped at, and why."""

    ends: int
    rows: int
    used: int
    piece: int
    stop: EndStop


class HalfLog(NamedTuple):
    """Bytes of the log, the physical offset of the first, and the packed host of the store."""

    data: Any
    base: int
    store_host: bytes


class OpParts(NamedTuple):
    """Where the topic and the properties of op records lie in the output."""

    topic_at: int
    topic_len: int
    properties_at: int
    properties_len: int


def read_ends(
    data: Any,
    pieces: Rows,
    first: int,
    log: HalfLog,
    op: OpParts,
    ends: Rows,
    rows: Rows,
    out: Any,
    used: int,
    frame_bytes_max: int,
) -> EndsRead:
    """Read pieces[first:] into `ends` and `rows`, all parts of which go to out[used:].

    What is left of a piece is in its columns afterwards. An end that does not fit the output alone is not ordinary."""
    view, room, log_view = bytes(as_view(data)), as_view(out), as_view(log.data)
    begin, filled, rows_filled = used, 0, 0
    for piece in range(first, len(pieces)):
        while not pieces[piece, G_STOPPED]:
            if filled == len(ends) or rows_filled + 2 > len(rows):
                return EndsRead(filled, rows_filled, used, piece, EndStop.FULL)
            at, end = int(pieces[piece, G_AT]), int(pieces[piece, G_END])
            try:
                size, body_at, is_binary = frame_at(view, at, end, frame_bytes_max)
                header = (read_binary if is_binary else read_json)(view[at + HEAD_BYTES : body_at])
                place, state, decision = _numbers_of(header, at + size - body_at)
                final, copied = _final_row(log_view, log, place, state, header.fields[GROUP], decision == COMMIT)
            except NotFamiliar:
                pieces[piece, G_STOPPED] = 1
                break
            if len(copied) + OP_BODY_BYTES_MAX > len(room) - used:
                if used > begin:
                    return EndsRead(filled, rows_filled, used, piece, EndStop.FULL)
                pieces[piece, G_STOPPED] = 1
                break
            room[used : used + len(copied)] = copied
            if decision == COMMIT:
                rows[rows_filled] = _moved(final, used)
                rows_filled += 1
            used += len(copied)
            number = b"%d" % state
            room[used : used + len(number)] = number
            rows[rows_filled] = _op_row(op, used, len(number))
            is_oneway, is_commit = header.flag == ONEWAY, decision == COMMIT
            ends[filled] = header.opaque, is_binary, is_oneway, piece, at, state, place, rows_filled, is_commit
            rows_filled, filled, used = rows_filled + 1, filled + 1, used + len(number)
            pieces[piece, G_AT] = at + size
    return EndsRead(filled, rows_filled, used, len(pieces), EndStop.ALL)


def _numbers_of(header: Header, body_bytes: int) -> tuple[int, int, int]:
    """Place, queue offset and decision of an end."""
    fields = header.fields
    if header.code != END or header.flag not in (0, ONEWAY) or body_bytes:
        raise NotFamiliar
    if any(field not in fields for field in range(END_DECISION + 1) if END_REQUIRED >> field & 1):
        raise NotFamiliar
    place, state, decision = (number_of(fields[field]) for field in (END_PLACE, END_STATE, END_DECISION))
    if decision not in (COMMIT, ROLLBACK):
        raise NotFamiliar
    return place, state, decision


def _final_row(
    view: memoryview, log: HalfLog, place: int, state: int, group: bytes, is_commit: bool
) -> tuple[list[int], bytes]:
    """The row of the final record, and what it points into: body, properties and born host. Nothing for a rollback."""
    at = place - log.base
    if not 0 <= at < len(view):
        raise NotFamiliar
    parts = measure(view, at, len(view), place, True)
    if not isinstance(parts, RecordParts) or not _belongs(view, at, parts, state, log.store_host):
        raise NotFamiliar
    group_at, group_len = property_value(view, parts, GROUP_NAME)
    if group_len < 0 or bytes(view[group_at : group_at + group_len]) != group:
        raise NotFamiliar
    if not is_commit:
        return [], b""
    properties = bytes(view[parts.properties_at : parts.properties_at + parts.properties_len])
    topic_at, topic_len = property_value(view, parts, TOPIC_NAME)
    number_at, number_len = property_value(view, parts, QUEUE_NAME)
    digits = bytes(view[number_at : number_at + number_len])
    if not 0 < topic_len <= TOPIC_BYTES_MAX or has_meaning_to_store(properties):
        raise NotFamiliar
    if not 0 < number_len <= QUEUE_ID_DIGITS_MAX or not digits.isdigit() or int(digits) > I32_MAX:
        raise NotFamiliar
    body_len = parts.head[14]
    row = [0] * r.N_RUN_COLUMNS
    row[r.R_BODY_LEN] = body_len
    row[r.R_PROPS_AT], row[r.R_PROPS_LEN] = body_len, parts.properties_len
    row[r.R_TOPIC_AT], row[r.R_TOPIC_LEN] = body_len + topic_at - parts.properties_at, topic_len
    row[r.R_HOST_AT], row[r.R_HOST_LEN] = body_len + parts.properties_len, HOST_V4_BYTES
    row[r.R_QUEUE_ID], row[r.R_FLAG] = int(digits), parts.head[4]
    row[r.R_SYS_FLAG] = parts.head[7] | COMMIT
    row[r.R_BORN_TIME], row[r.R_RECONSUME], row[r.R_PREPARED] = parts.head[8], parts.head[12], place
    body = bytes(view[parts.body_at : parts.body_at + body_len])
    return row, body + properties + bytes(view[at + BORN_HOST_AT : at + BORN_HOST_AT + HOST_V4_BYTES])


def _belongs(view: memoryview, at: int, parts: RecordParts, state: int, store_host: bytes) -> bool:
    """Is this the half message of this queue offset, with addresses and flags as they should be?"""
    return (
        parts.head[3] == 0
        and parts.head[5] == state
        and view[parts.topic_at : parts.topic_at + parts.topic_len] == _HALF_TOPIC
        and parts.head[7] & (HOST_V6_MASK | TRANSACTION_MASK) == 0
        and bytes(view[at + STORE_HOST_AT : at + STORE_HOST_AT + HOST_V4_BYTES]) == store_host
        and parts.head[8] != BORN_NOW
    )


def _moved(row: list[int], used: int) -> list[int]:
    for column in (r.R_BODY_AT, r.R_PROPS_AT, r.R_TOPIC_AT, r.R_HOST_AT):
        row[column] += used
    return row


def _op_row(op: OpParts, body_at: int, body_len: int) -> list[int]:
    row = [0] * r.N_RUN_COLUMNS
    row[r.R_BODY_AT], row[r.R_BODY_LEN] = body_at, body_len
    row[r.R_TOPIC_AT], row[r.R_TOPIC_LEN] = op.topic_at, op.topic_len
    row[r.R_PROPS_AT], row[r.R_PROPS_LEN] = op.properties_at, op.properties_len
    row[r.R_BORN_TIME] = BORN_NOW
    return row


def new_ends(count: int) -> Rows:
    """Room for so many ends."""
    return np.zeros((count, N_END_COLUMNS), np.int64)
