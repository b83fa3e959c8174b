"""What brokers ask a consumer: 40, 220, 221, 307, 309. The loop's thread only.

40    the members of the group changed: rebalance now
220   go on from these offsets; a map in Java's form, or a list in that of C++
221   the offsets of a topic's queues
307   what the consumer is doing, for administrators
309   handle this message now, and say what came of it
"""

import logging
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from embermq.client.message_queue import MessageQueue, parse_queue
from embermq.client.received import ReceivedMessage, parse_record
from embermq.errors import AnswerInvalid
from embermq.remoting import (
    I64,
    Call,
    Reply,
    RequestCode,
    ResponseCode,
    Row,
    key_object,
    parse_json,
    write_json,
    write_object_keyed,
)

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 8 << 20


class NotifyHeader(msgspec.Struct, rename="camel"):
    consumer_group: str


class ResetHeader(msgspec.Struct, rename="camel"):
    topic: str
    group: str
    timestamp: I64 = 0
    is_force: bool = False


class StatusHeader(msgspec.Struct, rename="camel"):
    topic: str
    group: str


class RunningHeader(msgspec.Struct, rename="camel"):
    consumer_group: str
    client_id: str = ""
    jstack_enable: bool = False


class DirectHeader(msgspec.Struct, rename="camel"):
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None


class DirectResult(msgspec.Struct, frozen=True, rename="camel"):
    """ConsumeMessageDirectlyResult."""

    consume_result: str
    order: bool
    spent_time_mills: int
    remark: str | None = None
    auto_commit: bool = True


class AskedConsumer(Protocol):
    """The consumer that answers."""

    @property
    def group(self) -> str:
        """As the brokers know it."""
        ...

    def rebalance_soon(self) -> None: ...

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]: ...

    def running_info(self) -> dict[str, Any]: ...

    def soon(self, work: Callable[[], Awaitable[None]]) -> None: ...

    async def reset(self, offsets: dict[MessageQueue, int]) -> None: ...

    async def handle_directly(self, message: ReceivedMessage) -> DirectResult: ...


class BrokerRequests:
    """Answers to brokers."""

    def __init__(self, consumer: AskedConsumer) -> None:
        self._consumer = consumer

    def rows(self) -> list[Row]:
        code = RequestCode
        return [
            Row(code.NOTIFY_CONSUMER_IDS_CHANGED, NotifyHeader, self.members_changed),
            Row(code.RESET_CONSUMER_CLIENT_OFFSET, ResetHeader, self.reset, body_bytes_max=BODY_BYTES_MAX),
            Row(code.GET_CONSUMER_STATUS_FROM_CLIENT, StatusHeader, self.status),
            Row(code.GET_CONSUMER_RUNNING_INFO, RunningHeader, self.running_info),
            Row(code.CONSUME_MESSAGE_DIRECTLY, DirectHeader, self.handle_directly, body_bytes_max=BODY_BYTES_MAX),
        ]

    def members_changed(self, call: Call[NotifyHeader]) -> Reply | None:
        if call.header.consumer_group == self._consumer.group:
            self._consumer.rebalance_soon()
        return None

    def reset(self, call: Call[ResetHeader]) -> Reply | None:
        if call.header.group != self._consumer.group:
            return None
        try:
            offsets = parse_offset_table(call.body)
        except ValueError as problem:
            log.warning("event=reset_unreadable group=%s reason=%r", call.header.group, str(problem))
            return None
        mine = {queue: offset for queue, offset in offsets.items() if queue.topic == call.header.topic}
        log.info("event=offsets_reset group=%s topic=%s queues=%d", call.header.group, call.header.topic, len(mine))
        self._consumer.soon(lambda: self._consumer.reset(mine))
        return None

    def status(self, call: Call[StatusHeader]) -> Reply:
        if call.header.group != self._consumer.group:
            return self._not_mine(call.header.group)
        offsets = self._consumer.offsets_of(call.header.topic)
        table = write_object_keyed((queue.document(), offset) for queue, offset in sorted(offsets.items()))
        return Reply(body=write_json({"consumerTable": {}, "messageQueueTable": table}))

    def running_info(self, call: Call[RunningHeader]) -> Reply:
        if call.header.consumer_group != self._consumer.group:
            return self._not_mine(call.header.consumer_group)
        info = self._consumer.running_info()
        if call.header.jstack_enable:
            info["jstack"] = thread_stacks()
        return Reply(body=write_json(info))

    def handle_directly(self, call: Call[DirectHeader]) -> Reply | None:
        if call.header.consumer_group != self._consumer.group:
            return self._not_mine(call.header.consumer_group)
        try:
            message = parse_record(call.body, call.header.broker_name or "")
        except AnswerInvalid as problem:
            return Reply(ResponseCode.SYSTEM_ERROR, str(problem))

        async def handle() -> None:
            call.answer(Reply(body=write_json(await self._consumer.handle_directly(message))))

        self._consumer.soon(handle)
        return None

    def _not_mine(self, group: str) -> Reply:
        return Reply(ResponseCode.SYSTEM_ERROR, f"the consumer group {group} is not in this client")


def parse_offset_table(body: bytes) -> dict[MessageQueue, int]:
    """The offsets of a reset, as a map with object keys or as a list; ValueError when they are neither."""
    document = parse_json(body, BODY_BYTES_MAX)
    table = document.get("offsetTable") if isinstance(document, dict) else None
    if isinstance(table, dict):
        return {parse_queue(key_object(key)): int(offset) for key, offset in table.items()}
    if isinstance(table, list):
        try:
            return {parse_queue(one): int(one["offset"]) for one in table}
        except (KeyError, TypeError) as problem:
            raise ValueError(f"no offset: {problem}") from None
    raise ValueError("there is no offsetTable in it")


def thread_stacks() -> str:
    """What every thread of this process is doing."""
    parts = []
    for number, frame in sys._current_frames().items():
        parts.append(f"thread {number}\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)


def spent_ms(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
