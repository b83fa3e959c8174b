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
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from embermq.columns.plain import runs as r
from embermq.columns.plain.messages import bucket_of
from embermq.columns.plain.runs import I32_MAX, I32_MIN
from embermq.columns.plain.send_headers import (
    BATCH,
    BORN,
    FLAG,
    HEAD_BYTES,
    I32_FIELDS,
    PROPERTIES,
    QUEUE_ID,
    RECONSUME,
    REQUIRED,
    SYS_FLAG,
    TOPIC,
    UNIT,
    Header,
    NotFamiliar,
    frame_at,
    number_of,
    read_binary,
    read_json,
)
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

# A HashMap of 16 buckets keeps so many names without growing; so many in one bucket make it grow sooner.
PAIRS_MAX, CHAIN_MAX = 12, 8
PROPERTY_TEXT_MAX = 1 << 15
CLUSTER_BUCKET = bucket_of(b"CLUSTER")
# What a half message gets: the names of two more pairs, and the topic it is stored in. No half topic: none is familiar.
REAL_TOPIC_NAME, REAL_QUEUE_NAME = (name.encode() for name in (REAL_TOPIC, REAL_QUEUE_ID))
HALF_TOPIC_BYTES = len(HALF_TOPIC)
NO_HALF_TOPIC = -1

_ESCAPE = re.compile(rb'\\(?:u00([0-7][0-9a-fA-F])|(["\\/bfnrt]))|(\\)', re.DOTALL)
_SHORT_ESCAPES = dict(zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True))
_BOOLEANS = {b"true": True, b"1": True, b"false": False, b"0": False}

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
                size, body_at, is_binary = frame_at(view, at, end, frame_bytes_max)
                header = (read_binary if is_binary else read_json)(view[at + HEAD_BYTES : body_at])
                row = _row_of(header)
                topic = header.fields[TOPIC]
                place = find_place(topic, row[r.R_QUEUE_ID])
                if place < 0:
                    return SendsRead(filled, used, piece, SendStop.PLACE)
                pairs = _pairs_of(header.fields.get(PROPERTIES, b""), is_json=not is_binary)
                is_half = _is_half(pairs, row[r.R_SYS_FLAG], half_topic_at)
                text = property_string(pairs, cluster, (topic, row[r.R_QUEUE_ID]) if is_half else None)
            except NotFamiliar:
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


def _row_of(header: Header) -> list[int]:
    fields = header.fields
    if (
        header.flag
        or any(not fields.keys() >= {field} for field in range(13) if REQUIRED >> field & 1)
        or not fields[TOPIC]
    ):
        raise NotFamiliar
    numbers = {field: number_of(fields[field]) for field in I32_FIELDS if field in fields}
    if any(not I32_MIN <= number <= I32_MAX for number in numbers.values()):
        raise NotFamiliar
    if any(fields[field] not in _BOOLEANS for field in (UNIT, BATCH) if field in fields):
        raise NotFamiliar
    if _BOOLEANS.get(fields.get(BATCH, b"0")) or numbers[QUEUE_ID] < 0:
        raise NotFamiliar
    row = [0] * r.N_RUN_COLUMNS
    row[r.R_QUEUE_ID], row[r.R_FLAG], row[r.R_SYS_FLAG] = numbers[QUEUE_ID], numbers[FLAG], numbers[SYS_FLAG]
    row[r.R_BORN_TIME], row[r.R_RECONSUME] = number_of(fields[BORN]), numbers.get(RECONSUME, 0)
    return row


# -- properties --------------------------------------------------------------------------------------------------


def _pairs_of(text: bytes, *, is_json: bool) -> dict[bytes, bytes]:
    """The properties of the header's property string."""
    if len(text) > PROPERTY_TEXT_MAX:
        raise NotFamiliar
    if is_json:
        text = _ESCAPE.sub(_unescaped, text)
    try:
        text.decode()
    except UnicodeDecodeError:
        raise NotFamiliar from None
    pairs: dict[bytes, bytes] = {}
    for number, pair in enumerate(whole := text.split(b"\x02")):
        name, sign, value = pair.partition(b"\x01")
        if not pair and number == len(whole) - 1:
            continue
        if not name or not sign or not value or b"\x01" in value or name in pairs or name == b"CLUSTER":
            raise NotFamiliar
        pairs[name] = value
    if has_meaning_to_store(text) or len(pairs) >= PAIRS_MAX:
        raise NotFamiliar
    return pairs


def _is_half(pairs: dict[bytes, bytes], sys_flag: int, half_topic_at: int) -> bool:
    """Whether a familiar message is a half message."""
    if b"TRAN_MSG" not in pairs:
        if sys_flag & TRANSACTION_MASK:
            raise NotFamiliar
        return False
    if pairs[b"TRAN_MSG"] != b"true" or half_topic_at < 0:
        raise NotFamiliar
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
                raise NotFamiliar
            kept.append((bucket_of(name), name + b"\x01" + value))
    buckets = [bucket for bucket, _pair in kept]
    if len(kept) > PAIRS_MAX or any(buckets.count(one) > CHAIN_MAX for one in buckets):
        raise NotFamiliar
    return b"\x02".join(pair for _bucket, pair in sorted(kept, key=lambda pair: pair[0]))


def _unescaped(match: re.Match[bytes]) -> bytes:
    if match[3]:
        raise NotFamiliar
    return bytes((int(match[1], 16) if match[1] else _SHORT_ESCAPES[match[2][0]],))
