"""Frames of sends made into rows of a run. Twin: plain.sends.read_sends, which states the rules."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns.compiled.parts.compiling import BYTES, READ_BYTES, READ_I64, READ_ROWS, ROWS, inlined, kernel
from embermq.columns.compiled.parts.memory import cell, set_cell, u8_at
from embermq.columns.compiled.queue_table import QueueTable, find_queue
from embermq.columns.compiled.sends import header as h
from embermq.columns.compiled.sends.heads import frame_size, is_familiar, read_header
from embermq.columns.compiled.sends.properties import (
    HALF,
    N_PAIR_COLUMNS,
    PAIR_ROWS,
    PLAIN,
    TEXT_BYTES,
    collect_properties,
    properties_bytes,
    put_properties,
)
from embermq.columns.plain import runs as r
from embermq.columns.plain import sends as s
from embermq.columns.plain.sends import SendsRead, SendStop
from embermq.columns.rows import Rows, as_bytes_array
from embermq.model.flags import TRANSACTION_MASK

_STOPS = tuple(SendStop)
_ALL, _PLACE, _FULL = (int(stop) for stop in _STOPS)
_BAD = -1


@inlined
def _put_row(rows: Any, i: int, head: Any, body_at: int, body_len: int, props_at: int, props_len: int) -> None:
    set_cell(rows, i, r.R_BODY_AT, body_at)
    set_cell(rows, i, r.R_BODY_LEN, body_len)
    set_cell(rows, i, r.R_TOPIC_AT, cell(head, 0, h.H_TOPIC_AT))
    set_cell(rows, i, r.R_TOPIC_LEN, cell(head, 0, h.H_TOPIC_LEN))
    set_cell(rows, i, r.R_PROPS_AT, props_at)
    set_cell(rows, i, r.R_PROPS_LEN, props_len)
    set_cell(rows, i, r.R_QUEUE, 0)
    set_cell(rows, i, r.R_QUEUE_ID, cell(head, 0, h.H_QUEUE_ID))
    set_cell(rows, i, r.R_FLAG, cell(head, 0, h.H_USER_FLAG))
    set_cell(rows, i, r.R_SYS_FLAG, cell(head, 0, h.H_SYS_FLAG))
    set_cell(rows, i, r.R_BORN_TIME, cell(head, 0, h.H_BORN))
    set_cell(rows, i, r.R_RECONSUME, cell(head, 0, h.H_RECONSUME))
    set_cell(rows, i, r.R_PREPARED, 0)


@inlined
def _may_be(kind: int, sys_flag: int, half_topic_at: int) -> bool:
    """May a message of this kind have these bits, and be taken here?"""
    return half_topic_at >= 0 if kind != PLAIN else sys_flag & TRANSACTION_MASK == 0


@inlined
def _make_half(rows: Any, i: int, half_topic_at: int) -> None:
    set_cell(rows, i, r.R_TOPIC_AT, half_topic_at)
    set_cell(rows, i, r.R_TOPIC_LEN, s.HALF_TOPIC_BYTES)
    set_cell(rows, i, r.R_QUEUE_ID, 0)
    set_cell(rows, i, r.R_SYS_FLAG, cell(rows, i, r.R_SYS_FLAG) & ~TRANSACTION_MASK)


_TYPES = (
    f"{READ_BYTES}, {ROWS}, int64, {READ_ROWS}, {READ_BYTES}, {READ_I64}, {READ_BYTES}, {ROWS}, {BYTES}, {ROWS},"
    f" {ROWS}, {ROWS}, int64, {BYTES}, int64, int64, int64"
)


@kernel(f"UniTuple(int64, 4)({_TYPES})", nogil=False)
def _read_sends(
    data: Any,
    pieces: Any,
    first: int,
    table: Any,
    names: Any,
    place_flags: Any,
    cluster: Any,
    head: Any,
    text: Any,
    pairs: Any,
    rows: Any,
    frames: Any,
    filled: int,
    out: Any,
    used: int,
    frame_bytes_max: int,
    half_topic_at: int,
) -> tuple[int, int, int, int]:
    for piece in range(first, len(pieces)):
        if cell(pieces, piece, s.G_AT) < 0 or cell(pieces, piece, s.G_END) > len(data):
            return _BAD, used, piece, _ALL
        while cell(pieces, piece, s.G_STOPPED) == 0:
            if filled == len(rows):
                return filled, used, piece, _FULL
            at, end = cell(pieces, piece, s.G_AT), cell(pieces, piece, s.G_END)
            size = frame_size(data, at, end, frame_bytes_max)
            body_at = read_header(data, at, head) if size >= 0 else _BAD
            if body_at < 0 or not is_familiar(head):
                set_cell(pieces, piece, s.G_STOPPED, 1)
                break
            topic_at, topic_len = cell(head, 0, h.H_TOPIC_AT), cell(head, 0, h.H_TOPIC_LEN)
            queue_id = cell(head, 0, h.H_QUEUE_ID)
            place = find_queue(table, names, data, topic_at, topic_len, queue_id)
            if place < 0 or place >= len(place_flags):
                return filled, used, piece, _PLACE
            is_json = u8_at(data, at + 4) == 0
            props_at, props_len = cell(head, 0, h.H_PROPS_AT), cell(head, 0, h.H_PROPS_LEN)
            count, kind = collect_properties(
                data, props_at, props_len, is_json, topic_at, topic_len, queue_id, text, pairs
            )
            if count < 0 or not _may_be(kind, cell(head, 0, h.H_SYS_FLAG), half_topic_at):
                set_cell(pieces, piece, s.G_STOPPED, 1)
                break
            if properties_bytes(pairs, count, cluster) > len(out) - used:
                return filled, used, piece, _FULL
            props_end = put_properties(out, used, text, pairs, count, cluster)
            _put_row(rows, filled, head, body_at, at + size - body_at, used, props_end - used)
            sys_flag = cell(head, 0, h.H_SYS_FLAG) | place_flags[np.uint64(place)]
            set_cell(rows, filled, r.R_SYS_FLAG, sys_flag)
            if kind == HALF:
                _make_half(rows, filled, half_topic_at)
            set_cell(rows, filled, r.R_HOST_AT, cell(pieces, piece, s.G_HOST_AT))
            set_cell(rows, filled, r.R_HOST_LEN, cell(pieces, piece, s.G_HOST_LEN))
            set_cell(frames, filled, s.F_OPAQUE, cell(head, 0, h.H_OPAQUE))
            set_cell(frames, filled, s.F_IS_BINARY, 0 if is_json else 1)
            set_cell(frames, filled, s.F_PIECE, piece)
            set_cell(frames, filled, s.F_PLACE, place)
            set_cell(frames, filled, s.F_QUEUE_ID, queue_id)
            set_cell(frames, filled, s.F_IS_HALF, kind)
            filled += 1
            used = props_end
            set_cell(pieces, piece, s.G_AT, at + size)
    return filled, used, len(pieces), _ALL


class SendReader:
    """Reads sends, in scratch memory of its own. One thread."""

    def __init__(self) -> None:
        self._head = np.zeros((1, h.N_HEADER_COLUMNS), np.int64)
        self._text = np.empty(TEXT_BYTES, np.uint8)
        self._pairs = np.empty((PAIR_ROWS, N_PAIR_COLUMNS), np.int64)

    @property
    def wanted(self) -> tuple[int, int, int]:
        """Place and length of the topic, and the queue id, of the frame that `read` stopped at for its place."""
        at, length, queue_id = (int(self._head[0, column]) for column in (h.H_TOPIC_AT, h.H_TOPIC_LEN, h.H_QUEUE_ID))
        return at, length, queue_id

    def read(
        self,
        data: Any,
        pieces: Rows,
        first: int,
        places: QueueTable,
        place_flags: NDArray[np.int64],
        cluster: NDArray[np.uint8],
        rows: Rows,
        frames: Rows,
        filled: int,
        out: NDArray[np.uint8],
        used: int,
        frame_bytes_max: int,
        half_topic_at: int,
    ) -> SendsRead:
        """Read pieces[first:] into rows[filled:] and frames[filled:]; property strings go to out[used:].

        Twin: plain.sends.read_sends."""
        array = as_bytes_array(data)
        assert pieces.shape[1] == s.N_PIECE_COLUMNS, pieces.shape
        assert rows.shape[1] == r.N_RUN_COLUMNS, rows.shape
        assert frames.shape == (len(rows), s.N_FRAME_COLUMNS), frames.shape
        assert 0 <= filled <= len(rows), (filled, len(rows))
        assert 0 <= used <= len(out), (used, len(out))
        count, end, piece, stop = _read_sends(
            array,
            pieces,
            first,
            *places.arrays,
            place_flags,
            cluster,
            self._head,
            self._text,
            self._pairs,
            rows,
            frames,
            filled,
            out,
            used,
            frame_bytes_max,
            half_topic_at,
        )
        assert count >= 0, ("a piece lies outside of the data", pieces[piece], len(array))
        return SendsRead(count, end, piece, _STOPS[stop])
