"""Offset tables for slaves and tools: whole (43, 45), corrected (308), cloned (314)."""

import asyncio

import msgspec

from embermq.broker.admin.shapes import answered
from embermq.broker.answers import Later
from embermq.broker.members import Clients
from embermq.broker.tables import ConsumerOffsets, TopicTable
from embermq.remoting import Call, NoHeader, Reply, RequestCode, Row
from embermq.store import MessageStore

_DELAY_KEY = "scheduleMessageOffset_"
BEYOND = 2**63 - 1


class CorrectionHeader(msgspec.Struct, rename="camel"):
    topic: str
    compare_group: str
    filter_groups: str = ""


class CloneHeader(msgspec.Struct, rename="camel"):
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class OffsetAdmin:
    """Answers about the offset tables."""

    def __init__(
        self, store: MessageStore, topics: TopicTable, offsets: ConsumerOffsets, clients: Clients, later: Later
    ) -> None:
        self._store, self._topics, self._offsets = store, topics, offsets
        self._clients, self._later = clients, later

    def rows(self) -> list[Row]:
        return [
            Row(RequestCode.GET_ALL_CONSUMER_OFFSET, NoHeader, self.all, blocking=True),
            Row(RequestCode.GET_ALL_DELAY_OFFSET, NoHeader, self.delays, blocking=True),
            Row(RequestCode.QUERY_CORRECTION_OFFSET, CorrectionHeader, self.correction),
            self._later.row(
                RequestCode.CLONE_GROUP_OFFSET, CloneHeader, self.clone, note="without a topic, all topics are copied"
            ),
        ]

    def all(self, _call: Call[NoHeader]) -> Reply:
        return Reply(body=self._offsets.document().encode())

    def delays(self, _call: Call[NoHeader]) -> Reply:
        info = self._store.runtime_info()
        levels = {
            name.removeprefix(_DELAY_KEY): int(text.partition(",")[0])
            for name, text in info.items()
            if name.startswith(_DELAY_KEY)
        }
        return answered({"offsetTable": levels})

    def correction(self, call: Call[CorrectionHeader]) -> Reply:
        """The smallest offset of each queue over all groups but those left out; a queue in which the compared group is
        behind it has no correction."""
        header = call.header
        left_out = {group.strip() for group in header.filter_groups.split(",")}
        smallest: dict[int, int] = {}
        for group in self._offsets.groups_of(header.topic):
            for queue_id, offset in self._offsets.of_group(group, header.topic).items():
                is_there = offset >= self._store.min_offset(header.topic, queue_id, wait=False)
                if group not in left_out and is_there:
                    smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
        compared = self._offsets.of_group(header.compare_group, header.topic)
        for queue_id, offset in compared.items():
            if smallest.get(queue_id, BEYOND) > offset:
                smallest[queue_id] = BEYOND
        return answered({"correctionOffsets": dict(sorted(smallest.items()))})

    async def clone(self, call: Call[CloneHeader]) -> Reply:
        header = call.header
        topics = [header.topic] if header.topic else self._offsets.topics_of(header.src_group)
        online = self._clients.consumers(header.src_group)
        for topic in topics:
            is_read = online is None or not online.subscriptions or topic in online.subscriptions
            if self._topics.find(topic) is not None and (header.offline or is_read):
                self._offsets.copy(header.src_group, header.dest_group, topic)
        await asyncio.to_thread(self._offsets.save)
        return Reply()
