"""QueueReader: the pulls of one queue, made. The decisions are those of pulling.py. The loop's
thread only."""

import asyncio
import logging
from typing import Protocol

from embermq.client.calls import SQL92, BrokerAddress, Pull, Pulled, PullStatus, SubscriptionData, pull
from embermq.client.consume.queues.process_queue import ProcessQueue
from embermq.client.consume.queues.pulling import (
    Answer,
    Ask,
    PullEmpty,
    PullFailed,
    PullFound,
    PullMoved,
    PullStop,
    PullWait,
    QueuePulls,
)
from embermq.client.consume.settings import ConsumerSettings
from embermq.client.consume.subscribing import TagMatch
from embermq.client.instance import Instance
from embermq.client.message_queue import MessageQueue
from embermq.client.received import ReceivedMessage, parse_records
from embermq.errors import AnswerInvalid, BrokerBusy, BrokerUnreachable, ClientError, SubscriptionRefused

log = logging.getLogger(__name__)

# Beyond the time that the broker may hold a pull.
ANSWER_SECONDS = 15.0


class ReaderOwner(Protocol):
    """What a reader asks and tells the consumer it belongs to."""

    instance: Instance
    settings: ConsumerSettings
    group: str

    def subscription(self, topic: str) -> SubscriptionData | None:
        """What is wanted of a topic; None if nothing is any more."""
        ...

    def is_paused(self, queue: MessageQueue) -> bool: ...

    def is_locked(self, queue: MessageQueue) -> bool: ...

    def committable(self, queue: MessageQueue) -> int | None:
        """What may be committed on the way of a pull."""
        ...

    def arrived(self, reader: "PulledQueue", messages: list[ReceivedMessage]) -> None:
        """Messages are in the reader's process queue."""
        ...

    def passed(self, reader: "PulledQueue") -> None:
        """Offsets were passed without a message that matches."""
        ...

    def moved(self, reader: "PulledQueue", offset: int) -> None:
        """The reader has ended: its queue is shorter than it was."""
        ...

    def lost_broker(self, broker: str) -> None:
        """A broker did not answer."""
        ...

    async def reached_again(self, to: BrokerAddress) -> None:
        """Announce the group to a broker that did not answer before; ClientError."""
        ...


class PulledQueue:
    """One queue that is being read."""

    def __init__(self, owner: ReaderOwner, queue: MessageQueue, offset: int, *, is_lite: bool = False) -> None:
        self._owner, self.queue, self._is_lite = owner, queue, is_lite
        settings = owner.settings
        self._loop = asyncio.get_running_loop()
        self.process = ProcessQueue(settings.limits, is_orderly=settings.orderly)
        self.pulls = QueuePulls(self.process, offset, self._loop.time(), is_orderly=settings.orderly)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._matching: tuple[SubscriptionData, TagMatch] | None = None
        self.may_commit = True  # False: another member may have committed already, or the offset was set by hand

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    @property
    def is_dropped(self) -> bool:
        return self.process.is_dropped

    def wake(self) -> None:
        """Something that it may be waiting for has changed."""
        self._wake.set()

    def has_room_again(self) -> None:
        """Messages were finished."""
        if not self._wake.is_set() and self.process.has_room():
            self._wake.set()

    def seek(self, offset: int) -> None:
        """Go on from another offset; what is cached is forgotten."""
        self._cancel()
        self.pulls.seek(offset)
        self.start()

    def renew(self) -> None:
        """Pull by the new subscription from now on; a pull by the old one is given up."""
        self._cancel()
        self.pulls.renew()
        self.start()

    def drop(self) -> None:
        """Read nothing more, and hand out nothing more."""
        self.pulls.drop()
        self._cancel()

    def stop_pulling(self) -> None:
        """Read nothing more; what is cached may be finished."""
        self._cancel()

    def _cancel(self) -> None:
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while True:
                self._wake.clear()
                match self._next():
                    case PullStop():
                        return
                    case PullWait(_reason, seconds):
                        await self._wait(seconds)
                    case Ask() as ask:
                        self._take(ask, await self._asked(ask))
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("event=reader_failed queue=%s", self.queue)
            self.drop()

    def _next(self) -> Ask | PullWait | PullStop:
        owner, queue = self._owner, self.queue
        return self.pulls.next(
            is_paused=owner.is_paused(queue),
            is_locked=owner.is_locked(queue),
            commit_offset=owner.committable(queue),
        )

    async def _wait(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _take(self, ask: Ask, answer: Answer) -> None:
        if not self.pulls.answered(ask.epoch, answer, self._loop.time()):
            return
        match answer:
            case PullFound(messages):
                if messages:
                    self._owner.arrived(self, messages)
                else:
                    self._owner.passed(self)
            case PullEmpty():
                self._owner.passed(self)
            case PullMoved(offset):
                log.warning("event=offset_moved queue=%s from=%d to=%d", self.queue, ask.offset, offset)
                if self.pulls.moved_to is None:
                    self._owner.passed(self)
                else:
                    self._owner.moved(self, offset)
            case PullFailed():
                pass

    async def _asked(self, ask: Ask) -> Answer:
        wanted = self._owner.subscription(self.queue.topic)
        to = self._owner.instance.routes.broker(self.queue.broker, ask.broker_id)
        if wanted is None or to is None:
            return PullFailed()
        try:
            await self._owner.reached_again(to)
            return self._answer(await self._pulled(to, ask, wanted), wanted)
        except BrokerBusy as problem:
            return self._failed(problem, is_busy=True)
        except BrokerUnreachable as problem:
            self._owner.lost_broker(self.queue.broker)
            return self._failed(problem)
        except SubscriptionRefused as problem:  # The broker has not heard of it, or was started again: say it again.
            self._owner.lost_broker(self.queue.broker)
            return self._failed(problem)
        except ClientError as problem:
            return self._failed(problem)

    async def _pulled(self, to: BrokerAddress, ask: Ask, wanted: SubscriptionData) -> Pulled:
        owner = self._owner
        # Brokers compile an SQL92 expression when it is registered; of tags they need no more than the text.
        is_registered = wanted.kind == SQL92 and not self._is_lite
        request = Pull(
            group=owner.group,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            offset=ask.offset,
            max_count=owner.settings.pull_batch,
            hold_ms=round(owner.settings.hold_seconds * 1000),
            expression=None if is_registered else wanted.expression,
            kind=wanted.kind,
            version=wanted.version,
            commit_offset=ask.commit_offset,
            is_lite=self._is_lite,
        )
        return await pull(owner.instance.caller, to, request, ANSWER_SECONDS)

    def _answer(self, pulled: Pulled, wanted: SubscriptionData) -> Answer:
        match pulled.status:
            case PullStatus.FOUND:
                messages = parse_records(pulled.records, self.queue.broker)
                matching = self._match(wanted).select(messages)
                return PullFound(matching, pulled.next_offset, pulled.suggested_broker_id)
            case PullStatus.OFFSET_MOVED:
                return PullMoved(pulled.next_offset)
            case _:
                return PullEmpty(pulled.next_offset, pulled.suggested_broker_id)

    def _match(self, wanted: SubscriptionData) -> TagMatch:
        if self._matching is None or self._matching[0] is not wanted:
            self._matching = (wanted, TagMatch(wanted))
        return self._matching[1]

    def _failed(self, problem: ClientError, *, is_busy: bool = False) -> PullFailed:
        level = logging.ERROR if isinstance(problem, AnswerInvalid) else logging.WARNING
        log.log(level, "event=pull_failed queue=%s reason=%r", self.queue, str(problem))
        return PullFailed(is_busy)
