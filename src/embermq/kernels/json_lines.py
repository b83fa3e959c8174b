"""Records as lines of JSON. Twin: format.json_lines.encode_line, which also writes what is declined here.

Declined are rows that need more than copying and counting: IPv6 hosts, compressed bodies, texts that are no UTF-8,
property names that come twice, and, in the raw form, property strings that a map does not give back.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.format import columns as c
from embermq.format.columns import Rows, as_bytes_array
from embermq.format.json_lines import KEYS, LineForm, LineStop
from embermq.kernels.compiling import BYTES, I64, READ_BYTES, READ_ROWS, inlined, kernel
from embermq.kernels.memory import cell, copy_bytes, i32_at, i64_at, put_i8, put_i16, put_i64, u8_at
from embermq.model.flags import COMPRESSED, HOST_V6_MASK

_ALL, _ROOM, _PLAIN = (int(stop) for stop in LineStop)
_TEXT, _RAW = int(LineForm.TEXT), int(LineForm.RAW)

# Everything of a line that is always the same, and where each piece of it begins.
_PIECES = [f'{"," if at else "{"}"{key}":'.encode() for at, key in enumerate(KEYS)]
_PIECES += [b"null", b"}\n"]
_FIXED = np.frombuffer(b"".join(_PIECES), np.uint8)
_STARTS = [sum(map(len, _PIECES[:at])) for at in range(len(_PIECES) + 1)]
(_K_TOPIC, _K_QUEUE_ID, _K_QUEUE_OFFSET, _K_PHYSICAL, _K_MSG_ID, _K_UNIQ, _K_TAGS, _K_KEYS, _K_BODY, _K_PROPS, _K_FLAG,
 _K_SYS_FLAG, _K_BORN_TIME, _K_BORN_HOST, _K_STORE_TIME, _K_STORE_HOST, _K_RECONSUME, _K_PREPARED, _K_CRC, _K_SIZE,
 _NULL, _END) = [(start, end - start) for start, end in pairwise(_STARTS)]  # fmt: skip
# Fixed pieces, all numbers at their longest, hosts and the id.
_LINE_BYTES = len(_FIXED) + 16 * 20 + 2 * 32 + 64
_ESCAPED_BYTES_MAX = 6  # \u0001
_NAMES_MAX = 64

_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
# Two letters for every twelve bits.
_LETTERS = np.array([_DIGITS[n >> 6] << 8 | _DIGITS[n & 63] for n in range(4096)], np.int16)
_SHORT_ESCAPES = np.zeros(32, np.uint8)
for _code, _letter in ((8, "b"), (9, "t"), (10, "n"), (12, "f"), (13, "r")):
    _SHORT_ESCAPES[_code] = ord(_letter)
_HEX_UPPER = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_QUOTE, _BACKSLASH, _COMMA, _COLON, _OPEN, _CLOSE, _MINUS, _ZERO, _DOT, _PAD = b'"\\,:{}-0.='
_TOP_BITS = 0x8080_8080_8080_8080 - (1 << 64)
_I64_MIN = -(1 << 63)


@inlined
def _has_byte_below(word: int, bound: int) -> bool:
    """Whether one of eight bytes is below `bound / 0x0101...`; all of them below 0x80."""
    return (word - bound) & ~word & _TOP_BITS != 0


@inlined
def _is_plain(word: int) -> bool:
    """Eight bytes that stand for themselves inside quotes."""
    if _has_byte_below(word, 0x2020_2020_2020_2020):
        return False
    return not (
        _has_byte_below(word ^ 0x2222_2222_2222_2222, 0x0101_0101_0101_0101)
        or _has_byte_below(word ^ 0x5C5C_5C5C_5C5C_5C5C, 0x0101_0101_0101_0101)
    )


@inlined
def _is_utf8(data: Any, at: int, end: int) -> bool:
    while at < end:
        if end - at >= 8 and i64_at(data, at) & _TOP_BITS == 0:
            at += 8
            continue
        first = u8_at(data, at)
        at += 1
        if first < 0x80:
            continue
        more, low, high = 0, 0x80, 0xBF
        if 0xC2 <= first < 0xE0:
            more = 1
        elif 0xE0 <= first < 0xF0:
            more = 2
            low = 0xA0 if first == 0xE0 else 0x80
            high = 0x9F if first == 0xED else 0xBF
        elif 0xF0 <= first <= 0xF4:
            more = 3
            low = 0x90 if first == 0xF0 else 0x80
            high = 0x8F if first == 0xF4 else 0xBF
        if more == 0 or end - at < more:
            return False
        for _ in range(more):
            if not low <= u8_at(data, at) <= high:
                return False
            at += 1
            low, high = 0x80, 0xBF
    return True


@inlined
def _put_fixed(out: Any, to: int, piece: Any) -> int:
    copy_bytes(out, to, _FIXED, piece[0], piece[1])
    return to + piece[1]  # type: ignore[no-any-return]


@inlined
def _put_escaped(out: Any, to: int, byte: int) -> int:
    """A byte that does not stand for itself."""
    put_i8(out, to, _BACKSLASH)
    if byte >= 0x20:
        put_i8(out, to + 1, byte)
        return to + 2
    letter = int(_SHORT_ESCAPES[np.uint64(byte)])
    if letter:
        put_i8(out, to + 1, letter)
        return to + 2
    put_i8(out, to + 1, 0x75)
    put_i16(out, to + 2, 0x3030)
    put_i8(out, to + 4, _ZERO + (byte >> 4))
    low = byte & 15
    put_i8(out, to + 5, _ZERO + low if low < 10 else 0x57 + low)
    return to + 6


@inlined
def _put_text(out: Any, to: int, data: Any, at: int, end: int) -> int:
    """data[at:end], which is UTF-8, between quotes."""
    put_i8(out, to, _QUOTE)
    to += 1
    while at < end:
        if end - at >= 8:
            word = i64_at(data, at)
            if _is_plain(word):
                put_i64(out, to, word)
                at += 8
                to += 8
                continue
        byte = u8_at(data, at)
        at += 1
        if byte < 0x20 or byte == _QUOTE or byte == _BACKSLASH:
            to = _put_escaped(out, to, byte)
        else:
            put_i8(out, to, byte)
            to += 1
    put_i8(out, to, _QUOTE)
    return to + 1


@inlined
def _put_text_or_null(out: Any, to: int, data: Any, at: int, length: int) -> int:
    return _put_fixed(out, to, _NULL) if length < 0 else _put_text(out, to, data, at, at + length)


@inlined
def _put_base64(out: Any, to: int, data: Any, at: int, end: int) -> int:
    """data[at:end] in base64 between quotes."""
    put_i8(out, to, _QUOTE)
    to += 1
    while end - at >= 3:
        bits = u8_at(data, at) << 16 | u8_at(data, at + 1) << 8 | u8_at(data, at + 2)
        put_i16(out, to, _LETTERS[np.uint64(bits >> 12)])
        put_i16(out, to + 2, _LETTERS[np.uint64(bits & 0xFFF)])
        at += 3
        to += 4
    if at < end:
        bits = u8_at(data, at) << 16
        if end - at == 2:
            bits |= u8_at(data, at + 1) << 8
        put_i16(out, to, _LETTERS[np.uint64(bits >> 12)])
        put_i16(out, to + 2, _LETTERS[np.uint64(bits & 0xFFF)])
        put_i8(out, to + 3, _PAD)
        if end - at == 1:
            put_i8(out, to + 2, _PAD)
        to += 4
    put_i8(out, to, _QUOTE)
    return to + 1


@inlined
def _put_number(out: Any, to: int, value: int) -> int:
    """Decimal digits; not for the smallest of all numbers, which has no positive."""
    if value < 0:
        put_i8(out, to, _MINUS)
        to += 1
        value = -value
    length, bound = 1, 10
    while length < 19 and value >= bound:
        length += 1
        bound = bound * 10 if length < 19 else bound
    at = to + length
    while at > to:
        at -= 1
        rest = value // 10
        put_i8(out, at, _ZERO + value - rest * 10)
        value = rest
    return to + length


@inlined
def _put_host(out: Any, to: int, data: Any, at: int) -> int:
    """An IPv4 host between quotes."""
    put_i8(out, to, _QUOTE)
    to += 1
    for k in range(4):
        to = _put_number(out, to, u8_at(data, at + k))
        put_i8(out, to, _DOT if k < 3 else _COLON)
        to += 1
    to = _put_number(out, to, i32_at(data, at + 4))
    put_i8(out, to, _QUOTE)
    return to + 1


@inlined
def _put_hex(out: Any, to: int, number: int) -> int:
    for k in range(16):
        put_i8(out, to + k, _HEX_UPPER[np.uint64(number >> (60 - 4 * k) & 15)])
    return to + 16


@inlined
def _same(data: Any, at: int, other: int, length: int) -> bool:
    for k in range(length):
        if u8_at(data, at + k) != u8_at(data, other + k):
            return False
    return True


@inlined
def _put_properties(out: Any, to: int, data: Any, at: int, end: int, raw: int, names: Any) -> int:
    """The map of a property string; -1 when it has to be written the plain way."""
    put_i8(out, to, _OPEN)
    to += 1
    count = 0
    start, separator = at, -1
    if raw and at == end:
        put_i8(out, to, _CLOSE)
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
                    put_i8(out, to, _COMMA)
                    to += 1
                count += 1
                to = _put_text(out, to, data, start, separator)
                put_i8(out, to, _COLON)
                to = _put_text(out, to + 1, data, separator + 1, at)
            elif raw:
                return -1
            start, separator = at + 1, -1
        at += 1
    put_i8(out, to, _CLOSE)
    return to + 1


@inlined
def _put_line(out: Any, to: int, data: Any, base: int, rows: Any, i: int, form: int, names: Any) -> int:
    """The line of row i; -1 when it has to be written the plain way. There is room for it."""
    sys_flag = cell(rows, i, c.C_SYS_FLAG)
    if sys_flag & HOST_V6_MASK or (sys_flag & COMPRESSED and not form & _RAW):
        return -1
    physical = cell(rows, i, c.C_PHYSICAL)
    at = physical - base
    topic_at, body_at, props_at = cell(rows, i, c.C_TOPIC_AT), cell(rows, i, c.C_BODY_AT), cell(rows, i, c.C_PROPS_AT)
    topic_end = topic_at + cell(rows, i, c.C_TOPIC_LEN)
    body_end = body_at + cell(rows, i, c.C_BODY_LEN)
    props_end = props_at + cell(rows, i, c.C_PROPS_LEN)
    if not _is_utf8(data, topic_at, topic_end) or not _is_utf8(data, props_at, props_end):
        return -1
    if form & _TEXT and not _is_utf8(data, body_at, body_end):
        return -1
    to = _put_text(out, _put_fixed(out, to, _K_TOPIC), data, topic_at, topic_end)
    to = _put_number(out, _put_fixed(out, to, _K_QUEUE_ID), cell(rows, i, c.C_QUEUE_ID))
    to = _put_number(out, _put_fixed(out, to, _K_QUEUE_OFFSET), cell(rows, i, c.C_QUEUE_OFFSET))
    to = _put_number(out, _put_fixed(out, to, _K_PHYSICAL), physical)
    to = _put_fixed(out, to, _K_MSG_ID)
    put_i8(out, to, _QUOTE)
    to = _put_hex(out, _put_hex(out, to + 1, i64_at(data, at + 64)), physical)
    put_i8(out, to, _QUOTE)
    to = _put_fixed(out, to + 1, _K_UNIQ)
    to = _put_text_or_null(out, to, data, cell(rows, i, c.C_UNIQ_AT), cell(rows, i, c.C_UNIQ_LEN))
    to = _put_fixed(out, to, _K_TAGS)
    to = _put_text_or_null(out, to, data, cell(rows, i, c.C_TAGS_AT), cell(rows, i, c.C_TAGS_LEN))
    to = _put_fixed(out, to, _K_KEYS)
    to = _put_text_or_null(out, to, data, cell(rows, i, c.C_KEYS_AT), cell(rows, i, c.C_KEYS_LEN))
    to = _put_fixed(out, to, _K_BODY)
    if form & _TEXT:
        to = _put_text(out, to, data, body_at, body_end)
    else:
        to = _put_base64(out, to, data, body_at, body_end)
    to = _put_properties(out, _put_fixed(out, to, _K_PROPS), data, props_at, props_end, form & _RAW, names)
    if to < 0:
        return -1
    to = _put_number(out, _put_fixed(out, to, _K_FLAG), cell(rows, i, c.C_FLAG))
    to = _put_number(out, _put_fixed(out, to, _K_SYS_FLAG), sys_flag)
    to = _put_number(out, _put_fixed(out, to, _K_BORN_TIME), cell(rows, i, c.C_BORN_TIME))
    to = _put_host(out, _put_fixed(out, to, _K_BORN_HOST), data, at + 48)
    to = _put_number(out, _put_fixed(out, to, _K_STORE_TIME), cell(rows, i, c.C_STORE_TIME))
    to = _put_host(out, _put_fixed(out, to, _K_STORE_HOST), data, at + 64)
    to = _put_number(out, _put_fixed(out, to, _K_RECONSUME), cell(rows, i, c.C_RECONSUME))
    to = _put_number(out, _put_fixed(out, to, _K_PREPARED), cell(rows, i, c.C_PREPARED))
    to = _put_number(out, _put_fixed(out, to, _K_CRC), i32_at(data, at + 8))
    to = _put_number(out, _put_fixed(out, to, _K_SIZE), cell(rows, i, c.C_SIZE))
    return _put_fixed(out, to, _END)


@inlined
def _has_no_positive(rows: Any, i: int) -> bool:
    """Whether one of the 64-bit numbers is the smallest there is."""
    queue_offset, prepared = cell(rows, i, c.C_QUEUE_OFFSET), cell(rows, i, c.C_PREPARED)
    born_time, store_time = cell(rows, i, c.C_BORN_TIME), cell(rows, i, c.C_STORE_TIME)
    smallest: int = min(queue_offset, prepared, born_time, store_time)
    return smallest == _I64_MIN


@kernel(f"UniTuple(int64, 3)({READ_BYTES}, int64, {READ_ROWS}, int64, {BYTES}, int64, {I64})")
def _write_lines(
    data: Any, base: int, rows: Any, start: int, out: Any, form: int, names: Any
) -> tuple[int, int, int]:
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
    data: Any, base: int, rows: Rows, start: int, out: NDArray[np.uint8], form: LineForm
) -> tuple[int, int, LineStop]:
    """Write the lines of rows[start:] into `out`, as many as fit. Returns (row to go on with, bytes written, why it
    stopped). The rows must come from a scan of the same data: their positions are believed.

    Twin: format.json_lines.encode_line, one line a call. Some 15 times as fast."""
    raw = as_bytes_array(data)
    assert rows.shape[1:] == (c.N_COLUMNS,), rows.shape
    assert 0 <= start <= len(rows), (start, len(rows))
    names = np.empty(2 * _NAMES_MAX, np.int64)
    row, used, stop = _write_lines(raw, base, np.ascontiguousarray(rows), start, out, int(form), names)
    return row, used, LineStop(stop)
