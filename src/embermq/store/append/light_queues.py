"""One message into several queues (light message queues): the property INNER_MULTI_DISPATCH names the further ones.

A name that begins with %LMQ% is a light queue: it is always queue 0, and there is a limit to their number. Any other
name stands for the queue of that name with the message's own queue id. The offsets that the message gets in them are
written into the record, as the property INNER_MULTI_QUEUE_OFFSET.

Everything here is for the holder of the put lock.
"""

from array import array

import msgspec

from embermq.errors import AppendRefused
from embermq.model.properties import (
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    WAIT,
    decode_properties,
    encode_properties,
)
from embermq.store.append.admission import Admission, Admitted
from embermq.store.append.queue_tails import QueueKey, QueueTails

LMQ_PREFIX = "%LMQ%"


class LightQueues:
    """Offsets of messages in further queues. `limit` 0: this store has no light queues."""

    def __init__(self, tails: QueueTails, admission: Admission, limit: int) -> None:
        self._tails, self._admission, self._limit = tails, admission, limit

    def with_offsets(self, one: Admitted) -> Admitted:
        """The message with its offset in each further queue among its properties."""
        properties = decode_properties(one.properties)
        tails = [self._tails.by_key.get(key) for key in self._keys(one, properties)]
        offsets = [0 if tail is None else self._tails.next[tail.slot] for tail in tails]
        properties[MULTI_QUEUE_OFFSET] = ",".join(map(str, offsets))
        properties.pop(WAIT, None)
        encoded = encode_properties(properties)
        size = one.size + len(encoded) - len(one.properties)
        self._admission.check_sizes(len(encoded), size)
        return msgspec.structs.replace(one, properties=encoded, size=size)

    def advanced(self, one: Admitted, slot: int, queue_offset: int) -> "array[int]":
        """Next offsets once the ones that the record says are taken. A name may be there twice, or be the message's own
        queue."""
        properties = decode_properties(one.properties)
        offsets = properties[MULTI_QUEUE_OFFSET].split(",")
        slots = [self._tails.obtain(*key).slot for key in self._keys(one, properties)]
        advanced = self._tails.next[:]
        advanced[slot] = queue_offset + 1
        for other, offset in zip(slots, offsets, strict=True):
            advanced[other] = int(offset) + 1
        return advanced

    def _keys(self, one: Admitted, properties: dict[str, str]) -> list[QueueKey]:
        """The queues that the names stand for; AppendRefused for one light queue too many."""
        names = properties[MULTI_DISPATCH].split(",")
        keys = [(name, 0 if self._is_light(name) else one.queue_id) for name in names]
        new = [key for key in dict.fromkeys(keys) if self._is_light(key[0]) and key not in self._tails.by_key]
        if new:
            room = self._limit - sum(tail.topic.startswith(LMQ_PREFIX) for tail in self._tails)
            if len(new) > room:
                raise AppendRefused(
                    f"{new[max(room, 0)][0]!r} is one light queue too many: maxLmqConsumeQueueNum is {self._limit:,}",
                    "LMQ_CONSUME_QUEUE_NUM_EXCEEDED",
                )
        return keys

    def _is_light(self, name: str) -> bool:
        return self._limit > 0 and name.startswith(LMQ_PREFIX)
