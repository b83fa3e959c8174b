"""A cluster behind name servers: what a read or write asks of it, through the client's core.

    with Cluster(place) as cluster:
        cluster.run(cluster.queue_ends(["orders"]))

Topics and groups are spoken of as users do: with a namespace they are called otherwise on the wire, which is seen to
here, but for routes and for what is sent (`place.on_wire`).

The coroutines run on the client's background loop; `run`, `start`, `open` and `close` are called by one other thread. A
broker that does not answer is asked again until `patience_ms` are over, with its route looked up anew: it may come
back, elsewhere, or its slave may answer. A cluster that is not `patient` raises the first failure.
"""

import asyncio
import concurrent.futures
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

from embermq.client import MessageQueue
from embermq.client.calls import (
    TAG,
    BrokerAddress,
    Caller,
    ConsumerData,
    Heartbeat,
    Pull,
    Pulled,
    SubscriptionData,
    body_of,
    heartbeat,
    max_offset,
    min_offset,
    pull,
    refused,
    search_offset,
    unregister,
    update_consumer_offset,
)
from embermq.client.name_servers import NameServers
from embermq.client.namespaces import with_namespace, without_namespace
from embermq.client.received import parse_records
from embermq.client.routes import Routes
from embermq.client.runtime import HeldRuntime
from embermq.client.settings import new_client_id
from embermq.client.topic_route import BrokerData
from embermq.errors import BrokerBusy, BrokerUnreachable, ClientError, NameServersUnreachable
from embermq.remoting import Command, Connector, RequestCode, ResponseCode, parse_json
from embermq.spark.options.access import AS_NO_ONE, ClusterAccess
from embermq.spark.planning.offsets import ReadableQueue
from embermq.spark.wire.time_search import first_at

T = TypeVar("T")
QueueName = tuple[str, str, int]  # topic, broker name, queue id

CALL_SECONDS = 10.0
DEFAULT_GROUP = "embermq-spark"
_RETRY = "%RETRY%"
_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.05, 1.0
_ASKED_AT_ONCE = 64
_LIST_BYTES_MAX = 64 << 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """Where a cluster is, and in whose name it is asked. Goes to workers, so it holds plain values only."""

    name_servers: tuple[str, ...]
    group: str = DEFAULT_GROUP
    patience_ms: int = 60_000
    access: ClusterAccess = AS_NO_ONE

    def __str__(self) -> str:
        names = ";".join(self.name_servers)
        return f"namespace {self.access.namespace} of {names}" if self.access.namespace else f"the cluster of {names}"

    def on_wire(self, name: str) -> str:
        """What brokers call a topic or group."""
        return with_namespace(name, self.access.namespace)


