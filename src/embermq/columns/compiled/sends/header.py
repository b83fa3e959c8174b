"""Headers of sends and of ends of transactions, JSON and binary, for use inside kernels: the values of a familiar one,
or that it is none.

What familiar means is said in plain/send_headers.py. Nothing is read behind `end`; a place of -1 says: not familiar.
"""

from typing import Any

import numpy as np

from embermq.columns.compiled.parts.compiling import inlined
from embermq.columns.compiled.parts.json_text import CLOSE, COLON, COMMA, OPEN, QUOTE
from embermq.columns.compiled.parts.memory import cell, i16_at, i32_at, set_cell, u8_at
from embermq.columns.compiled.queue_table import is_same
from embermq.columns.plain import send_headers as s
from embermq.columns.plain.runs import I32_MAX, I32_MIN

# What is kept of a header: one row of these.
H_CODE, H_FLAG, H_OPAQUE, H_VERSION, H_FIELDS, H_TOPIC_AT, H_TOPIC_LEN, H_PROPS_AT, H_PROPS_LEN = range(9)
H_QUEUE_ID, H_SYS_FLAG, H_BORN, H_USER_FLAG, H_RECONSUME = range(9, 14)
H_GROUP_AT, H_GROUP_LEN, H_PLACE, H_STATE, H_DECISION = range(14, 19)
N_HEADER_COLUMNS = 19

_BACKSLASH, _MINUS, _ZERO, _NINE, _LETTER_A, _LETTER_Z = b"\\-09az"
_NULL, _TRUE, _FALS = (int.from_bytes(word, "big") for word in (b"null", b"true", b"fals"))
_FALSE_END = ord("e")
_BAD = -1
_FIXED_BYTES, _VALUES_AT = 13, 21
# Keys of a JSON header; the first four are numbers, and have the columns of their places here.
_KEYS = (b"code", b"flag", b"opaque", b"version", b"extFields", b"remark", b"language", b"serializeTypeCurrentRPC")
_K_CODE, _K_LAST_NUMBER, _K_FIELDS, _K_REMARK = 0, 3, 4, 5
assert (H_CODE, H_FLAG, H_OPAQUE, H_VERSION) == (0, 1, 2, 3)


def _joined(names: tuple[bytes, ...]) -> tuple[Any, Any]:
    """Names one behind another, and where each begins, with the end."""
    starts = np.cumsum([0, *(len(name) for name in names)])
    return np.frombuffer(b"".join(names), np.uint8), starts.astype(np.int64)


_KEY_TEXTS, _KEY_STARTS = _joined(_KEYS)
_NAME_TEXTS, _NAME_STARTS = _joined(s.LONG_NAMES)
_END_TEXTS, _END_STARTS = _joined((*s.END_NAMES, s.LONG_NAMES[s.GROUP]))
_N_KEYS, _N_NAMES, _N_END_NAMES = len(_KEYS), len(s.LONG_NAMES), len(s.END_NAMES)


@inlined
def _name_number(texts: Any, starts: Any, count: int, data: Any, at: int, length: int) -> int:
    for k in range(count):
        start = starts[k]
        if starts[k + 1] - start == length and is_same(data, at, texts, start, length):
            return k
    return _BAD


@inlined
def _field_of(code: int, data: Any, at: int, length: int) -> int:
    """The number of a header field, -1 if it is none that matters."""
    if code == s.SEND:
        return _name_number(_NAME_TEXTS, _NAME_STARTS, _N_NAMES, data, at, length)
    if code == s.END:
        number = _name_number(_END_TEXTS, _END_STARTS, _N_END_NAMES + 1, data, at, length)
        if number == _N_END_NAMES:
            return s.GROUP
        return s.END_FIRST + number if number >= 0 else _BAD
    if length == 1 and s.SHORT_FIRST <= u8_at(data, at) <= s.SHORT_FIRST + s.BATCH:
        return u8_at(data, at) - s.SHORT_FIRST  # type: ignore[no-any-return]
    return _BAD


# -- values ------------------------------------------------------------------------------------------------------


@inlined
def _number(data: Any, at: int, end: int) -> tuple[int, bool]:
    """The whole number that data[at:end] is, and whether it is one in its usual form."""
    is_negative = end > at and u8_at(data, at) == _MINUS
    if is_negative:
        at += 1
    length = end - at
    if length < 1 or length > s.DIGITS_MAX or (u8_at(data, at) == _ZERO and (length > 1 or is_negative)):
        return 0, False
    value = 0
    while at < end:
        digit = u8_at(data, at) - _ZERO
        if digit < 0 or digit > 9:
            return 0, False
        value = 10 * value + digit
        at += 1
    return -value if is_negative else value, True


@inlined
def _boolean(data: Any, at: int, end: int) -> int:
    """1, 0, or -1 if data[at:end] is no boolean in its usual form."""
    length = end - at
    if length == 1 and (u8_at(data, at) == _ZERO or u8_at(data, at) == _ZERO + 1):
        return u8_at(data, at) - _ZERO  # type: ignore[no-any-return]
    if length == 4 and i32_at(data, at) == _TRUE:
        return 1
    if length == 5 and i32_at(data, at) == _FALS and u8_at(data, at + 4) == _FALSE_END:
        return 0
    return _BAD


