"""A line of JSON as a message: the inverse of format.message_json, and what people write by hand. Pure but for a
cache of hosts; any thread.

    {"topic": "orders", "body": "aGVsbG8="}                        is enough
    {"topic": "orders", "body": "hello", "tags": "paid"}           with bodies as text

Every key of a dump is understood; queueOffset, physicalOffset, msgId, size and brokerName are what a store gives a
message, and are ignored. Times may also be ISO 8601, as Spark writes them. An unknown key is a mistake, not a
thing to ignore: it would be lost. So is a number of seconds for a time, unless the line comes from a dump (it has a
physicalOffset): there it is what some client sent.

The body is checked by bodyCrc, which is that of the stored body. If the message is flagged as compressed, a body
that has this checksum is stored as it is, and any other is compressed again by the method the flag names.
"""

import difflib
import json
import re
import zlib
from base64 import b64decode
from binascii import Error as Base64Error
from datetime import UTC, datetime
from typing import Annotated, Any

import lz4.frame
import msgspec
import zstandard

from embermq.format.frame import body_crc
from embermq.format.message_json import encode_in_order
from embermq.model import flags
from embermq.model.hosts import Host, parse_host
from embermq.model.message import Message
from embermq.model.properties import KEYS, TAGS, UNIQ_KEY
from embermq.model.time_units import unit_mistaken

_I32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
_I64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Time = _I64 | str
_ZLIB_LEVEL = 5  # What the Java client uses.
_HOST_PARSED: dict[str, Host] = {}


class LineInvalid(ValueError):
    """The line is no message; `column` counts from 1."""

    def __init__(self, column: int, reason: str) -> None:
        super().__init__(reason)
        self.column, self.reason = column, reason


class Loaded(msgspec.Struct, frozen=True):
    """A message and when it was stored, if the line says so."""

    message: Message
    store_timestamp: int | None


