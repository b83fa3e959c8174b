"""Hooks: a plug-in point before and after each send and each delivery. The loop's thread; a hook must be quick.

    class Audit:
        def before_send(self, context: SendContext) -> None: ...      # raise Refused to refuse the message
        def after_send(self, context: SendContext) -> None: ...
        def after_pull(self, context: PullContext) -> None: ...

A hook has any of these methods. What one raises other than Refused is logged, and changes nothing.
"""

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from embermq.errors import EmberError
from embermq.model.hosts import Host

log = logging.getLogger(__name__)


class Refused(EmberError):
    """Raised by a hook that does not let a message pass; the text goes to the producer."""


class SendContext(msgspec.Struct):
    """One send. What follows `properties` is known after it."""

    producer_group: str
    topic: str
    queue_id: int
    body_bytes: int
    born_host: Host
    born_timestamp: int
    properties: str
    message_id: str = ""
    queue_offset: int = -1
    code: int = -1
    status: str = ""
    cost_ms: float = 0.0


class PullContext(msgspec.Struct):
    """One pull that was answered with messages or without."""

    consumer_group: str
    topic: str
    queue_id: int
    offset: int
    next_offset: int
    client_host: Host
    code: int
    status: str
    messages: int
    message_bytes: int


class Hooks:
    """The hooks of one broker."""

    def __init__(self, hooks: Sequence[object] = ()) -> None:
        self._before_send = _methods(hooks, "before_send")
        self._after_send = _methods(hooks, "after_send")
        self._after_pull = _methods(hooks, "after_pull")
        self.on_send = bool(self._before_send or self._after_send)
        self.on_pull = bool(self._after_pull)

    def before_send(self, context: SendContext) -> None:
        """Refused, if a hook refuses."""
        _call_all(self._before_send, context)

    def after_send(self, context: SendContext) -> None:
        _call_all(self._after_send, context)

    def after_pull(self, context: PullContext) -> None:
        _call_all(self._after_pull, context)


def _methods(hooks: Sequence[object], name: str) -> list[Any]:
    return [getattr(hook, name) for hook in hooks if callable(getattr(hook, name, None))]


def _call_all(methods: list[Any], context: Any) -> None:
    for method in methods:
        try:
            method(context)
        except Refused:
            raise
        except Exception:
            log.exception("event=hook_failed hook=%r", method)
