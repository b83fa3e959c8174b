"""The body of a batch request: several messages of one topic, packed by a client.

at         size  field                (per message, one behind another)
0             4  size of this item    22 + body + properties
4             4  magic                written 0, not looked at
8             4  body CRC             written 0, not looked at
12            4  flag
16          4+L  body length, body
20+L        2+P  properties length, properties
"""

import struct
from collections.abc import Iterable
from typing import Any

from embermq.errors import BatchInvalid
from embermq.format.frame import PROPERTIES_BYTES_MAX
from embermq.model.message import BatchItem

ITEM_BYTES = 22
_HEAD = struct.Struct(">5i")
_PROPERTIES = struct.Struct(">h")


def encode_batch_items(items: Iterable[BatchItem]) -> bytes:
    parts: list[bytes] = []
    for item in items:
        properties = item.property_bytes()
        assert len(properties) <= PROPERTIES_BYTES_MAX, len(properties)
        size = ITEM_BYTES + len(item.body) + len(properties)
        parts.append(_HEAD.pack(size, 0, 0, item.flag, len(item.body)))
        parts.append(item.body)
        parts.append(_PROPERTIES.pack(len(properties)))
        parts.append(properties)
    return b"".join(parts)


def decode_batch_items(body: Any) -> list[BatchItem]:
    """All items of a batch body, with their properties as encoded bytes; BatchInvalid when the lengths in it
    do not add up."""
    raw = bytes(body)
    items: list[BatchItem] = []
    at = 0
    while at < len(raw):
        if len(raw) - at < ITEM_BYTES:
            raise BatchInvalid(f"item {len(items)} of the batch ends after {len(raw) - at} bytes")
        size, _magic, _crc, flag, body_len = _HEAD.unpack_from(raw, at)
        if not ITEM_BYTES <= size <= len(raw) - at or not 0 <= body_len <= size - ITEM_BYTES:
            raise BatchInvalid(f"item {len(items)} of the batch: size {size} or body length {body_len} cannot be")
        body_end = at + _HEAD.size + body_len
        (properties_len,) = _PROPERTIES.unpack_from(raw, body_end)
        end = body_end + _PROPERTIES.size + properties_len
        if properties_len < 0 or end != at + size:
            raise BatchInvalid(f"item {len(items)} of the batch: properties length {properties_len} cannot be")
        properties = raw[body_end + _PROPERTIES.size : end]
        items.append(BatchItem(raw[at + _HEAD.size : body_end], flag=flag, encoded_properties=properties))
        at = end
    return items
