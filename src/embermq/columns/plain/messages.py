"""A list of messages as rows of a run (plain/runs.py), their parts copied side by side into one buffer.

A message is read as long as it is *ordinary*: its fields are of the very types that Message names, it has no delay, no
store host of its own, a born host in IPv4 if any, does not ask to skip the disk, has at most PAIRS_MAX properties, none
of which means anything to the store, and breaks no limit. What is not ordinary goes the plain way (admission), which
knows everything, and says what is wrong with a message that can never be stored.

`read_messages` is the plain twin of the kernel of that name (compiled/messages.py), which reads the objects in place.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from embermq.columns.plain import runs as r
from embermq.columns.plain.runs import BORN_NOW, I32_MAX, I32_MIN, I64_MAX, RowLimits, RowStop
from embermq.columns.rows import Rows, as_view
from embermq.errors import PropertyInvalid
from embermq.format.frame import PROPERTIES_BYTES_MAX
from embermq.format.java import string_hash_utf8
from embermq.model.hosts import Host
from embermq.model.message import NO_PROPERTIES, Message
from embermq.model.properties import has_meaning_to_store

PAIRS_MAX = 8  # A Java HashMap with no more pairs gives them in the order of its 16 buckets.
HASH_BUCKETS = 16
_IPV4_PARTS = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})", re.ASCII)

FindPlace = Callable[[bytes, int], int]


class MessageReading(NamedTuple):
    """How far a call came: rows filled, bytes of the buffer used; at RowStop.FULL, the bytes of the next message."""

    filled: int
    used: int
    needed: int
    stop: RowStop


class _NotOrdinary(Exception):
    """This message goes the plain way."""


class _Parts(NamedTuple):
    """What of a message goes into the buffer, in this order, and what it is as numbers."""

    body: bytes
    topic: bytes
    host: bytes
    text: bytes
    row: list[int]


def read_messages(
    messages: Sequence[Message],
    first: int,
    find_place: FindPlace,
    limits: RowLimits,
    rows: Rows,
    out: Any,
    used: int,
) -> MessageReading:
    """Read messages[first:] into `rows` and out[used:], until the rows are full or something else stops it.

    `find_place` gives the number of a queue by topic and queue id, -1 if there is none. Messages that share one topic
    object, one behind another, share its bytes.
    """
    room = as_view(out)
    topic_before, topic_at = None, 0
    for i in range(len(rows)):
        message = messages[first + i]
        try:
            parts = _parts_of(message, limits)
        except _NotOrdinary:
            return MessageReading(i, used, 0, RowStop.PLAIN)
        row = parts.row
        row[r.R_QUEUE] = find_place(parts.topic, row[r.R_QUEUE_ID])
        if row[r.R_QUEUE] < 0:
            return MessageReading(i, used, 0, RowStop.PLACE)
        shares_topic = message.topic is topic_before
        whole = parts.body + (b"" if shares_topic else parts.topic) + parts.host + parts.text
        if len(whole) > len(room) - used:
            return MessageReading(i, used, len(whole), RowStop.FULL)
        room[used : used + len(whole)] = whole
        if not shares_topic:
            topic_before, topic_at = message.topic, used + len(parts.body)
        row[r.R_BODY_AT], row[r.R_TOPIC_AT] = used, topic_at
        used += len(whole)
        row[r.R_PROPS_AT] = used - len(parts.text)
        row[r.R_HOST_AT] = row[r.R_PROPS_AT] - len(parts.host)
        rows[i] = row
    return MessageReading(len(rows), used, 0, RowStop.ALL)


def _parts_of(message: Message, limits: RowLimits) -> _Parts:
    if message.__class__ is not Message or message.body.__class__ is not bytes:
        raise _NotOrdinary
    if message.delay_level.__class__ is not int or message.delay_level or message.store_host is not None:
        raise _NotOrdinary
    if message.wait_for_store is not True or len(message.body) > limits.body_bytes_max:
        raise _NotOrdinary
    body, topic, host, text = message.body, _utf8(message.topic), _packed_host(message), _property_string(message)
    row = [0] * r.N_RUN_COLUMNS
    row[r.R_BODY_LEN], row[r.R_TOPIC_LEN], row[r.R_PROPS_LEN] = len(body), len(topic), len(text)
    row[r.R_HOST_LEN] = len(host)
    row[r.R_QUEUE_ID] = _number(message.queue_id, 0, I32_MAX)
    row[r.R_FLAG] = _number(message.flag, I32_MIN, I32_MAX)
    row[r.R_SYS_FLAG] = _number(message.sys_flag, I32_MIN, I32_MAX)
    row[r.R_RECONSUME] = _number(message.reconsume_times, I32_MIN, I32_MAX)
    row[r.R_PREPARED] = _number(message.prepared_transaction_offset, -I64_MAX - 1, I64_MAX)
    born = message.born_timestamp
    row[r.R_BORN_TIME] = BORN_NOW if born is None else _number(born, BORN_NOW + 1, I64_MAX)
    if r.run_record_size(row, limits.store_host_bytes) > limits.record_bytes_max:
        raise _NotOrdinary
    return _Parts(body, topic, host, text, row)


def _number(value: Any, low: int, high: int) -> int:
    if value.__class__ is not int or not low <= value <= high:
        raise _NotOrdinary
    return int(value)


def _utf8(text: Any) -> bytes:
    if text.__class__ is not str:
        raise _NotOrdinary
    try:
        return bytes(text.encode())
    except UnicodeEncodeError:
        raise _NotOrdinary from None


def _packed_host(message: Message) -> bytes:
    """The born host in its packed form, nothing if there is none."""
    host = message.born_host
    if host is None:
        return b""
    if host.__class__ is not Host or host.address.__class__ is not str:
        raise _NotOrdinary
    parts = _IPV4_PARTS.fullmatch(host.address)
    if parts is None or any(int(part) > 255 or (len(part) > 1 and part[0] == "0") for part in parts.groups()):
        raise _NotOrdinary
    return bytes(map(int, parts.groups())) + _number(host.port, I32_MIN, I32_MAX).to_bytes(4, "big", signed=True)


def _property_string(message: Message) -> bytes:
    """The property string of a message of which nothing but these types and no pair is given twice."""
    tags, keys, given, encoded = message.tags, message.keys, message.properties, message.encoded_properties
    texts = [keys] if keys.__class__ is str else list(keys) if keys.__class__ in (list, tuple) else [None]
    texts += [] if tags is None else [tags]
    if given is not NO_PROPERTIES:
        if given.__class__ is not dict or "TAGS" in given or "KEYS" in given:
            raise _NotOrdinary
        texts += [*given, *given.values()]
    if any(text.__class__ is not str for text in texts):
        raise _NotOrdinary
    if encoded is not None and (encoded.__class__ is not bytes or tags or keys or given is not NO_PROPERTIES):
        raise _NotOrdinary
    if len(given) + bool(tags) + bool(keys) > PAIRS_MAX:
        raise _NotOrdinary
    try:
        text = message.property_bytes()
    except PropertyInvalid:
        raise _NotOrdinary from None
    if len(text) > PROPERTIES_BYTES_MAX or has_meaning_to_store(text):
        raise _NotOrdinary
    return text


def bucket_of(name: bytes) -> int:
    """Where a Java HashMap of 16 buckets keeps a name."""
    code = string_hash_utf8(name) & 0xFFFF_FFFF
    return (code ^ code >> 16) & HASH_BUCKETS - 1
