"""Offsets of a stream: how far each store was read, as JSON in Spark's checkpoint and as values. Pure.

Without topic options, the place in each log:

    {"stores": {"broker-a": {"identity": "...", "position": 1234}}}

With them, next-to-read of each queue; a queue that is not named has not been read yet:

    {"topics": {"orders": {"broker-a": {"0": 17}}}, "stores": {"broker-a": {"identity": "..."}}}

`identity` tells whether the store is still the one that was read (inspect/log_identity.py). The format is kept: a
checkpoint outlives the version that wrote it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from embermq.errors import OptionInvalid

QueueName = tuple[str, str, int]  # topic, broker name, queue id

_OPTION = "checkpointLocation"


@dataclass(frozen=True, slots=True)
class StoreOffset:
    """How far one store was read; the position counts only without topic options."""

    identity: str
    position: int = 0


@dataclass(frozen=True, slots=True)
class StreamOffset:
    stores: Mapping[str, StoreOffset]
    queues: Mapping[QueueName, int] | None = None  # None: without topic options

    def to_json(self) -> dict[str, object]:
        if self.queues is None:
            stores = {name: {"identity": one.identity, "position": one.position} for name, one in _sorted(self.stores)}
            return {"stores": stores}
        topics: dict[str, dict[str, dict[str, int]]] = {}
        for (topic, broker_name, queue_id), queue_offset in _sorted(self.queues):
            topics.setdefault(topic, {}).setdefault(broker_name, {})[str(queue_id)] = queue_offset
        return {"topics": topics, "stores": {name: {"identity": one.identity} for name, one in _sorted(self.stores)}}

    @classmethod
    def from_json(cls, value: Any, *, by_queue: bool) -> "StreamOffset":
        """An offset of a stream that reads `by_queue` or not; OptionInvalid when it is of another kind."""
        try:
            stores = {
                name: StoreOffset(str(one["identity"]), int(one.get("position", 0)))
                for name, one in value["stores"].items()
            }
            queues = None
            if "topics" in value:
                queues = {
                    (topic, broker_name, int(queue_id)): int(queue_offset)
                    for topic, brokers in value["topics"].items()
                    for broker_name, by_id in brokers.items()
                    for queue_id, queue_offset in by_id.items()
                }
        except (KeyError, TypeError, ValueError, AttributeError):
            raise OptionInvalid(_OPTION, f"the checkpoint is of another source: {str(value)[:100]}") from None
        if (queues is not None) != by_queue:
            now = "with topic options, its checkpoint was made without" if by_queue else "without topic options, its"
            now += "" if by_queue else " checkpoint was made with some"
            raise OptionInvalid(_OPTION, f"the stream is {now}; use the same options, or a new checkpoint")
        return cls(stores, queues)


def _sorted(table: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    return sorted(table.items())
