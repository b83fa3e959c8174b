"""Topics: listed, made, changed, deleted, and how full their queues are. The loop's thread only.

A topic is made broker by broker: what a name server lists is the union. Deleting goes to the brokers first, then to
every name server; messages stay in the log until it is cleaned.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from embermq.client.admin.asking import Asking
from embermq.client.admin.bodies import by_queue, convert, names, table
from embermq.client.calls import BrokerAddress
from embermq.client.topic_route import TopicRoute
from embermq.errors import BrokerUnreachable, RouteMissing
from embermq.model.names import DEFAULT_TOPIC, DLQ_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS
from embermq.remoting import RequestCode

SINGLE_TAG = "SINGLE_TAG"
ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
NORMAL, RETRY, DEAD_LETTERS, SYSTEM = "normal", "retry", "dead letters", "system"


class TopicConfig(msgspec.Struct, frozen=True, rename="camel"):
    """A topic as one broker has it."""

    topic_name: str
    read_queue_nums: int = 8
    write_queue_nums: int = 8
    perm: int = 6
    topic_filter_type: str = SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False


class TopicQueue(msgspec.Struct, frozen=True, rename="camel"):
    """How far one queue goes; `max_offset` is that of the next message."""

    topic: str
    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_update_timestamp: int | None  # ms; None of a queue without messages


class ListedTopic(msgspec.Struct, frozen=True, rename="camel"):
    """A topic, and what it is for."""

    topic: str
    kind: str


class _QueueSpan(msgspec.Struct, rename="camel"):
    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class Topics:
    """Questions about topics."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def names(self, cluster: str = "") -> list[str]:
        """The topics that the name server knows, in order; of one cluster, if it is named."""
        if cluster:
            await self._asking.places(cluster)
            answer = await self._asking.name_server(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": cluster})
        else:
            answer = await self._asking.name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return answer.read(lambda body: names(body, "topicList"))

    async def listed(self, cluster: str = "") -> list[ListedTopic]:
        """The same with what each is for: `normal`, `retry`, `dead letters` or `system`."""
        cluster_route = await self._asking.cluster()
        own = {*cluster_route.cluster_addr_table, *cluster_route.broker_addr_table}
        own |= {f"{name}_REPLY_TOPIC" for name in cluster_route.cluster_addr_table}
        return [ListedTopic(topic, _kind(topic, own)) for topic in await self.names(cluster)]

    async def route(self, topic: str) -> TopicRoute:
        """Its brokers and queues; RouteMissing, with the nearest name, if no broker has it."""
        return await self._asking.route(topic)

    async def clusters(self, topic: str) -> list[str]:
        """The clusters that have it."""
        return sorted({broker.cluster for broker in (await self.route(topic)).brokers.values()})

    async def groups(self, topic: str) -> list[str]:
        """The consumer groups that read it now, or have offsets in it."""
        found: set[str] = set()
        for place in await self._asking.topic_places(topic):
            answer = await self._asking.broker(place, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
            found |= set(answer.read(lambda body: names(body, "groupList")))
        return sorted(found)

    async def status(self, topic: str) -> list[TopicQueue]:
        """Every queue that is written to; BrokerUnreachable if one of its brokers does not answer."""
        found, silent = await self.reachable_status(topic)
        if silent:
            raise silent[0]
        return found

    async def reachable_status(self, topic: str) -> tuple[list[TopicQueue], list[BrokerUnreachable]]:
        """The same of the brokers that answer, and those that do not."""

        async def ask(place: BrokerAddress) -> list[TopicQueue]:
            code = RequestCode.GET_TOPIC_STATS_INFO
            return (await self._asking.broker(place, code, {"topic": topic}, is_long=True)).read(_status)

        parts, silent = await self._asking.reachable(await self._asking.topic_places(topic), ask)
        found = [queue for part in parts for queue in part]
        return sorted(found, key=lambda queue: (queue.broker_name, queue.queue_id)), silent

    async def configs(self, topic: str) -> dict[str, TopicConfig]:
        """What each broker that has it says of it, by the broker's name."""
        found = {}
        for place in await self._asking.topic_places(topic):
            config = (await self.of_broker(place)).get(topic)
            if config is not None:
                found[place.name] = config
        return found

    async def of_broker(self, place: BrokerAddress) -> dict[str, TopicConfig]:
        """All topics of one broker."""
        answer = await self._asking.broker(place, RequestCode.GET_ALL_TOPIC_CONFIG, is_long=True)
        return answer.read(_configs)

    async def put(self, config: TopicConfig, places: Iterable[BrokerAddress]) -> None:
        """Make a topic on these brokers, or change it there; one whose order flag is set gets an order config too."""
        changed = list(places)
        for place in changed:
            header = {
                "topic": config.topic_name,
                "defaultTopic": DEFAULT_TOPIC,
                "readQueueNums": config.read_queue_nums,
                "writeQueueNums": config.write_queue_nums,
                "perm": config.perm,
                "topicFilterType": config.topic_filter_type,
                "topicSysFlag": config.topic_sys_flag,
                "order": config.order,
            }
            await self._asking.broker(place, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        if config.order:
            await self._order(config, changed)

    async def _order(self, config: TopicConfig, changed: Iterable[BrokerAddress]) -> None:
        """Brokers take the flag from the name servers' order config: `broker-a:4;broker-b:4`."""
        key = {"namespace": ORDER_NAMESPACE, "key": config.topic_name}
        known = await self._asking.name_server(RequestCode.GET_KV_CONFIG, key, expected=(22,))
        counts = dict(part.split(":", 1) for part in (known.ext.get("value") or "").split(";") if ":" in part) | {
            place.name: str(config.write_queue_nums) for place in changed
        }
        value = ";".join(f"{name}:{count}" for name, count in sorted(counts.items()))
        await self._asking.every_name_server(RequestCode.PUT_KV_CONFIG, key | {"value": value})

    async def delete(self, topic: str, cluster: str = "") -> list[str]:
        """Delete a topic on all its brokers, or on those of a cluster; the brokers' names."""
        places = await self._asking.topic_places(topic, cluster)
        if not places:
            raise RouteMissing(topic, self._asking.name_servers, f"cluster {cluster!r} does not have it")
        await self.delete_on(topic, places, cluster)
        return [place.name for place in places]

    async def delete_on(self, topic: str, places: Iterable[BrokerAddress], cluster: str = "") -> None:
        """Delete a topic on these brokers, whether they have it or not, and from the name servers."""
        for place in places:
            await self._asking.broker(place, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        header = {"topic": topic} | ({"clusterName": cluster} if cluster else {})
        await self._asking.every_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        if not cluster:
            key = {"namespace": ORDER_NAMESPACE, "key": topic}
            await self._asking.every_name_server(RequestCode.DELETE_KV_CONFIG, key)


def _kind(topic: str, own: Iterable[str]) -> str:
    if topic.startswith(RETRY_PREFIX):
        return RETRY
    if topic.startswith(DLQ_PREFIX):
        return DEAD_LETTERS
    return SYSTEM if topic in SYSTEM_TOPICS or topic in own or topic.startswith(SYSTEM_PREFIX) else NORMAL


def _status(body: Mapping[str, Any]) -> list[TopicQueue]:
    found = []
    for queue, value in by_queue(body, "offsetTable"):
        span = convert(value, _QueueSpan)
        found.append(
            TopicQueue(
                queue.topic,
                queue.broker,
                queue.queue_id,
                span.min_offset,
                span.max_offset,
                span.last_update_timestamp or None,
            )
        )
    return found


def _configs(body: Mapping[str, Any]) -> dict[str, TopicConfig]:
    return {topic: convert(value, TopicConfig) for topic, value in table(body, "topicConfigTable").items()}
