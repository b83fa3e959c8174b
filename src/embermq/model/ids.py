"""Message ids: where a message lies, written as hexadecimal digits.

store host address (4 or 16 bytes) + i32 port + i64 physical offset  ->  32 or 56 upper-case digits
"""

import struct
from typing import NamedTuple

from embermq.errors import MessageIdInvalid
from embermq.model.hosts import Host, pack_host, unpack_host

_OFFSET = struct.Struct(">q")


class MessageId(NamedTuple):
    store_host: Host
    physical_offset: int


def message_id(store_host: Host, physical_offset: int) -> str:
    return (pack_host(store_host) + _OFFSET.pack(physical_offset)).hex().upper()


def parse_message_id(text: object) -> MessageId:
    """The host and offset inside `text`; MessageIdInvalid when it is none."""
    if not isinstance(text, str) or len(text) not in (32, 56):
        raise MessageIdInvalid(str(text))
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raise MessageIdInvalid(text) from None
    if len(raw) * 2 != len(text):
        raise MessageIdInvalid(text)
    return MessageId(unpack_host(raw[:-8]), _OFFSET.unpack(raw[-8:])[0])
