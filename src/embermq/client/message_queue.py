"""MessageQueue: one queue of a topic at one broker; the unit of order, of assignment and of offsets. Pure."""

from typing import Any, NamedTuple


class MessageQueue(NamedTuple):
    """Sorts by topic, broker and id, as every member of a group must."""

    topic: str
    broker: str
    queue_id: int

    def document(self) -> dict[str, Any]:
        """The queue in a JSON body."""
        return {"brokerName": self.broker, "queueId": self.queue_id, "topic": self.topic}

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker}:{self.queue_id}"


def parse_queue(document: Any) -> MessageQueue:
    """The queue of a JSON body; ValueError when it is none."""
    try:
        return MessageQueue(str(document["topic"]), str(document["brokerName"]), int(document["queueId"]))
    except (KeyError, TypeError, ValueError) as problem:
        raise ValueError(f"no message queue: {document!r}") from problem
