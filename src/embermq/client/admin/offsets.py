"""Offsets of consumer groups: set to a time, to either end or to a number, and copied. The loop's thread only.

The offsets of a group that is online are set through its members: the broker asks each to drop what it has (222), and
the group's progress changes when they commit. Those of a group that is not online are written at the broker (15).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from embermq.client.admin.asking import ASK_SECONDS, Asking
from embermq.client.admin.bodies import by_queue
from embermq.client.admin.groups import Groups
from embermq.client.admin.messages import Messages
from embermq.client.calls import consumer_offset, update_consumer_offset
from embermq.client.message_queue import MessageQueue
from embermq.errors import NameUnknown
from embermq.remoting import RequestCode

EARLIEST, LATEST = 0, -1  # as timestamps, and as brokers understand them


class ResetQueue(msgspec.Struct, frozen=True, rename="camel"):
    """An offset that was set, or would be; `before` is None where the group had none."""

    topic: str
    broker_name: str
    queue_id: int
    before: int | None
    after: int


class Reset(msgspec.Struct, frozen=True, rename="camel"):
    """What a reset did. `is_online`: through the members of the group, whose progress follows."""

    group: str
    topic: str
    is_online: bool
    queues: list[ResetQueue]


class Offsets:
    """Changes of offsets."""

    def __init__(self, asking: Asking, groups: Groups, messages: Messages) -> None:
        self._asking, self._groups, self._messages = asking, groups, messages

    async def reset(
        self, group: str, topic: str, timestamp_ms: int, *, only_back: bool = False, dry_run: bool = False
    ) -> Reset:
        """Have a group go on at a time, at EARLIEST or LATEST, in every queue of a topic; RouteMissing.

        `only_back` leaves a queue where it is if it would skip messages.
        """
        planned = await self._planned(group, topic, timestamp_ms, only_back)
        is_online = await self._groups.connections(group) is not None
        if dry_run:
            return Reset(group, topic, is_online, planned)
        if is_online:
            return Reset(
                group, topic, True, await self._through_members(group, topic, timestamp_ms, only_back, planned)
            )
        for one in planned:
            if one.before != one.after:
                await self._write(group, MessageQueue(one.topic, one.broker_name, one.queue_id), one.after)
        return Reset(group, topic, False, planned)

    async def set(self, group: str, queue: MessageQueue, offset: int) -> ResetQueue:
        """Have a group go on at an offset of one queue. Members that are online do not notice, and overwrite it."""
        if queue not in await self._messages.queues(queue.topic):
            raise NameUnknown("queue", str(queue), ())
        before = await self._read(group, queue)
        await self._write(group, queue, offset)
        return ResetQueue(queue.topic, queue.broker, queue.queue_id, before, offset)

    async def clone(self, source: str, target: str, topic: str = "") -> list[str]:
        """Give a group the offsets of another one, in one topic or in all that it reads; the topics."""
        topics = [topic] if topic else sorted({one.topic for one in (await self._groups.progress(source)).queues})
        for name in topics:
            header = {"srcGroup": source, "destGroup": target, "topic": name, "offline": False}
            for to in await self._asking.topic_places(name):
                await self._asking.broker(to, RequestCode.CLONE_GROUP_OFFSET, header, group=source)
        return topics

    async def _planned(self, group: str, topic: str, timestamp_ms: int, only_back: bool) -> list[ResetQueue]:
        planned = []
        for queue in await self._messages.queues(topic):
            before, after = await self._read(group, queue), await self._target(queue, timestamp_ms)
            if only_back and before is not None and after > before:
                after = before
            planned.append(ResetQueue(queue.topic, queue.broker, queue.queue_id, before, after))
        return planned

    async def _target(self, queue: MessageQueue, timestamp_ms: int) -> int:
        first, end = await self._messages.span(queue)
        if timestamp_ms == LATEST:
            return end
        return first if timestamp_ms == EARLIEST else await self._messages.offset_at(queue, timestamp_ms)

    async def _through_members(
        self, group: str, topic: str, timestamp_ms: int, only_back: bool, planned: list[ResetQueue]
    ) -> list[ResetQueue]:
        header = {"topic": topic, "group": group, "timestamp": timestamp_ms, "isForce": not only_back}
        before = {(one.broker_name, one.queue_id): one.before for one in planned}
        found: list[ResetQueue] = []
        for to in await self._asking.topic_places(topic):
            answer = await self._asking.broker(to, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header, is_long=True)
            for queue, offset in answer.read(_offsets):
                was = before.get((queue.broker, queue.queue_id))
                found.append(ResetQueue(queue.topic, queue.broker, queue.queue_id, was, offset))
        return found

    async def _read(self, group: str, queue: MessageQueue) -> int | None:
        to = await self._asking.queue_place(queue)
        return await consumer_offset(self._asking.caller, to, group, queue, ASK_SECONDS)

    async def _write(self, group: str, queue: MessageQueue, offset: int) -> None:
        to = await self._asking.queue_place(queue)
        await update_consumer_offset(self._asking.caller, to, group, queue, offset, ASK_SECONDS)


def _offsets(body: Mapping[str, Any]) -> list[tuple[MessageQueue, int]]:
    return [(queue, int(offset)) for queue, offset in by_queue(body, "offsetTable")]
