"""TopicRoute: which brokers have a topic, with how many queues, and at which addresses. Pure.

master           broker id 0; takes messages
write queues     0 .. writeQueueNums - 1 of every broker that may be written to and has a master
read queues      0 .. readQueueNums - 1 of every broker that may be read from
orderTopicConf   `broker-a:4;broker-b:4`: the queues of an ordered topic, whatever is registered just now
"""

from typing import Any

import msgspec

from embermq.client.message_queue import MessageQueue
from embermq.remoting import parse_json

MASTER = 0
MAY_WRITE = 2
MAY_READ = 4
BODY_BYTES_MAX = 8 << 20


class QueueData(msgspec.Struct, frozen=True, rename="camel"):
    """The queues of a topic at one broker."""

    broker_name: str
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 6
    topic_sys_flag: int = 0


class BrokerData(msgspec.Struct, frozen=True, rename="camel"):
    """The addresses of a broker and its slaves, by broker id."""

    broker_name: str
    broker_addrs: dict[int, str]
    cluster: str = ""

    @property
    def master(self) -> str | None:
        return self.broker_addrs.get(MASTER)

    def address(self, broker_id: int = MASTER) -> str | None:
        """Of this id; of any other, the lowest first, if that one is not there."""
        if broker_id in self.broker_addrs:
            return self.broker_addrs[broker_id]
        return self.broker_addrs[min(self.broker_addrs)] if self.broker_addrs else None


class TopicRoute(msgspec.Struct, frozen=True):
    """What a name server knows of one topic."""

    topic: str
    queues: tuple[QueueData, ...] = ()
    brokers: dict[str, BrokerData] = {}
    order_config: str = ""

    def write_queues(self) -> list[MessageQueue]:
        """Every queue that messages may be sent to."""
        if self.order_config:
            return self._ordered_queues()
        return [
            MessageQueue(self.topic, data.broker_name, queue_id)
            for data in self.queues
            if data.perm & MAY_WRITE and self.has_master(data.broker_name)
            for queue_id in range(data.write_queue_nums)
        ]

    def read_queues(self) -> list[MessageQueue]:
        """Every queue that messages may be pulled from."""
        return [
            MessageQueue(self.topic, data.broker_name, queue_id)
            for data in self.queues
            if data.perm & MAY_READ
            for queue_id in range(data.read_queue_nums)
        ]

    def has_master(self, broker: str) -> bool:
        return broker in self.brokers and self.brokers[broker].master is not None

    def address(self, broker: str, broker_id: int = MASTER) -> str | None:
        """Where a broker listens; None if it is not in the route."""
        data = self.brokers.get(broker)
        return None if data is None else data.address(broker_id)

    def _ordered_queues(self) -> list[MessageQueue]:
        found: list[MessageQueue] = []
        for part in self.order_config.split(";"):
            broker, _, count = part.partition(":")
            if broker and count.isdigit():
                found += [MessageQueue(self.topic, broker, queue_id) for queue_id in range(int(count))]
        return found


class _RouteBody(msgspec.Struct, rename="camel"):
    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    order_topic_conf: str | None = None


class ClusterRoute(msgspec.Struct, frozen=True, rename="camel"):
    """All brokers that a name server knows, and which cluster has which."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


def parse_route(topic: str, body: bytes) -> TopicRoute:
    """TopicRouteData, with quoted or bare broker ids; ValueError when it cannot be read."""
    read: _RouteBody = _converted(body, _RouteBody)
    return TopicRoute(
        topic,
        tuple(sorted(read.queue_datas, key=lambda data: data.broker_name)),
        {data.broker_name: data for data in read.broker_datas},
        read.order_topic_conf or "",
    )


def parse_cluster(body: bytes) -> ClusterRoute:
    """ClusterInfo; ValueError when it cannot be read."""
    cluster: ClusterRoute = _converted(body, ClusterRoute)
    return cluster


def _converted(body: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(parse_json(body, BODY_BYTES_MAX), kind, strict=False)
    except msgspec.ValidationError as problem:
        raise ValueError(str(problem)) from None
