"""Readers: the queues that a consumer reads, from taking one up to giving it to the next owner. The loop's thread only.

    taken    (orderly: locked at the broker,) start offset found, pulls begin
    lost     pulls end, no further call of a handler; what is finished is committed; (orderly: a handler that still runs
             is waited for, then unlocked)
    robbed   the lock was lost: nothing is committed or unlocked, the queue may have another owner already
    moved    the queue is shorter than it was: given up, and taken again where the broker said
    reset    an administrator set the offset: given up, and taken again from there

A change of the set of queues is made while holding `turn`: rebalancing, an offset reset, closing.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Protocol

from embermq.client.calls import (
    BrokerAddress,
    SubscriptionData,
    lock_queues,
    max_offset,
    search_offset,
    unlock_queues,
)
from embermq.client.consume.queues.locks import HeldLocks
from embermq.client.consume.queues.offset_stores import OffsetStore
from embermq.client.consume.queues.reader import PulledQueue
from embermq.client.consume.queues.starts import At, AtEnd, StartAtTime, start_of
from embermq.client.consume.settings import ConsumerSettings
from embermq.client.consume.subscribing import Subscriptions
from embermq.client.instance import Instance
from embermq.client.message_queue import MessageQueue
from embermq.client.received import ReceivedMessage
from embermq.errors import BrokerUnreachable, ClientError

log = logging.getLogger(__name__)


class Consumption(Protocol):
    """What is done with the messages that were read."""

    commits_on_pull: bool  # a pull may carry what is to be committed

    def arrived(self, reader: PulledQueue, messages: list[ReceivedMessage]) -> None: ...

    def passed(self, reader: PulledQueue) -> None:
        """Offsets without messages for this consumer were passed."""
        ...

    def woken(self, reader: PulledQueue) -> None:
        """A lock was renewed, or the consumer goes on after a pause."""
        ...

    async def ended(self, reader: PulledQueue) -> None:
        """Wait until no handler works on a queue that was dropped."""
        ...


class Readers:
    """The queues of one consumer."""

    def __init__(
        self,
        instance: Instance,
        settings: ConsumerSettings,
        group: str,
        subscriptions: Subscriptions,
        store: OffsetStore,
        *,
        is_lite: bool = False,
    ) -> None:
        self.instance, self.settings, self.group = instance, settings, group
        self._subscriptions, self._store, self._is_lite = subscriptions, store, is_lite
        self._loop = asyncio.get_running_loop()
        self.consumption: Consumption | None = None
        self.turn = asyncio.Lock()
        self.positions: dict[MessageQueue, int] = {}  # what is to be committed
        self.locks = HeldLocks()
        self.is_suspended = False  # all queues
        self.paused: set[MessageQueue] = set()
        self._readers: dict[MessageQueue, PulledQueue] = {}
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}
        self._lost_brokers: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._maybe_locked: set[MessageQueue] = set()  # asked for, and the answer did not come or was not waited for
        self._starts: dict[MessageQueue, int] = {}  # where the next take of a queue begins, whatever is stored

    # -- asking ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[PulledQueue]:
        return iter(list(self._readers.values()))

    def find(self, queue: MessageQueue) -> PulledQueue | None:
        return self._readers.get(queue)

    def queues(self, topic: str | None = None) -> set[MessageQueue]:
        return {queue for queue in self._readers if topic is None or queue.topic == topic}

    @property
    def _needs_locks(self) -> bool:
        return self.settings.orderly and not self.settings.broadcasting

    # -- taking and losing queues --------------------------------------------------------------------------------

    async def take(self, queue: MessageQueue) -> bool:
        """Begin to read a queue; False if that is not possible now."""
        if queue in self._readers:
            return True
        if queue in self._leaving:
            return False  # Its last handler still runs.
        try:
            if self._needs_locks and not await self._locked(queue):
                return False
            offset = await self.start_offset(queue)
        except ClientError as problem:
            log.warning("event=queue_not_taken group=%s queue=%s reason=%r", self.group, queue, str(problem))
            if self.locks.release(queue) or queue in self._maybe_locked:
                await self._unlock(queue)
            return False
        self.begin(queue, offset)
        return True

    def begin(self, queue: MessageQueue, offset: int) -> PulledQueue:
        """Read a queue from an offset on."""
        reader = self._readers[queue] = PulledQueue(self, queue, offset, is_lite=self._is_lite)
        reader.start()
        log.info("event=queue_taken group=%s queue=%s offset=%d", self.group, queue, offset)
        return reader

    async def lose(self, queue: MessageQueue, *, robbed: bool = False, offset: int | None = None) -> None:
        """Give a queue up; `offset` is committed instead of what was finished. Returns when that is done and the queue
        unlocked, or after a second if its handler still runs."""
        reader = self._readers.pop(queue, None)
        if reader is None:
            return
        reader.drop()
        if robbed or offset is not None:
            reader.may_commit = False
            self.positions.pop(queue, None)
        log.info("event=queue_lost group=%s queue=%s robbed=%s", self.group, queue, robbed)
        leaving = self._loop.create_task(self._leave(reader, robbed, offset))
        self._leaving[queue] = leaving
        leaving.add_done_callback(lambda _done: self._leaving.pop(queue, None))
        await asyncio.wait([leaving], timeout=1.0)

    async def _leave(self, reader: PulledQueue, robbed: bool, offset: int | None) -> None:
        queue = reader.queue
        if self.consumption is not None:
            await self.consumption.ended(reader)
        finished = self.positions.pop(queue, None)
        if offset is None and self.settings.auto_commit:
            offset = finished
        if robbed:
            self.locks.release(queue)
            return
        try:
            if offset is not None:
                await self._store.save({queue: offset}, is_sure=True)
        except ClientError as problem:
            log.warning("event=commit_failed group=%s queue=%s reason=%r", self.group, queue, str(problem))
        if self.locks.release(queue):
            await self._unlock(queue)

    async def start_offset(self, queue: MessageQueue) -> int:
        """Where to begin; ClientError when it cannot be said now."""
        if (known := self._starts.pop(queue, None)) is not None:
            return known
        settings = self.settings
        start = start_of(settings.consume_from, queue.topic, await self._store.load(queue), settings.consume_timestamp)
        seconds = self.instance.settings.call_timeout
        match start:
            case At(offset):
                return offset
            case AtEnd():
                return await max_offset(self.instance.caller, self._address(queue, "GET_MAX_OFFSET"), queue, seconds)
            case StartAtTime(timestamp_ms):
                to = self._address(queue, "SEARCH_OFFSET_BY_TIMESTAMP")
                return await search_offset(self.instance.caller, to, queue, timestamp_ms, seconds)

    def _address(self, queue: MessageQueue, what: str) -> BrokerAddress:
        to = self.instance.routes.broker(queue.broker)
        if to is None:
            raise BrokerUnreachable(queue.broker, "?", what, "it is in no route", topic=queue.topic, is_sent=False)
        return to

    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Go on from these offsets, and commit them; queues that are not read here are left alone."""
        async with self.turn:
            mine = {queue: offset for queue, offset in offsets.items() if queue in self._readers and offset >= 0}
            for queue, offset in mine.items():
                await self._restart(queue, offset)

    async def _restart(self, queue: MessageQueue, offset: int) -> None:
        await self.lose(queue, offset=offset)
        self._starts[queue] = offset
        await self.take(queue)

    async def close(self) -> None:
        """Give every queue up."""
        async with self.turn:
            await asyncio.gather(*(self.lose(queue) for queue in list(self._readers)))
            await asyncio.gather(
                *(self._unlock(queue) for queue in {*self._maybe_locked, *self.locks.queues()} - self._leaving.keys())
            )
        if self._leaving:
            await asyncio.wait(list(self._leaving.values()), timeout=self.instance.settings.call_timeout)
        for task in [*self._leaving.values(), *self._tasks]:
            task.cancel()

    def soon(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run an async function beside everything else, until the consumer closes. What goes wrong is logged."""

        async def logged() -> None:
            try:
                await work()
            except ClientError as problem:
                log.warning("event=consumer_work_failed group=%s reason=%r", self.group, str(problem))
            except Exception:
                log.exception("event=consumer_work_failed group=%s", self.group)

        task = self._loop.create_task(logged())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- offsets -----------------------------------------------------------------------------------------------

    async def commit(self, queues: Iterable[MessageQueue] | None = None, *, is_sure: bool = False) -> None:
        """Keep the positions of all queues, or of some; ClientError if `is_sure` and one is not kept."""
        wanted = self.positions if queues is None else {q: self.positions[q] for q in queues if q in self.positions}
        if wanted:
            await self._store.save(dict(wanted), is_sure=is_sure)

    async def stored(self, queue: MessageQueue) -> int | None:
        """What is kept for a queue; ClientError when it cannot be said."""
        return await self._store.load(queue)

    # -- locks -------------------------------------------------------------------------------------------------

    async def _locked(self, queue: MessageQueue) -> bool:
        asked_at = self._loop.time()
        to = self._address(queue, "LOCK_BATCH_MQ")
        seconds = self.instance.settings.call_timeout
        self._maybe_locked.add(queue)
        granted = await lock_queues(self.instance.caller, to, self.group, self.instance.client_id, [queue], seconds)
        self._maybe_locked.discard(queue)
        self.locks.answered([queue], granted, asked_at)
        return queue in granted

    async def _unlock(self, queue: MessageQueue) -> None:
        self._maybe_locked.discard(queue)
        try:
            to = self._address(queue, "UNLOCK_BATCH_MQ")
            seconds = self.instance.settings.call_timeout
            await unlock_queues(self.instance.caller, to, self.group, self.instance.client_id, [queue], seconds)
        except ClientError as problem:
            log.warning("event=unlock_failed group=%s queue=%s reason=%r", self.group, queue, str(problem))

    async def renew_locks(self) -> None:
        """Renew what is held; queues whose lock is lost are given up at once."""
        if not self._needs_locks:
            return
        by_broker = self.locks.by_broker()
        await asyncio.gather(*(self._renew(broker, queues) for broker, queues in by_broker.items()))
        for queue in self.locks.expired(self._loop.time()):
            await self.lose(queue, robbed=True)
        for reader in list(self._readers.values()):
            reader.wake()
            if self.consumption is not None:
                self.consumption.woken(reader)

    async def _renew(self, broker: str, queues: list[MessageQueue]) -> None:
        asked_at = self._loop.time()
        try:
            to = self._address(queues[0], "LOCK_BATCH_MQ")
            seconds = self.instance.settings.call_timeout
            granted = await lock_queues(self.instance.caller, to, self.group, self.instance.client_id, queues, seconds)
        except ClientError as problem:
            log.warning("event=lock_not_renewed group=%s broker=%s reason=%r", self.group, broker, str(problem))
            return
        for queue in self.locks.renewed(queues, granted, asked_at):
            await self.lose(queue, robbed=True)

    # -- what readers ask and tell -------------------------------------------------------------------------------

    def subscription(self, topic: str) -> SubscriptionData | None:
        return self._subscriptions.find(topic)

    def is_paused(self, queue: MessageQueue) -> bool:
        return self.is_suspended or queue in self.paused

    def is_locked(self, queue: MessageQueue) -> bool:
        return not self._needs_locks or self.locks.is_held(queue, self._loop.time())

    def committable(self, queue: MessageQueue) -> int | None:
        may = self.consumption is not None and self.consumption.commits_on_pull and not self.settings.broadcasting
        return self.positions.get(queue) if may else None

    def arrived(self, reader: PulledQueue, messages: list[ReceivedMessage]) -> None:
        assert self.consumption is not None
        self.consumption.arrived(reader, messages)

    def passed(self, reader: PulledQueue) -> None:
        assert self.consumption is not None
        self.consumption.passed(reader)

    def moved(self, reader: PulledQueue, offset: int) -> None:
        """Taken up again from there, unless it was lost meanwhile."""
        if self._is_lite and self._readers.get(reader.queue) is reader:
            self.begin(reader.queue, offset)  # At once: no handler runs, and its caller may ask where it is.
            return

        async def go_on() -> None:
            async with self.turn:
                if self._readers.get(reader.queue) is reader:
                    await self._restart(reader.queue, offset)

        self.soon(go_on)

    def lost_broker(self, broker: str) -> None:
        self._lost_brokers.add(broker)

    async def reached_again(self, to: BrokerAddress) -> None:
        if to.name in self._lost_brokers:
            await self.instance.beat_to(to)
            self._lost_brokers.discard(to.name)

    def resume_all(self) -> None:
        """A pause ended."""
        for reader in list(self._readers.values()):
            reader.wake()
            if self.consumption is not None:
                self.consumption.woken(reader)
