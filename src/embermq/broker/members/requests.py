"""Clients (34, 35, 38, 41, 42, 46): heartbeats, members of a group, queue locks. The loop's thread."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from embermq.broker.answers import Later
from embermq.broker.members.clients import Clients, ConsumerGroup, Member, parse_heartbeat
from embermq.broker.members.consumer_filters import ConsumerFilters
from embermq.broker.members.queue_locks import QueueLocks, QueueName
from embermq.broker.members.subscriptions import from_heartbeat
from embermq.broker.tables import UNIT_SUBSCRIPTION_FLAG, GroupTable, TopicTable
from embermq.clock import Clock
from embermq.model.names import is_group_name, retry_topic
from embermq.remoting import (
    Call,
    Command,
    NoHeader,
    Reply,
    RequestCode,
    ResponseCode,
    Row,
    parse_json,
    write_json,
)
from embermq.settings import BrokerSettings

log = logging.getLogger(__name__)


class UnregisterHeader(msgspec.Struct, rename="camel"):
    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class MemberListHeader(msgspec.Struct, rename="camel"):
    consumer_group: str


class ClientRequests:
    """Answers about who is there."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        clients: Clients,
        filters: ConsumerFilters,
        locks: QueueLocks,
        clock: Clock,
        later: Later,
    ) -> None:
        self._topics, self._groups, self._filters, self._later = topics, groups, filters, later
        self._clients, self._locks, self._clock = clients, locks, clock

    def rows(self) -> list[Row]:
        return [
            Row(RequestCode.HEART_BEAT, NoHeader, self.heartbeat),
            Row(RequestCode.UNREGISTER_CLIENT, UnregisterHeader, self.unregister),
            Row(RequestCode.GET_CONSUMER_LIST_BY_GROUP, MemberListHeader, self.members),
            self._later.row(RequestCode.LOCK_BATCH_MQ, NoHeader, self.lock),
            Row(RequestCode.UNLOCK_BATCH_MQ, NoHeader, self.unlock),
            Row(RequestCode.CHECK_CLIENT_CONFIG, NoHeader, self.check_config),
        ]

    def heartbeat(self, call: Call[NoHeader]) -> Reply:
        now_ms = self._clock.now_ms()
        try:
            beat = parse_heartbeat(call.body, now_ms)
        except ValueError as problem:
            return Reply(ResponseCode.SYSTEM_ERROR, f"the heartbeat cannot be read: {problem}")
        request = call.request
        member = Member(call.peer, beat.client_id, request.language, request.version, self._clock.monotonic(), now_ms)
        for data in beat.consumers:
            config = self._groups.find(data.group) if is_group_name(data.group) else None
            if config is not None:
                flag = UNIT_SUBSCRIPTION_FLAG if data.unit_mode else 0
                self._topics.ensure(retry_topic(data.group), config.retry_queue_nums, sys_flag=flag)
            if not self._clients.register_consumer(member, data):
                return _too_many()
            self._filters.register(data.group, data.subscriptions)
        for group in beat.producers:
            if not self._clients.register_producer(member, group):
                return _too_many()
        return Reply()

    def unregister(self, call: Call[UnregisterHeader]) -> Reply:
        header = call.header
        self._clients.leave(call.peer, header.consumer_group, header.producer_group)
        return Reply(ext={})

    def members(self, call: Call[MemberListHeader]) -> Reply:
        group = self._clients.consumers(call.header.consumer_group)
        if group is None:
            return Reply(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {call.header.consumer_group}", {})
        return Reply(ext={}, body=write_json({"consumerIdList": group.client_ids()}))

    async def lock(self, call: Call[NoHeader]) -> Reply:
        asked = _locking(call.body)
        if asked is None:
            return Reply(ResponseCode.SYSTEM_ERROR, "the queues to lock cannot be read")
        group, client_id, queues = asked
        held = self._locks.lock(group, client_id, queues, self._clock.monotonic())
        if self._locks.has_new_owners:
            try:
                await asyncio.to_thread(self._locks.save)
            except OSError as problem:
                log.warning("queue locks are not written down: %s", problem)
        return Reply(body=write_json({"lockOKMQSet": [_queue(queue) for queue in held]}))

    def unlock(self, call: Call[NoHeader]) -> Reply:
        asked = _locking(call.body)
        if asked is None:
            return Reply(ResponseCode.SYSTEM_ERROR, "the queues to unlock cannot be read")
        self._locks.unlock(*asked)
        return Reply()

    def check_config(self, call: Call[NoHeader]) -> Reply:
        """Whether a subscription can be served: asked before a consumer with an expression starts."""
        try:
            document = parse_json(call.body)
        except ValueError:
            document = None
        data = document.get("subscriptionData") if isinstance(document, dict) else None
        subscription = from_heartbeat(data, self._clock.now_ms())
        objection = None if subscription is None else self._filters.objection(subscription)
        return Reply() if objection is None else Reply(objection.code, objection.remark)


def notify_members(settings: Callable[[], BrokerSettings], groups: GroupTable) -> Callable[[ConsumerGroup], None]:
    """Tell all members of a group that its members or topics changed (40): they share the queues out anew."""

    def notify(group: ConsumerGroup) -> None:
        config = groups.known(group.name)
        if not settings().notify_ids_changed or (config is not None and not config.notify_consumer_ids_changed_enable):
            return
        for member in list(group.members.values()):
            member.peer.tell(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext={"consumerGroup": group.name}))

    return notify


def _locking(body: bytes) -> tuple[str, str, list[QueueName]] | None:
    """Group, client and queues of a lock request; None when it is none."""
    try:
        document = parse_json(body)
        group, client_id = str(document["consumerGroup"]), str(document["clientId"])
        queues = [
            QueueName(str(one["topic"]), str(one["brokerName"]), int(one["queueId"]))
            for one in document.get("mqSet") or []
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return group, client_id, queues


def _queue(queue: QueueName) -> dict[str, Any]:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def _too_many() -> Reply:
    return Reply(ResponseCode.SYSTEM_BUSY, "too many clients are registered (emberMaxClients)")
