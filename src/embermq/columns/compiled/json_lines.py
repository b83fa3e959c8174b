"""Records as lines of JSON, in the form of format.message_json. Twin: plain.json_lines.encode_line, which also
writes what is declined here.

Declined are rows that need more than copying and counting: compressed bodies, texts that are no UTF-8, property names
that come twice, and, in the raw form, property strings that a map does not give back.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns import rows as c
from embermq.columns.compiled.parts.compiling import BYTES, I64, READ_BYTES, READ_ROWS, inlined, kernel
from embermq.columns.compiled.parts.json_text import (
    CLOSE,
    COLON,
    COMMA,
    OPEN,
    QUOTE,
    is_utf8,
    put_base64,
    put_hex,
    put_host_v4,
    put_host_v6,
    put_number,
    put_text,
)
from embermq.columns.compiled.parts.memory import cell, copy_bytes, i32_at, i64_at, put_i8, u8_at
from embermq.columns.plain.json_lines import LineStop
from embermq.columns.rows import Rows, as_bytes_array
from embermq.format.message_json import KEYS, BodyForm
from embermq.model.flags import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6

_ALL, _ROOM, _PLAIN = (int(stop) for stop in LineStop)
_TEXT, _RAW = int(BodyForm.TEXT), int(BodyForm.RAW)

# Everything of a line that is always the same, and where each piece of it begins.
_PIECES = [f'{"," if at else "{"}"{key}":'.encode() for at, key in enumerate(KEYS)]
_PIECES += [b"null", b"}\n"]
_FIXED = np.frombuffer(b"".join(_PIECES), np.uint8)
_STARTS = [sum(map(len, _PIECES[:at])) for at in range(len(_PIECES) + 1)]
(
    _K_TOPIC,
    _K_QUEUE_ID,
    _K_QUEUE_OFFSET,
    _K_PHYSICAL,
    _K_MSG_ID,
    _K_UNIQ,
    _K_TAGS,
    _K_KEYS,
    _K_BODY,
    _K_PROPS,
    _K_FLAG,
    _K_SYS_FLAG,
    _K_BORN_TIME,
    _K_BORN_HOST,
    _K_STORE_TIME,
    _K_STORE_HOST,
    _K_RECONSUME,
    _K_PREPARED,
    _K_CRC,
    _K_SIZE,
    _NULL,
    _END,
) = [(start, end - start) for start, end in pairwise(_STARTS)]
# Fixed pieces, all numbers at their longest, hosts and the id.
_LINE_BYTES = len(_FIXED) + 16 * 20 + 2 * 64 + 64
_ESCAPED_BYTES_MAX = 6  # \u0001
_NAMES_MAX = 64

_I64_MIN = -(1 << 63)


@inlined
def _put_fixed(out: Any, to: int, piece: Any) -> int:
    copy_bytes(out, to, _FIXED, piece[0], piece[1])
    return to + piece[1]  # type: ignore[no-any-return]


@inlined
def _put_text_or_null(out: Any, to: int, data: Any, at: int, length: int) -> int:
    return _put_fixed(out, to, _NULL) if length < 0 else put_text(out, to, data, at, at + length)


@inlined
def _same(data: Any, at: int, other: int, length: int) -> bool:
    for k in range(length):
        if u8_at(data, at + k) != u8_at(data, other + k):
            return False
    return True


@inlined
def _put_properties(out: Any, to: int, data: Any, at: int, end: int, raw: int, names: Any) -> int:
    """The map of a property string; -1 when it has to be written the plain way."""
    put_i8(out, to, OPEN)
    to += 1
    count = 0
    start, separator = at, -1
    if raw and at == end:
        put_i8(out, to, CLOSE)
        return to + 1
    while at <= end:
        byte = 2 if at == end else u8_at(data, at)
        if byte == 1 and separator < 0:
            separator = at
        if byte == 2:
            if start < separator < at - 1:
                name_len = separator - start
                for k in range(count):
                    if names[2 * k + 1] == name_len and _same(data, names[2 * k], start, name_len):
                        return -1
                if count == _NAMES_MAX:
                    return -1
                names[2 * count] = start
                names[2 * count + 1] = name_len
                if count:
                    put_i8(out, to, COMMA)
                    to += 1
                count += 1
                to = put_text(out, to, data, start, separator)
                put_i8(out, to, COLON)
                to = put_text(out, to + 1, data, separator + 1, at)
            elif raw:
                return -1
            start, separator = at + 1, -1
        at += 1
    put_i8(out, to, CLOSE)
    return to + 1


@inlined
def _put_host(out: Any, to: int, data: Any, at: int, is_v6: int) -> int:
    return put_host_v6(out, to, data, at) if is_v6 else put_host_v4(out, to, data, at)


@inlined
def _put_id(out: Any, to: int, data: Any, host_at: int, is_v6: int, physical: int) -> int:
    """A message id between quotes: the host as it is stored, and the place."""
    put_i8(out, to, QUOTE)
    to += 1
    if is_v6:
        to = put_hex(out, put_hex(out, to, i64_at(data, host_at), 16), i64_at(data, host_at + 8), 16)
        to = put_hex(out, to, i32_at(data, host_at + 16), 8)
    else:
        to = put_hex(out, to, i64_at(data, host_at), 16)
    to = put_hex(out, to, physical, 16)
    put_i8(out, to, QUOTE)
    return to + 1


@inlined
def _put_line(out: Any, to: int, data: Any, base: int, rows: Any, i: int, form: int, names: Any) -> int:
    """The line of row i; -1 when it has to be written the plain way. There is room for it."""
    sys_flag = cell(rows, i, c.C_SYS_FLAG)
    if sys_flag & COMPRESSED and not form & _RAW:
        return -1
    physical = cell(rows, i, c.C_PHYSICAL)
    at = physical - base
    topic_at, body_at, props_at = cell(rows, i, c.C_TOPIC_AT), cell(rows, i, c.C_BODY_AT), cell(rows, i, c.C_PROPS_AT)
    topic_end = topic_at + cell(rows, i, c.C_TOPIC_LEN)
    body_end = body_at + cell(rows, i, c.C_BODY_LEN)
    props_end = props_at + cell(rows, i, c.C_PROPS_LEN)
    if not is_utf8(data, topic_at, topic_end) or not is_utf8(data, props_at, props_end):
        return -1
    if form & _TEXT and not is_utf8(data, body_at, body_end):
        return -1
    to = put_text(out, _put_fixed(out, to, _K_TOPIC), data, topic_at, topic_end)
    to = put_number(out, _put_fixed(out, to, _K_QUEUE_ID), cell(rows, i, c.C_QUEUE_ID))
    to = put_number(out, _put_fixed(out, to, _K_QUEUE_OFFSET), cell(rows, i, c.C_QUEUE_OFFSET))
    to = put_number(out, _put_fixed(out, to, _K_PHYSICAL), physical)
    to = _put_fixed(out, to, _K_MSG_ID)
    store_host_at = at + (76 if sys_flag & BORN_HOST_V6 else 64)
    to = _put_id(out, to, data, store_host_at, sys_flag & STORE_HOST_V6, physical)
    to = _put_fixed(out, to, _K_UNIQ)
    to = _put_text_or_null(out, to, data, cell(rows, i, c.C_UNIQ_AT), cell(rows, i, c.C_UNIQ_LEN))
    to = _put_fixed(out, to, _K_TAGS)
    to = _put_text_or_null(out, to, data, cell(rows, i, c.C_TAGS_AT), cell(rows, i, c.C_TAGS_LEN))
    to = _put_fixed(out, to, _K_KEYS)
    to = _put_text_or_null(out, to, data, cell(rows, i, c.C_KEYS_AT), cell(rows, i, c.C_KEYS_LEN))
    to = _put_fixed(out, to, _K_BODY)
    if form & _TEXT:
        to = put_text(out, to, data, body_at, body_end)
    else:
        to = put_base64(out, to, data, body_at, body_end)
    to = _put_properties(out, _put_fixed(out, to, _K_PROPS), data, props_at, props_end, form & _RAW, names)
    if to < 0:
        return -1
    to = put_number(out, _put_fixed(out, to, _K_FLAG), cell(rows, i, c.C_FLAG))
    to = put_number(out, _put_fixed(out, to, _K_SYS_FLAG), sys_flag)
    to = put_number(out, _put_fixed(out, to, _K_BORN_TIME), cell(rows, i, c.C_BORN_TIME))
    to = _put_host(out, _put_fixed(out, to, _K_BORN_HOST), data, at + 48, sys_flag & BORN_HOST_V6)
    if to < 0:
        return -1
    to = put_number(out, _put_fixed(out, to, _K_STORE_TIME), cell(rows, i, c.C_STORE_TIME))
    to = _put_host(out, _put_fixed(out, to, _K_STORE_HOST), data, store_host_at, sys_flag & STORE_HOST_V6)
    if to < 0:
        return -1
    to = put_number(out, _put_fixed(out, to, _K_RECONSUME), cell(rows, i, c.C_RECONSUME))
    to = put_number(out, _put_fixed(out, to, _K_PREPARED), cell(rows, i, c.C_PREPARED))
    to = put_number(out, _put_fixed(out, to, _K_CRC), i32_at(data, at + 8))
    to = put_number(out, _put_fixed(out, to, _K_SIZE), cell(rows, i, c.C_SIZE))
    return _put_fixed(out, to, _END)


@inlined
def _has_no_positive(rows: Any, i: int) -> bool:
    """Whether one of the 64-bit numbers is the smallest there is."""
    queue_offset, prepared = cell(rows, i, c.C_QUEUE_OFFSET), cell(rows, i, c.C_PREPARED)
    born_time, store_time = cell(rows, i, c.C_BORN_TIME), cell(rows, i, c.C_STORE_TIME)
    smallest: int = min(queue_offset, prepared, born_time, store_time)
    return smallest == _I64_MIN


@kernel(f"UniTuple(int64, 3)({READ_BYTES}, int64, {READ_ROWS}, int64, {BYTES}, int64, {I64})")
def _write_lines(data: Any, base: int, rows: Any, start: int, out: Any, form: int, names: Any) -> tuple[int, int, int]:
    to = 0
    for i in range(start, len(rows)):
        body_len = cell(rows, i, c.C_BODY_LEN)
        body_bytes_max = _ESCAPED_BYTES_MAX * body_len if form & _TEXT else (body_len + 2) // 3 * 4
        # Tags and keys are written twice: on their own, and as properties.
        texts = cell(rows, i, c.C_TOPIC_LEN) + 2 * cell(rows, i, c.C_PROPS_LEN) + 1
        if _LINE_BYTES + body_bytes_max + _ESCAPED_BYTES_MAX * texts > len(out) - to:
            return i, to, _ROOM if to else _PLAIN
        after = -1 if _has_no_positive(rows, i) else _put_line(out, to, data, base, rows, i, form, names)
        if after < 0:
            return i, to, _PLAIN
        to = after
    return len(rows), to, _ALL


def write_lines(
    data: Any, base: int, rows: Rows, start: int, out: NDArray[np.uint8], form: BodyForm
) -> tuple[int, int, LineStop]:
    """Write the lines of rows[start:] into `out`, as many as fit. Returns (row to go on with, bytes written, why it
    stopped). The rows must come from a scan of the same data: their positions are believed.

    Twin: plain.json_lines.encode_line, one line a call. Some 15 times as fast."""
    raw = as_bytes_array(data)
    assert rows.shape[1:] == (c.N_COLUMNS,), rows.shape
    assert 0 <= start <= len(rows), (start, len(rows))
    names = np.empty(2 * _NAMES_MAX, np.int64)
    row, used, stop = _write_lines(raw, base, np.ascontiguousarray(rows), start, out, int(form), names)
    return row, used, LineStop(stop)
