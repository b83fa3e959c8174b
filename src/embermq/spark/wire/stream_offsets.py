"""Offsets of a stream over the wire: next-to-read of each queue, as JSON in Spark's checkpoint and as values. Pure.

    {"cluster": {"orders": {"broker-a": {"0": 17}}}}

A queue that is not named has not been read yet. The format is kept: a checkpoint outlives the version that wrote it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from embermq.errors import OptionInvalid
from embermq.spark.wire.cluster import QueueName

_OPTION = "checkpointLocation"


@dataclass(frozen=True, slots=True)
class WireOffset:
    """How far a stream is."""

    queues: Mapping[QueueName, int]

    def to_json(self) -> dict[str, object]:
        topics: dict[str, dict[str, dict[str, int]]] = {}
        for (topic, broker_name, queue_id), queue_offset in sorted(self.queues.items()):
            topics.setdefault(topic, {}).setdefault(broker_name, {})[str(queue_id)] = queue_offset
        return {"cluster": topics}

    @classmethod
    def from_json(cls, value: Any) -> "WireOffset":
        """OptionInvalid when the checkpoint is of another source."""
        try:
            return cls(
                {
                    (topic, broker_name, int(queue_id)): int(queue_offset)
                    for topic, brokers in value["cluster"].items()
                    for broker_name, by_id in brokers.items()
                    for queue_id, queue_offset in by_id.items()
                }
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            if isinstance(value, Mapping) and "stores" in value:
                raise OptionInvalid(
                    _OPTION, "the checkpoint is of a stream that reads a path; use a new one with nameServer"
                ) from None
            raise OptionInvalid(_OPTION, f"the checkpoint is of another source: {str(value)[:100]}") from None
