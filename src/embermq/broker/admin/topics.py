"""Topics by request (17, 21, 215, 305, 351). The loop's thread; saving and deleting on another.

A topic that is deleted loses its configuration first, durably, then its queues: producers may go on sending meanwhile,
and each message belongs to the old topic or to a new one. Offsets of groups stay, as in RocketMQ.
"""

import asyncio
from collections.abc import Callable

import msgspec

from embermq.broker.admin.shapes import QUEUES_MAX, TopicHeader, answered, failed, no_topic, slave_objection
from embermq.broker.answers import Later
from embermq.broker.routing import Announcements, topic_document
from embermq.broker.statistics import Statistics
from embermq.broker.tables import TopicTable
from embermq.model.names import topic_objection
from embermq.remoting import I32, Call, NoHeader, Reply, RequestCode, Row
from embermq.settings import BrokerSettings
from embermq.store import MessageStore
from embermq.store.tables import MULTI_TAG, SINGLE_TAG, TopicConfig

PERM_MAX = 15


class TopicChangeHeader(msgspec.Struct, rename="camel"):
    topic: str
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_filter_type: str
    topic_sys_flag: I32 = 0


class TopicAdmin:
    """Answers about topics."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        store: MessageStore,
        topics: TopicTable,
        statistics: Statistics,
        announcements: Announcements,
        later: Later,
    ) -> None:
        self._settings, self._store, self._topics = settings, store, topics
        self._statistics, self._announcements, self._later = statistics, announcements, later

    def rows(self) -> list[Row]:
        return [
            self._later.row(RequestCode.UPDATE_AND_CREATE_TOPIC, TopicChangeHeader, self.change),
            Row(RequestCode.GET_ALL_TOPIC_CONFIG, NoHeader, self.all, blocking=True),
            self._later.row(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader, self.delete),
            Row(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, NoHeader, self.system),
            Row(RequestCode.GET_TOPIC_CONFIG, TopicHeader, self.one, note="of 5.x tools"),
        ]

    async def change(self, call: Call[TopicChangeHeader]) -> Reply:
        header = call.header
        objection = self._objection(header.topic) or self._shape_objection(header)
        if objection is not None:
            return objection
        config = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag,
        )
        self._topics.put(config)
        announced = self._announcements.of_now()
        await asyncio.to_thread(self._topics.save)
        if announced is not None:
            await asyncio.shield(announced)  # Others may wait for it as well.
        return Reply()

    async def delete(self, call: Call[TopicHeader]) -> Reply:
        topic = call.header.topic
        objection = self._objection(topic)
        if objection is not None:
            return objection
        self._topics.remove(topic)
        self._statistics.forget_topic(topic)
        await asyncio.to_thread(self._delete_stored, topic)
        return Reply()

    def _delete_stored(self, topic: str) -> None:
        self._topics.save()
        self._store.delete_topic(topic)

    def all(self, _call: Call[NoHeader]) -> Reply:
        return Reply(ext={}, body=self._topics.document().encode())

    def system(self, _call: Call[NoHeader]) -> Reply:
        return answered({"topicList": self._topics.system_topics()})

    def one(self, call: Call[TopicHeader]) -> Reply:
        config = self._topics.find(call.header.topic)
        if config is None:
            return no_topic(call.header.topic)
        return answered(topic_document(config) | {"attributes": config.others.get("attributes", {})})

    # -- checks ----------------------------------------------------------------------------------------------

    def _objection(self, topic: str) -> Reply | None:
        if (why := topic_objection(topic)) is not None:
            return failed(why)
        if self._topics.is_system(topic):
            return failed(f"The topic[{topic}] is conflict with system topic.")
        return slave_objection(self._store)

    def _shape_objection(self, header: TopicChangeHeader) -> Reply | None:
        for number in (header.read_queue_nums, header.write_queue_nums):
            if not 0 <= number <= QUEUES_MAX:
                return failed(f"topic[{header.topic}]: {number} queues; 0 to {QUEUES_MAX} are possible")
        if not 0 <= header.perm <= PERM_MAX:
            return failed(f"topic[{header.topic}]: the permission {header.perm} has unknown bits")
        if header.topic_filter_type not in (SINGLE_TAG, MULTI_TAG):
            return failed(f"topic[{header.topic}]: topicFilterType is {SINGLE_TAG} or {MULTI_TAG}")
        if self._topics.find(header.topic) is None and not self._topics.has_room:
            return failed(f"there are {self._settings().names_max} topics already (emberMaxNames)")
        return None
