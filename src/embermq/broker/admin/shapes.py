"""Names and shapes that several families share. Pure."""

from typing import Any

import msgspec

from embermq.remoting import Reply, ResponseCode, write_json
from embermq.settings import BrokerRole
from embermq.store import MessageStore

QUEUES_MAX = 65_536  # of one topic


class TopicHeader(msgspec.Struct, rename="camel"):
    topic: str


class ConsumerGroupHeader(msgspec.Struct, rename="camel"):
    consumer_group: str


class TopicGroupHeader(msgspec.Struct, rename="camel"):
    topic: str
    group: str


def queue_key(broker_name: str, topic: str, queue_id: int) -> dict[str, Any]:
    """A queue as clients name it."""
    return {"brokerName": broker_name, "queueId": queue_id, "topic": topic}


def answered(document: Any) -> Reply:
    """Success, with a document for a body."""
    return Reply(body=write_json(document))


def failed(remark: str, code: int = ResponseCode.SYSTEM_ERROR) -> Reply:
    return Reply(code, remark)


def no_topic(topic: str) -> Reply:
    return failed(f"topic[{topic}] not exist", ResponseCode.TOPIC_NOT_EXIST)


def slave_objection(store: MessageStore) -> Reply | None:
    """A slave takes its tables from its master, and changes none itself."""
    if store.role is BrokerRole.SLAVE:
        return failed("Can't modify topic or subscription group from slave broker, please execute it from master")
    return None
