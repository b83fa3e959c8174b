"""Lines of the message trace for consumed messages: a hook around handlers.

Lines are made on the handler's thread and brought to the loop's, where the tracer is, for some calls together.
"""

import asyncio
import logging
import time
from collections import deque

from embermq.client.consume.handle.hooks import ConsumeContext
from embermq.client.produce.unique_ids import UniqueIds
from embermq.client.received import ReceivedMessage
from embermq.client.tracing import Tracer, after_line, before_line

log = logging.getLogger(__name__)

# RocketMQ's ConsumeReturnType.
SUCCESS, TIMED_OUT, RAISED, FAILED = 0, 1, 2, 4
MSG_REGION, TRACE_ON = "MSG_REGION", "TRACE_ON"  # properties that brokers may set
_REQUEST = "embermq.trace.request"


class TracedCalls:
    """What a consumer's handlers did, as lines for a tracer. Made on the loop's thread, called on any."""

    def __init__(self, tracer: Tracer, ids: UniqueIds, timeout_seconds: float) -> None:
        self._tracer, self._ids, self._timeout_seconds = tracer, ids, timeout_seconds
        self._loop = asyncio.get_running_loop()
        self._lines: deque[tuple[str, list[str]]] = deque()
        self._is_posted = False

    def before_consume(self, context: ConsumeContext) -> None:
        request = context.values[_REQUEST] = self._ids.next()
        now = _now_ms()
        for message in _traced(context):
            line = before_line(
                time_ms=now,
                region=message.properties.get(MSG_REGION, ""),
                group=context.group,
                request_id=request,
                message_id=message.message_id,
                retries=message.reconsume_times,
                keys=" ".join(message.keys),
            )
            self._lines.append((line, [message.message_id, *message.keys]))
        self._post()

    def after_consume(self, context: ConsumeContext) -> None:
        now = _now_ms()
        for message in _traced(context):
            line = after_line(
                request_id=context.values[_REQUEST],
                message_id=message.message_id,
                cost_ms=round(context.seconds * 1000 / len(context.messages)),
                is_consumed=context.is_consumed,
                keys=" ".join(message.keys),
                code=self._code(context),
                time_ms=now,
                group=context.group,
            )
            self._lines.append((line, [message.message_id, *message.keys]))
        self._post()

    def _code(self, context: ConsumeContext) -> int:
        if context.error is not None:
            return RAISED
        if context.seconds >= self._timeout_seconds:
            return TIMED_OUT
        return SUCCESS if context.is_consumed else FAILED

    def _post(self) -> None:
        """Have the loop take up the lines. Any thread."""
        if self._lines and not self._is_posted:
            self._is_posted = True
            try:
                self._loop.call_soon_threadsafe(self._take)
            except RuntimeError:
                log.debug("event=trace_dropped reason='the loop is closed'")

    def _take(self) -> None:
        self._is_posted = False
        while self._lines:
            self._tracer.add(*self._lines.popleft())


def _traced(context: ConsumeContext) -> list[ReceivedMessage]:
    """Those of whose broker traces are wanted."""
    return [message for message in context.messages if message.properties.get(TRACE_ON) != "false"]


def _now_ms() -> int:
    return int(time.time() * 1000)