class _Line(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    topic: str
    queue_id: _I32 | None = None
    uniq_key: str | None = None
    tags: str | None = None
    keys: str | None = None
    body: str | None = None
    body_base64: str | None = None
    properties: dict[str, str] | None = None
    properties_base64: str | None = None
    flag: _I32 | None = None
    sys_flag: _I32 | None = None
    born_timestamp: _Time | None = None
    born_host: str | None = None
    store_timestamp: _Time | None = None
    store_host: str | None = None
    reconsume_times: _I32 | None = None
    prepared_transaction_offset: _I64 | None = None
    body_crc: _I32 | None = None
    queue_offset: Any = None
    physical_offset: Any = None
    msg_id: Any = None
    size: Any = None
    broker_name: Any = None


_decoder = msgspec.json.Decoder(_Line)
KNOWN_KEYS = tuple(field.encode_name for field in msgspec.structs.fields(_Line))


def decode_line(line: bytes, *, text_bodies: bool) -> Loaded:
    """The message of one line; LineInvalid when there is none."""
    try:
        found = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise _explain(line, problem) from None
    sys_flag = found.sys_flag or 0
    message = Message(
        topic=found.topic,
        body=_stored_body(line, found, sys_flag, text_bodies),
        queue_id=found.queue_id or 0,
        flag=found.flag or 0,
        sys_flag=sys_flag,
        born_timestamp=_time(line, found, "bornTimestamp", found.born_timestamp),
        born_host=_host(line, "bornHost", found.born_host),
        store_host=_host(line, "storeHost", found.store_host),
        reconsume_times=found.reconsume_times or 0,
        prepared_transaction_offset=found.prepared_transaction_offset or 0,
        wait_for_store=False,
        encoded_properties=_properties(line, found),
    )
    return Loaded(message, _time(line, found, "storeTimestamp", found.store_timestamp))


# -- parts of a line -----------------------------------------------------------------------------------------


def _stored_body(line: bytes, found: _Line, sys_flag: int, text_bodies: bool) -> bytes:
    body = _given_body(line, found, text_bodies)
    as_stored = found.body_crc is not None and body_crc(body) == found.body_crc
    if sys_flag & flags.COMPRESSED:
        return body if as_stored else _compress(line, body, sys_flag)
    if found.body_crc is None or as_stored or not body:  # The checksum of an empty body is never looked at.
        return body
    other = "was the dump made with --body text?" if not text_bodies else "was the dump made without --body text?"
    raise LineInvalid(column_of(line, "bodyCrc"), f"bodyCrc {found.body_crc} is not the checksum of the body; {other}")


def _given_body(line: bytes, found: _Line, text_bodies: bool) -> bytes:
    if found.body_base64 is not None:
        return _from_base64(line, "bodyBase64", found.body_base64)
    if found.body is None:
        return b""
    return found.body.encode() if text_bodies else _from_base64(line, "body", found.body)


def _from_base64(line: bytes, key: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError) as problem:
        hint = "; give --body text if bodies are text" if key == "body" else ""
        raise LineInvalid(column_of(line, key), f"{key} is no base64 ({problem}){hint}") from None


def _compress(line: bytes, body: bytes, sys_flag: int) -> bytes:
    match sys_flag & flags.COMPRESSION_MASK:
        case 0 | flags.COMPRESSION_ZLIB:
            return zlib.compress(body, _ZLIB_LEVEL)
        case flags.COMPRESSION_LZ4:
            return bytes(lz4.frame.compress(body))
        case flags.COMPRESSION_ZSTD:
            return zstandard.ZstdCompressor().compress(body)
        case other:
            reason = f"sysFlag {sys_flag} names the compression 0x{other:x}, which is unknown"
            raise LineInvalid(column_of(line, "sysFlag"), reason)


def _properties(line: bytes, found: _Line) -> bytes:
    """The property string; tags, keys and uniqKey may stand on their own, and must not contradict."""
    if found.properties_base64 is not None:
        return _from_base64(line, "propertiesBase64", found.properties_base64)
    properties = found.properties or {}
    for key, name, value in (
        ("keys", KEYS, found.keys),
        ("uniqKey", UNIQ_KEY, found.uniq_key),
        ("tags", TAGS, found.tags),
    ):
        if value and properties.setdefault(name, value) != value:
            reason = f"{key} is {value!r}, and properties say {name} = {properties[name]!r}"
            raise LineInvalid(column_of(line, key), reason)
    for name, value in properties.items():
        if not name or not value or "\x01" in name or "\x02" in name or "\x02" in value:
            reason = f"property {name!r} is empty or holds a separator (0x01, 0x02) and would not be read back"
            raise LineInvalid(column_of(line, "properties"), reason)
    return encode_in_order(properties)


def _host(line: bytes, key: str, text: str | None) -> Host | None:
    if text is None:
        return None
    host = _HOST_PARSED.get(text)
    if host is None:
        try:
            host = parse_host(text)
            host.port.to_bytes(4, "big", signed=True)
        except (ValueError, OverflowError):
            reason = f"{key} {text!r} is no host: 1.2.3.4:10911 or [::1]:10911 is expected"
            raise LineInvalid(column_of(line, key), reason) from None
        if len(_HOST_PARSED) < 10_000:
            _HOST_PARSED[text] = host
    return host


def _time(line: bytes, found: _Line, key: str, value: int | str | None) -> int | None:
    if not isinstance(value, str):
        mistake = None if value is None or found.physical_offset is not None else unit_mistaken(value)
        if mistake is not None:
            raise LineInvalid(column_of(line, key), f"{key} {mistake}")
        return value
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        reason = f"{key} {value!r} is no time: milliseconds since 1970 or ISO 8601 is expected"
        raise LineInvalid(column_of(line, key), reason) from None
    at = at if at.tzinfo is not None else at.astimezone()
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


# -- what is wrong with a line ---------------------------------------------------------------------------------


def column_of(line: bytes, key: str) -> int:
    """Where a key stands in a line, in characters from 1; 1 if it does not."""
    found = re.search(rb'"%b"\s*:' % re.escape(key.encode()), line)
    return 1 if found is None else _column(line, found.start())


def _column(line: bytes, at: int) -> int:
    return len(line[:at].decode("utf-8", "replace")) + 1


def _explain(line: bytes, problem: Exception) -> LineInvalid:
    """The place and the reason, from a slower reader that tells both exactly."""
    try:
        value = json.loads(line.decode())
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as wrong:
        return LineInvalid(_column(line, wrong.start), f"byte 0x{line[wrong.start]:02x} is not UTF-8")
    except json.JSONDecodeError as wrong:
        return LineInvalid(wrong.pos + 1, f"no JSON: {wrong.msg}")
    except UnicodeEncodeError:
        return LineInvalid(1, "a text holds a lone surrogate (\\ud800 to \\udfff), which has no UTF-8 form")
    except RecursionError:
        return LineInvalid(1, "no message: nested too deeply")
    if not isinstance(value, dict):
        return LineInvalid(1, "no message: an object with the key topic is expected")
    for key in value:
        if key not in KNOWN_KEYS:
            near = difflib.get_close_matches(key, KNOWN_KEYS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            return LineInvalid(column_of(line, key), f"no message has a key {key!r}{hint}")
    if "topic" not in value:
        return LineInvalid(1, "no message: the key topic is missing")
    reason = str(problem)
    path = re.search(r" - at `\$\.(\w+)", reason)
    if path is None:
        return LineInvalid(1, f"no message: {reason}")
    return LineInvalid(column_of(line, path[1]), f"{path[1]}: {reason[: path.start()]}")
