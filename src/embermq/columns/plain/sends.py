"""Sends as they come from the network: frames of SEND_MESSAGE (10) and SEND_MESSAGE_V2 (310) made into rows of a run.

What was read from connections lies in one buffer, a *piece* for each connection. Of every piece the frames from its
beginning on are read, up to the first that is not *familiar*; that one and what follows it take the plain way. Familiar
is a frame that is whole, of one of the two codes, wants an answer, and says what clients ordinarily say: texts without
escapes (but in the property string), whole numbers in their usual form, no name twice, no batch, no property with a
meaning; and whose topic and queue the caller has let in (`find_place`). Everything else is nothing to complain about
here: the plain way knows what it means.

The row of a message points into the buffer; only its properties are written anew: WAIT=true is left out, CLUSTER is
added, and the pairs come in the order in which a Java HashMap gives them.

A half message (TRAN_MSG=true) is familiar where the caller has put the name of the half topic into the buffer. Its row
names that topic and queue 0, without transaction bits; its properties keep WAIT and get REAL_TOPIC and REAL_QID.

`read_sends` is the plain twin of the kernel of that name.
"""

import re
import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from embermq.columns.plain import runs as r
from embermq.columns.plain.messages import bucket_of
from embermq.columns.plain.runs import I32_MAX, I32_MIN
from embermq.columns.rows import Rows, as_view
from embermq.model.flags import TRANSACTION_MASK
from embermq.model.properties import HALF_TOPIC, REAL_QUEUE_ID, REAL_TOPIC, has_meaning_to_store

# Columns of a piece: what is left of it, where the packed host of its connection lies in the output, and whether a
# frame that is not familiar was met.
G_AT, G_END, G_HOST_AT, G_HOST_LEN, G_STOPPED = range(5)
N_PIECE_COLUMNS = 5
# Columns of a frame beside those of its message: how to answer it, its piece, its place among those let in, the queue
# id it was sent to, and whether it is a half message.
F_OPAQUE, F_IS_BINARY, F_PIECE, F_PLACE, F_QUEUE_ID, F_IS_HALF = range(6)
N_FRAME_COLUMNS = 6

SEND, SEND_V2 = 10, 310
HEAD_BYTES = 8
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
SHORT_FIRST = ord("a")
REQUIRED = sum(1 << field for field in (GROUP, TOPIC, DEFAULT_TOPIC, QUEUE_NUMS, QUEUE_ID, SYS_FLAG, BORN, FLAG))
_I32_FIELDS = (QUEUE_NUMS, QUEUE_ID, SYS_FLAG, FLAG, RECONSUME, MOST)
DIGITS_MAX = 18
# A HashMap of 16 buckets keeps so many names without growing; so many in one bucket make it grow sooner.
PAIRS_MAX, CHAIN_MAX = 12, 8
PROPERTY_TEXT_MAX = 1 << 15
CLUSTER_BUCKET = bucket_of(b"CLUSTER")
# What a half message gets: the names of two more pairs, and the topic it is stored in. No half topic: none is familiar.
REAL_TOPIC_NAME, REAL_QUEUE_NAME = (name.encode() for name in (REAL_TOPIC, REAL_QUEUE_ID))
HALF_TOPIC_BYTES = len(HALF_TOPIC)
NO_HALF_TOPIC = -1

_SPACE = re.compile(rb"[ \t\n\r]*")
_PLAIN_TEXT = re.compile(rb'"([ !#-\[\]-\x7f]*)"')
_ANY_TEXT = re.compile(rb'"((?:[^"\\\x00-\x1f]|\\[\x20-\xff])*)"')
_BARE = re.compile(rb"[-0-9a-z]+")
_NUMBER = re.compile(rb"0|-?[1-9][0-9]{0,17}")
_ESCAPE = re.compile(rb'\\(?:u00([0-7][0-9a-fA-F])|(["\\/bfnrt]))|(\\)', re.DOTALL)
_SHORT_ESCAPES = dict(zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True))
_BOOLEANS = {b"true": True, b"1": True, b"false": False, b"0": False}
_NUMBER_KEYS, _TEXT_KEYS = {b"code", b"flag", b"opaque", b"version"}, {b"language", b"serializeTypeCurrentRPC"}
_FIXED = struct.Struct(">hBhii")

FindPlace = Callable[[bytes, int], int]


