"""A row of a scan as one line of JSON, in the form of format.message_json.

`encode_line` is the plain twin of the kernel `write_lines`, which declines rows that need more than copying.
"""

from enum import IntEnum, unique
from typing import Any

from embermq.format.message_json import BodyForm, message_line
from embermq.model import flags
from embermq.model.message import StoredMessage


@unique
class LineStop(IntEnum):
    """Why a kernel stopped writing lines."""

    ALL = 0
    ROOM = 1  # the next line might not fit
    PLAIN = 2  # the next row has to be written the plain way


def encode_line(data: Any, base: int, row: list[int], form: BodyForm) -> tuple[bytes, bool]:
    """The line of one record of `data` (bytes or a view, whose first byte is at `base`), and whether its body is
    whole: one that does not decompress is given as it is stored."""
    return message_line(_message(data, base, row), form)


def _message(data: Any, base: int, row: list[int]) -> StoredMessage:
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
        _keys_at,
        _keys_len,
        _uniq_at,
        _uniq_len,
        _tags_at,
        _tags_len,
        born_time,
        flag,
        reconsume,
        prepared,
        _stored,
    ) = row
    at = physical - base
    store_host_at = at + (76 if sys_flag & flags.BORN_HOST_V6 else 64)
    return StoredMessage(
        physical_offset=physical,
        size=size,
        body_crc=int.from_bytes(data[at + 8 : at + 12], "big", signed=True),
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        sys_flag=sys_flag,
        born_timestamp=born_time,
        packed_born_host=bytes(data[at + 48 : store_host_at - 8]),
        store_timestamp=store_time,
        packed_store_host=bytes(data[store_host_at : body_at - 16]),
        reconsume_times=reconsume,
        prepared_transaction_offset=prepared,
        body=bytes(data[body_at : body_at + body_len]),
        topic=str(data[topic_at : topic_at + topic_len], "utf-8", "replace"),
        property_bytes=bytes(data[props_at : props_at + props_len]),
    )
