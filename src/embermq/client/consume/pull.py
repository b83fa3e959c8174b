"""PullConsumer for asyncio: the caller asks for messages, and says when they are done. One loop's thread.

    async with PullConsumer(name_server="127.0.0.1:9876", group="reports") as pull:
        await pull.subscribe("orders")
        for message in await pull.poll(timeout=1.0): ...

Queues come from the group (`subscribe`) or by hand (`assign`), not both. Messages that `poll` returned count as done
with the next `poll`, or with `commit`; offsets are committed every 5 s and when the consumer is closed, unless
`auto_commit=False`. A block that ends with an exception commits nothing of the last poll.
"""

import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from embermq.client.calls import BrokerAddress, max_offset, min_offset, search_offset
from embermq.client.consume.consumer_core import ACTIVELY, ConsumerCore
from embermq.client.consume.pull_buffers import PullBuffers
from embermq.client.consume.queues.reader import PulledQueue
from embermq.client.consume.settings import PullOptions, client_settings, consumer_settings
from embermq.client.consume.subscribing import ALL, subscription_of
from embermq.client.message_queue import MessageQueue
from embermq.client.received import ReceivedMessage
from embermq.errors import BrokerUnreachable, ClientClosed, OptionInvalid, QueueNotAssigned, RouteMissing

POLL_SECONDS = 5.0
POLL_MESSAGES = 32


