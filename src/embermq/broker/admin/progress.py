"""How far topics and groups are (202, 208, 303, 317). What clients subscribe to is looked at on the loop; times of
messages are read from the disk, on another thread."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from embermq.broker.admin.shapes import TopicGroupHeader, TopicHeader, answered, no_topic, queue_key
from embermq.broker.answers import Later
from embermq.broker.members import Clients
from embermq.broker.statistics import Statistics
from embermq.broker.tables import ConsumerOffsets, GroupTable, TopicTable
from embermq.clock import Clock
from embermq.remoting import Call, Reply, RequestCode, Row, write_object_keyed
from embermq.settings import BrokerSettings
from embermq.store import MessageStore
from embermq.store.tables import TopicConfig


class ConsumeStatsHeader(msgspec.Struct, rename="camel"):
    consumer_group: str
    topic: str | None = None


class AllConsumeStatsHeader(msgspec.Struct, rename="camel"):
    is_order: bool = False


class QueueProgress(msgspec.Struct, frozen=True):
    """One group in one queue."""

    key: dict[str, Any]
    broker_offset: int
    consumer_offset: int
    last_ms: int

    @property
    def entry(self) -> tuple[dict[str, Any], dict[str, int]]:
        return self.key, {
            "brokerOffset": self.broker_offset,
            "consumerOffset": self.consumer_offset,
            "lastTimestamp": self.last_ms,
        }


class ProgressAdmin:
    """Answers about progress."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        clients: Clients,
        statistics: Statistics,
        clock: Clock,
        address: Callable[[], str],
        later: Later,
    ) -> None:
        self._settings, self._store, self._topics, self._groups = settings, store, topics, groups
        self._offsets, self._clients, self._statistics = offsets, clients, statistics
        self._clock, self._address, self._later = clock, address, later

    def rows(self) -> list[Row]:
        return [
            Row(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader, self.of_topic, blocking=True),
            self._later.row(RequestCode.GET_CONSUME_STATS, ConsumeStatsHeader, self.of_group),
            Row(RequestCode.QUERY_CONSUME_TIME_SPAN, TopicGroupHeader, self.time_span, blocking=True),
            self._later.row(RequestCode.GET_BROKER_CONSUME_STATS, AllConsumeStatsHeader, self.of_all_groups),
        ]

    # -- one topic -------------------------------------------------------------------------------------------

    def of_topic(self, call: Call[TopicHeader]) -> Reply:
        topic = call.header.topic
        config = self._topics.find(topic)
        if config is None:
            return no_topic(topic)
        return answered(
            {"offsetTable": write_object_keyed(self._topic_queue(topic, n) for n in range(config.write_queue_nums))}
        )

    def _topic_queue(self, topic: str, queue_id: int) -> tuple[Any, Any]:
        oldest = max(0, self._store.min_offset(topic, queue_id))
        newest = max(0, self._store.max_offset(topic, queue_id, wait=False))
        updated_ms = self._store.store_time(topic, queue_id, newest - 1) if newest > oldest else 0
        return self._key(topic, queue_id), {
            "lastUpdateTimestamp": max(0, updated_ms),
            "maxOffset": newest,
            "minOffset": oldest,
        }

    # -- groups ----------------------------------------------------------------------------------------------

    async def of_group(self, call: Call[ConsumeStatsHeader]) -> Reply:
        header = call.header
        topics = [header.topic] if header.topic else self._offsets.topics_of(header.consumer_group)
        configs = self._read_by(header.consumer_group, topics)
        tps = sum(self._statistics.group_tps(config.topic_name, header.consumer_group) for config in configs)
        found = await asyncio.to_thread(
            lambda: [
                one for config in configs for one in self._queues(header.consumer_group, config, config.read_queue_nums)
            ]
        )
        return answered(_stats(found, tps))

    async def of_all_groups(self, call: Call[AllConsumeStatsHeader]) -> Reply:
        read_by = {
            group: [
                (config, self._statistics.group_tps(config.topic_name, group))
                for config in self._read_by(group, self._offsets.topics_of(group))
                if config.order or not call.header.is_order
            ]
            for group in self._groups.all()
        }
        listed, behind = await asyncio.to_thread(self._measure, read_by)
        return answered({"brokerAddr": self._address(), "consumeStatsList": listed, "totalDiff": behind})

    def _measure(self, read_by: dict[str, list[tuple[TopicConfig, float]]]) -> tuple[list[dict[str, Any]], int]:
        listed, behind = [], 0
        for group, topics in read_by.items():
            measured = [(self._queues(group, config, config.write_queue_nums), tps) for config, tps in topics]
            behind += sum(one.broker_offset - one.consumer_offset for found, _ in measured for one in found)
            listed.append({group: [_stats(found, tps) for found, tps in measured]})
        return listed, behind

    def _read_by(self, group: str, topics: Iterable[str]) -> list[TopicConfig]:
        """The topics that exist; of a group that is online, those that it subscribes to."""
        online = self._clients.consumers(group)
        wanted = online.subscriptions.keys() if online is not None and online.subscriptions else None
        configs = [self._topics.find(topic) for topic in topics if wanted is None or topic in wanted]
        return [config for config in configs if config is not None]

    def _queues(self, group: str, config: TopicConfig, queues: int) -> list[QueueProgress]:
        topic = config.topic_name
        committed = self._offsets.of_group(group, topic)
        return [self._queue(topic, queue_id, committed.get(queue_id, -1)) for queue_id in range(queues)]

    def _queue(self, topic: str, queue_id: int, committed: int) -> QueueProgress:
        newest = max(0, self._store.max_offset(topic, queue_id, wait=False))
        last_ms = self._store.store_time(topic, queue_id, committed - 1) if committed > 0 else 0
        return QueueProgress(self._key(topic, queue_id), newest, max(0, committed), max(0, last_ms))

    # -- times -----------------------------------------------------------------------------------------------

    def time_span(self, call: Call[TopicGroupHeader]) -> Reply:
        header = call.header
        config = self._topics.find(header.topic)
        if config is None:
            return no_topic(header.topic)
        committed = self._offsets.of_group(header.group, header.topic)
        spans = [self._span(header.topic, n, committed.get(n, -1)) for n in range(config.write_queue_nums)]
        return answered({"consumeTimeSpanSet": spans})

    def _span(self, topic: str, queue_id: int, committed: int) -> dict[str, Any]:
        store = self._store
        oldest_ms = store.earliest_time(topic, queue_id)
        newest = store.max_offset(topic, queue_id, wait=False)
        consumed_ms = store.store_time(topic, queue_id, committed - 1) if committed > 0 else oldest_ms
        delay_ms = 0
        if committed < newest and (next_ms := store.store_time(topic, queue_id, max(0, committed))) >= 0:
            delay_ms = self._clock.now_ms() - next_ms
        return {
            "consumeTimeStamp": consumed_ms,
            "delayTime": max(0, delay_ms),
            "maxTimeStamp": store.store_time(topic, queue_id, newest - 1) if newest > 0 else -1,
            "messageQueue": self._key(topic, queue_id),
            "minTimeStamp": oldest_ms,
        }

    def _key(self, topic: str, queue_id: int) -> dict[str, Any]:
        return queue_key(self._settings().broker_name, topic, queue_id)


def _stats(found: Iterable[QueueProgress], tps: float) -> dict[str, Any]:
    return {"consumeTps": float(tps), "offsetTable": write_object_keyed(one.entry for one in found)}
