"""Which clients are there, and what they read (203, 204, 328, 300, 343, 345). The loop's thread."""

from typing import Any

import msgspec

from embermq.broker.admin.shapes import ConsumerGroupHeader, TopicGroupHeader, TopicHeader, answered, failed
from embermq.broker.members import Clients, Member
from embermq.broker.tables import ConsumerOffsets
from embermq.remoting import Call, NoHeader, Reply, RequestCode, ResponseCode, Row, without_nulls


class ProducerGroupHeader(msgspec.Struct, rename="camel"):
    producer_group: str


class GroupHeader(msgspec.Struct):
    group: str


class ConnectionAdmin:
    """Answers about clients."""

    def __init__(self, clients: Clients, offsets: ConsumerOffsets) -> None:
        self._clients, self._offsets = clients, offsets

    def rows(self) -> list[Row]:
        return [
            Row(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader, self.consumers),
            Row(RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupHeader, self.producers),
            Row(RequestCode.GET_ALL_PRODUCER_INFO, NoHeader, self.all_producers),
            Row(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader, self.groups_of_topic),
            Row(RequestCode.QUERY_TOPICS_BY_CONSUMER, GroupHeader, self.topics_of_group),
            Row(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, TopicGroupHeader, self.subscription),
        ]

    def consumers(self, call: Call[ConsumerGroupHeader]) -> Reply:
        name = call.header.consumer_group
        group = self._clients.consumers(name)
        if group is None:
            return failed(f"the consumer group[{name}] not online", ResponseCode.CONSUMER_NOT_ONLINE)
        return answered(
            {
                "connectionSet": [_connection(member) for member in group.members.values()],
                "consumeFromWhere": group.from_where,
                "consumeType": group.consume_type,
                "messageModel": group.model,
                "subscriptionTable": {topic: one.document() for topic, one in group.subscriptions.items()},
            }
        )

    def producers(self, call: Call[ProducerGroupHeader]) -> Reply:
        name = call.header.producer_group
        members = self._clients.producers(name)
        if not members:
            return failed(f"the producer group[{name}] not exist")
        return answered({"connectionSet": [_connection(member) for member in members]})

    def all_producers(self, _call: Call[NoHeader]) -> Reply:
        groups = self._clients.producer_groups()
        return answered({"data": {name: [_producer(one) for one in members] for name, members in groups.items()}})

    def groups_of_topic(self, call: Call[TopicHeader]) -> Reply:
        topic = call.header.topic
        groups = {*self._clients.groups_consuming(topic), *self._offsets.groups_of(topic)}
        return answered({"groupList": sorted(groups)})

    def topics_of_group(self, call: Call[GroupHeader]) -> Reply:
        return answered({"topicList": self._offsets.topics_of(call.header.group)})

    def subscription(self, call: Call[TopicGroupHeader]) -> Reply:
        header = call.header
        group = self._clients.consumers(header.group)
        found = group.subscriptions.get(header.topic) if group is not None else None
        document = {
            "group": header.group,
            "subscriptionData": found.document() if found is not None else None,
            "topic": header.topic,
        }
        return answered(without_nulls(document))


def _connection(member: Member) -> dict[str, Any]:
    return without_nulls(
        {
            "clientAddr": str(member.peer.host),
            "clientId": member.client_id,
            "language": member.language,
            "version": member.version,
        }
    )


def _producer(member: Member) -> dict[str, Any]:
    return without_nulls(
        {
            "clientId": member.client_id,
            "language": member.language,
            "lastUpdateTimestamp": member.seen_ms,
            "remoteIP": f"/{member.peer.host}",
            "version": member.version,
        }
    )
