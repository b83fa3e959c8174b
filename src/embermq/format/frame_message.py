"""A decoded record as the value users get. Pure."""

from embermq.format.frame import Frame
from embermq.model.hosts import pack_host
from embermq.model.message import StoredMessage


def as_message(frame: Frame) -> StoredMessage:
    """The message of a record; its body is copied out of any buffer."""
    return StoredMessage(
        frame.physical_offset,
        frame.size,
        frame.body_crc,
        frame.queue_id,
        frame.flag,
        frame.queue_offset,
        frame.sys_flag,
        frame.born_timestamp,
        pack_host(frame.born_host),
        frame.store_timestamp,
        pack_host(frame.store_host),
        frame.reconsume_times,
        frame.prepared_transaction_offset,
        bytes(frame.body),
        frame.topic,
        frame.properties,
    )