@inlined
def _take(head: Any, field: int, data: Any, at: int, end: int, is_bare: bool) -> bool:
    """Keep the value data[at:end] of a field other than the properties."""
    if field < 0:
        return not is_bare or _number(data, at, end)[1]
    fields = cell(head, 0, H_FIELDS)
    if (fields >> field) & 1 != 0:
        return False
    set_cell(head, 0, H_FIELDS, fields | (1 << field))
    if field == s.GROUP:
        set_cell(head, 0, H_GROUP_AT, at)
        set_cell(head, 0, H_GROUP_LEN, end - at)
        return not is_bare
    if field == s.DEFAULT_TOPIC:
        return not is_bare
    if field == s.TOPIC:
        set_cell(head, 0, H_TOPIC_AT, at)
        set_cell(head, 0, H_TOPIC_LEN, end - at)
        return not is_bare and end > at
    if field == s.UNIT or field == s.BATCH:
        value = _boolean(data, at, end)
        return value == 0 or (value == 1 and field == s.UNIT)
    value, is_number = _number(data, at, end)
    if field == s.END_PLACE or field == s.END_STATE:
        set_cell(head, 0, H_PLACE if field == s.END_PLACE else H_STATE, value)
        return is_number
    if not is_number or (field != s.BORN and not I32_MIN <= value <= I32_MAX):
        return False
    if field == s.QUEUE_ID:
        set_cell(head, 0, H_QUEUE_ID, value)
        return value >= 0
    if field == s.SYS_FLAG:
        set_cell(head, 0, H_SYS_FLAG, value)
    elif field == s.BORN:
        set_cell(head, 0, H_BORN, value)
    elif field == s.FLAG:
        set_cell(head, 0, H_USER_FLAG, value)
    elif field == s.RECONSUME:
        set_cell(head, 0, H_RECONSUME, value)
    elif field == s.END_DECISION:
        set_cell(head, 0, H_DECISION, value)
    return True


@inlined
def _take_properties(head: Any, at: int, end: int) -> bool:
    fields = cell(head, 0, H_FIELDS)
    if (fields >> s.PROPERTIES) & 1 != 0:
        return False
    set_cell(head, 0, H_FIELDS, fields | (1 << s.PROPERTIES))
    set_cell(head, 0, H_PROPS_AT, at)
    set_cell(head, 0, H_PROPS_LEN, end - at)
    return True


# -- JSON --------------------------------------------------------------------------------------------------------


@inlined
def _skip(data: Any, at: int, end: int) -> int:
    while at < end:
        byte = u8_at(data, at)
        if byte != 0x20 and byte != 0x0A and byte != 0x0D and byte != 0x09:
            break
        at += 1
    return at


@inlined
def _past(data: Any, at: int, end: int, sign: int) -> int:
    """Behind a sign and what blank is around it."""
    at = _skip(data, at, end)
    if at >= end or u8_at(data, at) != sign:
        return _BAD
    return _skip(data, at + 1, end)


@inlined
def _text_end(data: Any, at: int, end: int) -> int:
    """Where the closing quote of a text is that begins at data[at], without escapes and in ASCII."""
    while at < end:
        byte = u8_at(data, at)
        if byte == QUOTE:
            return at
        if byte < 0x20 or byte >= 0x80 or byte == _BACKSLASH:
            return _BAD
        at += 1
    return _BAD


@inlined
def _any_text_end(data: Any, at: int, end: int) -> int:
    """The same of a text with escapes and of any bytes: they are looked at later."""
    while at < end:
        byte = u8_at(data, at)
        if byte == QUOTE:
            return at
        if byte < 0x20:
            return _BAD
        if byte == _BACKSLASH:
            at += 1
            if at >= end or u8_at(data, at) < 0x20:
                return _BAD
        at += 1
    return _BAD


@inlined
def _bare_end(data: Any, at: int, end: int) -> int:
    start = at
    while at < end:
        byte = u8_at(data, at)
        if not (_ZERO <= byte <= _NINE or _LETTER_A <= byte <= _LETTER_Z or byte == _MINUS):
            break
        at += 1
    return at if at > start else _BAD


@inlined
def _read_json_field(data: Any, at: int, end: int, field: int, head: Any) -> int:
    """Read a value of extFields; behind it."""
    if at >= end:
        return _BAD
    if u8_at(data, at) != QUOTE:
        stop = _bare_end(data, at, end)
        if field == s.PROPERTIES or stop < 0 or not _take(head, field, data, at, stop, True):
            return _BAD
        return stop
    at += 1
    if field == s.PROPERTIES:
        stop = _any_text_end(data, at, end)
        if stop < 0 or not _take_properties(head, at, stop):
            return _BAD
        return stop + 1
    stop = _text_end(data, at, end)
    if stop < 0 or not _take(head, field, data, at, stop, False):
        return _BAD
    return stop + 1


