"""Consumer groups: listed, made, changed, deleted, who is in them, and how far they are. The loop's thread only.

A group is configured broker by broker, and its members are connected to every broker that has one of its topics; what
brokers say is joined here.
"""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from embermq.client.admin.asking import Asking, known
from embermq.client.admin.bodies import by_queue, convert, listed, table, version_name
from embermq.client.admin.topics import Topics
from embermq.client.calls import BrokerAddress
from embermq.errors import BrokerUnreachable
from embermq.model.names import dead_letter_topic, retry_topic
from embermq.remoting import RequestCode, ResponseCode, write_json


class GroupConfig(msgspec.Struct, frozen=True, rename="camel"):
    """A consumer group as one broker has it."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True


class Member(msgspec.Struct, frozen=True, rename="camel"):
    """A client that is connected."""

    client_id: str
    client_addr: str
    language: str
    version: str


class Subscribed(msgspec.Struct, frozen=True, rename="camel"):
    """What a group asks for of a topic."""

    topic: str
    expression: str
    expression_type: str


class Connections(msgspec.Struct, frozen=True, rename="camel"):
    """The members of a group that is online."""

    group: str
    consume_type: str
    message_model: str
    consume_from_where: str
    members: list[Member]
    subscriptions: list[Subscribed]


class QueueProgress(msgspec.Struct, frozen=True, rename="camel"):
    """One group in one queue. Offsets are those of the next message."""

    topic: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    lag: int
    last_timestamp: int | None  # ms; when the last consumed message was stored


class Progress(msgspec.Struct, frozen=True, rename="camel"):
    """One group in all its queues."""

    group: str
    consume_tps: float
    lag: int
    queues: list[QueueProgress]


class ListedGroup(msgspec.Struct, frozen=True, rename="camel"):
    """A group in a list of groups: `members` is 0 for one that is not online."""

    group: str
    members: int
    consume_type: str | None
    message_model: str | None
    consume_tps: float
    lag: int


class ConnectedProducer(msgspec.Struct, frozen=True, rename="camel"):
    """A producer that is connected to a broker."""

    group: str
    client_id: str
    client_addr: str
    language: str
    version: str
    last_update_timestamp: int
    broker_name: str


class MemberQueue(msgspec.Struct, frozen=True, rename="camel"):
    """A queue that a member consumes."""

    topic: str
    broker_name: str
    queue_id: int
    commit_offset: int
    cached_msg_count: int
    cached_msg_size_mib: int
    last_pull_timestamp: int | None
    last_consume_timestamp: int | None
    locked: bool
    dropped: bool


class MemberTopic(msgspec.Struct, frozen=True, rename="camel"):
    """How fast a member consumes a topic."""

    topic: str
    pull_rt: float
    pull_tps: float
    consume_rt: float
    consume_ok_tps: float
    consume_failed_tps: float
    consume_failed_msgs: int


class RunningInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What a member says of itself."""

    group: str
    client_id: str
    properties: dict[str, str]
    queues: list[MemberQueue]
    topics: list[MemberTopic]
    jstack: str | None


class _Connection(msgspec.Struct, rename="camel"):
    client_id: str = ""
    client_addr: str = ""
    language: str = ""
    version: int = 0


class _Offsets(msgspec.Struct, rename="camel"):
    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0


class _ProcessQueue(msgspec.Struct, rename="camel"):
    commit_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mi_b: int = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0
    locked: bool = False
    droped: bool = False  # RocketMQ's spelling.


class _ConsumeStatus(msgspec.Struct):
    pull_rt: float = msgspec.field(name="pullRT", default=0.0)
    pull_tps: float = msgspec.field(name="pullTPS", default=0.0)
    consume_rt: float = msgspec.field(name="consumeRT", default=0.0)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: int = msgspec.field(name="consumeFailedMsgs", default=0)


