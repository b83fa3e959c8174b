"""The property string of a record, made from that of a send: for use inside kernels.

Twin: plain.sends.property_string.
"""

from typing import Any

import numpy as np

from embermq.columns.compiled.parts.compiling import inlined
from embermq.columns.compiled.parts.json_text import is_utf8, put_number
from embermq.columns.compiled.parts.memory import cell, copy_bytes, i32_at, put_i8, set_cell, u8_at
from embermq.columns.compiled.parts.property_text import is_meaningful
from embermq.columns.compiled.parts.text import hash_text
from embermq.columns.compiled.queue_table import is_same
from embermq.columns.plain.messages import HASH_BUCKETS, bucket_of
from embermq.columns.plain.sends import (
    CHAIN_MAX,
    CLUSTER_BUCKET,
    PAIRS_MAX,
    PROPERTY_TEXT_MAX,
    REAL_QUEUE_NAME,
    REAL_TOPIC_NAME,
)

P_BUCKET, P_NAME_AT, P_NAME_LEN, P_PAIR_LEN = range(4)
N_PAIR_COLUMNS = 4
_CLUSTER, _TRANSACTION = (np.frombuffer(name, np.uint8) for name in (b"CLUSTER", b"TRAN_MSG"))
_WAIT_WORD = int.from_bytes(b"WAIT", "big")
_NAME_END, _PAIR_END, _BACKSLASH, _LETTER_U, _ZERO = b"\x01\x02\\u0"
_REAL_TOPIC, _REAL_QUEUE = (np.frombuffer(name + b"\x01", np.uint8) for name in (REAL_TOPIC_NAME, REAL_QUEUE_NAME))
_REAL_TOPIC_BUCKET, _REAL_QUEUE_BUCKET = bucket_of(REAL_TOPIC_NAME), bucket_of(REAL_QUEUE_NAME)
# Behind the property string of a half message its own place is written: both names, a topic and a queue id.
TEXT_BYTES = PROPERTY_TEXT_MAX + len(_REAL_TOPIC) + len(_REAL_QUEUE) + PROPERTY_TEXT_MAX + 20
# Pairs that are looked at before it is known which are kept.
PAIR_ROWS = PAIRS_MAX + 3
_TRUE_WORD = int.from_bytes(b"true", "big")
_IS_CLUSTER = -1
_BAD = -1
# Kinds of property strings.
PLAIN, HALF = 0, 1
_NO_DIGIT = 16
# By the letter behind a backslash: the byte it stands for, 0 if none.
_ESCAPES = np.zeros(256, np.uint8)
for _letter, _byte in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _ESCAPES[_letter] = _byte
_HEX = np.full(256, _NO_DIGIT, np.uint8)
for _digit, _letters in enumerate(b"0 1 2 3 4 5 6 7 8 9 aA bB cC dD eE fF".split()):
    for _letter in _letters:
        _HEX[_letter] = _digit


@inlined
def _escape(data: Any, at: int, end: int) -> Any:
    """The byte that the escape behind a backslash stands for, and where it ends; -1: not familiar."""
    letter = u8_at(data, at)
    if letter != _LETTER_U:
        byte = np.int64(_ESCAPES[np.uint64(letter)])
        return (byte, at + 1) if byte != 0 else (0, _BAD)
    if end - at < 5 or u8_at(data, at + 1) != _ZERO or u8_at(data, at + 2) != _ZERO:
        return 0, _BAD
    high, low = np.int64(_HEX[np.uint64(u8_at(data, at + 3))]), np.int64(_HEX[np.uint64(u8_at(data, at + 4))])
    if high >= 8 or low == _NO_DIGIT:
        return 0, _BAD
    return high << 4 | low, at + 5


@inlined
def _unescape(data: Any, at: int, end: int, text: Any) -> int:
    """data[at:end] without escapes to `text`, which has room; how long it is."""
    to = 0
    while at < end:
        byte = u8_at(data, at)
        at += 1
        if byte == _BACKSLASH:
            if at >= end:
                return _BAD
            byte, at = _escape(data, at, end)
            if at < 0:
                return _BAD
        put_i8(text, to, byte)
        to += 1
    return to


@inlined
def _insert(pairs: Any, count: int, bucket: int, name_at: int, name_len: int, pair_len: int) -> None:
    """Behind those of the same bucket and before those of later ones."""
    row = count
    while row > 0 and cell(pairs, row - 1, P_BUCKET) > bucket:
        for column in range(N_PAIR_COLUMNS):
            set_cell(pairs, row, column, cell(pairs, row - 1, column))
        row -= 1
    set_cell(pairs, row, P_BUCKET, bucket)
    set_cell(pairs, row, P_NAME_AT, name_at)
    set_cell(pairs, row, P_NAME_LEN, name_len)
    set_cell(pairs, row, P_PAIR_LEN, pair_len)


@inlined
def _is_named(text: Any, at: int, length: int, name: Any) -> bool:
    return length == len(name) and is_same(text, at, name, 0, length)


@inlined
def _is_fresh(text: Any, at: int, length: int, pairs: Any, count: int) -> bool:
    """Does no pair have this name yet?"""
    for row in range(count):
        if cell(pairs, row, P_NAME_LEN) == length and is_same(text, at, text, cell(pairs, row, P_NAME_AT), length):
            return False
    return True


