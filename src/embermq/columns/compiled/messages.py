"""Reading packed messages into the rows of a run. Twin: plain.messages.read_packed, which states the rules."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns.compiled.compiling import BYTES, READ_BYTES, READ_ROWS, ROWS, inlined, kernel
from embermq.columns.compiled.encode import row_record_size
from embermq.columns.compiled.memory import (
    cell,
    copy_bytes,
    i8_at,
    i16_at,
    i32_at,
    i64_at,
    put_i8,
    put_i32,
    set_cell,
    u8_at,
)
from embermq.columns.compiled.queue_table import QueueTable, find_queue, is_same
from embermq.columns.compiled.text import hash_text
from embermq.columns.plain import messages as m
from embermq.columns.plain import runs as r
from embermq.columns.plain.messages import PackedReading, PackedStop
from embermq.columns.rows import Rows, as_bytes_array
from embermq.format.frame import PROPERTIES_BYTES_MAX

_BROKEN, _OTHER, _INT, _TEXT, _BINARY, _LIST, _MAP = (int(kind) for kind in m.Kind)
_ALL, _PLACE, _PLAIN, _NO_LIST = (int(stop) for stop in PackedStop)
_HEAD_KIND, _HEAD_WIDTH, _HEAD_MORE = (np.array(column, np.int64) for column in zip(*m.HEADS, strict=True))

# One message while it is read: a row per field; its kind (absent: none), number or length, and where it begins.
_F_KIND, _F_NUMBER, _F_START = range(3)
_ABSENT = -1
_FIELDS = len(m.FIELDS)
_TOPIC, _BODY, _TAGS, _KEYS, _PROPERTIES, _QUEUE_ID, _FLAG = range(7)
_SYS_FLAG, _BORN, _RECONSUME, _PREPARED, _ENCODED, _HOST = range(7, _FIELDS)
# Length and first letter tell which field a name can be; then the whole name is compared.
_NAMES = np.frombuffer(b"".join(m.FIELDS), np.uint8)
_NAME_STARTS = np.cumsum([0, *map(len, m.FIELDS)])
_NAME_BYTES_MAX = 31
_FIELD_BY_LOOK = np.full((_NAME_BYTES_MAX + 1) * 256, _ABSENT, np.int64)
for _number, _name in enumerate(m.FIELDS):
    assert _FIELD_BY_LOOK[len(_name) * 256 + _name[0]] == _ABSENT
    _FIELD_BY_LOOK[len(_name) * 256 + _name[0]] = _number

# One property: a row with its bucket, name and value; TAGS and KEYS are known by the length of their name.
_P_BUCKET, _P_NAME_AT, _P_NAME_LEN, _P_VALUE_AT, _P_VALUE_LEN = range(5)
_IS_TAGS, _IS_KEYS = -1, -2
_TAGS_BUCKET, _KEYS_BUCKET = m.bucket_of(b"TAGS"), m.bucket_of(b"KEYS")
_TAGS_WORD, _KEYS_WORD = (int.from_bytes(name, "big") for name in (b"TAGS", b"KEYS"))
_DELAY, _WAIT, _MULTI = (np.frombuffer(name, np.uint8) for name in m.MEANINGFUL)
_TRUE_WORD = int.from_bytes(b"true", "big")
_SPACE, _NAME_END, _PAIR_END = b" \x01\x02"
_DOT, _ZERO = b".0"
_ONES, _TWOS = 0x0101_0101_0101_0101, 0x0202_0202_0202_0202
_TOP_BITS = 0x8080_8080_8080_8080 - (1 << 64)


@inlined
def _number_at(data: Any, at: int, width: int, is_signed: bool) -> Any:
    if width == 1:
        return i8_at(data, at) if is_signed else u8_at(data, at)
    if width == 2:
        return i16_at(data, at) if is_signed else i16_at(data, at) & 0xFFFF
    if width == 4:
        return i32_at(data, at) if is_signed else i32_at(data, at) & 0xFFFF_FFFF
    return i64_at(data, at) if width == 8 else 0


@inlined
def _read_head(data: Any, at: int) -> Any:
    """Kind, number, start and end of the value at data[at]: format.messages.read_head."""
    if not 0 <= at < len(data):
        return _BROKEN, 0, at, at
    first = u8_at(data, at)
    kind, width = _HEAD_KIND[np.uint64(first)], _HEAD_WIDTH[np.uint64(first)]
    start = at + 1 + width
    if kind == _BROKEN or start > len(data):
        return _BROKEN, 0, at, at
    is_signed = 0xD0 <= first <= 0xD3
    number = _HEAD_MORE[np.uint64(first)] + _number_at(data, at + 1, width, is_signed)
    if kind == _INT:
        if width == 8 and not is_signed and number < 0:
            return _OTHER, 0, start, start
        return kind, number, start, start
    if kind == _LIST or kind == _MAP:
        return kind, number, start, start
    if number > len(data) - start:
        return _BROKEN, 0, at, at
    return kind, number, start, start + number


@inlined
def _end_of(data: Any, at: int, missing: int) -> Any:
    """Where `missing` values from data[at] on end, with all inside them; -1 if nowhere."""
    while missing > 0:
        kind, number, _, at = _read_head(data, at)
        if kind == _BROKEN:
            return -1
        missing -= 1
        if kind == _LIST:
            missing += number
        elif kind == _MAP:
            missing += 2 * number
    return at


@inlined
def _field_of(data: Any, at: int, length: int) -> Any:
    if not 0 < length <= _NAME_BYTES_MAX:
        return _ABSENT
    field = _FIELD_BY_LOOK[np.uint64(length * 256 + u8_at(data, at))]
    if field != _ABSENT and not is_same(data, at, _NAMES, _NAME_STARTS[np.uint64(field)], length):
        return _ABSENT
    return field


@inlined
def _read_fields(data: Any, at: int, fields: Any) -> Any:
    """Fills `fields`; answers where the message ends (-1: nowhere) and whether it has no field but those."""
    for field in range(_FIELDS):
        set_cell(fields, field, _F_KIND, _ABSENT)
    kind, count, _, at = _read_head(data, at)
    if kind != _MAP:
        return -1, False
    all_known = True
    for _ in range(count):
        kind, length, start, at = _read_head(data, at)
        if kind != _TEXT:
            return -1, False
        field = _field_of(data, start, length)
        kind, number, start, at = _read_head(data, at)
        if kind == _BROKEN:
            return -1, False
        if kind == _LIST or kind == _MAP:
            at = _end_of(data, at, number if kind == _LIST else 2 * number)
            if at < 0:
                return -1, False
        if field == _ABSENT:
            all_known = False
        else:
            set_cell(fields, field, _F_KIND, kind)
            set_cell(fields, field, _F_NUMBER, number)
            set_cell(fields, field, _F_START, start)
    return at, all_known


# -- properties --------------------------------------------------------------------------------------------


@inlined
def has_separator(data: Any, at: int, length: int) -> bool:
    """Is there a byte 1 or 2? Eight at a time: x - 1 & ~x has a top bit where x is a zero byte."""
    end = at + length
    while at + 8 <= end:
        one, two = i64_at(data, at) ^ _ONES, i64_at(data, at) ^ _TWOS
        if (((one - _ONES) & ~one) | ((two - _ONES) & ~two)) & _TOP_BITS != 0:
            return True
        at += 8
    while at < end:
        if u8_at(data, at) == _NAME_END or u8_at(data, at) == _PAIR_END:
            return True
        at += 1
    return False


@inlined
def _ends_with(data: Any, start: int, end: int, name: Any) -> bool:
    return end - start >= len(name) and is_same(data, end - len(name), name, 0, len(name))


@inlined
def _is_true(data: Any, at: int, end: int) -> bool:
    """Is the value that begins at data[at] the text `true`?"""
    if end - at < 4 or i32_at(data, at) != _TRUE_WORD:
        return False
    return end - at == 4 or u8_at(data, at + 4) == _PAIR_END


@inlined
def has_meaning(data: Any, start: int, length: int) -> bool:
    """May one of these properties change what the store does? Looks at names only: before each byte 1.

    Twin: model.properties.has_meaning_to_store."""
    at, end = start, start + length
    while at < end:
        if at + 8 <= end:
            word = i64_at(data, at) ^ _ONES
            if (word - _ONES) & ~word & _TOP_BITS == 0:
                at += 8
                continue
        stop = min(at + 8, end)
        while at < stop:
            at += 1
            if u8_at(data, at - 1) == _NAME_END and (
                _ends_with(data, start, at, _DELAY)
                or (_ends_with(data, start, at, _WAIT) and not _is_true(data, at, end))
                or _ends_with(data, start, at, _MULTI)
            ):
                return True
    return False


@inlined
def _keys_length(data: Any, fields: Any) -> Any:
    """Bytes of the text of KEYS: 0 without keys, -1 if they are not ordinary."""
    kind, count, at = cell(fields, _KEYS, _F_KIND), cell(fields, _KEYS, _F_NUMBER), cell(fields, _KEYS, _F_START)
    if kind == _ABSENT:
        return 0
    if kind == _TEXT:
        return -1 if has_separator(data, at, count) else count
    if kind != _LIST:
        return -1
    total = 0
    for _ in range(count):
        kind, length, start, at = _read_head(data, at)
        if kind != _TEXT or length == 0 or has_separator(data, start, length):
            return -1
        for place in range(start, at):
            if u8_at(data, place) == _SPACE:
                return -1
        total += length + 1
    return total - 1 if count > 0 else 0


@inlined
def _write_keys(out: Any, to: int, data: Any, fields: Any) -> Any:
    """The text of KEYS to out[to:]; answers where it ends."""
    count, at = cell(fields, _KEYS, _F_NUMBER), cell(fields, _KEYS, _F_START)
    if cell(fields, _KEYS, _F_KIND) == _TEXT:
        copy_bytes(out, to, data, at, count)
        return to + count
    for number in range(count):
        if number > 0:
            put_i8(out, to, _SPACE)
            to += 1
        _, length, start, at = _read_head(data, at)
        copy_bytes(out, to, data, start, length)
        to += length
    return to


@inlined
def _write_tags(out: Any, to: int, data: Any, fields: Any) -> Any:
    length = cell(fields, _TAGS, _F_NUMBER)
    copy_bytes(out, to, data, cell(fields, _TAGS, _F_START), length)
    return to + length


@inlined
def _write_name(out: Any, to: int, word: int) -> int:
    put_i32(out, to, word)
    put_i8(out, to + 4, _NAME_END)
    return to + 5


@inlined
def _insert(pairs: Any, count: int, bucket: int, name_at: int, name_len: int, value_at: int, value_len: int) -> None:
    """Behind those of the same bucket and before those of later ones."""
    row = count
    while row > 0 and cell(pairs, row - 1, _P_BUCKET) > bucket:
        for column in range(5):
            set_cell(pairs, row, column, cell(pairs, row - 1, column))
        row -= 1
    set_cell(pairs, row, _P_BUCKET, bucket)
    set_cell(pairs, row, _P_NAME_AT, name_at)
    set_cell(pairs, row, _P_NAME_LEN, name_len)
    set_cell(pairs, row, _P_VALUE_AT, value_at)
    set_cell(pairs, row, _P_VALUE_LEN, value_len)


@inlined
def _collect_pairs(data: Any, fields: Any, tags_len: int, keys_len: int, pairs: Any) -> Any:
    """Sorts the properties of a message into `pairs`; answers how many there are, -1 if they are not ordinary."""
    given, at = cell(fields, _PROPERTIES, _F_NUMBER), cell(fields, _PROPERTIES, _F_START)
    if given + (tags_len > 0) + (keys_len > 0) > m.PAIRS_MAX:
        return -1
    for count in range(given):
        kind, name_len, name_at, at = _read_head(data, at)
        value_kind, value_len, value_at, at = _read_head(data, at)
        if kind != _TEXT or value_kind != _TEXT or name_len == 0 or value_len == 0:
            return -1
        if has_separator(data, name_at, name_len) or has_separator(data, value_at, value_len):
            return -1
        if name_len == 4 and (i32_at(data, name_at) == _TAGS_WORD or i32_at(data, name_at) == _KEYS_WORD):
            return -1
        for other in range(count):
            length = cell(pairs, other, _P_NAME_LEN)
            if length == name_len and is_same(data, name_at, data, cell(pairs, other, _P_NAME_AT), length):
                return -1
        code = hash_text(data, name_at, name_len, 0)
        bucket = (code ^ (code >> 16)) & (m.HASH_BUCKETS - 1)
        _insert(pairs, count, bucket, name_at, name_len, value_at, value_len)
    if tags_len > 0:
        _insert(pairs, given, _TAGS_BUCKET, 0, _IS_TAGS, 0, 0)
        given += 1
    if keys_len > 0:
        _insert(pairs, given, _KEYS_BUCKET, 0, _IS_KEYS, 0, 0)
        given += 1
    return given


@inlined
def _write_pairs(out: Any, to: int, data: Any, fields: Any, pairs: Any, count: int) -> Any:
    for row in range(count):
        if row > 0:
            put_i8(out, to, _PAIR_END)
            to += 1
        name_len, value_len = cell(pairs, row, _P_NAME_LEN), cell(pairs, row, _P_VALUE_LEN)
        if name_len == _IS_TAGS:
            to = _write_tags(out, _write_name(out, to, _TAGS_WORD), data, fields)
        elif name_len == _IS_KEYS:
            to = _write_keys(out, _write_name(out, to, _KEYS_WORD), data, fields)
        else:
            copy_bytes(out, to, data, cell(pairs, row, _P_NAME_AT), name_len)
            put_i8(out, to + name_len, _NAME_END)
            copy_bytes(out, to + name_len + 1, data, cell(pairs, row, _P_VALUE_AT), value_len)
            to += name_len + 1 + value_len
    return to


@inlined
def _write_properties(out: Any, to: int, data: Any, fields: Any, pairs: Any) -> Any:
    """The property string to out[to:]; answers where it ends, -1 if it is not ordinary."""
    tags_len, keys_len = 0, _keys_length(data, fields)
    if cell(fields, _TAGS, _F_KIND) != _ABSENT:
        tags_len = cell(fields, _TAGS, _F_NUMBER)
        if cell(fields, _TAGS, _F_KIND) != _TEXT or has_separator(data, cell(fields, _TAGS, _F_START), tags_len):
            return -1
    if keys_len < 0:
        return -1
    start, given, encoded = to, cell(fields, _PROPERTIES, _F_KIND), cell(fields, _ENCODED, _F_KIND)
    if encoded != _ABSENT:
        if encoded != _BINARY or given != _ABSENT or tags_len + keys_len > 0:
            return -1
        copy_bytes(out, to, data, cell(fields, _ENCODED, _F_START), cell(fields, _ENCODED, _F_NUMBER))
        to += cell(fields, _ENCODED, _F_NUMBER)
    elif given != _ABSENT:
        if given != _MAP:
            return -1
        count = _collect_pairs(data, fields, tags_len, keys_len, pairs)
        if count < 0:
            return -1
        to = _write_pairs(out, to, data, fields, pairs, count)
    else:
        if keys_len > 0:
            to = _write_keys(out, _write_name(out, to, _KEYS_WORD), data, fields)
            if tags_len > 0:
                put_i8(out, to, _PAIR_END)
                to += 1
        if tags_len > 0:
            to = _write_tags(out, _write_name(out, to, _TAGS_WORD), data, fields)
        return to  # These two mean nothing to the store.
    return -1 if has_meaning(out, start, to - start) else to


# -- hosts -------------------------------------------------------------------------------------------------


@inlined
def _ipv4_number(data: Any, at: int, length: int) -> int:
    """An address in dotted decimal as one number; -1 if it is none, or written with leading zeros."""
    number, part, digits, dots, end = 0, 0, 0, 0, at + length
    while at < end:
        byte = u8_at(data, at)
        at += 1
        if byte == _DOT:
            if digits == 0 or dots == 3:
                return -1
            number, part, digits, dots = number << 8 | part, 0, 0, dots + 1
        else:
            if not _ZERO <= byte <= _ZERO + 9 or (digits > 0 and part == 0):
                return -1
            part, digits = 10 * part + byte - _ZERO, digits + 1
            if part > 255:
                return -1
    return number << 8 | part if dots == 3 and digits > 0 else -1


@inlined
def _write_host(out: Any, to: int, data: Any, fields: Any) -> int:
    """The packed born host to out[to:]; answers where it ends, -1 if it is not ordinary."""
    kind, count, at = cell(fields, _HOST, _F_KIND), cell(fields, _HOST, _F_NUMBER), cell(fields, _HOST, _F_START)
    if kind == _ABSENT:
        return to
    if kind != _LIST or count != 2:
        return -1
    kind, length, start, at = _read_head(data, at)
    number = _ipv4_number(data, start, length) if kind == _TEXT else -1
    kind, port, _, _ = _read_head(data, at)
    if number < 0 or kind != _INT or not m.I32_MIN <= port <= m.I32_MAX:
        return -1
    put_i32(out, to, number)
    put_i32(out, to + 4, port)
    return to + 8


# -- rows --------------------------------------------------------------------------------------------------


@inlined
def _is_number(fields: Any, field: int, low: int, high: int) -> Any:
    kind = cell(fields, field, _F_KIND)
    if kind == _ABSENT:
        return True
    return kind == _INT and low <= cell(fields, field, _F_NUMBER) <= high


@inlined
def _number_or(fields: Any, field: int, default: int) -> Any:
    return default if cell(fields, field, _F_KIND) == _ABSENT else cell(fields, field, _F_NUMBER)


@inlined
def _fill_row(rows: Any, i: int, fields: Any, body_bytes_max: int, props_len: int) -> bool:
    """Everything but queue, host and properties into a row; False if the message is not ordinary."""
    body_len, body_at = 0, 0
    if cell(fields, _BODY, _F_KIND) != _ABSENT:
        body_len, body_at = cell(fields, _BODY, _F_NUMBER), cell(fields, _BODY, _F_START)
        if cell(fields, _BODY, _F_KIND) != _BINARY:
            return False
    topic_len = cell(fields, _TOPIC, _F_NUMBER)
    if (
        cell(fields, _TOPIC, _F_KIND) != _TEXT
        or body_len > body_bytes_max
        or props_len > PROPERTIES_BYTES_MAX
        or not _is_number(fields, _QUEUE_ID, 0, m.I32_MAX)
        or not _is_number(fields, _FLAG, m.I32_MIN, m.I32_MAX)
        or not _is_number(fields, _SYS_FLAG, m.I32_MIN, m.I32_MAX)
        or not _is_number(fields, _RECONSUME, m.I32_MIN, m.I32_MAX)
        or not _is_number(fields, _PREPARED, r.BORN_NOW, m.I64_MAX)
        or not _is_number(fields, _BORN, r.BORN_NOW + 1, m.I64_MAX)
    ):
        return False
    set_cell(rows, i, r.R_BODY_AT, body_at)
    set_cell(rows, i, r.R_BODY_LEN, body_len)
    set_cell(rows, i, r.R_TOPIC_AT, cell(fields, _TOPIC, _F_START))
    set_cell(rows, i, r.R_TOPIC_LEN, topic_len)
    set_cell(rows, i, r.R_PROPS_LEN, props_len)
    set_cell(rows, i, r.R_QUEUE_ID, _number_or(fields, _QUEUE_ID, 0))
    set_cell(rows, i, r.R_FLAG, _number_or(fields, _FLAG, 0))
    set_cell(rows, i, r.R_SYS_FLAG, _number_or(fields, _SYS_FLAG, 0))
    set_cell(rows, i, r.R_BORN_TIME, _number_or(fields, _BORN, r.BORN_NOW))
    set_cell(rows, i, r.R_RECONSUME, _number_or(fields, _RECONSUME, 0))
    set_cell(rows, i, r.R_PREPARED, _number_or(fields, _PREPARED, 0))
    return True


_TYPES = f"{READ_BYTES}, int64, {READ_ROWS}, {READ_BYTES}, int64, int64, int64, {ROWS}, {BYTES}, int64, {ROWS}, {ROWS}"


@kernel(f"UniTuple(int64, 4)({_TYPES})", nogil=False)
def _read_messages(
    data: Any,
    at: int,
    table: Any,
    topics: Any,
    body_bytes_max: int,
    record_bytes_max: int,
    store_host_bytes: int,
    rows: Any,
    out: Any,
    used: int,
    fields: Any,
    pairs: Any,
) -> tuple[int, int, int, int]:
    for i in range(len(rows)):
        end, all_known = _read_fields(data, at, fields)
        if end < 0:
            return i, at, used, _NO_LIST
        text_at = _write_host(out, used, data, fields) if all_known else -1
        to = _write_properties(out, text_at, data, fields, pairs) if text_at >= 0 else -1
        if to < 0 or not _fill_row(rows, i, fields, body_bytes_max, to - text_at):
            return i, end, used, _PLAIN
        set_cell(rows, i, r.R_HOST_AT, used)
        set_cell(rows, i, r.R_HOST_LEN, text_at - used)
        set_cell(rows, i, r.R_PROPS_AT, text_at)
        if row_record_size(rows, i, store_host_bytes) > record_bytes_max:
            return i, end, used, _PLAIN
        topic_at, topic_len = cell(rows, i, r.R_TOPIC_AT), cell(rows, i, r.R_TOPIC_LEN)
        queue = find_queue(table, topics, data, topic_at, topic_len, cell(rows, i, r.R_QUEUE_ID))
        if queue < 0:
            return i, at, used, _PLACE
        set_cell(rows, i, r.R_QUEUE, queue)
        used, at = to, end
    return len(rows), at, used, _ALL


def read_messages(
    packed: Any,
    at: int,
    places: QueueTable,
    body_bytes_max: int,
    record_bytes_max: int,
    store_host_bytes: int,
    rows: Rows,
    properties: NDArray[np.uint8],
    used: int,
) -> PackedReading:
    """Read messages from packed[at:] on into `rows`, until these are full or something else stops it.

    Packed born hosts and property strings go into properties[used:]; both together are no longer than the packed
    message, so as much room as there are bytes to read is enough. `places` gives the number of a queue.

    Twin: plain.messages.read_packed."""
    data = as_bytes_array(packed)
    assert rows.shape[1] == r.N_RUN_COLUMNS, rows.shape
    assert 0 <= at <= len(data), (at, len(data))
    assert 0 <= used <= len(properties)
    assert len(data) - at <= len(properties) - used
    fields = np.zeros((_FIELDS, 3), np.int64)
    pairs = np.zeros((m.PAIRS_MAX, 5), np.int64)
    count, at, used, stop = _read_messages(
        data,
        at,
        *places.arrays,
        body_bytes_max,
        record_bytes_max,
        store_host_bytes,
        rows,
        properties,
        used,
        fields,
        pairs,
    )
    return PackedReading(count, at, used, PackedStop(stop))
