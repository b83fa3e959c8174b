"""Handlers: what a user's function is given and what its answer means. Pure.

    def handle(messages: list[ReceivedMessage], context: Context) -> bool | None

    returns None or True     consumed
    returns False            later
    raises                   later; the error is logged
    returns anything else    later; logged as a mistake of the handler

The messages of one call are of one queue and one topic, in order. A handler may be a coroutine function with
`embermq.client.aio`; others run on a thread of the consumer.
"""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from embermq.client.message_queue import MessageQueue
from embermq.client.received import ReceivedMessage


@dataclass(slots=True)
class Context:
    """One call of a handler, and what it wants done if the messages are not consumed."""

    queue: MessageQueue
    group: str
    is_orderly: bool = False
    # Concurrent: after how long the messages come again, a level of the broker: 0 it decides, -1 dead letters at once.
    delay_level: int = 0
    # Orderly: seconds until the same messages are handled again; 10 ms to 30 s, None for one second.
    suspend: float | None = None


Handler = Callable[[list[ReceivedMessage], Context], bool | None]
AsyncHandler = Callable[[list[ReceivedMessage], Context], Awaitable[bool | None]]
AnyHandler = Handler | AsyncHandler


@dataclass(frozen=True, slots=True)
class HandlerOutcome:
    """What a call of a handler came to. `problem` is what it raised, or what is wrong with its answer."""

    is_consumed: bool
    problem: BaseException | None = None


CONSUMED = HandlerOutcome(True)
LATER = HandlerOutcome(False)


def outcome_of(answer: object) -> HandlerOutcome:
    """What the answer of a handler means."""
    if answer is None or answer is True:
        return CONSUMED
    if answer is False:
        return LATER
    kind = type(answer).__name__
    return HandlerOutcome(
        False, TypeError(f"the handler returned a {kind}; None or True (consumed) or False (later) is expected")
    )


def is_async(handler: object) -> bool:
    """Whether calling it makes a coroutine."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        inspect.getattr_static(handler, "__call__", None)
    )
