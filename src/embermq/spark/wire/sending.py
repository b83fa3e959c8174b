"""Sends the rows of one partition to a cluster, each once: what an earlier attempt has stored is recognised.

    row 0         asked for by its key; if it is not there nothing is, and all rows are sent
    if it is      chunk by chunk, each row is asked for and sent if it is missing; behind the first chunk that was not
                  whole nothing was sent before (sent_rows.py)
    no answer     to a send: the broker is asked, until it answers, which of the rows it has; the others are sent again

That is exactly once into EmberMQ, whose index has every message by the time it is acknowledged. Apache RocketMQ's index
comes later, and may be off: at least once. The rows of a queue go one request at a time, in order; several queues at
once. The loop's thread only.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator

from embermq.client import MessageQueue
from embermq.client.calls import BrokerAddress, WireMessage, query, send
from embermq.client.received import parse_records
from embermq.client.topic_route import TopicRoute
from embermq.errors import BrokerBusy, BrokerReadOnly, BrokerUnreachable, MessageRejected, RouteMissing
from embermq.format.client_batch import encode_batch_items
from embermq.model.message import BatchItem
from embermq.model.properties import SCHEDULE_TOPIC
from embermq.spark.wire.cluster import CALL_SECONDS, Cluster
from embermq.spark.wire.sent_rows import SentRow, chosen_queue, chunked, is_signed, requests_of

_ASKED_AT_ONCE = 64


class PartitionSender:
    """The rows of one attempt at one partition."""

    def __init__(self, cluster: Cluster, producer: str, group: str, born_ms: int, *, recognise: bool) -> None:
        self._cluster, self._producer, self._group, self._born_ms = cluster, producer, group, born_ms
        self._recognise = recognise  # Without unique keys nothing can be found again.
        self._may_be_there = recognise
        self._gate = asyncio.Semaphore(_ASKED_AT_ONCE)
        self.sent = self.found = 0

    async def send_chunk(self, rows: list[SentRow]) -> None:
        """Have all rows of the next chunk stored when this returns."""
        missing = await self._missing(rows) if self._may_be_there else rows
        self._may_be_there = self._may_be_there and not missing
        self.found += len(rows) - len(missing)
        by_queue: dict[MessageQueue, list[SentRow]] = {}
        for row in missing:
            by_queue.setdefault(await self._queue(row), []).append(row)
        await asyncio.gather(*(self._send_queue(queue, listed) for queue, listed in by_queue.items()))
        self.sent += len(missing)

    async def _queue(self, row: SentRow) -> MessageQueue:
        route = await self._route(self._on_wire(row.topic))
        queue = chosen_queue(row, route.write_queues())
        if queue is not None:
            return queue
        if row.queue_id is None:
            raise RouteMissing(row.topic, self._cluster.place.name_servers, "no broker of it takes messages now")
        ids = sorted({one.queue_id for one in route.write_queues()})
        raise MessageRejected(f"row {row.number}: topic {row.topic} has no queue {row.queue_id}; its queues: {ids}")

    async def _route(self, topic: str) -> TopicRoute:
        return await self._cluster.patiently(lambda: self._cluster.routes.route_to_send(topic))

    def _on_wire(self, topic: str) -> str:
        return self._cluster.place.on_wire(topic)

    async def _send_queue(self, queue: MessageQueue, rows: Iterable[SentRow]) -> None:
        for request in requests_of(rows):
            await self._send_request(queue, request)

    async def _send_request(self, queue: MessageQueue, rows: list[SentRow]) -> None:
        """Send some rows until they are stored; what got no answer is asked for before it is sent again."""
        deadline = time.monotonic() + self._cluster.place.patience_ms / 1000
        pause = 0.05
        while rows:
            try:
                await send(self._cluster.caller, await self._master(queue), self._message(queue, rows), CALL_SECONDS)
                return
            except (BrokerUnreachable, BrokerBusy, BrokerReadOnly) as problem:
                if time.monotonic() + pause > deadline:
                    raise
                is_open = isinstance(problem, BrokerUnreachable) and problem.is_sent and self._recognise
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)
            if is_open:
                rows = await self._missing(rows)
            await self._cluster.patiently(lambda: self._cluster.routes.fetch(queue.topic))

    async def _master(self, queue: MessageQueue) -> BrokerAddress:
        route = await self._route(queue.topic)
        data = route.brokers.get(queue.broker)
        if data is None or data.master is None:
            raise BrokerUnreachable(
                queue.broker,
                "",
                "a send",
                "the name servers know no master of it now",
                topic=queue.topic,
                is_sent=False,
            )
        return BrokerAddress(queue.broker, data.master)

    def _message(self, queue: MessageQueue, rows: list[SentRow]) -> WireMessage:
        if len(rows) == 1:
            body, properties, is_batch = rows[0].body, rows[0].properties.decode(), False
        else:
            items = [BatchItem(row.body, encoded_properties=row.properties) for row in rows]
            body, properties, is_batch = encode_batch_items(items), "", True
        return WireMessage(
            self._on_wire(self._group),
            queue.topic,
            body,
            properties,
            queue_id=queue.queue_id,
            born_timestamp=self._born_ms,
            is_batch=is_batch,
        )

    # -- what is there -------------------------------------------------------------------------------------------

    async def _missing(self, rows: list[SentRow]) -> list[SentRow]:
        """Those of the rows that no broker has."""
        there = await asyncio.gather(*(self._is_there(row) for row in rows))
        return [row for row, found in zip(rows, there, strict=True) if not found]

    async def _is_there(self, row: SentRow) -> bool:
        called = self._on_wire(row.topic)
        route = await self._route(called)
        topics = (called, SCHEDULE_TOPIC) if row.has_meaning else (called,)
        for name in sorted(route.brokers):
            for topic in topics:
                if await self._has(name, topic, row):
                    return True
        return False

    async def _has(self, broker: str, topic: str, row: SentRow) -> bool:
        queue = MessageQueue(self._on_wire(row.topic), broker, 0)

        async def ask() -> bytes:
            to = await self._master(queue)
            return await query(self._cluster.caller, to, topic, row.unique_key, CALL_SECONDS, is_unique_key=True)

        async with self._gate:
            records = await self._cluster.patiently(ask)
        return any(is_signed(one.properties, self._producer, row.number) for one in parse_records(records, broker))


def send_rows(cluster: Cluster, sender: PartitionSender, rows: Iterator[SentRow]) -> None:
    """Send all rows of a partition; from the thread of the task."""
    for chunk in chunked(rows):
        cluster.run(sender.send_chunk(chunk))
