"""Messages on their way into the log, packed: what msgspec writes for a list of Message.

    a list; each message a map, field name -> value, in the class's order, fields at their default left out

The bytes are MessagePack. One call of the serialiser reads the fields of hundreds of messages, so that nothing has
to be asked of them one by one in Python. `read_packed` turns them into rows of a run (format.runs) as long as they
are *ordinary*: no delay, no store host of their own, a born host in IPv4 if any, not asked to skip the disk, at most
PAIRS_MAX properties, none of which means anything to the store, and no limit broken. What is not goes the plain way,
which knows everything, and says what is wrong with a message that can never be stored.

`read_packed` is the plain twin of the kernel `read_messages`. Neither trusts a length.
"""

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

from embermq.columns.plain import runs as r
from embermq.columns.plain.runs import BORN_NOW
from embermq.columns.rows import Rows, as_view
from embermq.format.frame import PROPERTIES_BYTES_MAX
from embermq.format.java import string_hash_utf8
from embermq.model.properties import has_meaning_to_store

# The fields an ordinary message may have. There are others.
TOPIC, BODY, TAGS, KEYS, PROPERTIES = b"topic", b"body", b"tags", b"keys", b"properties"
QUEUE_ID, FLAG, SYS_FLAG, BORN = b"queue_id", b"flag", b"sys_flag", b"born_timestamp"
RECONSUME, PREPARED, ENCODED = b"reconsume_times", b"prepared_transaction_offset", b"encoded_properties"
HOST = b"born_host"
FIELDS = (TOPIC, BODY, TAGS, KEYS, PROPERTIES, QUEUE_ID, FLAG, SYS_FLAG, BORN, RECONSUME, PREPARED, ENCODED, HOST)

PAIRS_MAX = 8  # A Java HashMap with no more pairs gives them in the order of its 16 buckets.
HASH_BUCKETS = 16
MEANINGFUL = (b"DELAY\x01", b"WAIT\x01", b"INNER_MULTI_DISPATCH\x01")
IPV4_PARTS = re.compile(rb"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})", re.ASCII)
I32_MIN, I32_MAX, I64_MAX = -(1 << 31), (1 << 31) - 1, (1 << 63) - 1

FindPlace = Callable[[bytes, int], int]


class PackedStop(IntEnum):
    """Why reading stopped."""

    ALL = 0  # All rows are filled.
    PLACE = 1  # The next message goes to a queue that was not made yet; `at` is its beginning.
    PLAIN = 2  # The next message is not ordinary; `at` is behind it.
    BROKEN = 3  # No list of messages looks like this.


class Kind(IntEnum):
    """What a value is. OTHER: nothing, fractions, numbers beyond 64 bits and so on."""

    BROKEN = 0
    OTHER = 1
    INT = 2
    TEXT = 3
    BINARY = 4
    LIST = 5
    MAP = 6


class Value(NamedTuple):
    """A value's head: a number, a count of bytes, or of the values that follow. Bytes of its own end at `end`."""

    kind: Kind
    number: int
    start: int
    end: int


class PackedReading(NamedTuple):
    """How far a call came: rows filled, where to go on, bytes of `properties` used."""

    filled: int
    at: int
    used: int
    stop: PackedStop


def list_head_bytes(count: int) -> int:
    """Where the first of so many messages begins."""
    return 1 if count < 16 else 3 if count < 1 << 16 else 5


def _heads() -> list[tuple[Kind, int, int]]:
    """For each first byte of a value: kind, bytes of the number behind it, and what to add to that number."""
    heads = [(Kind.BROKEN, 0, 0)] * 256
    heads[:0x80] = [(Kind.INT, 0, value) for value in range(0x80)]
    heads[0x80:0x90] = [(Kind.MAP, 0, count) for count in range(16)]
    heads[0x90:0xA0] = [(Kind.LIST, 0, count) for count in range(16)]
    heads[0xA0:0xC0] = [(Kind.TEXT, 0, length) for length in range(32)]
    heads[0xE0:] = [(Kind.INT, 0, value) for value in range(-32, 0)]
    for first, length in {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8}.items():  # nothing, no, yes, fractions
        heads[first] = (Kind.OTHER, 0, length)
    for power in range(5):  # extensions: a type, then 1, 2, 4, 8, 16 bytes
        heads[0xD4 + power] = (Kind.OTHER, 0, 1 + (1 << power))
    for power in range(3):
        heads[0xC4 + power] = (Kind.BINARY, 1 << power, 0)
        heads[0xC7 + power] = (Kind.OTHER, 1 << power, 1)  # longer extensions
        heads[0xD9 + power] = (Kind.TEXT, 1 << power, 0)
    for power in range(4):
        heads[0xCC + power] = heads[0xD0 + power] = (Kind.INT, 1 << power, 0)
    for power in range(2):
        heads[0xDC + power] = (Kind.LIST, 2 << power, 0)
        heads[0xDE + power] = (Kind.MAP, 2 << power, 0)
    return heads


