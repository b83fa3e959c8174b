"""Orderly consumption: the messages of a queue are handled one call after another, each until it is consumed. The
loop's thread only; whether a run goes on is asked on the handler's thread.

    state      event                          state      what follows
    IDLE       messages, and locked           RUNNING    a run of the next messages
    RUNNING    call consumed                  RUNNING    finished; the next call of the run
    RUNNING    call not consumed, tries left  WAITING    given back to the front with one more try; context.suspend
    RUNNING    call not consumed, no more     STORING    sent to the retry topic, which makes it a dead letter
    STORING    stored                         IDLE       finished; go on
    STORING    not stored                     WAITING    as if tries were left
    RUNNING    run ended                      IDLE       what was not called is given back to the front; go on
    WAITING    time passed                    IDLE       go on
    any        dropped, or lock lost          IDLE       no further call; what was taken is the next owner's

In broadcasting nothing can be sent to a retry topic: what has no tries left is given up.
"""

import asyncio
import logging
import time
from collections import deque
from enum import Enum, auto

from embermq.client.calls import send
from embermq.client.consume.handle.by_topic import Handlers, grouped
from embermq.client.consume.handle.figures import ConsumerFigures
from embermq.client.consume.handle.handlers import Context
from embermq.client.consume.handle.retries import as_handled, retry_message, suspend_seconds, tried_again
from embermq.client.consume.handle.workers import HandlerCall, HandlerRun, Workers
from embermq.client.consume.queues.reader import PulledQueue
from embermq.client.consume.queues.readers import Readers
from embermq.client.received import ReceivedMessage
from embermq.errors import BrokerUnreachable, ClientError

log = logging.getLogger(__name__)

# Of one run: it is looked at again in between whether the queue is still the own one, and other queues get a thread.
RUN_MESSAGES = 32


class LaneState(Enum):
    IDLE = auto()
    RUNNING = auto()
    STORING = auto()
    WAITING = auto()


class Lane:
    """One queue that is handled in order."""

    def __init__(self, reader: PulledQueue) -> None:
        self.reader = reader
        self.state = LaneState.IDLE
        self.failed: HandlerCall | None = None  # of the run that is under way
        self.is_quiet = asyncio.Event()  # no handler works on it
        self.is_quiet.set()
        self.timer: asyncio.TimerHandle | None = None

    def become(self, state: LaneState) -> None:
        self.state = state
        if state in (LaneState.IDLE, LaneState.WAITING):
            self.is_quiet.set()
        else:
            self.is_quiet.clear()


