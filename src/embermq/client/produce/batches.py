"""Batches: many messages of one topic in one request, split by size. Pure.

A message goes alone if it is delayed, or larger than a batch may be: alone it is compressed, in a batch it is not.
"""

from collections.abc import Iterable

import msgspec

from embermq.client.produce.outgoing import Outgoing, Packer
from embermq.format.client_batch import ITEM_BYTES, encode_batch_items
from embermq.model.message import NO_PROPERTIES, BatchItem, Message
from embermq.model.names import RETRY_PREFIX
from embermq.model.properties import DELAY, NAME_END, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS, WAIT

_DELAYS = frozenset((DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS))


class SendBatch(msgspec.Struct):
    """Messages that are sent together: their places among all that were given, their ids, and the one wire form."""

    places: list[int]
    ids: list[str]
    outgoing: Outgoing


class _Open:
    """A batch that still takes messages."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.ids: list[str] = []
        self.items: list[BatchItem] = []
        self.messages: list[Message] = []
        self.bytes = 0

    def take(self, place: int, message: Message, message_id: str, item: BatchItem, size: int) -> None:
        self.places.append(place)
        self.messages.append(message)
        self.ids.append(message_id)
        self.items.append(item)
        self.bytes += size

    def closed(self, packer: Packer) -> SendBatch:
        first = self.messages[0]
        if len(self.items) == 1:
            return _alone(self.places[0], first, packer)
        properties = "" if first.wait_for_store else f"{WAIT}{NAME_END}false"
        wire = packer.wire(first, encode_batch_items(self.items), properties)
        wire.flag, wire.is_batch = 0, True
        return SendBatch(self.places, self.ids, Outgoing(first, ",".join(self.ids), wire))


def split(messages: Iterable[Message], packer: Packer, batch_bytes_max: int) -> list[SendBatch]:
    """Batches, in the order of the messages within each topic; MessageRejected, and nothing to send, if one of the
    messages can never be sent."""
    batches: list[SendBatch] = []
    open_ones: dict[tuple[str, bool], _Open] = {}
    for place, message in enumerate(messages):
        topic, body = packer.topic(message.topic), packer.check_body(message)
        message_id, properties = packer.properties(message, {})
        encoded = properties.encode()
        size = ITEM_BYTES + len(body) + len(encoded)
        key = (topic, message.wait_for_store)
        current = open_ones.get(key)
        is_alone = size > batch_bytes_max or _goes_alone(message, topic)
        if current is not None and (is_alone or current.bytes + size > batch_bytes_max):
            batches.append(open_ones.pop(key).closed(packer))
        if is_alone:
            batches.append(_alone(place, message, packer))
            continue
        item = BatchItem(body, flag=message.flag, encoded_properties=encoded)
        open_ones.setdefault(key, _Open()).take(place, message, message_id, item, size)
    batches += [current.closed(packer) for current in open_ones.values()]
    return batches


def _alone(place: int, message: Message, packer: Packer) -> SendBatch:
    outgoing = packer.pack(message)
    return SendBatch([place], [outgoing.message_id], outgoing)


def _goes_alone(message: Message, topic: str) -> bool:
    if message.delay_level or topic.startswith(RETRY_PREFIX):
        return True
    if message.properties is NO_PROPERTIES and message.encoded_properties is None:
        return False
    return not _DELAYS.isdisjoint(message.all_properties())
