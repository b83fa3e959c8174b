"""Headers of requests that runs are made of: sends (10, 310) and ends of transactions (37), JSON and binary.

A header is *familiar* if it says what clients ordinarily say: texts without escapes (but in the property string), whole
numbers in their usual form, no name twice. What is not raises NotFamiliar. The kernels' own reader is
compiled/sends/header.py; both give the same answers.
"""

import re
import struct
from typing import NamedTuple

from embermq.columns.plain.runs import I32_MAX, I32_MIN

SEND, SEND_V2, END = 10, 310, 37
_CODES = (SEND, SEND_V2, END)
HEAD_BYTES = 8
ONEWAY = 2  # the flag of a request that wants no answer
# Names of the header fields, long and short; the numbers of the fields are places in this list.
LONG_NAMES = (
    b"producerGroup",
    b"topic",
    b"defaultTopic",
    b"defaultTopicQueueNums",
    b"queueId",
    b"sysFlag",
    b"bornTimestamp",
    b"flag",
    b"properties",
    b"reconsumeTimes",
    b"unitMode",
    b"maxReconsumeTimes",
    b"batch",
)
(GROUP, TOPIC, DEFAULT_TOPIC, QUEUE_NUMS, QUEUE_ID, SYS_FLAG, BORN, FLAG, PROPERTIES, RECONSUME, UNIT, MOST, BATCH) = (
    range(13)
)
# Those of an end, which has a producer group as well; the others say nothing that matters.
END_NAMES = (b"commitLogOffset", b"tranStateTableOffset", b"commitOrRollback")
END_FIRST = len(LONG_NAMES)
END_PLACE, END_STATE, END_DECISION = range(END_FIRST, END_FIRST + len(END_NAMES))
END_REQUIRED = 1 << GROUP | 1 << END_PLACE | 1 << END_STATE | 1 << END_DECISION
SHORT_FIRST = ord("a")
REQUIRED = sum(1 << field for field in (GROUP, TOPIC, DEFAULT_TOPIC, QUEUE_NUMS, QUEUE_ID, SYS_FLAG, BORN, FLAG))
I32_FIELDS = (QUEUE_NUMS, QUEUE_ID, SYS_FLAG, FLAG, RECONSUME, MOST)
DIGITS_MAX = 18

_SPACE = re.compile(rb"[ \t\n\r]*")
_PLAIN_TEXT = re.compile(rb'"([ !#-\[\]-\x7f]*)"')
_ANY_TEXT = re.compile(rb'"((?:[^"\\\x00-\x1f]|\\[\x20-\xff])*)"')
_BARE = re.compile(rb"[-0-9a-z]+")
_NUMBER = re.compile(rb"0|-?[1-9][0-9]{0,17}")
_NUMBER_KEYS, _TEXT_KEYS = {b"code", b"flag", b"opaque", b"version"}, {b"language", b"serializeTypeCurrentRPC"}
_FIXED = struct.Struct(">hBhii")


class NotFamiliar(Exception):
    """This frame goes the plain way."""


class Header(NamedTuple):
    """What a header says."""

    code: int
    flag: int
    opaque: int
    fields: dict[int, bytes]
    topic_at: int  # in the header


def frame_at(view: bytes, at: int, end: int, frame_bytes_max: int) -> tuple[int, int, bool]:
    """Size, place of the body, and kind of header of a whole frame."""
    if end - at < HEAD_BYTES:
        raise NotFamiliar
    length, kind = struct.unpack_from(">iI", view, at)
    size, header_bytes = 4 + length, kind & 0xFF_FFFF
    if not HEAD_BYTES <= size <= min(frame_bytes_max, end - at) or header_bytes > size - HEAD_BYTES:
        raise NotFamiliar
    if kind >> 24 not in (0, 1):
        raise NotFamiliar
    return size, at + HEAD_BYTES + header_bytes, bool(kind >> 24)


def number_of(text: bytes) -> int:
    """A whole number in its usual form."""
    if _NUMBER.fullmatch(text) is None:
        raise NotFamiliar
    return int(text)


# -- JSON headers ------------------------------------------------------------------------------------------------


