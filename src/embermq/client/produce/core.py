"""ProducerCore: the parts of a producer, on a running asyncio loop. Both faces drive it. The loop's thread only."""

import asyncio
import functools
from collections.abc import Iterable, Sequence

import msgspec

from embermq.client.calls import BrokerAddress, Heartbeat
from embermq.client.instance import Instance
from embermq.client.message_queue import MessageQueue
from embermq.client.produce.batches import SendBatch, split
from embermq.client.produce.outgoing import Outgoing, Packer
from embermq.client.produce.queue_choice import QueueBy
from embermq.client.produce.replies import PendingReplies, reply_to, request_properties
from embermq.client.produce.results import SendResult
from embermq.client.produce.sender import Sender
from embermq.client.produce.settings import ProducerSettings
from embermq.client.produce.trace_posts import TracePosts
from embermq.client.produce.traced_sends import TracedEnds, TracedSends
from embermq.client.received import ReceivedMessage
from embermq.errors import ClientError, ReplyMissing
from embermq.model.message import Message
from embermq.remoting import Link, RequestCode, Row


class ProducerCore:
    """Started once, closed once."""

    def __init__(self, settings: ProducerSettings, packer: Packer, rows: Iterable[Row] = ()) -> None:
        self.settings, self.packer = settings, packer
        self.replies = PendingReplies()
        self.instance = Instance(settings, self._heartbeat, [self.replies.row(), *rows])
        self._group = self.instance.wire(settings.group)
        self._introduced: dict[str, Link] = {}
        topic = settings.trace_topic
        self._posts = None if topic is None else TracePosts(self.instance, settings, settings.group, topic)
        traced = None if self._posts is None else TracedSends(self._posts.tracer, settings.group)
        self.traced_ends = None if self._posts is None else TracedEnds(self._posts.tracer, settings.group)
        self.sender = Sender(self.instance, settings, traced)

    async def start(self) -> None:
        await self.instance.start()

    async def close(self) -> None:
        """Wait for what is in flight, then leave the group and close the connections. A request that waits for
        its reply ends with ClientClosed."""
        self.replies.close(f"producer {self.settings.group}")
        await self.sender.drain(self.settings.send_timeout * (1 + self.settings.retries))
        self.sender.close()
        if self._posts is not None:
            await self._posts.close()
        await self.instance.close()

    # -- sending -----------------------------------------------------------------------------------------------

    def submit(
        self,
        outgoing: Outgoing,
        *,
        by: QueueBy | MessageQueue | None = None,
        seconds: float | None = None,
        code: int | None = None,
    ) -> "asyncio.Future[SendResult]":
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        self.sender.submit(outgoing, functools.partial(_settle, future), by=by, seconds=seconds, code=code)
        return future

    async def send_many(
        self, messages: Sequence[Message], by: QueueBy | MessageQueue | None = None, seconds: float | None = None
    ) -> list[SendResult]:
        """The results in the order of the messages."""
        batches = split(messages, self.packer, self.settings.batch_bytes_max)
        sent = await asyncio.gather(*(self.submit(batch.outgoing, by=by, seconds=seconds) for batch in batches))
        results: dict[int, SendResult] = {}
        for batch, result in zip(batches, sent, strict=True):
            results.update(zip(batch.places, _each(batch, result), strict=True))
        return [results[place] for place in range(len(results))]

    # -- request and reply -------------------------------------------------------------------------------------

    async def request(
        self, message: Message, seconds: float, by: QueueBy | MessageQueue | None = None
    ) -> ReceivedMessage:
        """Send a request and wait for its reply; ReplyMissing, and whatever a send may raise."""
        correlation_id, reply = self.replies.expect()
        try:
            async with asyncio.timeout(seconds):
                more = request_properties(correlation_id, self.instance.client_id, seconds)
                outgoing = self.packer.pack(message, more)
                await self._introduce(outgoing.wire.topic)
                await self.submit(outgoing, by=by, seconds=max(seconds, self.settings.send_timeout))
                return await reply
        except TimeoutError:
            raise ReplyMissing(message.topic, seconds) from None
        finally:
            self.replies.forget(correlation_id)

    async def reply(self, request: ReceivedMessage, message: Message) -> SendResult:
        """Reply through the broker that has the request: the requester is connected to it."""
        reply, more = reply_to(request, message)
        outgoing = self.packer.pack(reply, more)
        queues = await self.sender.queues(outgoing.wire.topic)
        nearest = next((queue for queue in queues if queue.broker == request.queue.broker), None)
        return await self.submit(outgoing, by=nearest, code=RequestCode.SEND_REPLY_MESSAGE_V2)

    async def _introduce(self, topic: str) -> None:
        """See to it that every broker of a topic knows this client: each may get the reply."""
        queues = await self.sender.queues(topic)
        found = [self.instance.routes.broker(name) for name in sorted({queue.broker for queue in queues})]
        await asyncio.gather(*(self._introduce_to(to) for to in found if to is not None))

    async def _introduce_to(self, to: BrokerAddress) -> None:
        link = self.instance.connector.find(to.address)
        if link is None or self._introduced.get(to.address) is not link:
            await self.instance.beat_to(to)
            link = self.instance.connector.find(to.address)
            if link is not None:
                self._introduced[to.address] = link

    # -- parts -------------------------------------------------------------------------------------------------

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(self.instance.client_id, (self._group,))


def _settle(future: "asyncio.Future[SendResult]", outcome: SendResult | ClientError) -> None:
    if future.done():
        return  # Who waited for it was cancelled.
    if isinstance(outcome, SendResult):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)


def _each(batch: SendBatch, result: SendResult) -> list[SendResult]:
    """The result of each message of a batch: they lie side by side in one queue."""
    offsets = result.offset_message_id.split(",")
    if len(offsets) != len(batch.ids):
        offsets = [result.offset_message_id] * len(batch.ids)
    return [
        msgspec.structs.replace(
            result, message_id=message_id, offset_message_id=offset, queue_offset=result.queue_offset + at
        )
        for at, (message_id, offset) in enumerate(zip(batch.ids, offsets, strict=True))
    ]
