"""Members of groups: heartbeats (34), leaving (35), who else there is (38), queue locks (41, 42), checks (46)."""

from collections.abc import Iterable
from typing import Any

import msgspec

from embermq.client.calls.caller import BrokerAddress, Caller, body_of
from embermq.client.calls.refusals import refused
from embermq.client.message_queue import MessageQueue, parse_queue
from embermq.format.java import string_hash
from embermq.model.properties import tag_texts
from embermq.remoting import Command, RequestCode, ResponseCode, parse_json, without_nulls, write_json

BODY_BYTES_MAX = 8 << 20
TAG, SQL92 = "TAG", "SQL92"


class SubscriptionData(msgspec.Struct, frozen=True):
    """What a group wants of a topic. A higher version replaces a lower one."""

    topic: str
    expression: str = "*"
    kind: str = TAG
    version: int = 0

    def document(self) -> dict[str, Any]:
        tags = sorted(tag_texts(self.expression) or ()) if self.kind == TAG else []
        return {
            "classFilterMode": False,
            "codeSet": [string_hash(tag) for tag in tags],
            "expressionType": self.kind,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": tags,
            "topic": self.topic,
        }


class ConsumerData(msgspec.Struct, frozen=True):
    """A consumer group as a heartbeat announces it, by RocketMQ's names of the choices."""

    group: str
    subscriptions: tuple[SubscriptionData, ...]
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from: str = "CONSUME_FROM_LAST_OFFSET"

    def document(self) -> dict[str, Any]:
        return {
            "consumeFromWhere": self.consume_from,
            "consumeType": self.consume_type,
            "groupName": self.group,
            "messageModel": self.message_model,
            "subscriptionDataSet": [one.document() for one in self.subscriptions],
            "unitMode": False,
        }


class Heartbeat(msgspec.Struct, frozen=True):
    """What a client says of itself to every broker."""

    client_id: str
    producer_groups: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()

    def body(self) -> bytes:
        return write_json(
            {
                "clientID": self.client_id,
                "consumerDataSet": [one.document() for one in self.consumers],
                "producerDataSet": [{"groupName": group} for group in self.producer_groups],
            }
        )


async def heartbeat(caller: Caller, to: BrokerAddress, body: bytes, seconds: float) -> int:
    """Register a client and its groups; the protocol version of the broker."""
    return (await _done(caller, to, Command(RequestCode.HEART_BEAT, body=body), seconds)).version


async def unregister(
    caller: Caller,
    to: BrokerAddress,
    client_id: str,
    seconds: float,
    *,
    producer_group: str | None = None,
    consumer_group: str | None = None,
) -> None:
    """Leave a group now, and not when the broker misses the heartbeats."""
    ext = without_nulls({"clientID": client_id, "producerGroup": producer_group, "consumerGroup": consumer_group})
    group = producer_group or consumer_group or ""
    await _done(caller, to, Command(RequestCode.UNREGISTER_CLIENT, ext=ext), seconds, group)


async def consumer_ids(caller: Caller, to: BrokerAddress, group: str, seconds: float) -> list[str]:
    """The client ids of a group's members; none if it has none."""
    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    answer = await caller.call(to, Command(code, ext={"consumerGroup": group}), seconds, group=group)
    if answer.code == ResponseCode.SYSTEM_ERROR:
        return []  # RocketMQ's answer for a group without members.
    if answer.code != ResponseCode.SUCCESS:
        raise refused(to, code, answer, group=group)
    return body_of(to, code, answer, _consumer_ids)


async def lock_queues(
    caller: Caller, to: BrokerAddress, group: str, client_id: str, queues: Iterable[MessageQueue], seconds: float
) -> set[MessageQueue]:
    """Lock queues for ordered consumption, or keep them locked; those that this client has now."""
    request = Command(RequestCode.LOCK_BATCH_MQ, body=_lock_body(group, client_id, queues))
    answer = await _done(caller, to, request, seconds, group)
    return body_of(to, RequestCode.LOCK_BATCH_MQ, answer, _locked)


async def unlock_queues(
    caller: Caller,
    to: BrokerAddress,
    group: str,
    client_id: str,
    queues: Iterable[MessageQueue],
    seconds: float | None,
) -> None:
    """Give queues to the next owner. Without `seconds` no answer is waited for."""
    request = Command(RequestCode.UNLOCK_BATCH_MQ, body=_lock_body(group, client_id, queues))
    if seconds is None:
        await caller.tell(to, request, group=group)
    else:
        await _done(caller, to, request, seconds, group)


async def check_subscription(
    caller: Caller, to: BrokerAddress, group: str, client_id: str, wanted: SubscriptionData, seconds: float
) -> None:
    """Have an SQL92 expression compiled; SubscriptionRefused, or RequestRefused where filters are switched off."""
    body = write_json({"clientId": client_id, "group": group, "subscriptionData": wanted.document()})
    await _done(caller, to, Command(RequestCode.CHECK_CLIENT_CONFIG, body=body), seconds, group, wanted.topic)


async def _done(
    caller: Caller, to: BrokerAddress, request: Command, seconds: float, group: str = "", topic: str = ""
) -> Command:
    answer = await caller.call(to, request, seconds, topic=topic, group=group)
    if answer.code != ResponseCode.SUCCESS:
        raise refused(to, request.code, answer, topic=topic, group=group)
    return answer


def _lock_body(group: str, client_id: str, queues: Iterable[MessageQueue]) -> bytes:
    listed = [queue.document() for queue in queues]
    return write_json({"clientId": client_id, "consumerGroup": group, "mqSet": listed})


def _consumer_ids(body: bytes) -> list[str]:
    document = parse_json(body, BODY_BYTES_MAX) if body else {}
    return [str(one) for one in document.get("consumerIdList") or ()]


def _locked(body: bytes) -> set[MessageQueue]:
    document = parse_json(body, BODY_BYTES_MAX) if body else {}
    return {parse_queue(one) for one in document.get("lockOKMQSet") or ()}