@inlined
def _read_json_fields(data: Any, at: int, end: int, head: Any) -> int:
    """Read the object extFields; behind it."""
    code = cell(head, 0, H_CODE)
    if code != s.SEND and code != s.SEND_V2 and code != s.END:
        return _BAD
    at = _past(data, at, end, OPEN)
    while at >= 0:
        if at >= end or u8_at(data, at) != QUOTE:
            return _BAD
        name_at = at + 1
        name_end = _text_end(data, name_at, end)
        if name_end < 0:
            return _BAD
        at = _past(data, name_end + 1, end, COLON)
        if at < 0:
            return _BAD
        at = _read_json_field(data, at, end, _field_of(code, data, name_at, name_end - name_at), head)
        if at < 0:
            return _BAD
        at = _skip(data, at, end)
        if at >= end:
            return _BAD
        sign = u8_at(data, at)
        at = _skip(data, at + 1, end)
        if sign == CLOSE:
            return at
        if sign != COMMA:
            return _BAD
    return _BAD


@inlined
def _read_json_number(data: Any, at: int, end: int, head: Any, column: int) -> int:
    """Read one of the numbers of a header, with quotes or without; behind it."""
    if at >= end:
        return _BAD
    quotes = 1 if u8_at(data, at) == QUOTE else 0
    at += quotes
    stop = _text_end(data, at, end) if quotes == 1 else _bare_end(data, at, end)
    if stop < 0:
        return _BAD
    value, is_number = _number(data, at, stop)
    if not is_number or not I32_MIN <= value <= I32_MAX:
        return _BAD
    set_cell(head, 0, column, value)
    return stop + quotes


@inlined
def _read_json_text(data: Any, at: int, end: int, may_be_null: bool) -> int:
    """Pass over a text that says nothing here; behind it."""
    if may_be_null and end - at >= 4 and i32_at(data, at) == _NULL:
        return at + 4
    if at >= end or u8_at(data, at) != QUOTE:
        return _BAD
    stop = _text_end(data, at + 1, end)
    return stop + 1 if stop >= 0 else _BAD


@inlined
def read_json(data: Any, at: int, end: int, head: Any) -> bool:
    """Read the JSON header data[at:end]; False if it is not familiar."""
    seen = 0
    at = _past(data, at, end, OPEN)
    while at >= 0:
        if at >= end or u8_at(data, at) != QUOTE:
            return False
        name_at = at + 1
        name_end = _text_end(data, name_at, end)
        if name_end < 0:
            return False
        at = _past(data, name_end + 1, end, COLON)
        key = _name_number(_KEY_TEXTS, _KEY_STARTS, _N_KEYS, data, name_at, name_end - name_at)
        if at < 0 or key < 0 or (seen >> key) & 1 != 0:
            return False
        seen |= 1 << key
        if key <= _K_LAST_NUMBER:
            at = _read_json_number(data, at, end, head, key)
        elif key == _K_FIELDS:
            at = _read_json_fields(data, at, end, head)
        else:
            at = _read_json_text(data, at, end, key == _K_REMARK)
        if at < 0:
            return False
        at = _skip(data, at, end)
        if at >= end:
            return False
        sign = u8_at(data, at)
        at = _skip(data, at + 1, end)
        if sign == CLOSE:
            return at == end and (seen >> _K_FIELDS) & 1 != 0
        if sign != COMMA:
            return False
    return False


# -- binary ------------------------------------------------------------------------------------------------------


@inlined
def _is_ascii(data: Any, at: int, end: int) -> bool:
    while at < end:
        if u8_at(data, at) >= 0x80:
            return False
        at += 1
    return True


@inlined
def read_binary(data: Any, at: int, end: int, head: Any) -> bool:
    """Read the binary header data[at:end]; False if it is not familiar."""
    if end - at < _VALUES_AT:
        return False
    code = i16_at(data, at)
    set_cell(head, 0, H_CODE, code)
    set_cell(head, 0, H_OPAQUE, i32_at(data, at + 5))
    set_cell(head, 0, H_FLAG, i32_at(data, at + 9))
    remark_bytes, fields_bytes = i32_at(data, at + _FIXED_BYTES), i32_at(data, at + _FIXED_BYTES + 4)
    at += _VALUES_AT
    if (code != s.SEND and code != s.SEND_V2 and code != s.END) or remark_bytes != 0 or fields_bytes != end - at:
        return False
    while at < end:
        if end - at < 2:
            return False
        name_at, name_end = at + 2, at + 2 + i16_at(data, at)
        if name_end < name_at or end - name_end < 4 or not _is_ascii(data, name_at, name_end):
            return False
        at, length = name_end + 4, i32_at(data, name_end)
        if length < 0 or length > end - at:
            return False
        field = _field_of(code, data, name_at, name_end - name_at)
        if field == s.PROPERTIES:
            if length > 0 and not _take_properties(head, at, at + length):
                return False
        elif not _is_ascii(data, at, at + length):
            return False
        elif length > 0 and not _take(head, field, data, at, at + length, False):
            return False
        at += length
    return True
