"""Offsets of queues (29 to 32) and of consumer groups (14, 15)."""

import msgspec

from embermq.client.calls.caller import BrokerAddress, Caller, fields_of
from embermq.client.calls.refusals import refused
from embermq.client.message_queue import MessageQueue
from embermq.remoting import Command, RequestCode, ResponseCode


class _Offset(msgspec.Struct):
    offset: int


class _Timestamp(msgspec.Struct):
    timestamp: int


async def min_offset(caller: Caller, to: BrokerAddress, queue: MessageQueue, seconds: float) -> int:
    """The offset of the oldest message that is left."""
    return await _offset(caller, to, RequestCode.GET_MIN_OFFSET, queue, {}, seconds)


async def max_offset(caller: Caller, to: BrokerAddress, queue: MessageQueue, seconds: float) -> int:
    """The offset that the next message will get."""
    return await _offset(caller, to, RequestCode.GET_MAX_OFFSET, queue, {}, seconds)


async def search_offset(
    caller: Caller, to: BrokerAddress, queue: MessageQueue, timestamp_ms: int, seconds: float
) -> int:
    """The first message that was stored at this time or later; the last one if all are older."""
    extra = {"timestamp": str(timestamp_ms)}
    return await _offset(caller, to, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, extra, seconds)


async def earliest_store_time(caller: Caller, to: BrokerAddress, queue: MessageQueue, seconds: float) -> int | None:
    """When the oldest message was stored; None if there is none."""
    answer = await _asked(caller, to, RequestCode.GET_EARLIEST_MSG_STORETIME, queue, {}, seconds)
    timestamp = fields_of(to, RequestCode.GET_EARLIEST_MSG_STORETIME, answer, _Timestamp).timestamp
    return None if timestamp < 0 else timestamp


async def consumer_offset(
    caller: Caller, to: BrokerAddress, group: str, queue: MessageQueue, seconds: float
) -> int | None:
    """Where a group goes on; None where the broker knows no offset, and the group's start policy decides."""
    ext = _fields(queue) | {"consumerGroup": group}
    code = RequestCode.QUERY_CONSUMER_OFFSET
    answer = await caller.call(to, Command(code, ext=ext), seconds, topic=queue.topic, group=group)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise refused(to, code, answer, topic=queue.topic, group=group)
    offset = fields_of(to, code, answer, _Offset).offset
    return None if offset < 0 else offset


async def update_consumer_offset(
    caller: Caller, to: BrokerAddress, group: str, queue: MessageQueue, offset: int, seconds: float | None
) -> None:
    """Commit an offset: the next message that the group wants. Without `seconds` no answer is waited for."""
    ext = _fields(queue) | {"consumerGroup": group, "commitOffset": str(offset)}
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    request = Command(code, ext=ext)
    if seconds is None:
        await caller.tell(to, request, topic=queue.topic, group=group)
        return
    answer = await caller.call(to, request, seconds, topic=queue.topic, group=group)
    if answer.code != ResponseCode.SUCCESS:
        raise refused(to, code, answer, topic=queue.topic, group=group)


def _fields(queue: MessageQueue) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id)}


async def _offset(
    caller: Caller, to: BrokerAddress, code: RequestCode, queue: MessageQueue, extra: dict[str, str], seconds: float
) -> int:
    return fields_of(to, code, await _asked(caller, to, code, queue, extra, seconds), _Offset).offset


async def _asked(
    caller: Caller, to: BrokerAddress, code: RequestCode, queue: MessageQueue, extra: dict[str, str], seconds: float
) -> Command:
    answer = await caller.call(to, Command(code, ext=_fields(queue) | extra), seconds, topic=queue.topic)
    if answer.code != ResponseCode.SUCCESS:
        raise refused(to, code, answer, topic=queue.topic)
    return answer
