"""Message traces: what producers and consumers with tracing on wrote down about a message. The loop's thread only.

A trace is a message of RMQ_SYS_TRACE_TOPIC, or of a topic of the user's own, whose keys are the ids and keys of the
messages it is about: it is found by either. A trace message is about several messages; only the steps of the one that
was asked for are given.
"""

from embermq.client.admin.messages import FOREVER_MS, Messages
from embermq.client.admin.trace_records import TraceStep, trace_steps
from embermq.errors import CorruptFrame
from embermq.model.message import StoredMessage
from embermq.model.names import TRACE_TOPIC
from embermq.model.properties import split_keys

LIMIT = 64  # Brokers give no more for one question.


class Traces:
    """Questions about traces."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages

    async def of_message(
        self, message_id: str, *, topic: str = TRACE_TOPIC, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[TraceStep]:
        """The steps of the message with a unique id, oldest first; RouteMissing if there is no topic with traces."""
        steps = await self._steps(message_id, topic, begin_ms, end_ms)
        return [step for step in steps if message_id in (step.msg_id, step.offset_msg_id)]

    async def of_key(
        self, key: str, *, topic: str = TRACE_TOPIC, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[TraceStep]:
        """The steps of every message with a key, oldest first."""
        steps = await self._steps(key, topic, begin_ms, end_ms)
        return [step for step in steps if key in split_keys(step.keys)]

    async def _steps(self, key: str, topic: str, begin_ms: int, end_ms: int) -> list[TraceStep]:
        found = await self._messages.by_key(topic, key, begin_ms=begin_ms, end_ms=end_ms, limit=LIMIT)
        return trace_steps((_payload(one.message), one.message.born_host.address) for one in found)


def _payload(message: StoredMessage) -> bytes:
    try:
        return message.payload
    except CorruptFrame:
        return b""
