"""Producer and TransactionProducer for asyncio.

    async with Producer(name_server="127.0.0.1:9876", group="orders") as producer:
        result = await producer.send(Message("orders", b"..."))

To be used on the loop on which they were started.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from embermq.client.calls import Decision
from embermq.client.message_queue import MessageQueue
from embermq.client.namespaces import with_namespace
from embermq.client.produce.core import ProducerCore
from embermq.client.produce.outgoing import Packer
from embermq.client.produce.queue_choice import QueueBy
from embermq.client.produce.results import SendResult, TransactionResult
from embermq.client.produce.settings import ProducerOptions, producer_settings
from embermq.client.produce.transactions import (
    Check,
    Checks,
    Verdict,
    decision_of,
    end_half,
    pack_half,
    send_half,
)
from embermq.client.produce.unique_ids import new_ids
from embermq.client.received import ReceivedMessage
from embermq.errors import ClientClosed
from embermq.model.message import Message
from embermq.remoting import Row

REQUEST_SECONDS = 3.0


class Producer:
    """Sends messages."""

    def __init__(
        self,
        name_server: str | Sequence[str],
        group: str,
        *,
        rows: Sequence[Row] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        """`rows` answer further requests of brokers."""
        self.settings, self._rows = producer_settings(name_server, group, options), rows
        self.packer = Packer(self.settings, new_ids(self.settings))
        self._core: ProducerCore | None = None

    @property
    def core(self) -> ProducerCore:
        """The parts; ClientClosed unless it is started."""
        if self._core is None:
            raise ClientClosed(f"producer {self.settings.group}", "is not open: use it with `async with`, or start()")
        return self._core

    async def start(self) -> Self:
        assert self._core is None, "a producer is started once"
        core = ProducerCore(self.settings, self.packer, self._rows)
        await core.start()
        self._core = core
        return self

    async def close(self) -> None:
        """Wait for what is in flight, leave the group, close the connections. A second time nothing."""
        core, self._core = self._core, None
        if core is not None:
            await core.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def send(
        self, message: Message, *, queue_by: QueueBy | MessageQueue | None = None, timeout: float | None = None
    ) -> Awaitable[SendResult]:
        """Store a message; MessageRejected, RouteMissing, RequestRefused, BrokerUnreachable, SendFailed."""
        return self.send_async(message, queue_by=queue_by, timeout=timeout)

    def send_async(
        self, message: Message, *, queue_by: QueueBy | MessageQueue | None = None, timeout: float | None = None
    ) -> "asyncio.Future[SendResult]":
        """Begin to send a message; the future holds the result."""
        return self.core.submit(self.packer.pack(message), by=queue_by, seconds=timeout)

    async def send_oneway(self, message: Message, *, queue_by: QueueBy | MessageQueue | None = None) -> None:
        """Send a message without asking what became of it."""
        await self.core.sender.tell(self.packer.pack(message), queue_by)

    def send_many(
        self,
        messages: Sequence[Message],
        *,
        queue_by: QueueBy | MessageQueue | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, list[SendResult]]:
        """Store many messages in batches; the results in their order. Where one batch fails, others may be stored."""
        return self.core.send_many(messages, queue_by, timeout)

    def request(
        self,
        message: Message,
        *,
        timeout: float = REQUEST_SECONDS,
        queue_by: QueueBy | MessageQueue | None = None,
    ) -> Coroutine[Any, Any, ReceivedMessage]:
        """Send a message and wait for the reply of its consumer; ReplyMissing."""
        return self.core.request(message, timeout, queue_by)

    async def reply(self, request: ReceivedMessage, body: bytes, **properties: str) -> SendResult:
        """Reply to a request that a consumer received."""
        return await self.core.reply(request, Message("", body, properties=properties))

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues to which messages of a topic may be sent."""
        return list(await self.core.sender.queues(self.packer.topic(topic)))


class TransactionProducer:
    """Sends messages that become visible if a local transaction succeeds. `producer` sends others on the same
    connections."""

    def __init__(
        self,
        name_server: str | Sequence[str],
        group: str,
        check: Check,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._group = with_namespace(group, options.get("namespace", ""))
        self._checks = Checks(self._group, check)
        self.producer = Producer(name_server, group, rows=[self._checks.row()], **options)

    async def start(self) -> Self:
        await self.producer.start()
        self._checks.core = self.producer.core
        return self

    async def close(self) -> None:
        await self._checks.close()
        await self.producer.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def send(
        self,
        message: Message,
        execute: Callable[[Message, str], Awaitable[Verdict]],
        *,
        queue_by: QueueBy | MessageQueue | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, TransactionResult]:
        """Send a half message, run `execute(message, transaction_id)`, and decide by what it returns.

        True commits, False rolls back, None leaves it to `check`. So does an exception, which is raised again.
        """
        return self._send(message, execute, self.prepare(message, queue_by=queue_by, timeout=timeout))

    async def _send(
        self,
        message: Message,
        execute: Callable[[Message, str], Awaitable[Verdict]],
        prepared: Coroutine[Any, Any, SendResult],
    ) -> TransactionResult:
        sent = await prepared
        if not sent.ok:
            return await self.end(sent, Decision.ROLLBACK)
        return await self.end(sent, await execute(message, sent.transaction_id or ""))

    def prepare(
        self, message: Message, *, queue_by: QueueBy | MessageQueue | None = None, timeout: float | None = None
    ) -> Coroutine[Any, Any, SendResult]:
        """Store the half message only. `end` decides on it, or `check` when the broker asks."""
        outgoing = pack_half(message, self.producer.packer, self._group)
        return send_half(self.producer.core, outgoing, queue_by, timeout)

    async def end(self, sent: SendResult, verdict: Verdict) -> TransactionResult:
        """Decide on a half message."""
        return await end_half(self.producer.core, sent, decision_of(verdict))
