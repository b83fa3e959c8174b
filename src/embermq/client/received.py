"""Received messages: stored records, as pulls and queries answer them, as values. Pure; any thread.

A record is checked as the store checks its own: magic, lengths and checksum. The body is decompressed when it is first
looked at: one that cannot be is the trouble of who looks at it, not of the messages beside it. Properties are decoded
when they are first looked at; what consumers ask of every message, its tags and its id, is found without that.
"""

from functools import cached_property

import msgspec

from embermq.client.message_queue import MessageQueue
from embermq.errors import AnswerInvalid
from embermq.format.frame import RecordParts, Torn, measure
from embermq.model.flags import COMPRESSED
from embermq.model.hosts import Host, unpack_host
from embermq.model.ids import message_id
from embermq.model.message import decompressed
from embermq.model.properties import DELAY, KEYS, TAGS, UNIQ_KEY, decode_properties, property_value, split_keys

TRANSACTION_ID = "__transactionId__"
_TAGS, _KEYS, _UNIQ_KEY = TAGS.encode(), KEYS.encode(), UNIQ_KEY.encode()


class ReceivedMessage(msgspec.Struct, frozen=True, dict=True):
    """A message that a broker handed out. `topic` is the one it was sent to, `queue` where it was read from: a retry
    is read from the queue of a retry topic."""

    topic: str
    queue: MessageQueue
    queue_offset: int
    physical_offset: int
    stored_body: bytes
    property_bytes: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    packed_born_host: bytes
    store_timestamp: int
    packed_store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    size: int  # of the record

    @property
    def body(self) -> bytes:
        """The body as it was sent; CorruptFrame when it does not decompress."""
        return self._decompressed if self.sys_flag & COMPRESSED else self.stored_body

    @cached_property
    def _decompressed(self) -> bytes:
        return decompressed(self.stored_body, self.sys_flag, self.physical_offset)

    @cached_property
    def properties(self) -> dict[str, str]:
        return decode_properties(self.property_bytes)

    @property
    def tags(self) -> str | None:
        return self._text(_TAGS)

    @property
    def keys(self) -> list[str]:
        return split_keys(self._text(_KEYS))

    @property
    def message_id(self) -> str:
        """The id that the producer gave it; the broker's, if it gave none."""
        return self._text(_UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The broker's id: where the message lies."""
        return message_id(self.store_host, self.physical_offset)

    @property
    def transaction_id(self) -> str | None:
        return self.properties.get(TRANSACTION_ID) or self.properties.get(UNIQ_KEY)

    @property
    def delay_level(self) -> int:
        text = self.properties.get(DELAY, "0")
        return int(text) if text.isascii() and text.isdigit() else 0

    def _text(self, name: bytes) -> str | None:
        """The property of this name, without decoding the others."""
        value = property_value(self.property_bytes, name)
        return None if value is None else value.decode("utf-8", "replace")

    @property
    def born_host(self) -> Host:
        return unpack_host(self.packed_born_host)

    @property
    def store_host(self) -> Host:
        return unpack_host(self.packed_store_host)


def parse_records(records: bytes, broker: str, *, check_crc: bool = True) -> list[ReceivedMessage]:
    """All records of an answer of `broker`, in order; AnswerInvalid when one does not add up."""
    found: list[ReceivedMessage] = []
    queues: dict[tuple[bytes, int], MessageQueue] = {}  # nearly always one
    at, end = 0, len(records)
    while at < end:
        parts = measure(records, at, end, None, check_crc)
        if not isinstance(parts, RecordParts):
            reason = parts.reason.name if isinstance(parts, Torn) else "no record"
            raise AnswerInvalid("stored records", broker, f"{reason} at byte {at} of {end:,}")
        place = records[parts.topic_at : parts.topic_at + parts.topic_len], parts.head[3]
        queue = queues.get(place)
        if queue is None:
            queue = queues[place] = MessageQueue(str(place[0], "utf-8", "replace"), broker, place[1])
        found.append(_message(records, parts, queue))
        at += parts.head[0]
    return found


def parse_record(record: bytes, broker: str) -> ReceivedMessage:
    """The one record of an answer; AnswerInvalid when there is none, or more."""
    found = parse_records(record, broker)
    if len(found) != 1:
        raise AnswerInvalid("a stored record", broker, f"{len(found)} records")
    return found[0]


def _message(records: bytes, parts: RecordParts, queue: MessageQueue) -> ReceivedMessage:
    (
        size,
        _magic,
        _crc,
        _queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body_len,
    ) = parts.head
    return ReceivedMessage(
        queue.topic,
        queue,
        queue_offset,
        physical_offset,
        records[parts.body_at : parts.body_at + body_len],
        records[parts.properties_at : parts.properties_at + parts.properties_len],
        flag,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        size,
    )