class SendStop(IntEnum):
    """Why reading sends stopped."""

    ALL = 0  # Every piece was read as far as it is familiar.
    PLACE = 1  # The next frame of a piece goes to a queue that was not let in yet.
    FULL = 2  # There is no row, or no room for properties, for the next frame.


class SendsRead(NamedTuple):
    """How far a call came: rows filled, bytes of the output used; the piece it stopped at, and why."""

    filled: int
    used: int
    piece: int
    stop: SendStop


class _NotFamiliar(Exception):
    """This frame goes the plain way."""


class _Header(NamedTuple):
    opaque: int
    fields: dict[int, bytes]
    topic_at: int  # in the header


def read_sends(
    data: Any,
    pieces: Rows,
    first: int,
    find_place: FindPlace,
    place_flags: Sequence[int],
    cluster: bytes,
    rows: Rows,
    frames: Rows,
    filled: int,
    out: Any,
    used: int,
    frame_bytes_max: int,
    half_topic_at: int,
) -> SendsRead:
    """Read pieces[first:] into rows[filled:] and frames[filled:]; property strings go to out[used:].

    `place_flags` has the bits that messages to a place get beside their own. `cluster` is the pair that each message
    gets. `half_topic_at` says where in `data` the name of the half topic lies. What is left of a piece is in its
    columns afterwards."""
    view, room = bytes(as_view(data)), as_view(out)
    for piece in range(first, len(pieces)):
        while not pieces[piece, G_STOPPED]:
            if filled == len(rows):
                return SendsRead(filled, used, piece, SendStop.FULL)
            at, end = int(pieces[piece, G_AT]), int(pieces[piece, G_END])
            try:
                size, body_at, is_binary = _frame_at(view, at, end, frame_bytes_max)
                header = (_read_binary if is_binary else _read_json)(view[at + HEAD_BYTES : body_at])
                row = _row_of(header.fields)
                topic = header.fields[TOPIC]
                place = find_place(topic, row[r.R_QUEUE_ID])
                if place < 0:
                    return SendsRead(filled, used, piece, SendStop.PLACE)
                pairs = _pairs_of(header.fields.get(PROPERTIES, b""), is_json=not is_binary)
                is_half = _is_half(pairs, row[r.R_SYS_FLAG], half_topic_at)
                text = property_string(pairs, cluster, (topic, row[r.R_QUEUE_ID]) if is_half else None)
            except _NotFamiliar:
                pieces[piece, G_STOPPED] = 1
                break
            if len(text) > len(room) - used:
                return SendsRead(filled, used, piece, SendStop.FULL)
            room[used : used + len(text)] = text
            row[r.R_BODY_AT], row[r.R_BODY_LEN] = body_at, at + size - body_at
            row[r.R_TOPIC_AT], row[r.R_TOPIC_LEN] = at + HEAD_BYTES + header.topic_at, len(topic)
            row[r.R_PROPS_AT], row[r.R_PROPS_LEN] = used, len(text)
            row[r.R_SYS_FLAG] |= place_flags[place]
            row[r.R_HOST_AT], row[r.R_HOST_LEN] = pieces[piece, G_HOST_AT], pieces[piece, G_HOST_LEN]
            frames[filled] = header.opaque, is_binary, piece, place, row[r.R_QUEUE_ID], is_half
            rows[filled] = _half_row(row, half_topic_at) if is_half else row
            filled, used = filled + 1, used + len(text)
            pieces[piece, G_AT] = at + size
    return SendsRead(filled, used, len(pieces), SendStop.ALL)


def _frame_at(view: bytes, at: int, end: int, frame_bytes_max: int) -> tuple[int, int, bool]:
    """Size, place of the body, and kind of header of a whole frame."""
    if end - at < HEAD_BYTES:
        raise _NotFamiliar
    length, kind = struct.unpack_from(">iI", view, at)
    size, header_bytes = 4 + length, kind & 0xFF_FFFF
    if not HEAD_BYTES <= size <= min(frame_bytes_max, end - at) or header_bytes > size - HEAD_BYTES:
        raise _NotFamiliar
    if kind >> 24 not in (0, 1):
        raise _NotFamiliar
    return size, at + HEAD_BYTES + header_bytes, bool(kind >> 24)


