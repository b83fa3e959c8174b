"""The entries of a queue, and which of them a group would get (321). Subscriptions are looked at on the loop; the queue
is read on another thread."""

import asyncio
from typing import Any

import msgspec
import numpy as np

from embermq.broker.admin.shapes import answered, failed
from embermq.broker.answers import Later
from embermq.broker.members import Clients, ConsumerFilters, Subscription
from embermq.broker.tables import TopicTable
from embermq.remoting import I32, I64, Call, Reply, RequestCode, Row
from embermq.store import MessageFilter, MessageStore

ENTRIES_MAX = 1000


class EntriesHeader(msgspec.Struct, rename="camel"):
    topic: str
    queue_id: I32
    index: I64
    count: I32 = 1
    consumer_group: str | None = None


class EntriesAdmin:
    """Answers with entries."""

    def __init__(
        self, store: MessageStore, topics: TopicTable, clients: Clients, filters: ConsumerFilters, later: Later
    ) -> None:
        self._store, self._topics, self._clients, self._filters, self._later = store, topics, clients, filters, later

    def rows(self) -> list[Row]:
        return [self._later.row(RequestCode.QUERY_CONSUME_QUEUE, EntriesHeader, self.entries)]

    async def entries(self, call: Call[EntriesHeader]) -> Reply:
        header = call.header
        topic = self._topics.find(header.topic)
        if topic is None or not 0 <= header.queue_id < max(topic.read_queue_nums, topic.write_queue_nums):
            return failed(f"{header.queue_id}@{header.topic} is not exist!")
        group = self._clients.consumers(header.consumer_group) if header.consumer_group else None
        subscription = group.subscriptions.get(header.topic) if group is not None else None
        by_properties = None
        if subscription is not None and not subscription.is_tag:
            by_properties = self._filters.find(header.topic, header.consumer_group or "")
        document = await asyncio.to_thread(self._document, header, subscription, by_properties)
        if document is None:
            return Reply(remark=f"Index {header.index} of {header.queue_id}@{header.topic} is not exist!")
        if header.consumer_group and subscription is None:
            document["filterData"] = f"{header.consumer_group}@{header.topic} is not online!"
        if subscription is not None:
            document["subscriptionData"] = subscription.document()
            if not subscription.is_tag:
                document["filterData"] = subscription.expression if by_properties is not None else "not registered"
        return answered(document)

    def _document(
        self, header: EntriesHeader, subscription: Subscription | None, by_properties: MessageFilter | None
    ) -> dict[str, Any] | None:
        store, place = self._store, (header.topic, header.queue_id)
        found = store.queue_entries(*place, header.index, max(1, min(header.count, ENTRIES_MAX)))
        if not found:
            return None
        del found[max(0, header.count) :]
        matches = self._matches(found, subscription, by_properties)
        return {
            "maxQueueIndex": store.max_offset(*place, wait=False),
            "minQueueIndex": store.min_offset(*place, wait=False),
            "queueData": [
                {"eval": matched, "physicOffset": at, "physicSize": size, "tagsCode": code}
                for (at, size, code), matched in zip(found, matches, strict=True)
            ],
        }

    def _matches(
        self,
        found: list[tuple[int, int, int]],
        subscription: Subscription | None,
        by_properties: MessageFilter | None,
    ) -> list[bool]:
        """For each entry: does the subscription want its message? Of a SQL filter the record is asked."""
        if subscription is None:
            return [False] * len(found)
        if not subscription.is_tag:
            records = [self._store.at(at) for at, _, _ in found] if by_properties is not None else []
            return [
                record is not None and by_properties is not None and by_properties.matches_record(record.property_bytes)
                for record in records or [None] * len(found)
            ]
        wanted = subscription.filter()
        if wanted is None:
            return [True] * len(found)
        return [bool(one) for one in wanted.matches_entry(np.array([code for _, _, code in found], np.int64), None)]
