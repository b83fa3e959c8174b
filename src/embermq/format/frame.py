"""A record of the commit log: one message as it lies on disk. All numbers are signed and big-endian.

    at            size  field                     at (b, s = 8)
    0                4  size of the whole record
    4                4  magic                     message, message v2 (5.x), or blank
    8                4  CRC-32 of the body, top bit cleared
    12               4  queue id
    16               4  flag                      the user's own
    20               8  queue offset
    28               8  physical offset           of this record's first byte
    36               4  sysFlag                   bits 4, 5: hosts are IPv6
    40               8  born timestamp
    48               b  born host                 b = 8 (IPv4) or 20 (IPv6)
    48+b             8  store timestamp           56
    56+b             s  store host                64
    56+b+s           4  reconsume times           72
    60+b+s           8  prepared transaction offset
    68+b+s         4+L  body length, body         84
    72+b+s+L       1+T  topic length, topic       88+L     (v2: two bytes of length)
    73+b+s+L+T     2+P  properties length, properties

A blank is 8 bytes: the room left in the file, and the blank magic. The CRC covers the body only; the stored
physical offset is what tells a record from the same bytes in a wrong place, so it is compared as well.

Decoding never raises on foreign bytes: it answers Frame, Padding, End or Torn, and the caller decides.
Many records at once are the business of `embermq.columns`.
"""

import struct
import zlib
from enum import IntEnum, unique
from typing import Any

import msgspec

from embermq.format.java import string_hash_utf8, wrap_i64
from embermq.model.flags import BORN_HOST_V6, HOST_V6_MASK, STORE_HOST_V6
from embermq.model.hosts import Host, pack_host, unpack_host

MESSAGE_MAGIC = 0xDAA320A7 - (1 << 32)
MESSAGE_MAGIC_V2 = 0xDAA320AB - (1 << 32)
BLANK_MAGIC = 0xCBD43194 - (1 << 32)

BLANK_BYTES = 8
FIXED_BYTES = 91  # a record without body, topic and properties, both hosts IPv4
HOST_V4_BYTES, HOST_V6_BYTES = 8, 20  # a packed host: address and port
HOST_V6_EXTRA = HOST_V6_BYTES - HOST_V4_BYTES
BODY_AT = 88  # position of the body with two IPv4 hosts
TOPIC_BYTES_MAX = 127
PROPERTIES_BYTES_MAX = 32767
DUE_DIGITS_MAX = 18
SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = b"rmq_sys_wheel_timer"

# Everything before the body, by (sysFlag >> 4) & 3.
_HEADS = tuple(struct.Struct(f">5i2qiq{born}sq{store}siqi") for born, store in ((8, 8), (20, 8), (8, 20), (20, 20)))
_SIZE_MAGIC = struct.Struct(">ii")
_I16 = struct.Struct(">h")
# A global is found faster than the method of an object.
_PACK_HEAD_V4, _PACK_I16, _PACK_SIZE_MAGIC_INTO = _HEADS[0].pack, _I16.pack, _SIZE_MAGIC.pack_into
assert _HEADS[0].size == BODY_AT


@unique
class TornReason(IntEnum):
    """Why bytes are no record. The numbers are shared with the scan kernel."""

    BAD_MAGIC = 16
    BAD_SIZE = 17  # smaller than any record, or past the limit
    BAD_POSITION = 18  # the record was written for another place
    BAD_LENGTHS = 19  # the parts do not add up to the size
    BAD_TOPIC = 20  # no topic, or a NUL in it
    BAD_PROPERTIES = 21  # a property without separator that holds a NUL: zeroed bytes
    BAD_CRC = 22


@unique
class ScanStop(IntEnum):
    """Why a scan stopped, when not at a TornReason."""

    ROWS_FULL = 1
    BUFFER_END = 2  # the last record ended exactly at the end
    BLANK = 3  # at a blank: the rest of the file holds nothing
    NOTHING = 4  # 8 zero bytes, or fewer than 8 left


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One record. `body` and `properties` are slices of the decoded buffer (views when it was one)."""

    physical_offset: int
    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: Host
    store_timestamp: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body: Any  # bytes or memoryview
    topic: str
    properties: bytes

    @property
    def end(self) -> int:
        """Physical offset just after the record."""
        return self.physical_offset + self.size


class Padding(msgspec.Struct, frozen=True, gc=False):
    """A blank: nothing follows in this file. `end` is where it says it ends; the limit if that cannot be."""

    end: int


class End(msgspec.Struct, frozen=True, gc=False):
    """Nothing was ever written here."""


class Torn(msgspec.Struct, frozen=True, gc=False):
    """Bytes that are no record."""

    at: int
    reason: TornReason


class RecordParts(msgspec.Struct, frozen=True, gc=False):
    """A record that adds up: its head, and where its variable parts lie in the buffer."""

    head: tuple[Any, ...]
    body_at: int
    topic_at: int
    topic_len: int
    properties_at: int
    properties_len: int


def body_crc(body: Any) -> int:
    """The checksum as stored: CRC-32 without its top bit."""
    return zlib.crc32(body) & 0x7FFF_FFFF


def record_size(body_len: int, topic_len: int, properties_len: int, sys_flag: int = 0) -> int:
    """Bytes of a (v1) record with parts of these lengths; the IPv6 bits of sysFlag count."""
    v6_hosts = (sys_flag >> 4 & 1) + (sys_flag >> 5 & 1)
    return FIXED_BYTES + HOST_V6_EXTRA * v6_hosts + body_len + topic_len + properties_len


def host_flags(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    """sysFlag with bits 4 and 5 computed from the packed hosts: a caller's own would make the record unreadable."""
    flags = sys_flag & ~HOST_V6_MASK
    if len(born_host) != HOST_V4_BYTES:
        flags |= BORN_HOST_V6
    if len(store_host) != HOST_V4_BYTES:
        flags |= STORE_HOST_V6
    return flags