HEADS = _heads()


def read_head(data: memoryview, at: int) -> Value:
    """The value that begins at data[at]; all its bytes lie in `data`."""
    broken = Value(Kind.BROKEN, 0, at, at)
    if not 0 <= at < len(data):
        return broken
    first = data[at]
    kind, width, more = HEADS[first]
    start = at + 1 + width
    if start > len(data):
        return broken
    number = more + int.from_bytes(data[at + 1 : start], "big", signed=0xD0 <= first <= 0xD3)
    if kind is Kind.INT and number > I64_MAX:
        return Value(Kind.OTHER, 0, start, start)
    end = start + number if kind in (Kind.TEXT, Kind.BINARY, Kind.OTHER) else start
    return Value(kind, number, start, end) if end <= len(data) and kind is not Kind.BROKEN else broken


def end_of(data: memoryview, value: Value) -> int:
    """Where a value ends, with all the values inside it; -1 if that is nowhere."""
    at, missing = value.end, _inside(value)
    while missing:
        inner = read_head(data, at)
        if inner.kind is Kind.BROKEN:
            return -1
        at, missing = inner.end, missing - 1 + _inside(inner)
    return at


def _inside(value: Value) -> int:
    return value.number * {Kind.LIST: 1, Kind.MAP: 2}.get(value.kind, 0)


class _NotOrdinary(Exception):
    """This message goes the plain way."""


def read_packed(
    packed: Any,
    at: int,
    find_place: FindPlace,
    body_bytes_max: int,
    record_bytes_max: int,
    store_host_bytes: int,
    rows: Rows,
    properties: Any,
    used: int,
) -> PackedReading:
    """Read messages from packed[at:] on into `rows`, until these are full or something else stops it.

    Packed born hosts and property strings go into properties[used:]; both together are no longer than the packed
    message, so as much room as there are bytes to read is enough. `find_place` gives the number of a queue by topic and
    queue id, -1 if there is none.
    """
    data, room = as_view(packed), as_view(properties)
    assert len(data) - at <= len(room) - used
    for count in range(len(rows)):
        fields, end = _read_fields(data, at)
        if fields is None:
            return PackedReading(count, at, used, PackedStop.BROKEN)
        try:
            host, text = _packed_host(data, fields), _property_string(data, fields)
            row = _row_of(fields, used, len(host), len(text), body_bytes_max)
            if r.run_record_size(row, store_host_bytes) > record_bytes_max:
                raise _NotOrdinary
        except _NotOrdinary:
            return PackedReading(count, end, used, PackedStop.PLAIN)
        topic = fields[TOPIC]
        row[r.R_QUEUE] = find_place(bytes(data[topic.start : topic.end]), row[r.R_QUEUE_ID])
        if row[r.R_QUEUE] < 0:
            return PackedReading(count, at, used, PackedStop.PLACE)
        to = used + len(host) + len(text)
        room[used:to] = host + text
        rows[count] = row
        used = to
        at = end
    return PackedReading(len(rows), at, used, PackedStop.ALL)


def _read_fields(data: memoryview, at: int) -> tuple[dict[bytes, Value] | None, int]:
    """The fields of the message at data[at], and where it ends."""
    whole = read_head(data, at)
    if whole.kind is not Kind.MAP:
        return None, at
    fields: dict[bytes, Value] = {}
    at = whole.end
    for _ in range(whole.number):
        name = read_head(data, at)
        value = read_head(data, name.end)
        at = end_of(data, value)
        if name.kind is not Kind.TEXT or value.kind is Kind.BROKEN or at < 0:
            return None, at
        fields[bytes(data[name.start : name.end])] = value
    return fields, at


def _row_of(fields: dict[bytes, Value], used: int, host_bytes: int, text_bytes: int, body_bytes_max: int) -> list[int]:
    """The message as a row, its host and its properties at `used`; its queue is missing."""
    if not fields.keys() <= set(FIELDS) or fields.get(TOPIC, _NOTHING).kind is not Kind.TEXT:
        raise _NotOrdinary
    topic, body = fields[TOPIC], fields.get(BODY, _EMPTY_BODY)
    if body.kind is not Kind.BINARY or body.number > body_bytes_max or text_bytes > PROPERTIES_BYTES_MAX:
        raise _NotOrdinary
    row = [0] * r.N_RUN_COLUMNS
    row[r.R_BODY_AT], row[r.R_BODY_LEN] = body.start, body.number
    row[r.R_TOPIC_AT], row[r.R_TOPIC_LEN] = topic.start, topic.number
    row[r.R_HOST_AT], row[r.R_HOST_LEN] = used, host_bytes
    row[r.R_PROPS_AT], row[r.R_PROPS_LEN] = used + host_bytes, text_bytes
    row[r.R_QUEUE_ID] = _number(fields, QUEUE_ID, 0, I32_MAX)
    row[r.R_FLAG] = _number(fields, FLAG, I32_MIN, I32_MAX)
    row[r.R_SYS_FLAG] = _number(fields, SYS_FLAG, I32_MIN, I32_MAX)
    row[r.R_BORN_TIME] = _number(fields, BORN, BORN_NOW + 1, I64_MAX) if BORN in fields else BORN_NOW
    row[r.R_RECONSUME] = _number(fields, RECONSUME, I32_MIN, I32_MAX)
    row[r.R_PREPARED] = _number(fields, PREPARED, -I64_MAX - 1, I64_MAX)
    return row


