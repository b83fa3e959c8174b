"""The frame of a send, written directly: the same bytes as by way of a Command, in a third of the time. Pure.

Producers send by the ten thousand a second. All of the header but a few numbers and the properties is the same from one
message of a producer to the next, and is made once for each topic.
"""

import struct
from functools import lru_cache

import msgspec

from embermq.client.calls.sends import WireMessage
from embermq.remoting import LANGUAGE, PROTOCOL_VERSION, RequestCode

_HEAD = struct.Struct(">iI")
_SEND = int(RequestCode.SEND_MESSAGE_V2)
_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
_TAIL = f'"flag":0,"language":"{LANGUAGE}","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":{PROTOCOL_VERSION}}}'
_encode_text = msgspec.json.Encoder().encode


@lru_cache(maxsize=1024)
def _template(code: int, group: str, topic: str, default_topic: str, default_queues: int) -> bytes:
    """The header with places for queue, flags, times, properties and opaque."""
    a, b, c = (_encode_text(text).replace(b"%", b"%%") for text in (group, topic, default_topic))
    head = b'{"code":%d,"extFields":{"a":%s,"b":%s,"c":%s,"d":"%d",' % (code, a, b, c, default_queues)
    fields = b'"e":"%d","f":"%d","g":"%d","h":"%d","i":%s,"j":"%d","k":"false",'
    is_batch = b'"m":"true"},' if code == _BATCH else b'"m":"false"},'
    return head + fields + is_batch + _TAIL.encode()


def encode_send(message: WireMessage, opaque: int) -> bytes:
    """The frame of a send or batch that is not signed and has no limit of retries of its own."""
    assert message.max_reconsume_times is None
    code = _BATCH if message.is_batch else _SEND
    template = _template(code, message.group, message.topic, message.default_topic, message.default_queues)
    header = template % (
        message.queue_id,
        message.sys_flag,
        message.born_timestamp,
        message.flag,
        _encode_text(message.properties),
        message.reconsume_times,
        opaque,
    )
    body = message.body
    return b"".join((_HEAD.pack(4 + len(header) + len(body), len(header)), header, body))
