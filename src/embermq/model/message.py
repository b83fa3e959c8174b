"""Messages: what a caller hands in (Message, MessageBatch), what is read back (StoredMessage), and
what an append answers (Receipt).

All are immutable values. `tags` and `keys` are kept where RocketMQ keeps them, in the properties
TAGS and KEYS, and are offered as arguments because everybody uses them.
"""

import zlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType

import lz4.frame
import msgspec
import zstandard

from embermq.errors import CorruptFrame, PropertyInvalid
from embermq.model import flags
from embermq.model.hosts import Host, unpack_host
from embermq.model.ids import message_id
from embermq.model.properties import DELAY, KEYS, TAGS, UNIQ_KEY, decode_properties, encode_properties, split_keys
from embermq.model.status import PutStatus

# RocketMQ's clients refuse more than 4 MiB before they compress.
PAYLOAD_BYTES_MAX = 64 << 20
_ZSTD_STEP_BYTES = 512
NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class Message(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A message to store.

    `wait_for_store=False` asks not to wait for the disk under SYNC_FLUSH. `delay_level` 1..18 parks the
    message. `encoded_properties` replaces `properties` by an already encoded string (brokers have one).
    """

    topic: str
    body: bytes = b""
    tags: str | None = None
    keys: str | Iterable[str] = ()
    properties: Mapping[str, str] = NO_PROPERTIES
    queue_id: int = 0
    flag: int = 0
    delay_level: int = 0
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: Host | None = None
    store_host: Host | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    wait_for_store: bool = True
    encoded_properties: bytes | None = None

    def all_properties(self) -> dict[str, str]:
        """Properties with tags, keys and delay level in their places."""
        encoded = self.encoded_properties
        merged = dict(self.properties) if encoded is None else decode_properties(encoded)
        if self.tags:
            _put_once(merged, TAGS, self.tags)
        keys = self.keys if isinstance(self.keys, str) else join_keys(self.keys)
        if keys:
            _put_once(merged, KEYS, keys)
        if self.delay_level:
            _put_once(merged, DELAY, str(self.delay_level))
        return merged

    def property_bytes(self) -> bytes:
        """The property string as it goes into the record."""
        tags, keys = self.tags, self.keys
        if (  # The commonest case by the shortest way: single appends spend a tenth of their time here.
            tags.__class__ is str
            and keys.__class__ is str
            and self.properties is NO_PROPERTIES
            and self.encoded_properties is None
            and not self.delay_level
            and tags
            and keys
            and "\x01" not in keys
            and "\x02" not in keys
            and "\x01" not in tags
            and "\x02" not in tags
        ):
            try:
                return f"KEYS\x01{keys}\x02TAGS\x01{tags}".encode()
            except UnicodeEncodeError:
                pass  # Said below, as for any other property.
        if self.encoded_properties is not None:
            if not (self.tags or self.keys or self.delay_level):
                return self.encoded_properties
        elif not self.properties and not self.delay_level:
            return _tags_and_keys(self.tags, self.keys)
        return encode_properties(self.all_properties())


def _tags_and_keys(tags: str | None, keys: str | Iterable[str]) -> bytes:
    """The commonest property string by a short way; KEYS before TAGS is the map's order for these two."""
    if not isinstance(keys, str):
        keys = join_keys(keys)
    if _holds_no_separator(keys) and (tags is None or _holds_no_separator(tags)):
        if not tags:
            text = f"KEYS\x01{keys}" if keys else ""
        else:
            text = f"KEYS\x01{keys}\x02TAGS\x01{tags}" if keys else f"TAGS\x01{tags}"
        try:
            return text.encode()
        except UnicodeEncodeError:
            pass  # Said below, as for any other property.
    both = {KEYS: keys, TAGS: tags or ""}
    return encode_properties({name: value for name, value in both.items() if value})


def _holds_no_separator(text: str) -> bool:
    """Sure of it only for plain strings: others may show themselves as something else."""
    return text.__class__ is str and "\x01" not in text and "\x02" not in text


def _put_once(properties: dict[str, str], name: str, value: str) -> None:
    if properties.setdefault(name, value) != value:
        raise PropertyInvalid(
            f"property {name} is given twice: {properties[name]!r} in properties, {value!r} as an argument"
        )


def join_keys(keys: Iterable[str]) -> str:
    """Several keys as the one text of the property KEYS; PropertyInvalid for a key with a space in it."""
    listed = list(keys)
    if len(listed) == 1 and listed[0].__class__ is str and listed[0] and " " not in listed[0]:
        return listed[0]
    joined = " ".join(listed)
    if joined.split(" ") != listed or "" in listed:
        if not listed:
            return ""
        bad = next(key for key in listed if not key or " " in key)
        raise PropertyInvalid(f"key {bad!r}: a key is not empty and holds no space (spaces part keys)")
    return joined


class BatchItem(msgspec.Struct, frozen=True, gc=False):
    """One message of a batch: what it does not share with the others."""

    body: bytes = b""
    properties: Mapping[str, str] = NO_PROPERTIES
    flag: int = 0
    encoded_properties: bytes | None = None

    def property_bytes(self) -> bytes:
        return encode_properties(self.properties) if self.encoded_properties is None else self.encoded_properties


class MessageBatch(msgspec.Struct, frozen=True, gc=False):
    """Messages of one topic and queue that are stored side by side in one log file.

    `header` gives topic, queue, hosts, times and the properties added to each item; its body is unused.
    """

    header: Message
    items: list[BatchItem]


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What an append answers. `status` PUT_OK says: stored, and as durable as the settings promise."""

    status: PutStatus
    physical_offset: int
    size: int
    queue_offset: int
    store_timestamp: int
    store_host: Host
    message_count: int = 1
    later_offsets: tuple[int, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status is PutStatus.PUT_OK

    @property
    def message_id(self) -> str:
        """Where the message lies; of a batch, all ids joined by commas."""
        first = message_id(self.store_host, self.physical_offset)
        if not self.later_offsets:
            return first
        return ",".join([first, *(message_id(self.store_host, offset) for offset in self.later_offsets)])


class StoredMessage(msgspec.Struct, frozen=True, dict=True):
    """A message as it lies in the log: the 17 fields, and what follows from them.

    `body` is the stored bytes, `payload` the same decompressed.
    """

    physical_offset: int
    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    sys_flag: int
    born_timestamp: int
    packed_born_host: bytes
    store_timestamp: int
    packed_store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    property_bytes: bytes

    @property
    def born_host(self) -> Host:
        return unpack_host(self.packed_born_host)

    @property
    def store_host(self) -> Host:
        return unpack_host(self.packed_store_host)

    @cached_property
    def properties(self) -> dict[str, str]:
        return decode_properties(self.property_bytes)

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> list[str]:
        return split_keys(self.properties.get(KEYS))

    @property
    def unique_key(self) -> str | None:
        return self.properties.get(UNIQ_KEY)

    @property
    def message_id(self) -> str:
        return message_id(self.store_host, self.physical_offset)

    @cached_property
    def payload(self) -> bytes:
        """The body as the producer gave it; CorruptFrame when it does not decompress."""
        return decompressed(self.body, self.sys_flag, self.physical_offset)

    @property
    def end(self) -> int:
        """Physical offset of the first byte after the record."""
        return self.physical_offset + self.size


def decompressed(body: bytes, sys_flag: int, physical_offset: int) -> bytes:
    """The body as the producer gave it, of the record at this place; CorruptFrame when it does not decompress."""
    if not sys_flag & flags.COMPRESSED:
        return body
    try:
        return decompress(body, sys_flag)
    except (zlib.error, RuntimeError, zstandard.ZstdError, ValueError, EOFError) as problem:
        raise CorruptFrame(physical_offset, f"the body does not decompress: {problem}") from problem


def decompress(body: bytes, sys_flag: int) -> bytes:
    """`body` decompressed by the method the flag names; ValueError, among others, when it cannot be.

    A few bytes may claim to be gigabytes: what grows past PAYLOAD_BYTES_MAX, and past four times what is stored, is
    refused while it grows.
    """
    limit = max(PAYLOAD_BYTES_MAX, 4 * len(body))
    match sys_flag & flags.COMPRESSION_MASK:
        case 0 | flags.COMPRESSION_ZLIB:
            inflating = zlib.decompressobj()
            whole, is_whole = inflating.decompress(body, limit + 1), inflating.eof
        case flags.COMPRESSION_LZ4:
            frames = lz4.frame.LZ4FrameDecompressor()
            whole, is_whole = bytes(frames.decompress(body, limit + 1)), frames.eof
        case flags.COMPRESSION_ZSTD:
            whole, is_whole = _zstd_decompressed(body, limit)
        case other:
            raise ValueError(f"unknown compression type 0x{other:x}")
    if len(whole) > limit:
        raise ValueError(f"it is larger than {limit:,} bytes decompressed")
    if not is_whole:  # The libraries answer a part without a word.
        raise ValueError("the compressed body ends too soon")
    return whole


def _zstd_decompressed(body: bytes, limit: int) -> tuple[bytes, bool]:
    """Little by little: this library has no bound, and makes at most some 32 KiB of each byte."""
    stream = zstandard.ZstdDecompressor().decompressobj()
    parts, size = [], 0
    for at in range(0, len(body), _ZSTD_STEP_BYTES):
        parts.append(stream.decompress(body[at : at + _ZSTD_STEP_BYTES]))
        size += len(parts[-1])
        if stream.eof or size > limit:
            break
    return b"".join(parts), stream.eof


__all__ = ["BatchItem", "Host", "Message", "MessageBatch", "Receipt", "StoredMessage"]
