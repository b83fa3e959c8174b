"""ConsumerCore: what push and pull consumers have in common, put together and started. The loop's thread only.

    instance        connections, routes, heartbeats
    subscriptions   what is wanted
    readers         the queues that are read; membership decides which
    offset store    at the brokers, or in a file
    requests        answers to brokers

The consumption, what is done with messages, is made by the consumer itself.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, cast

import msgspec

from embermq.client.calls import SQL92, Heartbeat, SubscriptionData, check_subscription
from embermq.client.consume.broker_requests import BrokerRequests, DirectResult, spent_ms
from embermq.client.consume.handle.by_topic import Handlers
from embermq.client.consume.handle.figures import ConsumerFigures
from embermq.client.consume.handle.handlers import Context, outcome_of
from embermq.client.consume.handle.hooks import ConsumeHook
from embermq.client.consume.handle.retries import as_handled
from embermq.client.consume.handle.traced_calls import TracedCalls
from embermq.client.consume.queues.locks import RENEW_SECONDS
from embermq.client.consume.queues.membership import Membership
from embermq.client.consume.queues.offset_stores import BrokerOffsets, FileOffsets, OffsetStore
from embermq.client.consume.queues.readers import Consumption, Readers
from embermq.client.consume.running_info import running_info
from embermq.client.consume.settings import ConsumerSettings
from embermq.client.consume.subscribing import Subscriptions
from embermq.client.instance import Instance
from embermq.client.message_queue import MessageQueue
from embermq.client.produce.trace_posts import TracePosts
from embermq.client.produce.unique_ids import new_ids
from embermq.client.received import ReceivedMessage
from embermq.client.settings import ClientSettings, own_address
from embermq.model.names import retry_topic

log = logging.getLogger(__name__)

ACTIVELY, PASSIVELY = "CONSUME_ACTIVELY", "CONSUME_PASSIVELY"


class ConsumerCore:
    """A consumer without its consumption."""

    def __init__(self, client: ClientSettings, settings: ConsumerSettings, consume_type: str) -> None:
        if settings.broadcasting and not client.client_id:
            # The file with the offsets is found by it: it must stay the same.
            stable = f"{own_address(client.name_servers[0])}@DEFAULT"
            client = msgspec.structs.replace(client, client_id=stable)
        self.settings, self._consume_type = settings, consume_type
        self.instance = Instance(client, self._heartbeat, BrokerRequests(self).rows())
        self.group = self.instance.wire(settings.group)
        self.subscriptions = Subscriptions()
        topic = settings.trace_topic
        self._posts = None if topic is None else TracePosts(self.instance, client, settings.group, topic)
        self.handlers = Handlers(self._hooks())
        self.figures = ConsumerFigures()
        is_lite = consume_type == ACTIVELY
        self.readers = Readers(
            self.instance, settings, self.group, self.subscriptions, self._offset_store(), is_lite=is_lite
        )
        self.membership = Membership(
            self.instance, settings, self.group, self.subscriptions, self.readers, consume_type
        )
        self.is_assigned = False  # queues were given by hand: this is no member of the group
        self._started_ms = 0

    def _hooks(self) -> Sequence[ConsumeHook]:
        """The user's, and inside of them the trace's."""
        if self._posts is None:
            return self.settings.hooks
        ids = new_ids(self.instance.settings)
        return (*self.settings.hooks, TracedCalls(self._posts.tracer, ids, self.settings.consume_timeout))

    def _offset_store(self) -> OffsetStore:
        if self.settings.broadcasting:
            return FileOffsets(self.settings.offsets_path, self.instance.client_id, self.group)
        return BrokerOffsets(self.instance, self.group)

    async def start(self, consumption: Consumption) -> None:
        self.readers.consumption = consumption
        self._started_ms = round(time.time() * 1000)
        await self.instance.start()
        if self.settings.auto_commit:
            self.instance.every(self.settings.commit_seconds, self.readers.commit)
        self.instance.every(RENEW_SECONDS, self.readers.renew_locks)
        self.membership.start()

    async def close(self) -> None:
        """Give the queues up, leave the group, close the connections."""
        await self.membership.close()
        await self.readers.close()
        if self._posts is not None:
            await self._posts.close()
        await self.instance.close()

    # -- subscriptions -------------------------------------------------------------------------------------------

    async def subscribe(self, wanted: SubscriptionData) -> None:
        """Want a topic, or something else of it. Returns when the brokers know it and the own queues were taken.
        NameServersUnreachable, SubscriptionRefused."""
        instance = self.instance
        instance.topics.add(wanted.topic)
        route = await instance.routes.fetch(wanted.topic)
        if wanted.kind == SQL92 and route is not None:
            for name in route.brokers:
                if (to := instance.routes.broker(name)) is not None:
                    seconds = instance.settings.call_timeout
                    await check_subscription(instance.caller, to, self.group, instance.client_id, wanted, seconds)
        self.subscriptions.put(wanted)
        for reader in self.readers:
            if reader.queue.topic == wanted.topic:
                reader.renew()
        await self.announce()

    async def unsubscribe(self, topic: str) -> None:
        if self.subscriptions.remove(topic):
            self.instance.topics.discard(topic)
            await self.announce()

    async def announce(self) -> None:
        """Tell the brokers what is wanted now, and share the queues out anew."""
        await self.instance.beat()
        if not await self.membership.rebalance():
            self.membership.rebalance_soon()

    async def subscribe_to_retries(self) -> None:
        """The retry topic of the group; brokers make it when they first hear of the group."""
        topic = retry_topic(self.group)
        if topic not in self.subscriptions:
            self.subscriptions.put(SubscriptionData(topic, version=round(time.time() * 1000)))
            self.instance.topics.add(topic)

    def _heartbeat(self) -> Heartbeat:
        consumers = () if self.is_assigned or not len(self.subscriptions) else (self.membership.data(),)
        return Heartbeat(self.instance.client_id, consumers=consumers)

    # -- what brokers ask ----------------------------------------------------------------------------------------

    def rebalance_soon(self) -> None:
        self.membership.rebalance_soon()

    def soon(self, work: Callable[[], Awaitable[None]]) -> None:
        self.readers.soon(cast(Callable[[], Coroutine[None, None, None]], work))

    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        await self.readers.reset(offsets)

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self.readers.positions.items() if queue.topic == topic}

    def running_info(self) -> dict[str, Any]:
        offset_ms = (time.time() - time.monotonic()) * 1000
        return running_info(
            self.readers,
            self.subscriptions,
            self.figures,
            self.settings,
            self._consume_type,
            self._started_ms,
            offset_ms,
        )

    async def handle_directly(self, message: ReceivedMessage) -> DirectResult:
        (seen,) = as_handled([message], self.instance.settings.namespace)
        handler = self.handlers.find(seen.topic)
        context = Context(message.queue, self.settings.group, self.settings.orderly)
        began = time.monotonic()
        try:
            answer = await asyncio.to_thread(handler, [seen], context)
            outcome = outcome_of(await answer if inspect.isawaitable(answer) else answer)
        except Exception as problem:
            log.warning("event=handler_failed topic=%s id=%s directly=True", seen.topic, seen.message_id, exc_info=True)
            reason = f"{type(problem).__name__}: {problem}"
            return DirectResult("CR_THROW_EXCEPTION", self.settings.orderly, spent_ms(began), reason)
        result = "CR_SUCCESS" if outcome.is_consumed else "CR_LATER"
        return DirectResult(result, self.settings.orderly, spent_ms(began))