def put_record(
    out: Any,
    at: int,
    size: int,
    crc: int,
    body: Any,
    topic_part: bytes,
    properties: bytes,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    flag: int = 0,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    magic: int = MESSAGE_MAGIC,
) -> None:
    """Write one record to out[at:at + size]. The only encoder in Python; its twin is the kernel of compiled/encode.py.

    `crc` is that of `body`, `topic_part` the topic behind its length, hosts are packed and agree with bits 4 and 5 of
    `sys_flag`. Size and magic are stored last: until then there are zeros, which read as "nothing here".
    """
    head = (_PACK_HEAD_V4 if not sys_flag else _HEADS[sys_flag >> 4 & 3].pack)(
        0,
        0,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        len(body),
    )
    out[at : at + size] = b"".join((head, body, topic_part, _PACK_I16(len(properties)), properties))
    _PACK_SIZE_MAGIC_INTO(out, at, size, magic)


def encode(
    *,
    physical_offset: int,
    queue_id: int,
    queue_offset: int,
    topic: str,
    body: Any,
    properties: bytes,
    born_timestamp: int,
    born_host: Host,
    store_timestamp: int,
    store_host: Host,
    flag: int = 0,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    magic: int = MESSAGE_MAGIC,
) -> bytes:
    """The record's bytes. Lengths must have been checked before: breaking them is an assertion."""
    topic_raw = topic.encode()
    born, store = pack_host(born_host), pack_host(store_host)
    sys_flag = host_flags(sys_flag, born, store)
    wide = magic == MESSAGE_MAGIC_V2
    size = record_size(len(body), len(topic_raw), len(properties), sys_flag) + wide
    assert 0 < len(topic_raw) <= (PROPERTIES_BYTES_MAX if wide else TOPIC_BYTES_MAX), topic
    assert len(properties) <= PROPERTIES_BYTES_MAX, len(properties)
    record = bytearray(size)
    put_record(
        record,
        0,
        size,
        body_crc(body),
        body,
        len(topic_raw).to_bytes(1 + wide, "big") + topic_raw,
        properties,
        queue_id,
        queue_offset,
        physical_offset,
        born_timestamp,
        born,
        store_timestamp,
        store,
        flag,
        sys_flag,
        reconsume_times,
        prepared_transaction_offset,
        magic,
    )
    return bytes(record)


def encode_blank(remaining: int) -> bytes:
    """The 8 bytes that end a file with `remaining` bytes left."""
    assert remaining >= BLANK_BYTES, remaining
    return _SIZE_MAGIC.pack(remaining, BLANK_MAGIC)


def decode(
    buffer: Any, at: int, limit: int, *, physical_offset: int | None, check_crc: bool
) -> Frame | Padding | End | Torn:
    """What lies at `buffer[at:limit]`. With `physical_offset`, a record must have been written for it."""
    parts = measure(buffer, at, limit, physical_offset, check_crc)
    if not isinstance(parts, RecordParts):
        return parts
    (
        size,
        _magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        stored,
        sys_flag,
        born,
        born_host,
        store,
        store_host,
        reconsume,
        prepared,
        body_len,
    ) = parts.head
    topic = bytes(buffer[parts.topic_at : parts.topic_at + parts.topic_len])
    return Frame(
        physical_offset=stored if physical_offset is None else physical_offset,
        size=size,
        body_crc=crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        sys_flag=sys_flag,
        born_timestamp=born,
        born_host=unpack_host(born_host),
        store_timestamp=store,
        store_host=unpack_host(store_host),
        reconsume_times=reconsume,
        prepared_transaction_offset=prepared,
        body=buffer[parts.body_at : parts.body_at + body_len],
        topic=topic.decode("utf-8", "replace"),
        properties=bytes(buffer[parts.properties_at : parts.properties_at + parts.properties_len]),
    )


def size_and_magic(buffer: Any, at: int) -> tuple[int, int]:
    """The first 8 bytes of what lies at `at`: a record, a blank, or neither."""
    size, magic = _SIZE_MAGIC.unpack_from(buffer, at)
    return size, magic


