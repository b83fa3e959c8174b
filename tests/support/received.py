"""Received messages for tests of consumers, without a broker."""

from embermq.client.message_queue import MessageQueue
from embermq.client.received import ReceivedMessage
from embermq.model.properties import encode_properties

QUEUE = MessageQueue("orders", "a", 0)
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


def received(
    offset: int,
    body: bytes = b"x",
    *,
    queue: MessageQueue = QUEUE,
    tries: int = 0,
    sys_flag: int = 0,
    **properties: str,
) -> ReceivedMessage:
    """A message of a queue; its place in the log follows from its offset."""
    return ReceivedMessage(
        topic=queue.topic,
        queue=queue,
        queue_offset=offset,
        physical_offset=1000 * offset,
        stored_body=body,
        property_bytes=encode_properties(properties),
        flag=5,
        sys_flag=sys_flag,
        born_timestamp=1_700_000_000_000,
        packed_born_host=HOST,
        store_timestamp=1_700_000_000_001,
        packed_store_host=HOST,
        reconsume_times=tries,
        prepared_transaction_offset=0,
        size=1000,
    )


def several(start: int, end: int) -> list[ReceivedMessage]:
    return [received(offset) for offset in range(start, end)]
