"""Producer and TransactionProducer for threads: the asyncio ones, on the loop of a background thread.

    with Producer(name_server="127.0.0.1:9876", group="orders") as producer:
        result = producer.send(Message("orders", b"..."))

Any thread but the background one. Messages are checked and compressed on the caller's thread. While the loop is busy,
what is handed to it is collected: it is woken once for many messages.
"""

import concurrent.futures
import functools
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self, Unpack

from embermq.client.message_queue import MessageQueue
from embermq.client.produce import producer as for_asyncio
from embermq.client.produce.direct import DirectSends, FailedTry
from embermq.client.produce.gate import Gate
from embermq.client.produce.outgoing import Outgoing
from embermq.client.produce.producer import REQUEST_SECONDS
from embermq.client.produce.queue_choice import QueueBy
from embermq.client.produce.results import SendResult, TransactionResult
from embermq.client.produce.sender import Done
from embermq.client.produce.settings import ProducerOptions
from embermq.client.produce.transactions import Verdict, decision_of
from embermq.client.received import ReceivedMessage
from embermq.client.runtime import HeldRuntime
from embermq.errors import ClientClosed, ClientError
from embermq.model.message import Message
from embermq.remoting import Row

CHECK_THREADS = 4
_Posted = tuple[Outgoing, Done, QueueBy | MessageQueue | None, float | None, FailedTry | None]


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
        self._inner = for_asyncio.Producer(name_server, group, rows=rows, **options)
        settings = self._inner.settings
        self._gate = Gate(settings.in_flight_max, settings.in_flight_bytes_max)
        self._pack = self._inner.packer.pack
        self._posted: deque[_Posted] = deque()
        self._is_posted = False
        self._loop = HeldRuntime(f"producer {group}")
        self._direct: DirectSends | None = None

    @property
    def inner(self) -> for_asyncio.Producer:
        """The same producer for asyncio, on the background loop."""
        return self._inner

    def start(self) -> Self:
        self._loop.start(self._inner.start())
        if DirectSends.suits(self._inner.settings):
            self._direct = DirectSends(self._inner.core.sender, self._inner.settings)
        return self

    def close(self) -> None:
        """Wait for what is in flight, leave the group, close the connections. A second time nothing."""
        if self._direct is not None:
            self._direct.close()
        self._loop.end(self._inner.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self, message: Message, *, queue_by: QueueBy | MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """Store a message; MessageRejected, RouteMissing, RequestRefused, BrokerUnreachable, SendFailed."""
        direct = self._direct
        if direct is None or queue_by is not None or not self._loop.is_held:
            return self.send_async(message, queue_by=queue_by, timeout=timeout).result()
        outgoing = self._pack(message)
        tried = direct.send(outgoing, self._inner.settings.send_timeout if timeout is None else timeout)
        if isinstance(tried, SendResult):
            return tried
        return self._post(outgoing, None, timeout, tried).result()

    def send_async(
        self, message: Message, *, queue_by: QueueBy | MessageQueue | None = None, timeout: float | None = None
    ) -> "Future[SendResult]":
        """Begin to send a message; the future holds the result. Waits while too many are in flight."""
        return self._post(self._pack(message), queue_by, timeout, None)

    def send_oneway(self, message: Message, *, queue_by: QueueBy | MessageQueue | None = None) -> None:
        """Send a message without asking what became of it."""
        self._loop.run(self._inner.send_oneway(message, queue_by=queue_by))

    def send_many(
        self,
        messages: Sequence[Message],
        *,
        queue_by: QueueBy | MessageQueue | None = None,
        timeout: float | None = None,
    ) -> list[SendResult]:
        """Store many messages in batches; the results in their order. Where one batch fails, others may be stored."""
        return self._loop.run(self._inner.send_many(messages, queue_by=queue_by, timeout=timeout))

    def request(
        self,
        message: Message,
        *,
        timeout: float = REQUEST_SECONDS,
        queue_by: QueueBy | MessageQueue | None = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of its consumer; ReplyMissing."""
        return self._loop.run(self._inner.request(message, timeout=timeout, queue_by=queue_by))

    def reply(self, request: ReceivedMessage, body: bytes, **properties: str) -> SendResult:
        """Reply to a request that a consumer received."""
        return self._loop.run(self._inner.reply(request, body, **properties))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues to which messages of a topic may be sent."""
        return self._loop.run(self._inner.queues(topic))

    # -- between the threads -----------------------------------------------------------------------------------

    def _post(
        self,
        outgoing: Outgoing,
        by: QueueBy | MessageQueue | None,
        seconds: float | None,
        after: FailedTry | None,
    ) -> "Future[SendResult]":
        """Hand a message to the loop, when there is room for it."""
        running, size = self._loop.current, outgoing.size
        self._gate.enter(size)
        future: Future[SendResult] = Future()
        self._posted.append((outgoing, functools.partial(self._settle, future, size), by, seconds, after))
        if not self._is_posted:
            self._is_posted = True
            running.loop.call_soon_threadsafe(self._submit_posted)
        return future

    def _submit_posted(self) -> None:
        """On the loop. The flag is cleared first: what is posted after the last look wakes the loop again."""
        self._is_posted = False
        try:
            sender = self._inner.core.sender
        except ClientClosed as problem:
            while self._posted:
                self._posted.popleft()[1](problem)
            return
        while self._posted:
            outgoing, done, by, seconds, after = self._posted.popleft()
            if after is None:
                sender.submit(outgoing, done, by=by, seconds=seconds)
            else:
                sender.resume(outgoing, done, *after)

    def _settle(self, future: "Future[SendResult]", size: int, outcome: SendResult | ClientError) -> None:
        self._gate.leave(size)
        if not future.set_running_or_notify_cancel():
            return
        if isinstance(outcome, SendResult):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)


class TransactionProducer:
    """Sends messages that become visible if a local transaction succeeds. `producer` sends others on the same
    connections. `check` is called on a thread of its own."""

    def __init__(
        self,
        name_server: str | Sequence[str],
        group: str,
        check: Callable[[ReceivedMessage], Verdict],
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(CHECK_THREADS, thread_name_prefix="embermq-check")
        self._check = check
        self._inner = for_asyncio.TransactionProducer(name_server, group, self._checked, **options)
        self._loop = HeldRuntime(f"transaction producer {group}")

    async def _checked(self, message: ReceivedMessage) -> Verdict:
        return await self._loop.current.loop.run_in_executor(self._pool, self._check, message)

    def start(self) -> Self:
        self._loop.start(self._inner.start())
        return self

    def close(self) -> None:
        """Answer what brokers have asked, leave the group, close the connections. A second time nothing."""
        try:
            self._loop.end(self._inner.close)
        finally:
            self._pool.shutdown()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self,
        message: Message,
        execute: Callable[[Message, str], Verdict],
        *,
        queue_by: QueueBy | MessageQueue | None = None,
        timeout: float | None = None,
    ) -> TransactionResult:
        """Send a half message, run `execute(message, transaction_id)` on this thread, and decide by what it returns.

        True commits, False rolls back, None leaves it to `check`. So does an exception, which is raised again.
        """
        sent = self.prepare(message, queue_by=queue_by, timeout=timeout)
        return self.end(sent, execute(message, sent.transaction_id or "") if sent.ok else False)

    def prepare(
        self, message: Message, *, queue_by: QueueBy | MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """Store the half message only. `end` decides on it, or `check` when the broker asks."""
        return self._loop.run(self._inner.prepare(message, queue_by=queue_by, timeout=timeout))

    def end(self, sent: SendResult, verdict: Verdict) -> TransactionResult:
        """Decide on a half message."""
        return self._loop.run(self._inner.end(sent, decision_of(verdict)))