class PullConsumer:
    """A consumer that is asked for messages. One caller at a time."""

    def __init__(self, *, name_server: str | Sequence[str], group: str, **options: Unpack[PullOptions]) -> None:
        """OptionInvalid names an argument that cannot be used. docs/client-consumers.md lists them."""
        self._client = client_settings(name_server, options)
        self.settings = consumer_settings(group, options, round(time.time() * 1000))
        self.group = group
        self._core: ConsumerCore | None = None
        self._buffers: PullBuffers | None = None
        self.out: list[ReceivedMessage] = []  # handed out, and done with the next poll
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(is_done=kind is None)

    async def start(self) -> None:
        assert self._core is None, "started twice"
        core = self._core = ConsumerCore(self._client, self.settings, ACTIVELY)
        self._buffers = PullBuffers(core.readers)
        await core.start(self._buffers)

    async def close(self, *, is_done: bool = True) -> None:
        """Commit, unless `auto_commit=False`, leave the group, disconnect. `is_done`: what was returned last counts."""
        if self._core is None or self._buffers is None or self._is_closed:
            return
        if is_done and self.settings.auto_commit:
            self._buffers.confirm(self.out)
        self._is_closed = True
        await self._core.close()

    # -- which queues --------------------------------------------------------------------------------------------

    async def subscribe(self, topic: str, expression: str | None = ALL, *, sql: str | None = None) -> None:
        """Take part in the group's consumption of a topic. OptionInvalid, SubscriptionRefused, ClientError."""
        core = self._running()
        if core.is_assigned:
            raise OptionInvalid("topic", "queues were assigned by hand; a consumer does one or the other", value=topic)
        wanted = subscription_of(core.instance.wire(topic), expression, sql, round(time.time() * 1000))
        await core.subscribe(wanted)

    async def unsubscribe(self, topic: str) -> None:
        core = self._running()
        await core.unsubscribe(core.instance.wire(topic))

    async def topic_queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic; RouteMissing."""
        core = self._running()
        route = await core.instance.routes.fetch(core.instance.wire(topic))
        if route is None:
            raise RouteMissing(topic, core.instance.settings.name_servers)
        return route.read_queues()

    async def assign(
        self, queues: Iterable[MessageQueue], expression: str | None = ALL, *, sql: str | None = None
    ) -> None:
        """Read these queues and no others, regardless of other readers. ClientError when one cannot be begun."""
        core = self._running()
        listed = sorted(set(queues))
        if len(core.subscriptions) and not core.is_assigned:
            raise OptionInvalid("queues", "topics were subscribed to; a consumer does one or the other", value=listed)
        core.is_assigned = True
        for topic in {queue.topic for queue in listed}:
            core.subscriptions.put(subscription_of(topic, expression, sql, round(time.time() * 1000)))
            await core.instance.routes.route(topic)
        async with core.readers.turn:
            for queue in core.readers.queues() - set(listed):
                await core.readers.lose(queue)
            for queue in listed:
                if core.readers.find(queue) is None:
                    core.readers.begin(queue, await core.readers.start_offset(queue))

    @property
    def assignment(self) -> set[MessageQueue]:
        """The queues that are read just now."""
        return self._running().readers.queues()

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull nothing more of these queues, until `resume`."""
        self._running().readers.paused.update(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        core = self._running()
        core.readers.paused.difference_update(queues)
        core.readers.resume_all()

    # -- messages ------------------------------------------------------------------------------------------------

    def poll(
        self, timeout: float | None = POLL_SECONDS, max_messages: int = POLL_MESSAGES, *, topic: str | None = None
    ) -> Coroutine[Any, Any, list[ReceivedMessage]]:
        """The next messages, of any queue or of one topic: at least one, unless none comes within `timeout` seconds.
        What the poll before returned is done."""
        return self._poll(timeout, max_messages, topic)

    async def _poll(self, seconds: float | None, max_messages: int, topic: str | None) -> list[ReceivedMessage]:
        self._running()
        assert self._buffers is not None
        self._done()
        deadline = None if seconds is None else time.monotonic() + seconds
        while not (found := self._buffers.hand_out(max_messages, topic)):
            left = None if deadline is None else deadline - time.monotonic()
            if (left is not None and left <= 0) or not await self._buffers.wait(left):
                return []
            self._running()
        self.out = found
        return found

    def messages(
        self, topic: str, expression: str | None = ALL, *, sql: str | None = None, timeout: float | None = None
    ) -> AsyncIterator[ReceivedMessage]:
        """One message after another; ends when none came for `timeout` seconds. The topic is subscribed to, unless it
        is already. A message is done when the next one is asked for."""
        return self._messages(topic, expression, sql, timeout)

    async def _messages(
        self, topic: str, expression: str | None, sql: str | None, seconds: float | None
    ) -> AsyncIterator[ReceivedMessage]:
        await self.want(topic, expression, sql)
        while found := await self._poll(seconds, POLL_MESSAGES, topic):
            used = 0
            try:
                for message in found:
                    used += 1
                    self.out = found[:used]
                    yield message
            finally:
                await self.put_back(found[used:])

    async def want(self, topic: str, expression: str | None, sql: str | None) -> None:
        """Subscribe to a topic, unless that was done or its queues were assigned."""
        core = self._running()
        if not core.is_assigned and core.instance.wire(topic) not in core.subscriptions:
            await self.subscribe(topic, expression, sql=sql)

    async def put_back(self, unused: Sequence[ReceivedMessage]) -> None:
        """Messages of the last poll that are to be returned again."""
        if self._buffers is not None and not self._is_closed:
            self._buffers.put_back(unused)

    def _done(self) -> None:
        assert self._buffers is not None
        self._buffers.confirm(self.out)
        self.out = []

    # -- offsets -------------------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Everything that was returned is done: commit it. ClientError for what is not kept."""
        core = self._running()
        self._done()
        await core.readers.commit(is_sure=True)

    async def committed(self, queue: MessageQueue) -> int | None:
        """What the group has committed of a queue; None if nothing."""
        core = self._running()
        await core.instance.routes.route(queue.topic)
        return await core.readers.stored(queue)

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that the caller gets of a queue; QueueNotAssigned."""
        reader = self._reader(queue)
        return reader.pulls.next_offset if (first := reader.process.first_offset) is None else first

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from an offset; QueueNotAssigned."""
        if offset < 0:
            raise OptionInvalid("offset", "0 or more is expected", value=offset)
        reader = self._reader(queue)
        assert self._buffers is not None
        self.out = [message for message in self.out if message.queue != queue]
        self._buffers.seek(reader, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        core = self._running()
        self.seek(queue, await min_offset(core.instance.caller, self._broker(queue), queue, self._client.call_timeout))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        self.seek(queue, await self.end_offset(queue))

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Go on from the first message that was stored at that time or later."""
        core = self._running()
        seconds = self._client.call_timeout
        self.seek(queue, await search_offset(core.instance.caller, self._broker(queue), queue, timestamp_ms, seconds))

    async def end_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will get."""
        core = self._running()
        await core.instance.routes.route(queue.topic)
        return await max_offset(core.instance.caller, self._broker(queue), queue, self._client.call_timeout)

    def _broker(self, queue: MessageQueue) -> BrokerAddress:
        to = self._running().instance.routes.broker(queue.broker)
        if to is None:
            reason = "it is in no route"
            raise BrokerUnreachable(queue.broker, "?", "GET_OFFSET", reason, topic=queue.topic, is_sent=False)
        return to

    def _reader(self, queue: MessageQueue) -> PulledQueue:
        core = self._running()
        reader = core.readers.find(queue)
        if reader is None:
            raise QueueNotAssigned(str(queue), self.group, sorted(str(one) for one in core.readers.queues()))
        return reader

    def _running(self) -> ConsumerCore:
        if self._core is None or self._is_closed:
            why = "is closed" if self._is_closed else "is not started: use it as a context manager, or call start()"
            raise ClientClosed(f"the consumer of group {self.group!r}", why)
        return self._core
