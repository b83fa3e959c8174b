"""The body of REGISTER_BROKER, in its three forms. Pure: bytes in, values out.

    JSON         {"filterServerList":[...],"topicConfigSerializeWrapper":{"dataVersion":{...},"topicConfigTable":{...}}}
    bare JSON    the wrapper alone, from brokers before 3.0.11
    compressed   one zlib stream of:
                     i32 length + JSON of the data version
                     i32 number of topics
                     each topic: i32 length + `name readQueueNums writeQueueNums perm filterType`
                     i32 length + JSON list of filter servers

The compressed form has neither flags nor order of a topic. Brokers of 5.x add a sixth word to a topic and more behind
the list; both are ignored. What is inflated is bounded. A body that cannot be read is a RemotingError.
"""

import struct
import zlib
from typing import Annotated, Any, TypeVar

import msgspec

from embermq.errors import RemotingError
from embermq.model.data_version import DataVersion
from embermq.namesrv.registration import FILTER_SERVERS_MAX, NAME_CHARACTERS_MAX, RegisterBody, TopicQueues
from embermq.remoting import I64, parse_json

CRC_MASK = 0x7FFF_FFFF
_INT = struct.Struct(">i")
_QUEUES = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]

K = TypeVar("K")


class _Version(msgspec.Struct, rename="camel"):
    counter: I64 = 0
    timestamp: I64 = 0
    state_version: I64 = 0


class _Topic(msgspec.Struct, rename="camel"):
    perm: _QUEUES = 6
    read_queue_nums: _QUEUES = 16
    topic_sys_flag: _QUEUES = 0
    write_queue_nums: _QUEUES = 16


class _Wrapper(msgspec.Struct, rename="camel"):
    data_version: _Version | None = None
    topic_config_table: dict[str, _Topic | None] | None = None


class _Body(msgspec.Struct, rename="camel"):
    topic_config_serialize_wrapper: _Wrapper | None = None
    filter_server_list: list[str] | None = None


def body_crc(body: bytes) -> int:
    """The checksum that a broker sends with its body: of the bytes as sent, without the sign."""
    return zlib.crc32(body) & CRC_MASK


def decode_register_body(body: bytes, *, is_compressed: bool, is_bare: bool, bytes_max: int) -> RegisterBody:
    """The topics and filter servers of a registration; without a body none, at version 0."""
    if not body:
        return RegisterBody()
    if is_compressed:
        return _decode_compressed(_inflate(body, bytes_max))
    if len(body) > bytes_max:
        raise RemotingError(f"the body of {len(body):,} bytes is over {bytes_max:,} (emberMaxRegisterBytes)")
    if is_bare:
        return _values(_read_json(body, _Wrapper), None)
    read = _read_json(body, _Body)
    return _values(read.topic_config_serialize_wrapper or _Wrapper(), read.filter_server_list)


def decode_data_version(body: bytes) -> DataVersion:
    """The body of QUERY_DATA_VERSION; without one, version 0."""
    read = _read_json(body, _Version) if body else _Version()
    return DataVersion(read.timestamp, read.counter, read.state_version)


def _values(wrapper: _Wrapper, filter_servers: list[str] | None) -> RegisterBody:
    version = wrapper.data_version or _Version()
    topics = {
        name: TopicQueues(topic.perm, topic.read_queue_nums, topic.topic_sys_flag, topic.write_queue_nums)
        for name, topic in (wrapper.topic_config_table or {}).items()
        if topic is not None
    }
    return _body(DataVersion(version.timestamp, version.counter, version.state_version), topics, filter_servers)


def _body(version: DataVersion, topics: dict[str, TopicQueues], servers: list[str] | None) -> RegisterBody:
    """One topic with an impossible name is no reason to be without the broker: it is left out."""
    skipped = tuple(name for name in topics if not _is_name(name))
    for name in skipped:
        del topics[name]
    return RegisterBody(version, topics, _servers(servers), skipped)


def _servers(names: list[str] | None) -> list[str] | None:
    if names is None:
        return None
    if len(names) > FILTER_SERVERS_MAX:
        raise RemotingError(f"{len(names):,} filter servers in one registration: the limit is {FILTER_SERVERS_MAX}")
    for name in names:
        if not _is_name(name):
            raise RemotingError(f"filter server {name[:40]!r}: 1 to {NAME_CHARACTERS_MAX} characters are expected")
    return names


def _is_name(name: str) -> bool:
    return 0 < len(name) <= NAME_CHARACTERS_MAX


def _read_json(body: bytes, kind: type[K]) -> K:
    """Strict JSON in one pass, which is what brokers send; Java's extensions where that fails."""
    try:
        return msgspec.json.decode(body, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return msgspec.convert(parse_json(body), kind, strict=False)
    except (ValueError, RecursionError) as problem:
        raise RemotingError(f"the body cannot be read: {problem}") from None


# -- the compressed form ---------------------------------------------------------------------------------------


def _inflate(body: bytes, bytes_max: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(body, bytes_max)
    except zlib.error as problem:
        raise RemotingError(f"the compressed body cannot be inflated: {problem}") from None
    if not stream.eof:
        if len(data) >= bytes_max:
            raise RemotingError(f"the body inflates to over {bytes_max:,} bytes (emberMaxRegisterBytes)")
        raise RemotingError("the compressed body is cut off")
    return data


def _decode_compressed(data: bytes) -> RegisterBody:
    reader = _Pieces(data)
    version = decode_data_version(reader.piece())
    topics: dict[str, TopicQueues] = {}
    for _ in range(reader.count()):
        name, queues = _topic_of(reader.piece())
        topics[name] = queues
    servers: Any = _read_json(reader.piece(), list[str])
    return _body(version, topics, servers)


def _topic_of(text: bytes) -> tuple[str, TopicQueues]:
    try:
        name, read_queues, write_queues, perm, _filter_type, *_more = text.decode().split(" ")
        queues = TopicQueues(int(perm), int(read_queues), 0, int(write_queues))
    except ValueError:
        raise RemotingError(f"the compressed body has a topic that cannot be read: {text[:80]!r}") from None
    return name, queues


class _Pieces:
    """Reads lengths and what they announce; nothing beyond the end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def count(self) -> int:
        if self._at + _INT.size > len(self._data):
            raise RemotingError("the compressed body ends too early")
        (number,) = _INT.unpack_from(self._data, self._at)
        self._at += _INT.size
        if not 0 <= number <= len(self._data):
            raise RemotingError(f"the compressed body has {number} for a length or a count")
        return int(number)

    def piece(self) -> bytes:
        length = self.count()
        if self._at + length > len(self._data):
            raise RemotingError("the compressed body ends too early")
        start, self._at = self._at, self._at + length
        return self._data[start : self._at]