class OrderlyConsumption:
    """Hands messages to handlers in order."""

    commits_on_pull = True

    def __init__(self, readers: Readers, handlers: Handlers, figures: ConsumerFigures) -> None:
        self._readers, self._handlers, self._figures = readers, handlers, figures
        self._instance, self._settings = readers.instance, readers.settings
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[int, Lane] = {}  # by the id of the reader
        self.is_stopping = False  # no further call of a handler
        self.workers = Workers(self._settings.threads, self._done, self._ended)

    # -- what the readers bring ----------------------------------------------------------------------------------

    def arrived(self, reader: PulledQueue, messages: list[ReceivedMessage]) -> None:
        self._go(self._lane(reader))

    def passed(self, reader: PulledQueue) -> None:
        self._note_position(reader)

    def woken(self, reader: PulledQueue) -> None:
        self._go(self._lane(reader))

    async def ended(self, reader: PulledQueue) -> None:
        lane = self._lanes.pop(id(reader), None)
        if lane is not None:
            if lane.timer is not None:
                lane.timer.cancel()
            await lane.is_quiet.wait()

    def expire(self) -> None:
        """A message in its handler has all the time it needs: the ones behind it may not pass."""

    def _lane(self, reader: PulledQueue) -> Lane:
        lane = self._lanes.get(id(reader))
        if lane is None:
            lane = self._lanes[id(reader)] = Lane(reader)
        return lane

    def _may_run(self, reader: PulledQueue) -> bool:
        """Any thread."""
        if reader.is_dropped or self.is_stopping:
            return False
        return self._settings.broadcasting or self._readers.locks.is_held(reader.queue, time.monotonic())

    def _go(self, lane: Lane) -> None:
        """Begin the next run, if there is one."""
        reader = lane.reader
        if lane.state is not LaneState.IDLE or not reader.process.has_waiting() or not self._may_run(reader):
            return
        taken = as_handled(
            reader.process.take(max(RUN_MESSAGES, self._settings.batch_size)), self._instance.settings.namespace
        )
        group, is_async = self._settings.group, self._handlers.is_async(taken[0].topic)
        same = next((n for n, one in enumerate(taken) if self._handlers.is_async(one.topic) != is_async), len(taken))
        reader.process.give_back(taken[same:])
        calls = deque(
            HandlerCall(self._handlers.find(batch[0].topic), batch, Context(reader.queue, group, is_orderly=True))
            for batch in grouped(taken[:same], self._settings.batch_size)
        )
        lane.failed = None
        lane.become(LaneState.RUNNING)
        self.workers.submit(
            HandlerRun(calls, lambda: not self._may_run(reader), owner=lane, is_ordered=True, is_async=is_async)
        )

    # -- what the workers bring ----------------------------------------------------------------------------------

    def _done(self, run: HandlerRun, calls: list[HandlerCall]) -> None:
        lane = run.owner
        assert isinstance(lane, Lane)
        self._figures.handled(calls)
        for call in calls:
            if call.outcome.problem is not None:
                self._handlers.report(call, call.outcome.problem)
            if not call.outcome.is_consumed:
                lane.failed = call
        self._finish(lane.reader, [message for call in calls if call.outcome.is_consumed for message in call.messages])

    def _ended(self, run: HandlerRun) -> None:
        lane = run.owner
        assert isinstance(lane, Lane)
        failed, reader = lane.failed, lane.reader
        rest = [message for call in run.calls for message in call.messages]
        lane.failed = None
        if reader.is_dropped:
            lane.become(LaneState.IDLE)
            return
        reader.process.give_back(rest)
        if failed is None:
            lane.become(LaneState.IDLE)
            self._go(lane)
        elif failed.messages[0].reconsume_times < self._settings.retries_max:
            self._wait(lane, failed)
        else:
            lane.become(LaneState.STORING)
            self._readers.soon(lambda: self._store(lane, failed))

    def _wait(self, lane: Lane, failed: HandlerCall) -> None:
        lane.reader.process.give_back([tried_again(message) for message in failed.messages])
        lane.become(LaneState.WAITING)

        def go_on() -> None:
            lane.timer = None
            lane.become(LaneState.IDLE)
            self._go(lane)

        lane.timer = self._loop.call_later(suspend_seconds(failed.context.suspend), go_on)

    async def _store(self, lane: Lane, failed: HandlerCall) -> None:
        """Put messages aside that were tried as often as they may be."""
        try:
            if not self._settings.broadcasting:
                for message in failed.messages:
                    await self._store_one(message)
        except ClientError as problem:
            log.warning("event=retry_send_failed queue=%s reason=%r", lane.reader.queue, str(problem))
            if lane.reader.is_dropped:
                lane.become(LaneState.IDLE)
            else:
                self._wait(lane, failed)
            return
        log.warning("event=message_put_aside queue=%s offset=%d", lane.reader.queue, failed.messages[0].queue_offset)
        self._finish(lane.reader, failed.messages)
        lane.become(LaneState.IDLE)
        self._go(lane)

    async def _store_one(self, message: ReceivedMessage) -> None:
        to = self._instance.routes.broker(message.queue.broker)
        if to is None:
            raise BrokerUnreachable(message.queue.broker, "?", "SEND_MESSAGE_V2", "it is in no route", is_sent=False)
        again = retry_message(message, self._readers.group, message.reconsume_times, self._settings.retries_max)
        await send(self._instance.caller, to, again, self._instance.settings.call_timeout)

    # -- finishing -----------------------------------------------------------------------------------------------

    def _finish(self, reader: PulledQueue, messages: list[ReceivedMessage]) -> None:
        """Also of a queue that is being given up: its last handler is waited for, and counts."""
        if not messages:
            return
        reader.process.finish([message.queue_offset for message in messages])
        self._note_position(reader)
        reader.has_room_again()

    def _note_position(self, reader: PulledQueue) -> None:
        offset = reader.process.committable
        if offset is not None and reader.may_commit:
            self._readers.positions[reader.queue] = offset
