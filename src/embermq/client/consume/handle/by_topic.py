"""Handlers by topic, and messages in the groups in which handlers get them. The loop's thread only."""

import logging
from collections.abc import Iterator, Sequence

from embermq.client.consume.handle.handlers import AnyHandler, Context, is_async
from embermq.client.consume.handle.hooks import ConsumeHook, hooked
from embermq.client.consume.handle.workers import HandlerCall
from embermq.client.received import ReceivedMessage

log = logging.getLogger(__name__)


class Handlers:
    """The handler of each topic, by its name as the user knows it."""

    def __init__(self, hooks: Sequence[ConsumeHook] = ()) -> None:
        self._hooks = hooks
        self._by_topic: dict[str, AnyHandler] = {}
        self._coroutines: set[str] = set()  # topics whose handler is a coroutine function

    def put(self, topic: str, handler: AnyHandler) -> None:
        self._by_topic[topic] = hooked(handler, self._hooks)
        (self._coroutines.add if is_async(handler) else self._coroutines.discard)(topic)

    def is_async(self, topic: str) -> bool:
        return topic in self._coroutines

    def remove(self, topic: str) -> None:
        self._by_topic.pop(topic, None)
        self._coroutines.discard(topic)

    def find(self, topic: str) -> AnyHandler:
        """The handler of a topic. A retry may be of a topic that is not subscribed any more: it comes again later, for
        another member of the group or another subscription."""
        return self._by_topic.get(topic, _no_handler)

    def report(self, call: HandlerCall, problem: BaseException) -> None:
        """Say what a handler raised; with its traceback, since the fault is in the user's code."""
        first = call.messages[0]
        log.error(
            "event=handler_failed topic=%s queue=%s offset=%d id=%s tries=%d",
            first.topic,
            call.context.queue,
            first.queue_offset,
            first.message_id,
            first.reconsume_times,
            exc_info=problem,
        )


def _no_handler(messages: list[ReceivedMessage], context: Context) -> bool:
    log.warning("event=no_handler group=%s topic=%s", context.group, messages[0].topic)
    return False


def grouped(messages: list[ReceivedMessage], size: int) -> Iterator[list[ReceivedMessage]]:
    """Neighbours of one topic, at most `size` together."""
    if size == 1:
        for message in messages:
            yield [message]
        return
    batch: list[ReceivedMessage] = []
    for message in messages:
        if batch and (len(batch) == size or batch[0].topic != message.topic):
            yield batch
            batch = []
        batch.append(message)
    if batch:
        yield batch