def _row_of(fields: dict[int, bytes]) -> list[int]:
    if any(not fields.keys() >= {field} for field in range(13) if REQUIRED >> field & 1) or not fields[TOPIC]:
        raise _NotFamiliar
    numbers = {field: _number(fields[field]) for field in _I32_FIELDS if field in fields}
    if any(not I32_MIN <= number <= I32_MAX for number in numbers.values()):
        raise _NotFamiliar
    if any(fields[field] not in _BOOLEANS for field in (UNIT, BATCH) if field in fields):
        raise _NotFamiliar
    if _BOOLEANS.get(fields.get(BATCH, b"0")) or numbers[QUEUE_ID] < 0:
        raise _NotFamiliar
    row = [0] * r.N_RUN_COLUMNS
    row[r.R_QUEUE_ID], row[r.R_FLAG], row[r.R_SYS_FLAG] = numbers[QUEUE_ID], numbers[FLAG], numbers[SYS_FLAG]
    row[r.R_BORN_TIME], row[r.R_RECONSUME] = _number(fields[BORN]), numbers.get(RECONSUME, 0)
    return row


def _number(text: bytes) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise _NotFamiliar
    return int(text)


# -- JSON headers ------------------------------------------------------------------------------------------------


def _read_json(header: bytes) -> _Header:
    seen: dict[bytes, int] = {}
    fields: dict[int, bytes] | None = None
    topic_at = 0
    at, is_more = _past(header, 0, b"{"), True
    while is_more:
        name, at = _plain_text(header, _skip(header, at))
        at = _skip(header, _past(header, at, b":"))
        if name in seen:
            raise _NotFamiliar
        seen[name] = 0
        if name in _NUMBER_KEYS:
            text, at = _scalar(header, at)
            seen[name] = _number(text)
            if not I32_MIN <= seen[name] <= I32_MAX:
                raise _NotFamiliar
        elif name == b"extFields":
            if seen.get(b"code") not in (SEND, SEND_V2):
                raise _NotFamiliar
            fields, topic_at, at = _json_fields(header, at, seen[b"code"])
        elif name == b"remark" and header[at : at + 4] == b"null":
            at += 4
        elif name in _TEXT_KEYS or name == b"remark":
            _text, at = _plain_text(header, at)
        else:
            raise _NotFamiliar
        is_more, at = _goes_on(header, at)
    if fields is None or _skip(header, at) != len(header) or seen.get(b"flag", 0) != 0:
        raise _NotFamiliar
    return _Header(seen.get(b"opaque", 0), fields, topic_at)


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
                raise _NotFamiliar
            text, at = match[1], match.end()
        else:
            text, at = _scalar(header, at)
        if field in fields or (is_bare and field in (GROUP, TOPIC, DEFAULT_TOPIC)):
            raise _NotFamiliar
        if field >= 0:
            fields[field] = text
        elif is_bare:
            _number(text)
        is_more, at = _goes_on(header, at)
    return fields, topic_at, at


def field_of(code: int, name: bytes) -> int:
    """The number of a header field, -1 if it is none that matters."""
    if code == SEND:
        return LONG_NAMES.index(name) if name in LONG_NAMES else -1
    return name[0] - SHORT_FIRST if len(name) == 1 and SHORT_FIRST <= name[0] <= SHORT_FIRST + BATCH else -1


def _skip(header: bytes, at: int) -> int:
    space = _SPACE.match(header, at)
    assert space is not None
    return space.end()


def _past(header: bytes, at: int, sign: bytes) -> int:
    at = _skip(header, at)
    if header[at : at + 1] != sign:
        raise _NotFamiliar
    return at + 1


def _goes_on(header: bytes, at: int) -> tuple[bool, int]:
    """Behind a member: whether another one follows."""
    at = _skip(header, at)
    if header[at : at + 1] not in (b",", b"}"):
        raise _NotFamiliar
    return header[at : at + 1] == b",", at + 1


def _plain_text(header: bytes, at: int) -> tuple[bytes, int]:
    match = _PLAIN_TEXT.match(header, at)
    if match is None:
        raise _NotFamiliar
    return match[1], match.end()


def _scalar(header: bytes, at: int) -> tuple[bytes, int]:
    """The text of a value, with quotes around it or bare."""
    if header[at : at + 1] == b'"':
        return _plain_text(header, at)
    match = _BARE.match(header, at)
    if match is None:
        raise _NotFamiliar
    return match[0], match.end()


