"""What becomes of a message that its handler did not consume. Pure.

Concurrent:

    broadcasting              it is given up: every member has its own copy, and none is sent back
    clustering                sent back (36) with the level of the context; 0: the broker decides, -1: dead letters.
                              The broker counts the tries, and puts the message aside at the end
    ... that fails            sent to the group's retry topic as a new message, level 3 + tries
    ... that fails as well    handled again here after 5 s; the try counts

Orderly:

    tries < max               the queue waits (context.suspend, 1 s by default), then the same again
    tries >= max              sent to the retry topic, which makes it a dead letter; if that fails: as before
    broadcasting              the same, but at the end it is given up

A retried message lies in `%RETRY%group`; its property RETRY_TOPIC says where it came from, and handlers see that topic.
"""

import msgspec

from embermq.client.calls import SendBack, WireMessage
from embermq.client.received import ReceivedMessage
from embermq.model import flags
from embermq.model.names import is_retry_topic, retry_topic
from embermq.model.properties import DELAY, WAIT, encode_properties

RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"

FIRST_RETRY_LEVEL = 3
LOCAL_RETRY_SECONDS = 5.0
TIMED_OUT_LEVEL = 3
RETRIES_MAX = 16
UNLIMITED = (1 << 31) - 1

SUSPEND_SECONDS = 1.0
SUSPEND_SECONDS_MIN = 0.01
SUSPEND_SECONDS_MAX = 30.0


def origin_topic(message: ReceivedMessage) -> str:
    """The topic that the message was sent to, as the brokers know it."""
    if not is_retry_topic(message.queue.topic):
        return message.queue.topic
    return message.properties.get(RETRY_TOPIC) or message.queue.topic


def as_handled(messages: list[ReceivedMessage], namespace: str) -> list[ReceivedMessage]:
    """Messages of one queue as handlers see them: under the topic they were sent to, without the namespace."""
    if not messages or not (namespace or is_retry_topic(messages[0].queue.topic)):
        return messages
    prefix = f"{namespace}%" if namespace else ""
    return [msgspec.structs.replace(one, topic=origin_topic(one).removeprefix(prefix)) for one in messages]


def tried_again(message: ReceivedMessage) -> ReceivedMessage:
    """The same message with one more try."""
    return msgspec.structs.replace(message, reconsume_times=message.reconsume_times + 1)


def send_back_of(message: ReceivedMessage, group: str, delay_level: int, retries_max: int) -> SendBack:
    """The request that gives a message back to the broker it came from."""
    return SendBack(
        offset=message.physical_offset,
        group=group,
        delay_level=delay_level,
        origin_msg_id=message.message_id,
        origin_topic=origin_topic(message),
        max_reconsume_times=retries_max,
    )


def retry_message(message: ReceivedMessage, group: str, reconsume_times: int, retries_max: int) -> WireMessage:
    """The message as a new one for the group's retry topic. With `reconsume_times` of `retries_max` or more the broker
    makes it a dead letter."""
    properties = dict(message.properties)
    properties.pop(TRANSACTION_PREPARED, None)
    properties[RETRY_TOPIC] = origin_topic(message)
    properties.setdefault(ORIGIN_MESSAGE_ID, message.message_id)
    properties[DELAY] = str(FIRST_RETRY_LEVEL + message.reconsume_times)
    properties[WAIT] = "true"
    return WireMessage(
        group=PRODUCER_GROUP,
        topic=retry_topic(group),
        body=message.stored_body,
        properties=encode_properties(properties).decode(),
        # Of the system flag, only how the body is compressed holds for the new message as well.
        sys_flag=message.sys_flag & (flags.COMPRESSED | flags.COMPRESSION_MASK),
        flag=message.flag,
        born_timestamp=message.born_timestamp,
        reconsume_times=reconsume_times,
        max_reconsume_times=retries_max,
    )


def suspend_seconds(asked: float | None) -> float:
    """How long a queue waits after its handler failed."""
    seconds = SUSPEND_SECONDS if asked is None else asked
    return min(max(seconds, SUSPEND_SECONDS_MIN), SUSPEND_SECONDS_MAX)