def read_json(header: bytes) -> Header:
    """A JSON header."""
    seen: dict[bytes, int] = {}
    fields: dict[int, bytes] | None = None
    topic_at = 0
    at, is_more = _past(header, 0, b"{"), True
    while is_more:
        name, at = _plain_text(header, _skip(header, at))
        at = _skip(header, _past(header, at, b":"))
        if name in seen:
            raise NotFamiliar
        seen[name] = 0
        if name in _NUMBER_KEYS:
            text, at = _scalar(header, at)
            seen[name] = number_of(text)
            if not I32_MIN <= seen[name] <= I32_MAX:
                raise NotFamiliar
        elif name == b"extFields":
            if seen.get(b"code") not in _CODES:
                raise NotFamiliar
            fields, topic_at, at = _json_fields(header, at, seen[b"code"])
        elif name == b"remark" and header[at : at + 4] == b"null":
            at += 4
        elif name in _TEXT_KEYS or name == b"remark":
            _text, at = _plain_text(header, at)
        else:
            raise NotFamiliar
        is_more, at = _goes_on(header, at)
    if fields is None or _skip(header, at) != len(header):
        raise NotFamiliar
    return Header(seen[b"code"], seen.get(b"flag", 0), seen.get(b"opaque", 0), fields, topic_at)


def _json_fields(header: bytes, at: int, code: int) -> tuple[dict[int, bytes], int, int]:
    fields: dict[int, bytes] = {}
    topic_at = 0
    at, is_more = _past(header, at, b"{"), True
    while is_more:
        name, at = _plain_text(header, _skip(header, at))
        at = _skip(header, _past(header, at, b":"))
        field = field_of(code, name)
        is_bare = header[at : at + 1] != b'"'
        topic_at = at + 1 if field == TOPIC else topic_at
        if field == PROPERTIES:
            match = _ANY_TEXT.match(header, at)
            if match is None:
                raise NotFamiliar
            text, at = match[1], match.end()
        else:
            text, at = _scalar(header, at)
        if field in fields or (is_bare and field in (GROUP, TOPIC, DEFAULT_TOPIC)):
            raise NotFamiliar
        if field >= 0:
            fields[field] = text
        elif is_bare:
            number_of(text)
        is_more, at = _goes_on(header, at)
    return fields, topic_at, at


def field_of(code: int, name: bytes) -> int:
    """The number of a header field, -1 if it is none that matters."""
    if code == SEND:
        return LONG_NAMES.index(name) if name in LONG_NAMES else -1
    if code == END:
        if name == LONG_NAMES[GROUP]:
            return GROUP
        return END_FIRST + END_NAMES.index(name) if name in END_NAMES else -1
    return name[0] - SHORT_FIRST if len(name) == 1 and SHORT_FIRST <= name[0] <= SHORT_FIRST + BATCH else -1


def _skip(header: bytes, at: int) -> int:
    space = _SPACE.match(header, at)
    assert space is not None
    return space.end()


def _past(header: bytes, at: int, sign: bytes) -> int:
    at = _skip(header, at)
    if header[at : at + 1] != sign:
        raise NotFamiliar
    return at + 1


def _goes_on(header: bytes, at: int) -> tuple[bool, int]:
    """Behind a member: whether another one follows."""
    at = _skip(header, at)
    if header[at : at + 1] not in (b",", b"}"):
        raise NotFamiliar
    return header[at : at + 1] == b",", at + 1


def _plain_text(header: bytes, at: int) -> tuple[bytes, int]:
    match = _PLAIN_TEXT.match(header, at)
    if match is None:
        raise NotFamiliar
    return match[1], match.end()


def _scalar(header: bytes, at: int) -> tuple[bytes, int]:
    """The text of a value, with quotes around it or bare."""
    if header[at : at + 1] == b'"':
        return _plain_text(header, at)
    match = _BARE.match(header, at)
    if match is None:
        raise NotFamiliar
    return match[0], match.end()


# -- binary headers ----------------------------------------------------------------------------------------------


def read_binary(header: bytes) -> Header:
    """A binary header."""
    if len(header) < _FIXED.size + 8:
        raise NotFamiliar
    code, _language, _version, opaque, flag = _FIXED.unpack_from(header, 0)
    remark_bytes, fields_bytes = struct.unpack_from(">ii", header, _FIXED.size)
    at = _FIXED.size + 8
    if code not in _CODES or remark_bytes or fields_bytes != len(header) - at:
        raise NotFamiliar
    fields: dict[int, bytes] = {}
    topic_at = 0
    while at < len(header):
        name, at = _sized(header, at, 2)
        text, at = _sized(header, at, 4)
        field = field_of(code, name)
        if not name.isascii() or (field != PROPERTIES and not text.isascii()) or (text and field in fields):
            raise NotFamiliar
        if text and field >= 0:
            fields[field] = text
            topic_at = at - len(text) if field == TOPIC else topic_at
    return Header(code, flag, opaque, fields, topic_at)


def _sized(header: bytes, at: int, length_bytes: int) -> tuple[bytes, int]:
    if at + length_bytes > len(header):
        raise NotFamiliar
    size, at = int.from_bytes(header[at : at + length_bytes], "big", signed=True), at + length_bytes
    if not 0 <= size <= len(header) - at:
        raise NotFamiliar
    return header[at : at + size], at + size
