"""The entries of a queue, and which of them a group would get (321). Subscriptions are looked at on the loop; the queue
is read on another thread."""

import asyncio
from typing import Any

import msgspec
import numpy as np

from embermq.broker.admin.shapes import answered, failed
from embermq.broker.clients import Clients
from embermq.broker.later import Later
from embermq.broker.subscriptions import Subscription
from embermq.broker.topics import Topics
from embermq.remoting import I32, I64, Call, Reply, RequestCode, Row
from embermq.store import MessageStore

ENTRIES_MAX = 1000


class EntriesHeader(msgspec.Struct, rename="camel"):
    topic: str
    queue_id: I32
    index: I64
    count: I32 = 1
    consumer_group: str | None = None


class EntriesAdmin:
    """Answers with entries."""

    def __init__(self, store: MessageStore, topics: Topics, clients: Clients, later: Later) -> None:
        self._store, self._topics, self._clients, self._later = store, topics, clients, later

    def rows(self) -> list[Row]:
        return [self._later.row(RequestCode.QUERY_CONSUME_QUEUE, EntriesHeader, self.entries)]

    async def entries(self, call: Call[EntriesHeader]) -> Reply:
        header = call.header
        topic = self._topics.find(header.topic)
        if topic is None or not 0 <= header.queue_id < max(topic.read_queue_nums, topic.write_queue_nums):
            return failed(f"{header.queue_id}@{header.topic} is not exist!")
        group = self._clients.consumers(header.consumer_group) if header.consumer_group else None
        subscription = group.subscriptions.get(header.topic) if group is not None else None
        document = await asyncio.to_thread(self._document, header, subscription)
        if document is None:
            return Reply(remark=f"Index {header.index} of {header.queue_id}@{header.topic} is not exist!")
        if header.consumer_group and subscription is None:
            document["filterData"] = f"{header.consumer_group}@{header.topic} is not online!"
        if subscription is not None:
            document["subscriptionData"] = subscription.document()
        return answered(document)

    def _document(self, header: EntriesHeader, subscription: Subscription | None) -> dict[str, Any] | None:
        store, place = self._store, (header.topic, header.queue_id)
        found = store.queue_entries(*place, header.index, max(1, min(header.count, ENTRIES_MAX)))
        if not found:
            return None
        del found[max(0, header.count) :]
        wanted = subscription.filter() if subscription is not None else None
        codes = np.array([code for _, _, code in found], np.int64)
        matches = (
            wanted.matches_entry(codes, None).tolist()
            if wanted is not None
            else [subscription is not None] * len(found)
        )
        return {
            "maxQueueIndex": store.max_offset(*place, wait=False),
            "minQueueIndex": store.min_offset(*place, wait=False),
            "queueData": [
                {"eval": matched, "physicOffset": at, "physicSize": size, "tagsCode": code}
                for (at, size, code), matched in zip(found, matches, strict=True)
            ],
        }