class Cluster:
    """Connections to one cluster."""

    def __init__(self, place: ClusterPlace, *, patient: bool = True) -> None:
        self.place = place
        self._patience_seconds = place.patience_ms / 1000 if patient else 0.0
        self._loop = HeldRuntime("the connection to the cluster", "is not open")
        self._caller: Caller | None = None
        self._routes: Routes | None = None
        self._gate: asyncio.Semaphore | None = None
        self._unreachable: set[str] = set()

    # -- from the caller's thread --------------------------------------------------------------------------------

    def open(self) -> Self:
        # A worker of Spark's may have SIGPIPE end it (cancelled_tasks.py). That is about the pipe to Spark and not
        # about brokers: the loop's thread inherits a mask in which the signal is blocked.
        former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
        try:
            self._loop.start(self._connect())
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, former)
        return self

    def close(self) -> None:
        self._loop.end(self._disconnect)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(coroutine)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        return self._loop.current.start(coroutine)

    # -- on the loop: what there is ------------------------------------------------------------------------------

    async def _connect(self) -> None:
        access = self.place.access
        tls = None if access.tls is None else access.tls.context()
        self._caller = Caller(Connector(tls=tls), access.credentials)
        self._routes = Routes(self._caller, NameServers(self.place.name_servers), CALL_SECONDS)
        self._gate = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def _disconnect(self) -> None:
        await self.caller.connector.close()

    @property
    def caller(self) -> Caller:
        assert self._caller is not None
        return self._caller

    @property
    def routes(self) -> Routes:
        assert self._routes is not None
        return self._routes

    async def topics(self) -> list[str]:
        """All topics that the name servers know; in a namespace, those of it."""

        async def ask(to: BrokerAddress) -> list[str]:
            request = Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            answer = await self.caller.call(to, request, CALL_SECONDS)
            if answer.code != ResponseCode.SUCCESS:
                raise refused(to, request.code, answer)
            return body_of(to, request.code, answer, _topic_list)

        found = await self.patiently(lambda: self.routes.name_servers.ask(ask))
        namespace = self.place.access.namespace
        return [own for name in found if (own := without_namespace(name, namespace)) != name or not namespace]

    async def queue_ends(self, topics: Iterable[str], *, skip_unreachable: bool = False) -> list[ReadableQueue]:
        """Every queue of the topics with what it has now. With `skip_unreachable`, queues of a broker that does not
        answer are left out, with a warning."""
        routes = await asyncio.gather(*(self.patiently(partial(self._fetched, topic)) for topic in topics))
        queues = sorted({queue for found in routes for queue in found})
        ends = await asyncio.gather(*(self._ends(queue, skip_unreachable) for queue in queues))
        return [one for one in ends if one is not None]

    async def _fetched(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, asked for anew; none if the topic is gone."""
        route = await self.routes.fetch(self.place.on_wire(topic))
        return [] if route is None else [one._replace(topic=topic) for one in route.read_queues()]

    async def _ends(self, queue: MessageQueue, skip_unreachable: bool) -> ReadableQueue | None:
        called = self._called(queue)

        async def ask(to: BrokerAddress) -> ReadableQueue:
            lowest, highest = await asyncio.gather(
                min_offset(self.caller, to, called, CALL_SECONDS), max_offset(self.caller, to, called, CALL_SECONDS)
            )
            return ReadableQueue(*queue, max(0, lowest), max(0, lowest, highest))

        try:
            found = await self._of_broker(queue, ask, once=skip_unreachable)
        except (BrokerUnreachable, NameServersUnreachable) as problem:
            if not skip_unreachable:
                raise
            if queue.broker not in self._unreachable:
                _log.warning("broker left out until it answers broker=%s reason=%s", queue.broker, problem)
                self._unreachable.add(queue.broker)
            return None
        self._unreachable.discard(queue.broker)
        return found

    async def offset_at(self, ends: ReadableQueue, time_ms: int) -> int:
        """The first offset stored at a time or later; the end of the queue if there is none."""
        queue = MessageQueue(ends.topic, ends.broker_name, ends.queue_id)
        called = self._called(queue)
        hint = await self._of_broker(queue, lambda to: search_offset(self.caller, to, called, time_ms, CALL_SECONDS))
        return await first_at(time_ms, ends.min_offset, ends.max_offset, hint, lambda at: self._time_of(queue, at))

    async def offsets_at(self, asked: Iterable[tuple[ReadableQueue, int]]) -> dict[tuple[ReadableQueue, int], int]:
        wanted = list(dict.fromkeys(asked))
        found = await asyncio.gather(*(self.offset_at(*one) for one in wanted))
        return dict(zip(wanted, found, strict=True))

    async def _time_of(self, queue: MessageQueue, offset: int) -> int | None:
        pulled = await self.pull(queue, offset, 1)
        for record in parse_records(pulled.records, queue.broker):
            return record.store_timestamp
        return None

    async def message_bytes(self, queue: MessageQueue, offset: int) -> tuple[int, int]:
        """A sample of a queue: so many messages have so many bytes."""
        pulled = await self.pull(queue, offset, 32)
        return max(0, pulled.next_offset - offset) if pulled.records else 0, len(pulled.records)

    # -- on the loop: messages and progress ----------------------------------------------------------------------

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        count: int,
        expression: str = "*",
        kind: str = TAG,
        bulk_bytes: int | None = None,
    ) -> Pulled:
        """What the broker has of a queue from an offset on; it answers at once. With `bulk_bytes`, a broker that knows
        how answers about so much, others a few messages."""
        group, topic = self.place.on_wire(self.place.group), self.place.on_wire(queue.topic)
        wanted = Pull(
            group,
            topic,
            queue.queue_id,
            offset,
            max_count=count,
            expression=expression,
            kind=kind,
            bulk_bytes=bulk_bytes,
        )
        return await self._of_broker(queue, lambda to: pull(self.caller, to, wanted, CALL_SECONDS))

    async def commit(self, group: str, offsets: Mapping[QueueName, int]) -> None:
        """Say how far a group is; ClientError if a broker does not take it."""
        await asyncio.gather(*(self._commit(group, MessageQueue(*name), at) for name, at in offsets.items()))

    async def _commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        known, called = self.place.on_wire(group), self._called(queue)
        await self._of_broker(
            queue,
            lambda to: update_consumer_offset(self.caller, to, known, called, offset, CALL_SECONDS),
            once=True,
        )

    async def make_known(self, group: str, topics: Iterable[str]) -> None:
        """Have the brokers know a group that has no consumers, as RocketMQ's tools look for its retry topic: by a
        heartbeat, and leaving at once."""
        group = self.place.on_wire(group)
        if await self.routes.fetch(_RETRY + group) is not None:
            return
        client_id = new_client_id(self.place.name_servers)
        subscriptions = tuple(SubscriptionData(self.place.on_wire(topic)) for topic in topics)
        body = Heartbeat(client_id, consumers=(ConsumerData(group, subscriptions, "CONSUME_ACTIVELY"),)).body()

        async def join_and_leave(to: BrokerAddress) -> None:
            await heartbeat(self.caller, to, body, CALL_SECONDS)
            await unregister(self.caller, to, client_id, CALL_SECONDS, consumer_group=group)

        for name, data in self.routes.brokers().items():
            if data.master is not None:
                try:
                    await join_and_leave(BrokerAddress(name, data.master))
                except ClientError as problem:
                    _log.warning("group not announced group=%s broker=%s reason=%s", group, name, problem)

    def _called(self, queue: MessageQueue) -> MessageQueue:
        """The queue as its broker knows it."""
        return queue._replace(topic=self.place.on_wire(queue.topic))

    # -- patience ------------------------------------------------------------------------------------------------

    async def patiently(self, question: Callable[[], Awaitable[T]]) -> T:
        """The answer to a question, asked again while no one answers."""
        deadline, pause = time.monotonic() + self._patience_seconds, _PAUSE_SECONDS
        while True:
            try:
                return await question()
            except (BrokerUnreachable, NameServersUnreachable, BrokerBusy):
                if time.monotonic() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    async def _of_broker(
        self, queue: MessageQueue, question: Callable[[BrokerAddress], Awaitable[T]], *, once: bool = False
    ) -> T:
        """The answer of a queue's broker, or of a slave of it."""
        is_again = False

        async def ask() -> T:
            nonlocal is_again
            data = await self._broker(queue, again=is_again)
            is_again = True
            problem = BrokerUnreachable(queue.broker, "", "a request", "no address of it is known", is_sent=False)
            for broker_id in sorted(data.broker_addrs):
                try:
                    return await question(BrokerAddress(queue.broker, data.broker_addrs[broker_id]))
                except BrokerUnreachable as failed:
                    problem = failed
            raise problem

        assert self._gate is not None
        async with self._gate:
            return await (ask() if once else self.patiently(ask))

    async def _broker(self, queue: MessageQueue, *, again: bool) -> BrokerData:
        """Where a queue's broker is; asked for anew after a failure."""
        topic = self.place.on_wire(queue.topic)
        route = self.routes.find(topic)
        if route is None or again:
            route = await self.routes.fetch(topic)
        known = None if route is None else route.brokers.get(queue.broker)
        if known is None:
            reason = f"the name servers ({', '.join(self.place.name_servers)}) do not know it now"
            raise BrokerUnreachable(queue.broker, "", "a request", reason, topic=queue.topic, is_sent=False)
        return known


def _topic_list(body: bytes) -> list[str]:
    document = parse_json(body, _LIST_BYTES_MAX) if body else {}
    return [str(one) for one in document.get("topicList") or ()]
