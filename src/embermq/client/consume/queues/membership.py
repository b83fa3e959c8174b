"""Membership: a consumer as one of its group. It knows who else there is, and keeps its share of the queues. The loop's
thread only.

Rebalancing runs every 20 s, when a broker says that the members changed (40), when the queues of a topic changed, and
after each change of the subscriptions; several reasons at once make one run. A topic that cannot be asked about now
keeps the queues it has. Where a queue could not be taken (its last owner still holds the lock, a broker does not
answer) or a topic not be asked about, the next run follows after a second.
"""

import asyncio
import logging
from collections.abc import Iterable

from embermq.client.calls import ConsumerData, consumer_ids
from embermq.client.consume.queues.allocation import allocated
from embermq.client.consume.queues.readers import Readers
from embermq.client.consume.settings import ConsumerSettings
from embermq.client.consume.subscribing import Subscriptions
from embermq.client.instance import Instance
from embermq.client.message_queue import MessageQueue
from embermq.client.topic_route import TopicRoute
from embermq.errors import BrokerUnreachable, ClientError, RouteMissing
from embermq.model.names import is_retry_topic

log = logging.getLogger(__name__)

SOON_SECONDS = 1.0


class Membership:
    """One member of a consumer group."""

    def __init__(
        self,
        instance: Instance,
        settings: ConsumerSettings,
        group: str,
        subscriptions: Subscriptions,
        readers: Readers,
        consume_type: str,
    ) -> None:
        self._instance, self._settings, self._group = instance, settings, group
        self._subscriptions, self._readers, self._consume_type = subscriptions, readers, consume_type
        self._is_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._missing: set[str] = set()  # topics that were reported to have no route
        self.rebalances = 0

    def data(self) -> ConsumerData:
        """What heartbeats say."""
        return ConsumerData(
            self._group,
            tuple(self._subscriptions),
            self._consume_type,
            "BROADCASTING" if self._settings.broadcasting else "CLUSTERING",
            self._settings.consume_from.value,
        )

    def start(self) -> None:
        self._instance.routes.on_change = self._route_changed
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Take no queue any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def rebalance_soon(self) -> None:
        self._is_due.set()

    def _route_changed(self, topic: str) -> None:
        if topic in self._subscriptions:
            self.rebalance_soon()

    async def _run(self) -> None:
        seconds = SOON_SECONDS  # The retry topic may have been made just now.
        while True:
            try:
                async with asyncio.timeout(seconds):
                    await self._is_due.wait()
            except TimeoutError:
                pass
            self._is_due.clear()
            seconds = self._settings.rebalance_seconds
            try:
                if not await self.rebalance():
                    seconds = SOON_SECONDS
            except ClientError as problem:
                log.warning("event=rebalance_failed group=%s reason=%r", self._group, str(problem))
            except Exception:
                log.exception("event=rebalance_failed group=%s", self._group)

    async def rebalance(self) -> bool:
        """Take and lose queues until those that are read are the own share of every topic; False if that was not
        possible for all of them."""
        async with self._readers.turn:
            self.rebalances += 1
            is_complete = True
            for topic in {queue.topic for queue in self._readers.queues()} - set(self._subscriptions.topics()):
                await self._apply(topic, set())
            for topic in self._subscriptions.topics():
                share = await self._share(topic)
                if share is None:
                    is_complete = is_complete and topic in self._missing
                elif not await self._apply(topic, share):
                    is_complete = False
            return is_complete

    async def _share(self, topic: str) -> set[MessageQueue] | None:
        """The own queues of a topic; None if that cannot be said now."""
        try:
            route = await self._instance.routes.route(topic)
            self._missing.discard(topic)
            queues = route.read_queues()
            if self._settings.broadcasting:
                return set(queues)
            members = await self._members(route)
        except RouteMissing as problem:
            if not is_retry_topic(topic) and topic not in self._missing:
                log.warning("event=no_route group=%s reason=%r", self._group, str(problem))
            self._missing.add(topic)
            return None
        except ClientError as problem:
            log.warning("event=share_unknown group=%s topic=%s reason=%r", self._group, topic, str(problem))
            return None
        if not members:
            return None
        return allocated(self._settings.allocation, self._instance.client_id, queues, members)

    async def _members(self, route: TopicRoute) -> list[str]:
        """The client ids of the group, by the first broker of the topic that answers."""
        problem: BrokerUnreachable | None = None
        for name in sorted(route.brokers):
            to = self._instance.routes.broker(name)
            if to is None:
                continue
            try:
                return await consumer_ids(self._instance.caller, to, self._group, self._instance.settings.call_timeout)
            except BrokerUnreachable as reason:
                problem = reason
        if problem is not None:
            raise problem
        return []

    async def _apply(self, topic: str, share: Iterable[MessageQueue]) -> bool:
        """Whether the queues that are read now are the share."""
        wanted = set(share)
        known = self._readers.queues(topic)
        now = asyncio.get_running_loop().time()
        silent = {queue for queue in known & wanted if (one := self._readers.find(queue)) and one.pulls.is_silent(now)}
        ended = {queue for queue in known & wanted if (one := self._readers.find(queue)) and one.is_dropped}
        await asyncio.gather(*(self._readers.lose(queue) for queue in (known - wanted) | silent | ended))
        missing = sorted(wanted - self._readers.queues(topic))
        return all(await asyncio.gather(*(self._readers.take(queue) for queue in missing)))
