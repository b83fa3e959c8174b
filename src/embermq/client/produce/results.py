"""What becomes of a message that is sent. Values."""

import msgspec

from embermq.client.calls import Decision, SendStatus
from embermq.client.message_queue import MessageQueue


class SendResult(msgspec.Struct, frozen=True):
    """Where a message was stored."""

    status: SendStatus
    message_id: str  # the producer's: consumers see it, and messages are found by it
    offset_message_id: str  # the broker's: where the message lies
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region: str = ""

    @property
    def ok(self) -> bool:
        """Stored without a reservation."""
        return self.status is SendStatus.SEND_OK


class TransactionResult(msgspec.Struct, frozen=True):
    """A half message and the decision on it. `is_ended`: the broker confirmed it; else it asks for it later."""

    sent: SendResult
    decision: Decision
    is_ended: bool
