"""Messages that a consumer could not process (36): back to the broker, to be retried later or put aside.

The message is stored again in the retry topic of its group, delayed by a level that grows with each try, and at the end
in the dead-letter topic. The record is read from the log, so this runs on a request's thread.
"""

import random
from collections.abc import Callable

import msgspec

from embermq.broker.sending.sends import OWN_RETRY_LIMIT_VERSION
from embermq.broker.tables import UNIT_SUBSCRIPTION_FLAG, GroupTable, TopicTable
from embermq.errors import StoreError
from embermq.model.message import Message, StoredMessage
from embermq.model.names import dead_letter_topic, retry_topic
from embermq.model.properties import DELAY, WAIT
from embermq.remoting import I32, I64, Call, Reply, RequestCode, ResponseCode, Row
from embermq.settings import BrokerRole, BrokerSettings
from embermq.store import MessageStore
from embermq.store.tables import PERM_WRITE, GroupConfig

RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
FIRST_RETRY_LEVEL = 3


class SendBackHeader(msgspec.Struct, rename="camel"):
    offset: I64
    group: str
    delay_level: I32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None


class SendBacks:
    """Answers to consumers that give a message back."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        stored: Callable[[str, str], None],
    ) -> None:
        """`stored` is called with the message's topic and the group, on a request's thread."""
        self._settings, self._store, self._topics, self._groups = settings, store, topics, groups
        self._stored = stored

    def rows(self) -> list[Row]:
        return [Row(RequestCode.CONSUMER_SEND_MSG_BACK, SendBackHeader, self.send_back, blocking=True)]

    def send_back(self, call: Call[SendBackHeader]) -> Reply:
        header = call.header
        if self._store.role is BrokerRole.SLAVE:
            return Reply(ResponseCode.SYSTEM_ERROR, "this broker is a SLAVE; give messages back to its master")
        group = self._groups.find(header.group)
        if group is None:
            return Reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {header.group}")
        if not self._settings().permission & PERM_WRITE:
            return Reply(
                ResponseCode.NO_PERMISSION, f"the broker[{self._store.settings.broker_ip}] sending message is forbidden"
            )
        if group.retry_queue_nums <= 0:
            return Reply()
        flag = UNIT_SUBSCRIPTION_FLAG if header.unit_mode else 0
        topic = self._topics.ensure(retry_topic(header.group), group.retry_queue_nums, sys_flag=flag)
        if topic is None:
            return Reply(ResponseCode.SYSTEM_ERROR, f"topic[{retry_topic(header.group)}] not exist")
        if not topic.is_writable:
            return Reply(ResponseCode.NO_PERMISSION, f"the topic[{topic.topic_name}] sending message is forbidden")
        found = self._store.at(header.offset) if header.offset >= 0 else None
        if found is None:
            return Reply(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        return self._store_again(call, group, found)

    def _store_again(self, call: Call[SendBackHeader], group: GroupConfig, found: StoredMessage) -> Reply:
        header = call.header
        most = group.retry_max_times
        if call.request.version >= OWN_RETRY_LIMIT_VERSION and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        properties = dict(found.properties)
        properties.setdefault(RETRY_TOPIC, found.topic)
        properties.setdefault(ORIGIN_MESSAGE_ID, found.message_id)
        properties[WAIT] = "false"
        if found.reconsume_times >= most or header.delay_level < 0:
            target = self._topics.ensure(dead_letter_topic(header.group), 1)
            if target is None:
                return Reply(ResponseCode.SYSTEM_ERROR, f"topic[{dead_letter_topic(header.group)}] not exist")
            name, queue_id = target.topic_name, 0
            properties[DELAY] = "0"  # Without effect, and kept in the record, as in RocketMQ.
        else:
            name, queue_id = retry_topic(header.group), random.randrange(group.retry_queue_nums)
            properties[DELAY] = str(header.delay_level or FIRST_RETRY_LEVEL + found.reconsume_times)
        try:
            self._store.append(
                Message(
                    topic=name,
                    body=found.body,
                    properties=properties,
                    queue_id=queue_id,
                    flag=found.flag,
                    sys_flag=found.sys_flag,
                    born_timestamp=found.born_timestamp,
                    born_host=found.born_host,
                    store_host=found.store_host,
                    reconsume_times=found.reconsume_times + 1,
                    wait_for_store=False,
                )
            )
        except StoreError as problem:
            return Reply(ResponseCode.SYSTEM_ERROR, str(problem))
        self._stored(found.topic, header.group)
        return Reply()
