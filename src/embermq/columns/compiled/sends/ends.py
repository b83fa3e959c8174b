"""Ends of transactions made into rows of a run. Twin: plain.ends.read_ends, which states the rules."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns import rows as c
from embermq.columns.compiled.parked import property_value, queue_number
from embermq.columns.compiled.parts.compiling import BYTES, READ_BYTES, READ_I64, ROWS, inlined, kernel
from embermq.columns.compiled.parts.json_text import put_number
from embermq.columns.compiled.parts.memory import cell, copy_bytes, set_cell, u8_at
from embermq.columns.compiled.parts.property_text import has_meaning
from embermq.columns.compiled.queue_table import is_same
from embermq.columns.compiled.scan import _record
from embermq.columns.compiled.sends import header as h
from embermq.columns.compiled.sends.heads import frame_size, is_familiar_end, read_header
from embermq.columns.plain import ends as e
from embermq.columns.plain import runs as r
from embermq.columns.plain import sends as s
from embermq.columns.plain.ends import EndsRead, EndStop, HalfLog, OpParts
from embermq.columns.plain.parked import BORN_HOST_AT, STORE_HOST_AT
from embermq.columns.rows import Rows, as_bytes_array, new_rows
from embermq.format.frame import HOST_V4_BYTES, TOPIC_BYTES_MAX
from embermq.model.flags import COMMIT, HOST_V6_MASK, ROLLBACK, TRANSACTION_MASK
from embermq.model.properties import HALF_TOPIC

_ALL, _FULL = (int(stop) for stop in EndStop)
_BAD = -1
_SUM_AND_POSITION = 3
_NO_DELAYS = np.zeros(0, dtype=np.int64)
_GROUP_NAME, _TOPIC_NAME, _QUEUE_NAME, _HALF = (
    np.frombuffer(name, np.uint8) for name in (e.GROUP_NAME, e.TOPIC_NAME, e.QUEUE_NAME, HALF_TOPIC.encode())
)


@inlined
def _belongs(log: Any, at: int, found: Any, state: int, store_host: Any) -> bool:
    """Is the record in the one row of `found` the half message that is meant, with addresses as they should be?"""
    return (
        cell(found, 0, c.C_QUEUE_ID) == 0
        and cell(found, 0, c.C_QUEUE_OFFSET) == state
        and cell(found, 0, c.C_TOPIC_LEN) == len(_HALF)
        and is_same(log, cell(found, 0, c.C_TOPIC_AT), _HALF, 0, len(_HALF))
        and cell(found, 0, c.C_SYS_FLAG) & (HOST_V6_MASK | TRANSACTION_MASK) == 0
        and len(store_host) == HOST_V4_BYTES
        and is_same(log, at + STORE_HOST_AT, store_host, 0, HOST_V4_BYTES)
        and cell(found, 0, c.C_BORN_TIME) != r.BORN_NOW
    )


@inlined
def _is_of_group(data: Any, group_at: int, group_len: int, log: Any, found: Any) -> bool:
    properties_at = cell(found, 0, c.C_PROPS_AT)
    value_at, value_len = property_value(log, properties_at, properties_at + cell(found, 0, c.C_PROPS_LEN), _GROUP_NAME)
    return value_len >= 0 and value_len == group_len and is_same(log, value_at, data, group_at, group_len)


@inlined
def _is_half(data: Any, head: Any, log: Any, base: int, store_host: Any, found: Any) -> bool:
    """Is the record that an end names the half message it means? It is in the one row of `found` then."""
    at = cell(head, 0, h.H_PLACE) - base
    if at < 0 or at >= len(log):
        return False
    return (
        _record(log, base, at, len(log), found, 0, _NO_DELAYS, _SUM_AND_POSITION) > 0
        and _belongs(log, at, found, cell(head, 0, h.H_STATE), store_host)
        and _is_of_group(data, cell(head, 0, h.H_GROUP_AT), cell(head, 0, h.H_GROUP_LEN), log, found)
    )


@inlined
def _own_place(log: Any, found: Any) -> Any:
    """Where the topic of a half message lies, its length, and its queue id; a length of -1 if it is not ordinary."""
    start, length = cell(found, 0, c.C_PROPS_AT), cell(found, 0, c.C_PROPS_LEN)
    topic_at, topic_len = property_value(log, start, start + length, _TOPIC_NAME)
    number_at, number_len = property_value(log, start, start + length, _QUEUE_NAME)
    queue_id = queue_number(log, number_at, number_len)
    if topic_len <= 0 or topic_len > TOPIC_BYTES_MAX or queue_id < 0 or has_meaning(log, start, length):
        return 0, _BAD, 0
    return topic_at, topic_len, queue_id


@inlined
def _put_final(
    rows: Any,
    i: int,
    log: Any,
    at: int,
    place: int,
    found: Any,
    topic_at: int,
    topic_len: int,
    queue_id: int,
    out: Any,
    used: int,
) -> int:
    """Copy the parts of a half message, and point row i to them; where they end."""
    body_len, props_at = cell(found, 0, c.C_BODY_LEN), cell(found, 0, c.C_PROPS_AT)
    props_len = cell(found, 0, c.C_PROPS_LEN)
    props_to = used + body_len
    host_to = props_to + props_len
    copy_bytes(out, used, log, cell(found, 0, c.C_BODY_AT), body_len)
    copy_bytes(out, props_to, log, props_at, props_len)
    copy_bytes(out, host_to, log, at + BORN_HOST_AT, HOST_V4_BYTES)
    set_cell(rows, i, r.R_BODY_AT, used)
    set_cell(rows, i, r.R_BODY_LEN, body_len)
    set_cell(rows, i, r.R_TOPIC_AT, props_to + topic_at - props_at)
    set_cell(rows, i, r.R_TOPIC_LEN, topic_len)
    set_cell(rows, i, r.R_PROPS_AT, props_to)
    set_cell(rows, i, r.R_PROPS_LEN, props_len)
    set_cell(rows, i, r.R_QUEUE, 0)
    set_cell(rows, i, r.R_QUEUE_ID, queue_id)
    set_cell(rows, i, r.R_FLAG, cell(found, 0, c.C_FLAG))
    set_cell(rows, i, r.R_SYS_FLAG, cell(found, 0, c.C_SYS_FLAG) | COMMIT)
    set_cell(rows, i, r.R_BORN_TIME, cell(found, 0, c.C_BORN_TIME))
    set_cell(rows, i, r.R_RECONSUME, cell(found, 0, c.C_RECONSUME))
    set_cell(rows, i, r.R_PREPARED, place)
    set_cell(rows, i, r.R_HOST_AT, host_to)
    set_cell(rows, i, r.R_HOST_LEN, HOST_V4_BYTES)
    return host_to + HOST_V4_BYTES  # type: ignore[no-any-return]


@inlined
def _put_op(rows: Any, i: int, op: Any, state: int, out: Any, used: int) -> int:
    """Write the body of an op record, and point row i to it; where it ends."""
    end = put_number(out, used, state)
    for column in range(r.N_RUN_COLUMNS):
        set_cell(rows, i, column, 0)
    set_cell(rows, i, r.R_BODY_AT, used)
    set_cell(rows, i, r.R_BODY_LEN, end - used)
    set_cell(rows, i, r.R_TOPIC_AT, op[0])
    set_cell(rows, i, r.R_TOPIC_LEN, op[1])
    set_cell(rows, i, r.R_PROPS_AT, op[2])
    set_cell(rows, i, r.R_PROPS_LEN, op[3])
    set_cell(rows, i, r.R_BORN_TIME, r.BORN_NOW)
    return end


@inlined
def _read_frame(data: Any, at: int, end: int, frame_bytes_max: int, head: Any) -> int:
    """The size of the frame at data[at], whose header is in `head` then; -1 if it is no familiar end."""
    size = frame_size(data, at, end, frame_bytes_max)
    if size < 0 or read_header(data, at, head) != at + size or not is_familiar_end(head):
        return _BAD
    decision = cell(head, 0, h.H_DECISION)
    return size if decision == COMMIT or decision == ROLLBACK else _BAD


_LOG = f"{READ_BYTES}, int64, {READ_BYTES}"
_TYPES = f"{READ_BYTES}, {ROWS}, int64, {_LOG}, {READ_I64}, {ROWS}, {ROWS}, {ROWS}, {ROWS}, {BYTES}, int64, int64"


@kernel(f"UniTuple(int64, 5)({_TYPES})", nogil=False)
def _read_ends(
    data: Any,
    pieces: Any,
    first: int,
    log: Any,
    base: int,
    store_host: Any,
    op: Any,
    head: Any,
    found: Any,
    ends: Any,
    rows: Any,
    out: Any,
    used: int,
    frame_bytes_max: int,
) -> tuple[int, int, int, int, int]:
    begin, filled, rows_filled = used, 0, 0
    for piece in range(first, len(pieces)):
        if cell(pieces, piece, s.G_AT) < 0 or cell(pieces, piece, s.G_END) > len(data):
            return _BAD, rows_filled, used, piece, _ALL
        while cell(pieces, piece, s.G_STOPPED) == 0:
            if filled == len(ends) or rows_filled + 2 > len(rows):
                return filled, rows_filled, used, piece, _FULL
            at, end = cell(pieces, piece, s.G_AT), cell(pieces, piece, s.G_END)
            size = _read_frame(data, at, end, frame_bytes_max, head)
            if size < 0 or not _is_half(data, head, log, base, store_host, found):
                set_cell(pieces, piece, s.G_STOPPED, 1)
                break
            is_commit = cell(head, 0, h.H_DECISION) == COMMIT
            topic_at, topic_len, queue_id = _own_place(log, found) if is_commit else (0, 0, 0)
            room = e.OP_BODY_BYTES_MAX
            if is_commit:
                room += cell(found, 0, c.C_BODY_LEN) + cell(found, 0, c.C_PROPS_LEN) + HOST_V4_BYTES
            if topic_len >= 0 and room > len(out) - used and used > begin:
                return filled, rows_filled, used, piece, _FULL
            if topic_len < 0 or room > len(out) - used:
                set_cell(pieces, piece, s.G_STOPPED, 1)
                break
            place, state = cell(head, 0, h.H_PLACE), cell(head, 0, h.H_STATE)
            if is_commit:
                used = _put_final(
                    rows, rows_filled, log, place - base, place, found, topic_at, topic_len, queue_id, out, used
                )
                rows_filled += 1
            used = _put_op(rows, rows_filled, op, state, out, used)
            set_cell(ends, filled, e.E_OPAQUE, cell(head, 0, h.H_OPAQUE))
            set_cell(ends, filled, e.E_IS_BINARY, u8_at(data, at + 4))
            set_cell(ends, filled, e.E_IS_ONEWAY, 1 if cell(head, 0, h.H_FLAG) != 0 else 0)
            set_cell(ends, filled, e.E_PIECE, piece)
            set_cell(ends, filled, e.E_AT, at)
            set_cell(ends, filled, e.E_HALF_OFFSET, state)
            set_cell(ends, filled, e.E_PLACE, place)
            set_cell(ends, filled, e.E_OP_ROW, rows_filled)
            set_cell(ends, filled, e.E_IS_COMMIT, 1 if is_commit else 0)
            rows_filled += 1
            filled += 1
            set_cell(pieces, piece, s.G_AT, at + size)
    return filled, rows_filled, used, len(pieces), _ALL


class EndReader:
    """Reads ends of transactions, in scratch memory of its own. One thread."""

    def __init__(self) -> None:
        self._head = np.zeros((1, h.N_HEADER_COLUMNS), np.int64)
        self._found = new_rows(1)

    def read(
        self,
        data: Any,
        pieces: Rows,
        first: int,
        log: HalfLog,
        op: OpParts,
        ends: Rows,
        rows: Rows,
        out: NDArray[np.uint8],
        used: int,
        frame_bytes_max: int,
    ) -> EndsRead:
        """Read pieces[first:] into `ends` and `rows`, all parts of which go to out[used:].

        Twin: plain.ends.read_ends."""
        array = as_bytes_array(data)
        assert pieces.shape[1] == s.N_PIECE_COLUMNS, pieces.shape
        assert rows.shape[1] == r.N_RUN_COLUMNS, rows.shape
        assert ends.shape[1] == e.N_END_COLUMNS, ends.shape
        assert 0 <= used <= len(out), (used, len(out))
        count, row_count, end, piece, stop = _read_ends(
            array,
            pieces,
            first,
            as_bytes_array(log.data),
            log.base,
            np.frombuffer(log.store_host, np.uint8),
            np.array(op, np.int64),
            self._head,
            self._found,
            ends,
            rows,
            out,
            used,
            frame_bytes_max,
        )
        assert count >= 0, ("a piece lies outside of the data", pieces[piece], len(array))
        return EndsRead(count, row_count, end, piece, EndStop(stop))
