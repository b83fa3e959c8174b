"""Hooks around handlers, for metrics, tracing and the like. On the thread of the handler, or the loop's if the handler
is a coroutine: what a hook does before a call, as setting a context variable, the handler sees.

A hook wraps the handler: consumers without hooks pay nothing for them.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import msgspec

from embermq.client.consume.handle.handlers import (
    AnyHandler,
    AsyncHandler,
    Context,
    Handler,
    HandlerOutcome,
    is_async,
    outcome_of,
)
from embermq.client.message_queue import MessageQueue
from embermq.client.received import ReceivedMessage

log = logging.getLogger(__name__)


class ConsumeContext(msgspec.Struct):
    """One call of a handler. The last three are set when it has ended; `error` is what it raised, or what is wrong with
    its answer. `values` carries what hooks want to find again after the call."""

    group: str
    queue: MessageQueue
    messages: Sequence[ReceivedMessage]
    is_orderly: bool
    values: dict[str, Any] = msgspec.field(default_factory=dict)
    is_consumed: bool = False
    error: BaseException | None = None
    seconds: float = 0.0


class ConsumeHook(Protocol):
    """What to do before and after messages are handled. What a hook raises is logged and changes nothing."""

    def before_consume(self, context: ConsumeContext) -> None: ...

    def after_consume(self, context: ConsumeContext) -> None: ...


def hooked(handler: AnyHandler, hooks: Sequence[ConsumeHook]) -> AnyHandler:
    """The handler with hooks around it; itself if there are none."""
    if not hooks:
        return handler
    if is_async(handler):
        awaited = cast(AsyncHandler, handler)

        async def handle_async(messages: list[ReceivedMessage], context: Context) -> bool | None:
            call = _Call(hooks, messages, context)
            try:
                answer = await awaited(messages, context)
            except BaseException as problem:
                call.ended(HandlerOutcome(False, problem))
                raise
            call.ended(outcome_of(answer))
            return answer

        return handle_async
    called = cast(Handler, handler)

    def handle(messages: list[ReceivedMessage], context: Context) -> bool | None:
        call = _Call(hooks, messages, context)
        try:
            answer = called(messages, context)
        except BaseException as problem:
            call.ended(HandlerOutcome(False, problem))
            raise
        call.ended(outcome_of(answer))
        return answer

    return handle


class _Call:
    """One call of a handler between its hooks. They get their own list of the messages."""

    def __init__(self, hooks: Sequence[ConsumeHook], messages: list[ReceivedMessage], context: Context) -> None:
        self._hooks = hooks
        self._context = ConsumeContext(context.group, context.queue, tuple(messages), context.is_orderly)
        self._run([hook.before_consume for hook in hooks])
        self._began = time.monotonic()

    def ended(self, outcome: HandlerOutcome) -> None:
        context = self._context
        context.seconds = time.monotonic() - self._began
        context.is_consumed, context.error = outcome.is_consumed, outcome.problem
        self._run([hook.after_consume for hook in self._hooks])

    def _run(self, steps: list[Callable[[ConsumeContext], None]]) -> None:
        for step in steps:
            try:
                step(self._context)
            except Exception:
                log.exception("event=consume_hook_failed hook=%r queue=%s", step, self._context.queue)