@inlined
def _collect(text: Any, length: int, pairs: Any) -> Any:
    """The pairs in the order of their buckets: how many, and whether they are those of a half message."""
    at, count, kind = 0, 0, PLAIN
    while at < length:
        name_at = at
        while at < length and u8_at(text, at) != _NAME_END and u8_at(text, at) != _PAIR_END:
            at += 1
        name_len = at - name_at
        if at >= length or u8_at(text, at) != _NAME_END or name_len == 0:
            return _BAD, kind
        at += 1
        value_at = at
        while at < length and u8_at(text, at) != _PAIR_END and u8_at(text, at) != _NAME_END:
            at += 1
        value_len = at - value_at
        if value_len == 0 or (at < length and u8_at(text, at) == _NAME_END):
            return _BAD, kind
        at += 1
        if count + 1 >= PAIRS_MAX or is_meaningful(text, name_at, name_len, value_at, value_len):
            return _BAD, kind
        if _is_named(text, name_at, name_len, _CLUSTER) or not _is_fresh(text, name_at, name_len, pairs, count):
            return _BAD, kind
        if _is_named(text, name_at, name_len, _TRANSACTION):
            if value_len != 4 or i32_at(text, value_at) != _TRUE_WORD:
                return _BAD, kind
            kind = HALF
        code = hash_text(text, name_at, name_len, 0)
        _insert(pairs, count, (code ^ (code >> 16)) & (HASH_BUCKETS - 1), name_at, name_len, at - 1 - name_at)
        count += 1
    return count, kind


@inlined
def _drop_wait(text: Any, pairs: Any, count: int) -> int:
    """Without the pair WAIT; how many are left."""
    left = 0
    for row in range(count):
        if cell(pairs, row, P_NAME_LEN) == 4 and i32_at(text, cell(pairs, row, P_NAME_AT)) == _WAIT_WORD:
            continue
        if left < row:
            for column in range(N_PAIR_COLUMNS):
                set_cell(pairs, left, column, cell(pairs, row, column))
        left += 1
    return left


@inlined
def _add_real_place(
    data: Any, topic_at: int, topic_len: int, queue_id: int, text: Any, length: int, pairs: Any, count: int
) -> int:
    """Add the two pairs that name the place of a half message, written behind the text; how many pairs there are."""
    queue_at = length + len(_REAL_TOPIC) + topic_len
    copy_bytes(text, length, _REAL_TOPIC, 0, len(_REAL_TOPIC))
    copy_bytes(text, length + len(_REAL_TOPIC), data, topic_at, topic_len)
    copy_bytes(text, queue_at, _REAL_QUEUE, 0, len(_REAL_QUEUE))
    end = put_number(text, queue_at + len(_REAL_QUEUE), queue_id)
    if not _is_fresh(text, length, len(_REAL_TOPIC) - 1, pairs, count):
        return _BAD
    if not _is_fresh(text, queue_at, len(_REAL_QUEUE) - 1, pairs, count):
        return _BAD
    _insert(pairs, count, _REAL_TOPIC_BUCKET, length, len(_REAL_TOPIC) - 1, queue_at - length)
    _insert(pairs, count + 1, _REAL_QUEUE_BUCKET, queue_at, len(_REAL_QUEUE) - 1, end - queue_at)
    return count + 2


@inlined
def _has_long_chain(pairs: Any, count: int) -> bool:
    """Would one bucket of a Java HashMap hold too many?"""
    for row in range(CHAIN_MAX, count):
        if cell(pairs, row, P_BUCKET) == cell(pairs, row - CHAIN_MAX, P_BUCKET):
            return True
    return False


@inlined
def collect_properties(
    data: Any,
    at: int,
    length: int,
    is_json: bool,
    topic_at: int,
    topic_len: int,
    queue_id: int,
    text: Any,
    pairs: Any,
) -> Any:
    """Sort the pairs of the property string data[at:at + length], and those that are added, into `pairs`, which point
    into `text`. The place of a message is that of the topic and its queue id.

    How many there are, -1 if the string is not familiar; and of which kind the message is."""
    if length > PROPERTY_TEXT_MAX or topic_len > PROPERTY_TEXT_MAX:
        return _BAD, PLAIN
    if is_json:
        length = _unescape(data, at, at + length, text)
        if length < 0:
            return _BAD, PLAIN
    else:
        copy_bytes(text, 0, data, at, length)
    if not is_utf8(text, 0, length):
        return _BAD, PLAIN
    count, kind = _collect(text, length, pairs)
    if count < 0:
        return _BAD, PLAIN
    if kind == PLAIN:
        count = _drop_wait(text, pairs, count)
    _insert(pairs, count, CLUSTER_BUCKET, 0, _IS_CLUSTER, 0)
    count += 1
    if kind == HALF:
        count = _add_real_place(data, topic_at, topic_len, queue_id, text, length, pairs, count)
    if count < 0 or count > PAIRS_MAX or _has_long_chain(pairs, count):
        return _BAD, PLAIN
    return count, kind


@inlined
def properties_bytes(pairs: Any, count: int, cluster: Any) -> int:
    """How long the property string of these pairs is."""
    total = count - 1 + len(cluster)
    for row in range(count):
        total += cell(pairs, row, P_PAIR_LEN)
    return total


@inlined
def put_properties(out: Any, to: int, text: Any, pairs: Any, count: int, cluster: Any) -> int:
    """Write the pairs; behind them."""
    for row in range(count):
        if row > 0:
            put_i8(out, to, _PAIR_END)
            to += 1
        if cell(pairs, row, P_NAME_LEN) == _IS_CLUSTER:
            copy_bytes(out, to, cluster, 0, len(cluster))
            to += len(cluster)
        else:
            length = cell(pairs, row, P_PAIR_LEN)
            copy_bytes(out, to, text, cell(pairs, row, P_NAME_AT), length)
            to += length
    return to
