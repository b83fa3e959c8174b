"""Hooks around sends, for metrics, tracing and the like. On the loop's thread: a hook must not block."""

import logging
from collections.abc import Sequence
from typing import Protocol

import msgspec

from embermq.client.message_queue import MessageQueue
from embermq.client.produce.results import SendResult
from embermq.errors import ClientError
from embermq.model.message import Message

log = logging.getLogger(__name__)


class SendContext(msgspec.Struct):
    """One message on its way. `result` or `error` is set when it has ended; neither of a one-way send."""

    group: str
    message: Message
    message_id: str
    queue: MessageQueue | None = None  # of the last try
    address: str = ""  # of its broker
    tries: int = 0
    result: SendResult | None = None
    error: ClientError | None = None


class SendHook(Protocol):
    """What to do before and after a message is sent. What a hook raises is logged and changes nothing."""

    def before_send(self, context: SendContext) -> None: ...

    def after_send(self, context: SendContext) -> None: ...


def run_before(hooks: Sequence[SendHook], context: SendContext) -> None:
    for hook in hooks:
        try:
            hook.before_send(context)
        except Exception:
            log.exception("event=send_hook_failed hook=%r topic=%s", hook, context.message.topic)


def run_after(hooks: Sequence[SendHook], context: SendContext) -> None:
    for hook in hooks:
        try:
            hook.after_send(context)
        except Exception:
            log.exception("event=send_hook_failed hook=%r topic=%s", hook, context.message.topic)