# -- binary headers ----------------------------------------------------------------------------------------------


def _read_binary(header: bytes) -> _Header:
    if len(header) < _FIXED.size + 8:
        raise _NotFamiliar
    code, _language, _version, opaque, flag = _FIXED.unpack_from(header, 0)
    remark_bytes, fields_bytes = struct.unpack_from(">ii", header, _FIXED.size)
    at = _FIXED.size + 8
    if code not in (SEND, SEND_V2) or flag or remark_bytes or fields_bytes != len(header) - at:
        raise _NotFamiliar
    fields: dict[int, bytes] = {}
    topic_at = 0
    while at < len(header):
        name, at = _sized(header, at, 2)
        text, at = _sized(header, at, 4)
        field = field_of(code, name)
        if not name.isascii() or (field != PROPERTIES and not text.isascii()) or (text and field in fields):
            raise _NotFamiliar
        if text and field >= 0:
            fields[field] = text
            topic_at = at - len(text) if field == TOPIC else topic_at
    return _Header(opaque, fields, topic_at)


def _sized(header: bytes, at: int, length_bytes: int) -> tuple[bytes, int]:
    if at + length_bytes > len(header):
        raise _NotFamiliar
    size, at = int.from_bytes(header[at : at + length_bytes], "big", signed=True), at + length_bytes
    if not 0 <= size <= len(header) - at:
        raise _NotFamiliar
    return header[at : at + size], at + size


# -- properties --------------------------------------------------------------------------------------------------


def _pairs_of(text: bytes, *, is_json: bool) -> dict[bytes, bytes]:
    """The properties of the header's property string."""
    if len(text) > PROPERTY_TEXT_MAX:
        raise _NotFamiliar
    if is_json:
        text = _ESCAPE.sub(_unescaped, text)
    try:
        text.decode()
    except UnicodeDecodeError:
        raise _NotFamiliar from None
    pairs: dict[bytes, bytes] = {}
    for number, pair in enumerate(whole := text.split(b"\x02")):
        name, sign, value = pair.partition(b"\x01")
        if not pair and number == len(whole) - 1:
            continue
        if not name or not sign or not value or b"\x01" in value or name in pairs or name == b"CLUSTER":
            raise _NotFamiliar
        pairs[name] = value
    if has_meaning_to_store(text) or len(pairs) >= PAIRS_MAX:
        raise _NotFamiliar
    return pairs


def _is_half(pairs: dict[bytes, bytes], sys_flag: int, half_topic_at: int) -> bool:
    """Whether a familiar message is a half message."""
    if b"TRAN_MSG" not in pairs:
        if sys_flag & TRANSACTION_MASK:
            raise _NotFamiliar
        return False
    if pairs[b"TRAN_MSG"] != b"true" or half_topic_at < 0:
        raise _NotFamiliar
    return True


def _half_row(row: list[int], half_topic_at: int) -> list[int]:
    row[r.R_TOPIC_AT], row[r.R_TOPIC_LEN], row[r.R_QUEUE_ID] = half_topic_at, HALF_TOPIC_BYTES, 0
    row[r.R_SYS_FLAG] &= ~TRANSACTION_MASK
    return row


def property_string(pairs: dict[bytes, bytes], cluster: bytes, real_place: tuple[bytes, int] | None) -> bytes:
    """The property string of the record, from the properties of the header; of a half message with its own place."""
    kept = [(bucket_of(name), name + b"\x01" + value) for name, value in pairs.items() if name != b"WAIT" or real_place]
    kept.append((CLUSTER_BUCKET, cluster))
    if real_place is not None:
        for name, value in ((REAL_TOPIC_NAME, real_place[0]), (REAL_QUEUE_NAME, b"%d" % real_place[1])):
            if name in pairs:
                raise _NotFamiliar
            kept.append((bucket_of(name), name + b"\x01" + value))
    buckets = [bucket for bucket, _pair in kept]
    if len(kept) > PAIRS_MAX or any(buckets.count(one) > CHAIN_MAX for one in buckets):
        raise _NotFamiliar
    return b"\x02".join(pair for _bucket, pair in sorted(kept, key=lambda pair: pair[0]))


def _unescaped(match: re.Match[bytes]) -> bytes:
    if match[3]:
        raise _NotFamiliar
    return bytes((int(match[1], 16) if match[1] else _SHORT_ESCAPES[match[2][0]],))