def _packed_host(data: memoryview, fields: dict[bytes, Value]) -> bytes:
    """The born host in its packed form, nothing if there is none."""
    given = fields.get(HOST)
    if given is None:
        return b""
    address = read_head(data, given.end)
    port = read_head(data, address.end)
    if given.kind is not Kind.LIST or given.number != 2 or address.kind is not Kind.TEXT or port.kind is not Kind.INT:
        raise _NotOrdinary
    parts = IPV4_PARTS.fullmatch(bytes(data[address.start : address.end]))
    if parts is None or not I32_MIN <= port.number <= I32_MAX:
        raise _NotOrdinary
    if any(int(part) > 255 or (len(part) > 1 and part[:1] == b"0") for part in parts.groups()):
        raise _NotOrdinary
    return bytes(map(int, parts.groups())) + port.number.to_bytes(4, "big", signed=True)


_NOTHING = Value(Kind.OTHER, 0, 0, 0)
_EMPTY_BODY = Value(Kind.BINARY, 0, 0, 0)
_EMPTY_TEXT = Value(Kind.TEXT, 0, 0, 0)
_EMPTY_MAP = Value(Kind.MAP, 0, 0, 0)


def _number(fields: dict[bytes, Value], name: bytes, low: int, high: int) -> int:
    value = fields.get(name)
    if value is None:
        return 0
    if value.kind is not Kind.INT or not low <= value.number <= high:
        raise _NotOrdinary
    return value.number


def _property_string(data: memoryview, fields: dict[bytes, Value]) -> bytes:
    """The property string of a message, as Message.property_bytes has it."""
    tags, keys = _text(data, fields.get(TAGS, _EMPTY_TEXT)), _keys(data, fields.get(KEYS, _EMPTY_TEXT))
    if ENCODED in fields:
        encoded = fields[ENCODED]
        if encoded.kind is not Kind.BINARY or tags or keys or PROPERTIES in fields:
            raise _NotOrdinary
        text = bytes(data[encoded.start : encoded.end])
    else:
        text = _join(_pairs(data, fields.get(PROPERTIES, _EMPTY_MAP), tags, keys))
    if has_meaning_to_store(text):
        raise _NotOrdinary
    return text


def _text(data: memoryview, value: Value) -> bytes:
    """A text that can be the value, or the name, of a property."""
    text = bytes(data[value.start : value.end])
    if value.kind is not Kind.TEXT or b"\x01" in text or b"\x02" in text:
        raise _NotOrdinary
    return text


def _keys(data: memoryview, value: Value) -> bytes:
    """One text, or several keys joined by spaces."""
    if value.kind is not Kind.LIST:
        return _text(data, value)
    keys, at = [], value.end
    for _ in range(value.number):
        inner = read_head(data, at)
        key, at = _text(data, inner), inner.end
        if not key or b" " in key:
            raise _NotOrdinary
        keys.append(key)
    return b" ".join(keys)


def _pairs(data: memoryview, given: Value, tags: bytes, keys: bytes) -> dict[bytes, bytes]:
    """Names and values in the order in which they are put into the map."""
    if given.kind is not Kind.MAP or given.number > PAIRS_MAX:
        raise _NotOrdinary
    pairs: dict[bytes, bytes] = {}
    at = given.end
    for _ in range(given.number):
        name = read_head(data, at)
        value = read_head(data, name.end)
        at = value.end
        text = _text(data, name)
        if text in pairs or text in (b"TAGS", b"KEYS") or not text or not value.number:
            raise _NotOrdinary
        pairs[text] = _text(data, value)
    pairs |= {name: text for name, text in ((b"TAGS", tags), (b"KEYS", keys)) if text}
    if len(pairs) > PAIRS_MAX:
        raise _NotOrdinary
    return pairs


def _join(pairs: dict[bytes, bytes]) -> bytes:
    """A property string in the order of a Java HashMap: by bucket, then as put."""
    return b"\x02".join(name + b"\x01" + pairs[name] for name in sorted(pairs, key=bucket_of))


def bucket_of(name: bytes) -> int:
    """Where a Java HashMap of 16 buckets keeps a name."""
    code = string_hash_utf8(name) & 0xFFFF_FFFF
    return (code ^ code >> 16) & HASH_BUCKETS - 1