def measure(
    buffer: Any, at: int, limit: int, physical_offset: int | None, check_crc: bool
) -> RecordParts | Padding | End | Torn:
    """Every check of a record. The kernel makes the same ones in the same order."""
    assert 0 <= at <= limit <= len(buffer), (at, limit, len(buffer))
    if limit - at < BLANK_BYTES:
        return End()
    size, magic = _SIZE_MAGIC.unpack_from(buffer, at)
    if magic not in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2):
        if magic == BLANK_MAGIC:
            return Padding(at + size if BLANK_BYTES <= size <= limit - at else limit)
        return End() if size == 0 and magic == 0 else Torn(at, TornReason.BAD_MAGIC)
    topic_head = 2 if magic == MESSAGE_MAGIC_V2 else 1
    if size < FIXED_BYTES - 1 + topic_head or size > limit - at:
        return Torn(at, TornReason.BAD_SIZE)
    end = at + size
    head = _HEADS[0].unpack_from(buffer, at)  # Two IPv4 hosts, nearly always; the record is long enough for them.
    body_at = at + BODY_AT
    if head[7] & HOST_V6_MASK:
        layout = _HEADS[head[7] >> 4 & 3]
        body_at = at + layout.size
        if body_at + topic_head + 2 > end:
            return Torn(at, TornReason.BAD_LENGTHS)
        head = layout.unpack_from(buffer, at)
    if physical_offset is not None and head[6] != physical_offset:
        return Torn(at, TornReason.BAD_POSITION)
    body_len: int = head[14]
    if body_len < 0 or body_len > end - body_at - topic_head - 2:
        return Torn(at, TornReason.BAD_LENGTHS)
    topic_at = body_at + body_len + topic_head
    topic_len = int.from_bytes(buffer[topic_at - topic_head : topic_at], "big", signed=True)
    if topic_len <= 0:
        return Torn(at, TornReason.BAD_TOPIC)
    properties_at = topic_at + topic_len + 2
    if properties_at > end:
        return Torn(at, TornReason.BAD_LENGTHS)
    (properties_len,) = _I16.unpack_from(buffer, properties_at - 2)
    if properties_at + properties_len != end or properties_len < 0:
        return Torn(at, TornReason.BAD_LENGTHS)
    if 0 in bytes(buffer[topic_at : topic_at + topic_len]):
        return Torn(at, TornReason.BAD_TOPIC)
    properties = bytes(buffer[properties_at:end])
    if 0 in properties and _has_zeroed_property(properties):
        return Torn(at, TornReason.BAD_PROPERTIES)
    if check_crc and body_len > 0 and head[2] != body_crc(buffer[body_at : body_at + body_len]):
        return Torn(at, TornReason.BAD_CRC)
    return RecordParts(head, body_at, topic_at, topic_len, properties_at, properties_len)


def _has_zeroed_property(properties: bytes) -> bool:
    """A segment that holds a NUL but no separator: the mark of a page that never reached the disk."""
    return any(0 in segment and 1 not in segment for segment in properties.split(b"\x02"))


def locate_properties(properties: bytes) -> dict[bytes, tuple[int, int]]:
    """Name -> (position, length) of its value inside `properties`; nameless and empty ones are dropped,
    a later one of the same name replaces an earlier one."""
    found: dict[bytes, tuple[int, int]] = {}
    start = 0
    for segment in properties.split(b"\x02"):
        separator = segment.find(b"\x01")
        if 0 < separator < len(segment) - 1:
            found[segment[:separator]] = (start + separator + 1, len(segment) - separator - 1)
        start += len(segment) + 1
    return found


def parse_delay_level(text: bytes) -> int | None:
    """DELAY as Java's parseInt reads it (ASCII digits only), or None when it is no number."""
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    if not digits or digits.strip(b"0123456789"):
        return None
    level = int(digits.lstrip(b"0")[:11] or b"0")  # Eleven digits are too many already.
    level = -level if text[:1] == b"-" else level
    return level if -(1 << 31) <= level < 1 << 31 else None


def parse_due_ms(text: bytes) -> int:
    """TIMER_OUT_MS: a time in at most 18 digits; 0 for anything else."""
    return int(text) if 0 < len(text) <= DUE_DIGITS_MAX and not text.strip(b"0123456789") else 0


def tag_code(
    topic: bytes, tags: bytes | None, delay: bytes | None, store_time: int, delay_ms: Any, due: bytes | None = None
) -> int:
    """The third field of a queue entry: due time of a parked record, else the hash of the tag, else 0.

    `delay` and `due` are the properties DELAY and TIMER_OUT_MS."""
    if due is not None and topic == TIMER_TOPIC and (due_ms := parse_due_ms(due)) > 0:
        return due_ms
    if delay is not None and topic == SCHEDULE_TOPIC:
        level = parse_delay_level(delay)
        level = 0 if level is None else min(level, len(delay_ms))
        if level > 0:
            return wrap_i64(store_time + int(delay_ms[level - 1]))
    return 0 if tags is None else string_hash_utf8(tags)
