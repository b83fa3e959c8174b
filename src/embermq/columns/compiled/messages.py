"""Reading messages, in place, into the rows of a run. Twin: plain.messages.read_messages, which states the rules."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns.compiled.encode import row_record_size
from embermq.columns.compiled.parts.compiling import BYTES, READ_BYTES, READ_I64, READ_ROWS, ROWS, inlined, kernel
from embermq.columns.compiled.parts.memory import cell, copy_bytes, i32_at, put_i8, put_i32, set_cell, u8_at
from embermq.columns.compiled.parts.objects import (
    FIELDS,
    K_BYTES,
    K_DICT,
    K_FIELDS,
    K_HOST,
    K_INT,
    K_LIST,
    K_MESSAGE,
    K_NO_PROPERTIES,
    K_NONE,
    K_TEXT,
    K_TRUE,
    K_TUPLE,
    K_ZERO,
    MEMORY,
    bytes_of,
    dict_size,
    dict_step,
    field_at,
    find_layout,
    int_of,
    is_a,
    known_at,
    list_item,
    list_size,
    text_of,
    tuple_item,
    tuple_size,
)
from embermq.columns.compiled.parts.property_text import has_meaning, has_separator, is_meaningful
from embermq.columns.compiled.parts.text import hash_text
from embermq.columns.compiled.queue_table import QueueTable, find_queue
from embermq.columns.plain import messages as m
from embermq.columns.plain import runs as r
from embermq.columns.plain.messages import MessageReading
from embermq.columns.plain.runs import RowLimits, RowStop
from embermq.columns.rows import Rows
from embermq.format.frame import PROPERTIES_BYTES_MAX
from embermq.model.message import Message

_ALL, _PLACE, _PLAIN, _FULL = (int(stop) for stop in RowStop)
_F = {name: K_FIELDS + number for number, name in enumerate(FIELDS)}
_TOPIC, _BODY, _TAGS, _KEYS = _F["topic"], _F["body"], _F["tags"], _F["keys"]
_PROPERTIES, _ENCODED = _F["properties"], _F["encoded_properties"]
_QUEUE_ID, _FLAG, _SYS_FLAG, _BORN = _F["queue_id"], _F["flag"], _F["sys_flag"], _F["born_timestamp"]
_RECONSUME, _PREPARED = _F["reconsume_times"], _F["prepared_transaction_offset"]
_DELAY, _HOST, _STORE_HOST, _WAIT = _F["delay_level"], _F["born_host"], _F["store_host"], _F["wait_for_store"]

# One property: a row with its bucket, name and value. TAGS and KEYS have no name there, KEYS may be several texts.
_P_BUCKET, _P_NAME_AT, _P_NAME_LEN, _P_VALUE_AT, _P_VALUE_LEN = range(5)
_PAIR_COLUMNS = 5
_IS_TAGS, _IS_KEYS = -1, -2
_TAGS_BUCKET, _KEYS_BUCKET = m.bucket_of(b"TAGS"), m.bucket_of(b"KEYS")
_TAGS_WORD, _KEYS_WORD = (int.from_bytes(name, "big") for name in (b"TAGS", b"KEYS"))
_WORD_NAME_BYTES = 5  # TAGS or KEYS, and the separator
_SPACE, _NAME_END, _PAIR_END = b" \x01\x02"
_DOT, _ZERO = b".0"
_NOT_ORDINARY = -1


@inlined
def _value_of(message: int, known: Any, field: int) -> int:
    return field_at(message, known_at(known, field))  # type: ignore[no-any-return]


# -- texts -------------------------------------------------------------------------------------------------------


@inlined
def _text(value: int, known: Any) -> Any:
    """Address and length of a text that can be part of a property; length -1 if it cannot."""
    if not is_a(value, known, K_TEXT):
        return 0, _NOT_ORDINARY
    start, length = text_of(value)
    if start == 0 or has_separator(MEMORY, start, length):
        return 0, _NOT_ORDINARY
    return start, length


@inlined
def _key_count(keys: int, known: Any) -> int:
    if is_a(keys, known, K_TUPLE):
        return tuple_size(keys)  # type: ignore[no-any-return]
    return list_size(keys) if is_a(keys, known, K_LIST) else _NOT_ORDINARY


@inlined
def _key(keys: int, known: Any, number: int) -> int:
    return tuple_item(keys, number) if is_a(keys, known, K_TUPLE) else list_item(keys, number)  # type: ignore[no-any-return]


@inlined
def _keys_length(keys: int, known: Any) -> int:
    """Bytes of the text of KEYS: 0 without keys, -1 if they are not ordinary."""
    if is_a(keys, known, K_TEXT):
        return _text(keys, known)[1]  # type: ignore[no-any-return]
    count, total = _key_count(keys, known), 0
    if count < 0:
        return _NOT_ORDINARY
    for number in range(count):
        start, length = _text(_key(keys, known, number), known)
        if length <= 0:
            return _NOT_ORDINARY
        for at in range(start, start + length):
            if u8_at(MEMORY, at) == _SPACE:
                return _NOT_ORDINARY
        total += length + 1
    return total - 1 if count > 0 else 0


@inlined
def _write_keys(out: Any, to: int, keys: int, known: Any) -> int:
    """The text of KEYS to out[to:]; answers where it ends."""
    if is_a(keys, known, K_TEXT):
        start, length = text_of(keys)
        copy_bytes(out, to, MEMORY, start, length)
        return to + length  # type: ignore[no-any-return]
    for number in range(_key_count(keys, known)):
        if number > 0:
            put_i8(out, to, _SPACE)
            to += 1
        start, length = text_of(_key(keys, known, number))
        copy_bytes(out, to, MEMORY, start, length)
        to += length
    return to


@inlined
def _write_name(out: Any, to: int, word: int) -> int:
    put_i32(out, to, word)
    put_i8(out, to + 4, _NAME_END)
    return to + _WORD_NAME_BYTES


# -- properties --------------------------------------------------------------------------------------------------


@inlined
def _insert(pairs: Any, count: int, bucket: int, name_at: int, name_len: int, value_at: int, value_len: int) -> None:
    """Behind those of the same bucket and before those of later ones."""
    row = count
    while row > 0 and cell(pairs, row - 1, _P_BUCKET) > bucket:
        for column in range(_PAIR_COLUMNS):
            set_cell(pairs, row, column, cell(pairs, row - 1, column))
        row -= 1
    set_cell(pairs, row, _P_BUCKET, bucket)
    set_cell(pairs, row, _P_NAME_AT, name_at)
    set_cell(pairs, row, _P_NAME_LEN, name_len)
    set_cell(pairs, row, _P_VALUE_AT, value_at)
    set_cell(pairs, row, _P_VALUE_LEN, value_len)


@inlined
def _collect_pairs(given: int, known: Any, pairs: Any) -> int:
    """Sorts the properties of a dict into `pairs`; answers how many there are, -1 if they are not ordinary."""
    size, position = dict_size(given), 0
    if size > m.PAIRS_MAX:
        return _NOT_ORDINARY
    for count in range(size):
        position, name, value = dict_step(given, position)
        name_at, name_len = _text(name, known)
        value_at, value_len = _text(value, known)
        if name_len <= 0 or value_len <= 0 or is_meaningful(MEMORY, name_at, name_len, value_at, value_len):
            return _NOT_ORDINARY
        if name_len == 4 and (i32_at(MEMORY, name_at) == _TAGS_WORD or i32_at(MEMORY, name_at) == _KEYS_WORD):
            return _NOT_ORDINARY
        code = hash_text(MEMORY, name_at, name_len, 0)
        bucket = (code ^ (code >> 16)) & (m.HASH_BUCKETS - 1)
        _insert(pairs, count, bucket, name_at, name_len, value_at, value_len)
    return size  # type: ignore[no-any-return]


@inlined
def _add_tags_and_keys(pairs: Any, count: int, tags_at: int, tags_len: int, keys_len: int) -> int:
    """Adds the properties TAGS and KEYS, if there are any; answers how many there are now."""
    if count + (tags_len > 0) + (keys_len > 0) > m.PAIRS_MAX:
        return _NOT_ORDINARY
    if tags_len > 0:
        _insert(pairs, count, _TAGS_BUCKET, 0, _IS_TAGS, tags_at, tags_len)
        count += 1
    if keys_len > 0:
        _insert(pairs, count, _KEYS_BUCKET, 0, _IS_KEYS, 0, keys_len)
        count += 1
    return count


@inlined
def _measure_pairs(message: int, known: Any, pairs: Any) -> Any:
    """Collects the pairs of a message without a ready-made property string; how many, and the bytes they take."""
    tags, given = _value_of(message, known, _TAGS), _value_of(message, known, _PROPERTIES)
    tags_at, tags_len, count = 0, 0, 0
    if tags != known_at(known, K_NONE):
        tags_at, tags_len = _text(tags, known)
    keys_len = _keys_length(_value_of(message, known, _KEYS), known)
    if given != known_at(known, K_NO_PROPERTIES):
        count = _collect_pairs(given, known, pairs) if is_a(given, known, K_DICT) else _NOT_ORDINARY
    if tags_len < 0 or keys_len < 0 or count < 0:
        return _NOT_ORDINARY, 0
    count = _add_tags_and_keys(pairs, count, tags_at, tags_len, keys_len)
    total = count - 1
    for row in range(count):
        name_len = cell(pairs, row, _P_NAME_LEN)
        total += cell(pairs, row, _P_VALUE_LEN) + (_WORD_NAME_BYTES if name_len < 0 else name_len + 1)
    return count, max(total, 0)


@inlined
def _has_only_encoded(message: int, known: Any) -> bool:
    """Nothing but a ready-made property string that means nothing to the store?"""
    keys = _value_of(message, known, _KEYS)
    tags_len = 0
    if _value_of(message, known, _TAGS) != known_at(known, K_NONE):
        _, tags_len = _text(_value_of(message, known, _TAGS), known)
    if tags_len != 0 or _keys_length(keys, known) != 0:
        return False
    if _value_of(message, known, _PROPERTIES) != known_at(known, K_NO_PROPERTIES):
        return False
    start, length = bytes_of(_value_of(message, known, _ENCODED))
    return not has_meaning(MEMORY, start, length)


@inlined
def _write_pairs(out: Any, to: int, message: int, known: Any, pairs: Any, count: int) -> int:
    for row in range(count):
        if row > 0:
            put_i8(out, to, _PAIR_END)
            to += 1
        name_len, value_len = cell(pairs, row, _P_NAME_LEN), cell(pairs, row, _P_VALUE_LEN)
        if name_len == _IS_KEYS:
            to = _write_keys(out, _write_name(out, to, _KEYS_WORD), _value_of(message, known, _KEYS), known)
            continue
        if name_len == _IS_TAGS:
            to = _write_name(out, to, _TAGS_WORD)
        else:
            copy_bytes(out, to, MEMORY, cell(pairs, row, _P_NAME_AT), name_len)
            put_i8(out, to + name_len, _NAME_END)
            to += name_len + 1
        copy_bytes(out, to, MEMORY, cell(pairs, row, _P_VALUE_AT), value_len)
        to += value_len
    return to


# -- hosts -------------------------------------------------------------------------------------------------------


@inlined
def _ipv4_number(at: int, length: int) -> int:
    """An address in dotted decimal as one number; -1 if it is none, or written with leading zeros."""
    number, part, digits, dots, end = 0, 0, 0, 0, at + length
    while at < end:
        byte = u8_at(MEMORY, at)
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
def _host_of(message: int, known: Any) -> Any:
    """Bytes of the packed born host (0: there is none, -1: not ordinary), its address and port."""
    host = _value_of(message, known, _HOST)
    if host == known_at(known, K_NONE):
        return 0, 0, 0
    if not is_a(host, known, K_HOST) or tuple_size(host) != 2:
        return _NOT_ORDINARY, 0, 0
    address, port = tuple_item(host, 0), tuple_item(host, 1)
    if not is_a(address, known, K_TEXT) or not is_a(port, known, K_INT):
        return _NOT_ORDINARY, 0, 0
    start, length = text_of(address)
    number = _ipv4_number(start, length)
    value, fits = int_of(port)
    if number < 0 or fits == 0 or not r.I32_MIN <= value <= r.I32_MAX:
        return _NOT_ORDINARY, 0, 0
    return 8, number, value


# -- rows --------------------------------------------------------------------------------------------------------


@inlined
def _set_number(rows: Any, i: int, column: int, value: int, known: Any, low: int, high: int) -> bool:
    """The value of an int into a row; False if it is none between these."""
    if value == known_at(known, K_ZERO):
        set_cell(rows, i, column, 0)
        return True
    if not is_a(value, known, K_INT):
        return False
    number, fits = int_of(value)
    set_cell(rows, i, column, number)
    return fits != 0 and low <= number <= high  # type: ignore[no-any-return]


@inlined
def _set_numbers(rows: Any, i: int, message: int, known: Any) -> bool:
    born = _value_of(message, known, _BORN)
    if born == known_at(known, K_NONE):
        set_cell(rows, i, r.R_BORN_TIME, r.BORN_NOW)
    elif not _set_number(rows, i, r.R_BORN_TIME, born, known, r.BORN_NOW + 1, r.I64_MAX):
        return False
    return (
        _set_number(rows, i, r.R_QUEUE_ID, _value_of(message, known, _QUEUE_ID), known, 0, r.I32_MAX)
        and _set_number(rows, i, r.R_FLAG, _value_of(message, known, _FLAG), known, r.I32_MIN, r.I32_MAX)
        and _set_number(rows, i, r.R_SYS_FLAG, _value_of(message, known, _SYS_FLAG), known, r.I32_MIN, r.I32_MAX)
        and _set_number(rows, i, r.R_RECONSUME, _value_of(message, known, _RECONSUME), known, r.I32_MIN, r.I32_MAX)
        and _set_number(rows, i, r.R_PREPARED, _value_of(message, known, _PREPARED), known, r.BORN_NOW, r.I64_MAX)
    )


@inlined
def _is_simple(message: int, known: Any) -> bool:
    """A message, without what only the plain way knows?"""
    return (
        is_a(message, known, K_MESSAGE)
        and is_a(_value_of(message, known, _BODY), known, K_BYTES)
        and is_a(_value_of(message, known, _TOPIC), known, K_TEXT)
        and _value_of(message, known, _DELAY) == known_at(known, K_ZERO)
        and _value_of(message, known, _STORE_HOST) == known_at(known, K_NONE)
        and _value_of(message, known, _WAIT) == known_at(known, K_TRUE)
    )


_TYPES = f"int64, int64, {READ_I64}, {READ_ROWS}, {READ_BYTES}, int64, int64, int64, {ROWS}, {BYTES}, int64, {ROWS}"


@kernel(f"UniTuple(int64, 4)({_TYPES})", nogil=False)
def _read_messages(
    messages: int,
    first: int,
    known: Any,
    table: Any,
    names: Any,
    body_bytes_max: int,
    record_bytes_max: int,
    store_host_bytes: int,
    rows: Any,
    out: Any,
    used: int,
    pairs: Any,
) -> tuple[int, int, int, int]:
    topic_before, topic_at, queue_id_before, queue = 0, 0, 0, 0
    for i in range(len(rows)):
        message = list_item(messages, first + i)
        if not _is_simple(message, known) or not _set_numbers(rows, i, message, known):
            return i, used, 0, _PLAIN
        body_at, body_len = bytes_of(_value_of(message, known, _BODY))
        topic = _value_of(message, known, _TOPIC)
        topic_from, topic_len = text_of(topic)
        host_len, host, port = _host_of(message, known)
        encoded, count = _value_of(message, known, _ENCODED), -1
        text_at, text_len = 0, 0
        if encoded == known_at(known, K_NONE):
            count, text_len = _measure_pairs(message, known, pairs)
        elif is_a(encoded, known, K_BYTES) and _has_only_encoded(message, known):
            text_at, text_len = bytes_of(encoded)
            count = 0
        if count < 0 or host_len < 0 or topic_from == 0 or body_len > body_bytes_max or text_len > PROPERTIES_BYTES_MAX:
            return i, used, 0, _PLAIN
        set_cell(rows, i, r.R_BODY_LEN, body_len)
        set_cell(rows, i, r.R_TOPIC_LEN, topic_len)
        set_cell(rows, i, r.R_PROPS_LEN, text_len)
        set_cell(rows, i, r.R_HOST_LEN, host_len)
        if row_record_size(rows, i, store_host_bytes) > record_bytes_max:
            return i, used, 0, _PLAIN
        if topic != topic_before or cell(rows, i, r.R_QUEUE_ID) != queue_id_before:
            queue = find_queue(table, names, MEMORY, topic_from, topic_len, cell(rows, i, r.R_QUEUE_ID))
            if queue < 0:
                return i, used, 0, _PLACE
        needed = body_len + host_len + text_len + (0 if topic == topic_before else topic_len)
        if needed > len(out) - used:
            return i, used, needed, _FULL
        set_cell(rows, i, r.R_QUEUE, queue)
        set_cell(rows, i, r.R_BODY_AT, used)
        copy_bytes(out, used, MEMORY, body_at, body_len)
        used += body_len
        if topic != topic_before:
            copy_bytes(out, used, MEMORY, topic_from, topic_len)
            topic_before, topic_at = topic, used
            used += topic_len
        queue_id_before = cell(rows, i, r.R_QUEUE_ID)
        set_cell(rows, i, r.R_TOPIC_AT, topic_at)
        set_cell(rows, i, r.R_HOST_AT, used)
        if host_len > 0:
            put_i32(out, used, host)
            put_i32(out, used + 4, port)
            used += host_len
        set_cell(rows, i, r.R_PROPS_AT, used)
        if text_at != 0:
            copy_bytes(out, used, MEMORY, text_at, text_len)
            used += text_len
        else:
            used = _write_pairs(out, used, message, known, pairs, count)
    return len(rows), used, 0, _ALL


_LAYOUT = find_layout()


def read_messages(
    messages: Sequence[Message],
    first: int,
    places: QueueTable,
    limits: RowLimits,
    rows: Rows,
    out: NDArray[np.uint8],
    used: int,
) -> MessageReading:
    """Read messages[first:] into `rows` and out[used:], until the rows are full or something else stops it.

    `places` gives the number of a queue. Messages that share one topic object, one behind another, share its bytes.

    Twin: plain.messages.read_messages."""
    assert rows.shape[1] == r.N_RUN_COLUMNS, rows.shape
    assert 0 <= first <= len(messages) - len(rows), (first, len(messages), len(rows))
    assert 0 <= used <= len(out), (used, len(out))
    if _LAYOUT is None or messages.__class__ is not list:
        return m.read_messages(messages, first, places.find, limits, rows, out, used)
    pairs = np.empty((m.PAIRS_MAX, _PAIR_COLUMNS), np.int64)
    filled, used, needed, stop = _read_messages(
        id(messages), first, _LAYOUT, *places.arrays, *limits, rows, out, used, pairs
    )
    return MessageReading(filled, used, needed, RowStop(stop))
