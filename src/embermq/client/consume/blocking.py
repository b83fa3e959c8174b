"""PushConsumer and PullConsumer for programs without asyncio: the same, on the background loop. Any thread; a pull
consumer by one at a time.

Handlers run on threads of the consumer. A call of a handler may use any client but not close its own consumer.
"""

import functools
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from embermq.client.consume import pull as aio_pull
from embermq.client.consume import push as aio_push
from embermq.client.consume.handle.handlers import Handler, is_async
from embermq.client.consume.pull import POLL_MESSAGES, POLL_SECONDS
from embermq.client.consume.settings import PullOptions, PushOptions
from embermq.client.consume.subscribing import ALL
from embermq.client.message_queue import MessageQueue
from embermq.client.received import ReceivedMessage
from embermq.client.runtime import HeldRuntime
from embermq.errors import OptionInvalid

T = TypeVar("T")


class PushConsumer:
    """A member of a consumer group whose messages are handled by functions."""

    def __init__(self, *, name_server: str | Sequence[str], group: str, **options: Unpack[PushOptions]) -> None:
        """OptionInvalid names an argument that cannot be used. docs/client-consumers.md lists them."""
        self._aio = aio_push.PushConsumer(name_server=name_server, group=group, **options)
        self._loop = HeldRuntime(f"the consumer of group {group!r}")
        self._is_closed = threading.Event()
        self.group = group

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Begin, with the topics that were subscribed to until now. ClientError: nothing was started."""
        self._loop.start(self._aio.start())

    def close(self) -> None:
        """Wait for handlers (`close_timeout`), commit, leave the group, disconnect."""
        self._loop.end(self._close)

    async def _close(self) -> None:
        try:
            await self._aio.close()
        finally:
            self._is_closed.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Block until the consumer is closed by another thread, or `seconds` have passed; whether it is closed."""
        return self._is_closed.wait(seconds)

    def subscribe(
        self, topic: str, expression: str | None = ALL, handle: Handler | None = None, *, sql: str | None = None
    ) -> None:
        """Have the messages of a topic that match handled: tags `a || b`, or an SQL92 expression. A topic that is
        subscribed to already gets the new expression and handler. OptionInvalid, SubscriptionRefused, ClientError."""
        if is_async(handle):
            reason = "a coroutine function needs embermq.client.aio; give a plain function here"
            raise OptionInvalid("handle", reason, value=handle)
        self._run_any(self._aio.subscribe(topic, expression, handle, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        """Want nothing more of a topic. Its queues go to other members."""
        self._run_any(self._aio.unsubscribe(topic))

    def _run_any(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """On the loop; before the start, at once: nothing waits then."""
        if self._loop.is_held or self._is_closed.is_set():
            self._loop.run(coroutine)
            return
        try:
            coroutine.send(None)
        except StopIteration:
            return
        raise AssertionError("a subscription before the start waits for nothing")

    def pause(self) -> None:
        """Pull nothing more, until `resume`; what was pulled is handled."""
        self._loop.run(_called(self._aio.pause))

    def resume(self) -> None:
        self._loop.run(_called(self._aio.resume))

    def commit(self) -> None:
        """Commit now what is finished; otherwise that is done every 5 s. ClientError for what is not kept."""
        self._loop.run(self._aio.commit())

    @property
    def client_id(self) -> str:
        return self._aio.client_id

    @property
    def queues(self) -> set[MessageQueue]:
        """The queues that are its own just now."""
        return self._loop.run(_called(lambda: self._aio.queues))

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """What is finished of each queue: the offset to be committed."""
        return self._loop.run(_called(lambda: self._aio.positions))


class PullConsumer:
    """A consumer that is asked for messages. One thread at a time."""

    def __init__(self, *, name_server: str | Sequence[str], group: str, **options: Unpack[PullOptions]) -> None:
        """OptionInvalid names an argument that cannot be used. docs/client-consumers.md lists them."""
        self._aio = aio_pull.PullConsumer(name_server=name_server, group=group, **options)
        self._loop = HeldRuntime(f"the consumer of group {group!r}")
        self.group = group

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(is_done=kind is None)

    def start(self) -> None:
        self._loop.start(self._aio.start())

    def close(self, *, is_done: bool = True) -> None:
        """Commit, unless `auto_commit=False`, leave the group, disconnect. `is_done`: what was returned last counts."""
        self._loop.end(functools.partial(self._aio.close, is_done=is_done))

    def subscribe(self, topic: str, expression: str | None = ALL, *, sql: str | None = None) -> None:
        """Take part in the group's consumption of a topic. OptionInvalid, SubscriptionRefused, ClientError."""
        self._loop.run(self._aio.subscribe(topic, expression, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        self._loop.run(self._aio.unsubscribe(topic))

    def topic_queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic; RouteMissing."""
        return self._loop.run(self._aio.topic_queues(topic))

    def assign(self, queues: Iterable[MessageQueue], expression: str | None = ALL, *, sql: str | None = None) -> None:
        """Read these queues and no others, regardless of other readers. ClientError when one cannot be begun."""
        self._loop.run(self._aio.assign(queues, expression, sql=sql))

    @property
    def assignment(self) -> set[MessageQueue]:
        """The queues that are read just now."""
        return self._loop.run(_called(lambda: self._aio.assignment))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull nothing more of these queues, until `resume`."""
        self._loop.run(_called(lambda: self._aio.pause(queues)))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        self._loop.run(_called(lambda: self._aio.resume(queues)))

    def poll(
        self, timeout: float | None = POLL_SECONDS, max_messages: int = POLL_MESSAGES, *, topic: str | None = None
    ) -> list[ReceivedMessage]:
        """The next messages, of any queue or of one topic: at least one, unless none comes within `timeout` seconds.
        What the poll before returned is done."""
        return self._loop.run(self._aio.poll(timeout, max_messages, topic=topic))

    def messages(
        self, topic: str, expression: str | None = ALL, *, sql: str | None = None, timeout: float | None = None
    ) -> Iterator[ReceivedMessage]:
        """One message after another; ends when none came for `timeout` seconds. The topic is subscribed to, unless it
        is already. A message is done when the next one is asked for."""
        self._loop.run(self._aio.want(topic, expression, sql))
        while found := self.poll(timeout, topic=topic):
            used = 0
            try:
                for message in found:
                    used += 1
                    self._aio.out = found[:used]
                    yield message
            finally:
                if used < len(found) and self._loop.is_held:
                    self._loop.run(self._aio.put_back(found[used:]))

    def commit(self) -> None:
        """Everything that was returned is done: commit it. ClientError for what is not kept."""
        self._loop.run(self._aio.commit())

    def committed(self, queue: MessageQueue) -> int | None:
        """What the group has committed of a queue; None if nothing."""
        return self._loop.run(self._aio.committed(queue))

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that the caller gets of a queue; QueueNotAssigned."""
        return self._loop.run(_called(lambda: self._aio.position(queue)))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from an offset; QueueNotAssigned."""
        self._loop.run(_called(lambda: self._aio.seek(queue, offset)))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        self._loop.run(self._aio.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        self._loop.run(self._aio.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Go on from the first message that was stored at that time or later."""
        self._loop.run(self._aio.seek_to_time(queue, timestamp_ms))

    def end_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will get."""
        return self._loop.run(self._aio.end_offset(queue))


async def _called(function: Callable[[], T]) -> T:
    """A plain call, on the loop's thread."""
    return function()
