"""A record as one line of JSON: what `embermq store dump` writes. Pure.

The keys are the columns of the Spark schema, always all of them, always in this order:

    topic queueId queueOffset physicalOffset msgId uniqKey tags keys body properties flag sysFlag bornTimestamp
    bornHost storeTimestamp storeHost reconsumeTimes preparedTransactionOffset bodyCrc size

Times are milliseconds since 1970, hosts `1.2.3.4:10911` or `[::1]:10911`, a text that is absent is null, and bytes
that are no UTF-8 are replaced in texts. The body is base64, or with TEXT the text itself. Two keys appear only where
they are needed to lose nothing:

    bodyBase64       with TEXT, of a body that is no UTF-8; body is then null
    propertiesBase64 with RAW, of a property string that the map does not give back: repeated or empty pairs, a
                     separator at the end, bytes that are no UTF-8

bodyCrc is that of the stored body, so a reader can tell a body that was decompressed from one that was not.
`encode_line` is the plain twin of the kernel `write_lines`, which declines rows that need more than copying.
"""

import zlib
from binascii import b2a_base64
from enum import IntEnum, IntFlag, unique
from functools import lru_cache
from typing import Any

import msgspec
import zstandard

from embermq.model import flags
from embermq.model.hosts import unpack_host
from embermq.model.message import decompress
from embermq.model.properties import decode_properties

KEYS = (
    "topic",
    "queueId",
    "queueOffset",
    "physicalOffset",
    "msgId",
    "uniqKey",
    "tags",
    "keys",
    "body",
    "properties",
    "flag",
    "sysFlag",
    "bornTimestamp",
    "bornHost",
    "storeTimestamp",
    "storeHost",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "bodyCrc",
    "size",
)


class LineForm(IntFlag):
    """How bodies are written."""

    BASE64 = 0
    TEXT = 1
    RAW = 2  # as they are stored, not decompressed


@unique
class LineStop(IntEnum):
    """Why a kernel stopped writing lines."""

    ALL = 0
    ROOM = 1  # the next line might not fit
    PLAIN = 2  # the next row has to be written the plain way


_quote = msgspec.json.encode
_NULL = b"null"


def encode_line(data: Any, base: int, row: list[int], form: LineForm) -> tuple[bytes, bool]:
    """The line of one record of `data` (bytes or a view, whose first byte is at `base`), and whether its body is
    whole: one that does not decompress is given as it is stored."""
    (
        physical,
        size,
        queue_id,
        queue_offset,
        _tag_code,
        store_time,
        sys_flag,
        body_at,
        body_len,
        topic_at,
        topic_len,
        props_at,
        props_len,
        keys_at,
        keys_len,
        uniq_at,
        uniq_len,
        tags_at,
        tags_len,
        born_time,
        flag,
        reconsume,
        prepared,
        _stored,
    ) = row
    at = physical - base
    store_host_at = at + (76 if sys_flag & flags.BORN_HOST_V6 else 64)
    born_host, _ = _host_texts(bytes(data[at + 48 : store_host_at - 8]))
    store_host, store_digits = _host_texts(bytes(data[store_host_at : body_at - 16]))
    body, is_whole = _body(bytes(data[body_at : body_at + body_len]), sys_flag, form)
    crc = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
    line = (
        b'{"topic":%b,"queueId":%d,"queueOffset":%d,"physicalOffset":%d,"msgId":"%b%016X","uniqKey":%b,"tags":%b'
        b',"keys":%b,%b,%b,"flag":%d,"sysFlag":%d,"bornTimestamp":%d,"bornHost":"%b","storeTimestamp":%d'
        b',"storeHost":"%b","reconsumeTimes":%d,"preparedTransactionOffset":%d,"bodyCrc":%d,"size":%d}\n'
    ) % (
        _text(data, topic_at, topic_len),
        queue_id,
        queue_offset,
        physical,
        store_digits,
        physical & (1 << 64) - 1,
        _text(data, uniq_at, uniq_len),
        _text(data, tags_at, tags_len),
        _text(data, keys_at, keys_len),
        _body_part(body, form),
        _properties_part(bytes(data[props_at : props_at + props_len]), form),
        flag,
        sys_flag,
        born_time,
        born_host,
        store_time,
        store_host,
        reconsume,
        prepared,
        crc,
        size,
    )
    return line, is_whole


@lru_cache(maxsize=4096)
def _host_texts(packed: bytes) -> tuple[bytes, bytes]:
    """A host as people write it, and as it begins a message id."""
    return str(unpack_host(packed)).encode(), packed.hex().upper().encode()


def _text(data: Any, at: int, length: int) -> bytes:
    return _NULL if length < 0 else _quote(str(data[at : at + length], "utf-8", "replace"))


def _body(stored: bytes, sys_flag: int, form: LineForm) -> tuple[bytes, bool]:
    if not sys_flag & flags.COMPRESSED or form & LineForm.RAW:
        return stored, True
    try:
        return decompress(stored, sys_flag), True
    except (zlib.error, RuntimeError, zstandard.ZstdError, ValueError, EOFError):
        return stored, False


def _body_part(body: bytes, form: LineForm) -> bytes:
    if form & LineForm.TEXT:
        try:
            return b'"body":%b' % _quote(str(body, "utf-8"))
        except UnicodeDecodeError:
            return b'"body":null,"bodyBase64":"%b"' % b2a_base64(body, newline=False)
    return b'"body":"%b"' % b2a_base64(body, newline=False)


def _properties_part(encoded: bytes, form: LineForm) -> bytes:
    found = decode_properties(encoded)
    part = b'"properties":%b' % _quote(found)
    if form & LineForm.RAW and encode_in_order(found) != encoded:
        part += b',"propertiesBase64":"%b"' % b2a_base64(encoded, newline=False)
    return part


def encode_in_order(properties: dict[str, str]) -> bytes:
    """The property string of these pairs in their own order: the inverse of reading one."""
    return "\x02".join([f"{name}\x01{value}" for name, value in properties.items()]).encode()
