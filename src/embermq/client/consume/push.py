"""PushConsumer for asyncio: brokers' messages go to handlers as they come. One loop's thread.

    async with PushConsumer(name_server="127.0.0.1:9876", group="billing") as consumer:
        await consumer.subscribe("orders", "paid || sent", handle)
        await consumer.wait_closed()

Closing takes no new message, waits for handlers that run, commits what they finished, leaves the group.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self, Unpack

from embermq.client.consume.consumer_core import PASSIVELY, ConsumerCore
from embermq.client.consume.handle.concurrent import ConcurrentConsumption
from embermq.client.consume.handle.handlers import AnyHandler
from embermq.client.consume.handle.orderly import OrderlyConsumption
from embermq.client.consume.settings import PushOptions, client_settings, consumer_settings
from embermq.client.consume.subscribing import ALL, subscription_of
from embermq.client.message_queue import MessageQueue
from embermq.errors import ClientClosed, OptionInvalid

log = logging.getLogger(__name__)

LOOK_SECONDS = 60.0


class PushConsumer:
    """A member of a consumer group whose messages are handled by functions."""

    def __init__(self, *, name_server: str | Sequence[str], group: str, **options: Unpack[PushOptions]) -> None:
        """OptionInvalid names an argument that cannot be used. docs/client-consumers.md lists them."""
        self._client = client_settings(name_server, options)
        self.settings = consumer_settings(group, options, round(time.time() * 1000))
        self.group = group
        self._core: ConsumerCore | None = None
        self._consumption: ConcurrentConsumption | OrderlyConsumption | None = None
        self._wanted: dict[str, tuple[str | None, str | None, AnyHandler]] = {}
        self._is_closed = asyncio.Event()
        self._is_closing = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin, with the topics that were subscribed to until now. ClientError: nothing was started."""
        assert self._core is None, "started twice"
        core = self._core = ConsumerCore(self._client, self.settings, PASSIVELY)
        kind = OrderlyConsumption if self.settings.orderly else ConcurrentConsumption
        self._consumption = kind(core.readers, core.handlers, core.figures)
        await core.start(self._consumption)
        core.instance.every(LOOK_SECONDS, self._look)
        try:
            if not self.settings.broadcasting:
                await core.subscribe_to_retries()
            for topic, (expression, sql, handle) in self._wanted.items():
                await self._subscribe(core, topic, expression, sql, handle)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Wait for handlers (`close_timeout`), commit, leave the group, disconnect."""
        core, consumption = self._core, self._consumption
        if core is None or consumption is None or self._is_closing:
            await self._closed_by_another()
            return
        self._is_closing = True
        try:
            consumption.is_stopping = True
            await core.membership.close()
            for reader in core.readers:
                reader.stop_pulling()
            if not await consumption.workers.drain(self.settings.close_timeout):
                running = len(consumption.workers.running())
                log.warning("event=handlers_left group=%s running=%d", self.group, running)
            await core.close()
        finally:
            consumption.workers.close()
            self._is_closed.set()

    async def _closed_by_another(self) -> None:
        if self._is_closing:
            await self._is_closed.wait()
        self._is_closed.set()

    async def wait_closed(self) -> None:
        """Until `close` was called and has ended."""
        await self._is_closed.wait()

    async def subscribe(
        self, topic: str, expression: str | None = ALL, handle: AnyHandler | None = None, *, sql: str | None = None
    ) -> None:
        """Have the messages of a topic that match handled: tags `a || b`, or an SQL92 expression. A topic that is
        subscribed to already gets the new expression and handler. OptionInvalid, SubscriptionRefused, ClientError."""
        if handle is None or not callable(handle):
            raise OptionInvalid("handle", "a function of messages and a context is expected", value=handle)
        subscription_of(topic, expression, sql, 0)
        if self._is_closing or self._is_closed.is_set():
            raise ClientClosed(f"the consumer of group {self.group!r}")
        self._wanted[topic] = (expression, sql, handle)
        if self._core is not None:
            await self._subscribe(self._core, topic, expression, sql, handle)

    async def _subscribe(
        self, core: ConsumerCore, topic: str, expression: str | None, sql: str | None, handle: AnyHandler
    ) -> None:
        core.handlers.put(topic, handle)
        version = round(time.time() * 1000)
        await core.subscribe(subscription_of(core.instance.wire(topic), expression, sql, version))

    async def unsubscribe(self, topic: str) -> None:
        """Want nothing more of a topic. Its queues go to other members."""
        self._wanted.pop(topic, None)
        if self._core is not None:
            await self._core.unsubscribe(self._core.instance.wire(topic))
            self._core.handlers.remove(topic)

    def pause(self) -> None:
        """Pull nothing more, until `resume`; what was pulled is handled."""
        self._running().readers.is_suspended = True

    def resume(self) -> None:
        core = self._running()
        core.readers.is_suspended = False
        core.readers.resume_all()

    @property
    def client_id(self) -> str:
        return self._running().instance.client_id

    @property
    def queues(self) -> set[MessageQueue]:
        """The queues that are its own just now."""
        return self._running().readers.queues()

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """What is finished of each queue: the offset to be committed."""
        return dict(self._running().readers.positions)

    async def commit(self) -> None:
        """Commit now what is finished; otherwise that is done every 5 s. ClientError for what is not kept."""
        await self._running().readers.commit(is_sure=True)

    def _running(self) -> ConsumerCore:
        if self._core is None or self._is_closing:
            why = "is closed" if self._is_closing else "is not started: use it as a context manager, or call start()"
            raise ClientClosed(f"the consumer of group {self.group!r}", why)
        return self._core

    async def _look(self) -> None:
        if self._consumption is not None:
            self._consumption.expire()