class Groups:
    """Questions about consumer groups."""

    def __init__(self, asking: Asking, topics: Topics) -> None:
        self._asking, self._topics = asking, topics

    async def names(self, cluster: str = "") -> dict[str, list[str]]:
        """Every group that a broker knows, with the names of those brokers."""
        found: dict[str, list[str]] = {}
        for place in await self._asking.places(cluster):
            for group in await self.of_broker(place):
                found.setdefault(group, []).append(place.name)
        return dict(sorted(found.items()))

    async def of_broker(self, place: BrokerAddress) -> dict[str, GroupConfig]:
        """All groups of one broker."""
        answer = await self._asking.broker(place, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, is_long=True)
        return answer.read(_configs)

    async def require(self, group: str) -> list[str]:
        """The brokers that know a group; NameUnknown, with the nearest name, if none does."""
        names = await self.names()
        return names[known("group", group, names)]

    async def summaries(self, names: Iterable[str]) -> list[ListedGroup]:
        """These groups with members and lag."""
        found = []
        for group in names:
            connections, progress = await asyncio.gather(self.connections(group), self.progress(group))
            found.append(
                ListedGroup(
                    group,
                    len(connections.members) if connections is not None else 0,
                    connections.consume_type if connections is not None else None,
                    connections.message_model if connections is not None else None,
                    progress.consume_tps,
                    progress.lag,
                )
            )
        return found

    async def configs(self, group: str) -> dict[str, GroupConfig]:
        """What each broker that knows the group says of it, by the broker's name."""
        found = {}
        for place in await self._asking.places():
            config = (await self.of_broker(place)).get(group)
            if config is not None:
                found[place.name] = config
        return found

    async def put(self, config: GroupConfig, places: Iterable[BrokerAddress]) -> None:
        """Make a group on these brokers, or change it there."""
        body = write_json(config)
        for place in places:
            await self._asking.broker(
                place, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body, group=config.group_name
            )

    async def delete(self, group: str, places: Iterable[BrokerAddress], *, keep_offsets: bool = False) -> None:
        """Delete a group, its retry topic and its dead letters on these brokers."""
        gone = list(places)
        header = {"groupName": group, "removeOffset": not keep_offsets}
        for place in gone:
            await self._asking.broker(place, RequestCode.DELETE_SUBSCRIPTIONGROUP, header, group=group)
        for topic in (retry_topic(group), dead_letter_topic(group)):
            await self._topics.delete_on(topic, gone)

    async def connections(self, group: str) -> Connections | None:
        """Its members and subscriptions; None if it is not online."""
        answers = []
        for place in await self._asking.places():
            answer = await self._asking.broker(
                place,
                RequestCode.GET_CONSUMER_CONNECTION_LIST,
                {"consumerGroup": group},
                expected=(ResponseCode.CONSUMER_NOT_ONLINE,),
            )
            if answer.code == 0:
                answers.append(answer.read(lambda body: _connections(group, body)))
        return _joined(answers) if answers else None

    async def progress(self, group: str, topic: str = "") -> Progress:
        """How far it is, in every queue of its topics, or of one; BrokerUnreachable if a broker does not answer."""
        found, silent = await self.reachable_progress(group, topic)
        if silent:
            raise silent[0]
        return found

    async def reachable_progress(self, group: str, topic: str = "") -> tuple[Progress, list[BrokerUnreachable]]:
        """The same of the brokers that answer, and those that do not: the lag is that of the queues that are seen."""
        header = {"consumerGroup": group} | ({"topic": topic} if topic else {})

        async def ask(place: BrokerAddress) -> tuple[float, list[QueueProgress]]:
            code, expected = RequestCode.GET_CONSUME_STATS, (ResponseCode.TOPIC_NOT_EXIST,)
            answer = await self._asking.broker(place, code, header, is_long=True, expected=expected)
            return answer.read(_progress) if answer.code == 0 else (0.0, [])

        parts, silent = await self._asking.reachable(await self._asking.places(), ask)
        queues = [queue for _, found in parts for queue in found]
        queues.sort(key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
        return Progress(group, sum(tps for tps, _ in parts), sum(queue.lag for queue in queues), queues), silent

    async def of_all(self, place: BrokerAddress, *, is_order: bool = False) -> list[Progress]:
        """Every group on one broker, a progress for each topic; `is_order`: only topics with an order config."""
        answer = await self._asking.broker(
            place, RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": is_order}, is_long=True
        )
        found = answer.read(_progress_of_all)
        return sorted(found, key=lambda one: (one.group, [queue.topic for queue in one.queues[:1]]))

    async def running_info(self, group: str, client_id: str, *, jstack: bool = False) -> RunningInfo:
        """What one member says of itself; it is asked through a broker that it is connected to."""
        header = {"consumerGroup": group, "clientId": client_id, "jstackEnable": jstack}
        refusal = None
        for place in await self._asking.places():
            code, expected = RequestCode.GET_CONSUMER_RUNNING_INFO, (ResponseCode.SYSTEM_ERROR,)
            answer = await self._asking.broker(place, code, header, is_long=True, expected=expected)
            if answer.code == 0:
                return answer.read(lambda body: _running_info(group, client_id, body))
            refusal = refusal or answer.refusal()
        assert refusal is not None  # There is a broker: the name server would have said so.
        raise refusal

    async def producers(self, cluster: str = "") -> list[ConnectedProducer]:
        """Every producer that is connected to a broker."""
        found: list[ConnectedProducer] = []
        for place in await self._asking.places(cluster):
            answer = await self._asking.broker(place, RequestCode.GET_ALL_PRODUCER_INFO)
            found += answer.read(partial(_producers, place.name))
        return sorted(found, key=lambda one: (one.group, one.client_id, one.broker_name))


def _configs(body: Mapping[str, Any]) -> dict[str, GroupConfig]:
    return {group: convert(value, GroupConfig) for group, value in table(body, "subscriptionGroupTable").items()}


def _connections(group: str, body: Mapping[str, Any]) -> Connections:
    members = [convert(one, _Connection) for one in listed(body, "connectionSet")]
    subscribed = table(body, "subscriptionTable")
    return Connections(
        group,
        str(body.get("consumeType", "")),
        str(body.get("messageModel", "")),
        str(body.get("consumeFromWhere", "")),
        [Member(one.client_id, one.client_addr, one.language, version_name(one.version)) for one in members],
        [
            Subscribed(topic, str(one.get("subString", "")), str(one.get("expressionType") or "TAG"))
            for topic, one in sorted(subscribed.items())
        ],
    )


def _joined(found: list[Connections]) -> Connections:
    """A member has a connection, with an address of its own, to each broker: one of them is shown."""
    members: dict[str, Member] = {}
    subscriptions: dict[str, Subscribed] = {}
    for one in found:
        for member in one.members:
            members.setdefault(member.client_id, member)
        for subscribed in one.subscriptions:
            subscriptions.setdefault(subscribed.topic, subscribed)
    return msgspec.structs.replace(
        found[0],
        members=[members[client] for client in sorted(members)],
        subscriptions=[subscriptions[topic] for topic in sorted(subscriptions)],
    )


def _progress(body: Mapping[str, Any]) -> tuple[float, list[QueueProgress]]:
    found = []
    for queue, value in by_queue(body, "offsetTable"):
        at = convert(value, _Offsets)
        found.append(
            QueueProgress(
                queue.topic,
                queue.broker,
                queue.queue_id,
                at.broker_offset,
                at.consumer_offset,
                at.broker_offset - at.consumer_offset,
                at.last_timestamp if at.last_timestamp > 0 else None,
            )
        )
    return float(body.get("consumeTps") or 0.0), found


def _progress_of_all(body: Mapping[str, Any]) -> list[Progress]:
    found = []
    for groups in listed(body, "consumeStatsList"):
        for group, parts in groups.items():
            for part in parts:
                tps, queues = _progress(part)
                found.append(Progress(str(group), tps, sum(queue.lag for queue in queues), queues))
    return found


def _running_info(group: str, client_id: str, body: Mapping[str, Any]) -> RunningInfo:
    queues = []
    for queue, value in by_queue(body, "mqTable"):
        held = convert(value, _ProcessQueue)
        queues.append(
            MemberQueue(
                queue.topic,
                queue.broker,
                queue.queue_id,
                held.commit_offset,
                held.cached_msg_count,
                held.cached_msg_size_in_mi_b,
                held.last_pull_timestamp or None,
                held.last_consume_timestamp or None,
                held.locked,
                held.droped,
            )
        )
    topics = []
    for topic, value in sorted(table(body, "statusTable").items()):
        speed = convert(value, _ConsumeStatus)
        topics.append(MemberTopic(topic, *msgspec.structs.astuple(speed)))
    properties = {name: str(value) for name, value in sorted(table(body, "properties").items())}
    jstack = body.get("jstack")
    return RunningInfo(group, client_id, properties, queues, topics, None if jstack is None else str(jstack))


def _producers(broker: str, body: Mapping[str, Any]) -> list[ConnectedProducer]:
    return [
        ConnectedProducer(
            group,
            str(one.get("clientId", "")),
            str(one.get("remoteIP", "")).removeprefix("/"),
            str(one.get("language", "")),
            version_name(int(one.get("version", 0))),
            int(one.get("lastUpdateTimestamp", 0)),
            broker,
        )
        for group, members in table(body, "data").items()
        for one in members
    ]
