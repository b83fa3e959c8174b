"""Concurrent consumption: messages of a queue are handled side by side, and finished in any order. The loop's thread
only.

What becomes of a message that was not consumed: embermq.client.consume.handle.retries.
"""

import asyncio
import functools
import logging
import time
from collections import deque

from embermq.client.calls import BrokerAddress, send, send_back
from embermq.client.consume.handle.by_topic import Handlers, grouped
from embermq.client.consume.handle.figures import ConsumerFigures
from embermq.client.consume.handle.handlers import Context
from embermq.client.consume.handle.retries import (
    LOCAL_RETRY_SECONDS,
    TIMED_OUT_LEVEL,
    as_handled,
    retry_message,
    send_back_of,
    tried_again,
)
from embermq.client.consume.handle.workers import HandlerCall, HandlerRun, Workers
from embermq.client.consume.queues.reader import PulledQueue
from embermq.client.consume.queues.readers import Readers
from embermq.client.received import ReceivedMessage
from embermq.errors import BrokerUnreachable, ClientError

log = logging.getLogger(__name__)


class ConcurrentConsumption:
    """Hands messages to handlers, and finishes them."""

    commits_on_pull = True

    def __init__(self, readers: Readers, handlers: Handlers, figures: ConsumerFigures) -> None:
        self._readers, self._handlers, self._figures = readers, handlers, figures
        self._instance, self._settings = readers.instance, readers.settings
        self.is_stopping = False  # no further call of a handler
        self.workers = Workers(self._settings.threads, self._done, self._ended)

    # -- what the readers bring ----------------------------------------------------------------------------------

    def arrived(self, reader: PulledQueue, messages: list[ReceivedMessage]) -> None:
        self._submit(reader, as_handled(messages, self._instance.settings.namespace))

    def passed(self, reader: PulledQueue) -> None:
        self._note_position(reader)

    def woken(self, reader: PulledQueue) -> None:
        pass

    async def ended(self, reader: PulledQueue) -> None:
        pass  # What still runs is not waited for: the next owner handles it as well.

    def _submit(self, reader: PulledQueue, messages: list[ReceivedMessage]) -> None:
        calls: dict[bool, deque[HandlerCall]] = {}
        group = self._settings.group
        for batch in grouped(messages, self._settings.batch_size):
            topic = batch[0].topic
            call = HandlerCall(self._handlers.find(topic), batch, Context(reader.queue, group))
            calls.setdefault(self._handlers.is_async(topic), deque()).append(call)
        for is_async, same in calls.items():
            is_stopped = functools.partial(self._is_stopped, reader)
            self.workers.submit(HandlerRun(same, is_stopped, owner=reader, is_async=is_async))

    def _is_stopped(self, reader: PulledQueue) -> bool:
        """Any thread."""
        return reader.is_dropped or self.is_stopping

    # -- what the workers bring ----------------------------------------------------------------------------------

    def _done(self, run: HandlerRun, calls: list[HandlerCall]) -> None:
        reader = run.owner
        assert isinstance(reader, PulledQueue)
        self._figures.handled(calls)
        finished: list[ReceivedMessage] = []
        for call in calls:
            if call.outcome.problem is not None:
                self._handlers.report(call, call.outcome.problem)
            if call.is_given_up:
                continue
            if call.outcome.is_consumed:
                finished += call.messages
            elif self._settings.broadcasting:
                log.warning("event=message_given_up queue=%s offset=%d", reader.queue, call.messages[0].queue_offset)
                finished += call.messages
            elif not reader.is_dropped:
                self._give_back(reader, call.messages, call.context.delay_level)
        self._finish(reader, finished)

    def _ended(self, run: HandlerRun) -> None:
        pass  # What is left of a run belongs to a queue that was dropped, or to a consumer that closes.

    def expire(self) -> None:
        """Send back messages whose handler has run for too long; the handler runs on, its answer does not count."""
        late = time.monotonic() - self._settings.consume_timeout
        for run, call in self.workers.running():
            reader = run.owner
            assert isinstance(reader, PulledQueue)
            if (call.started_at or late) < late and not call.is_given_up and not reader.is_dropped:
                call.is_given_up = True
                log.warning("event=handler_timed_out queue=%s messages=%d", reader.queue, len(call.messages))
                if self._settings.broadcasting:
                    self._finish(reader, call.messages)
                else:
                    self._give_back(reader, call.messages, TIMED_OUT_LEVEL)

    # -- finishing -----------------------------------------------------------------------------------------------

    def _finish(self, reader: PulledQueue, messages: list[ReceivedMessage]) -> None:
        if reader.is_dropped or not messages:
            return
        reader.process.finish([message.queue_offset for message in messages])
        self._note_position(reader)
        reader.has_room_again()

    def _note_position(self, reader: PulledQueue) -> None:
        offset = reader.process.committable
        if offset is not None and not reader.is_dropped:
            self._readers.positions[reader.queue] = offset

    def _give_back(self, reader: PulledQueue, messages: list[ReceivedMessage], delay_level: int) -> None:
        async def give_back() -> None:
            outcomes = await asyncio.gather(*(self._stored_again(one, delay_level) for one in messages))
            self._finish(reader, [one for one, is_stored in zip(messages, outcomes, strict=True) if is_stored])
            left = [tried_again(one) for one, is_stored in zip(messages, outcomes, strict=True) if not is_stored]
            if left and not reader.is_dropped:
                await asyncio.sleep(LOCAL_RETRY_SECONDS)
                if not reader.is_dropped:
                    self._submit(reader, left)

        self._readers.soon(give_back)

    async def _stored_again(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Have the broker deliver a message again later; False if it could not be asked in either way."""
        group, most, seconds = self._readers.group, self._settings.retries_max, self._instance.settings.call_timeout
        try:
            to = self._broker(message)
            await send_back(self._instance.caller, to, send_back_of(message, group, delay_level, most), seconds)
            return True
        except ClientError as problem:
            log.warning("event=send_back_failed queue=%s reason=%r", message.queue, str(problem))
        try:
            again = retry_message(message, group, message.reconsume_times + 1, most)
            await send(self._instance.caller, self._broker(message), again, seconds)
            return True
        except ClientError as problem:
            log.warning("event=retry_send_failed queue=%s reason=%r", message.queue, str(problem))
            return False

    def _broker(self, message: ReceivedMessage) -> BrokerAddress:
        to = self._instance.routes.broker(message.queue.broker)
        if to is None:
            reason = "it is in no route"
            raise BrokerUnreachable(message.queue.broker, "?", "CONSUMER_SEND_MSG_BACK", reason, is_sent=False)
        return to
