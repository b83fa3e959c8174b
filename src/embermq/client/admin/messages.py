"""Messages over the wire: by key, by id, by place, and a queue read page by page. The loop's thread only.

An administrator reads with a group of RocketMQ's own tools and the expression in each pull: no offset of any group is
changed, and no group needs to be online. What an index answers is checked against the message's own keys: hashes
collide.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple, Self

import msgspec

from embermq.client.admin.asking import ASK_SECONDS, Asking
from embermq.client.admin.bodies import convert, listed
from embermq.client.calls import (
    TAG,
    BrokerAddress,
    Pull,
    PullStatus,
    max_offset,
    min_offset,
    pull,
    query,
    search_offset,
    view,
)
from embermq.client.message_queue import MessageQueue
from embermq.errors import AnswerInvalid, BrokerBusy, BrokerUnreachable, NameServersUnreachable, NameUnknown
from embermq.format.frame import Frame, decode
from embermq.format.frame_message import as_message
from embermq.model.ids import parse_message_id
from embermq.model.message import StoredMessage
from embermq.remoting import RequestCode

TOOLS_GROUP = "TOOLS_CONSUMER"
FOREVER_MS = 2**63 - 1
HOLD_MS = 15_000
RETRY_SECONDS = 1.0


class FoundMessage(NamedTuple):
    """A message and the broker that has it."""

    broker: str
    message: StoredMessage

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.message.topic, self.broker, self.message.queue_id)


class Page(msgspec.Struct, frozen=True):
    """Messages of a queue from an offset on. `is_end`: there is nothing after them now."""

    messages: list[FoundMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    is_end: bool


class QueueEntry(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of a consume queue: where its record is in the log, and whether a group that is online would get it."""

    queue_offset: int
    physic_offset: int
    physic_size: int
    tags_code: int
    matches: bool | None  # None where no group was named


class _Entry(msgspec.Struct, rename="camel"):
    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    is_match: bool = msgspec.field(name="eval", default=False)


class WantedMessages(msgspec.Struct, frozen=True):
    """Which messages of a topic: tags joined by `||`, or a condition (`kind` SQL92)."""

    expression: str = "*"
    kind: str = TAG
    group: str = TOOLS_GROUP


EVERYTHING = WantedMessages()


class Messages:
    """Questions for messages."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def by_key(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = FOREVER_MS, limit: int = 64
    ) -> list[FoundMessage]:
        """Messages with a key, or with this unique key, oldest first; RouteMissing."""
        found = await self._queried(topic, key, begin_ms, end_ms, limit, is_unique_key=False)
        return [one for one in found if key in one.message.keys or key == one.message.unique_key]

    async def by_unique_id(self, topic: str, unique_id: str) -> list[FoundMessage]:
        """Messages with the id that their producer gave them, oldest first: a retried message is stored more often."""
        found = await self._queried(topic, unique_id, 0, FOREVER_MS, 32, is_unique_key=True)
        return [one for one in found if one.message.unique_key == unique_id]

    async def _queried(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int, *, is_unique_key: bool
    ) -> list[FoundMessage]:
        found: list[FoundMessage] = []
        for to in await self._asking.topic_places(topic):
            records = await query(
                self._asking.caller,
                to,
                topic,
                key,
                ASK_SECONDS,
                max_count=limit,
                begin_ms=begin_ms,
                end_ms=end_ms,
                is_unique_key=is_unique_key,
            )
            found += _messages(to, records)
        found = [one for one in found if one.message.topic == topic]
        return sorted(found, key=lambda one: (one.message.store_timestamp, one.broker, one.message.physical_offset))

    async def by_id(self, message_id: str) -> FoundMessage | None:
        """The message with an id that a broker gave; None if it has none there. MessageIdInvalid, NameUnknown."""
        host, physical_offset = parse_message_id(message_id)
        to = await self._asking.place(str(host))
        if not to.name:
            hint = "an id that a producer gave is looked for by topic and unique id"
            raise NameUnknown("broker", str(host), (), f"the message id {message_id} names it; {hint}")
        record = await view(self._asking.caller, to, physical_offset, ASK_SECONDS)
        found = [] if record is None else _messages(to, record)
        return found[0] if found else None

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be read; RouteMissing."""
        return (await self._asking.route(topic)).read_queues()

    async def page(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        wanted: WantedMessages = EVERYTHING,
        count: int = 32,
        hold_ms: int = 0,
    ) -> Page:
        """Messages of a queue from an offset on; at its end the broker may wait for one for `hold_ms`."""
        to = await self._place(queue)
        asked = Pull(
            wanted.group,
            queue.topic,
            queue.queue_id,
            offset,
            max_count=count,
            hold_ms=hold_ms,
            expression=wanted.expression,
            kind=wanted.kind,
        )
        answer = await pull(self._asking.caller, to, asked, ASK_SECONDS)
        is_stuck = answer.status is not PullStatus.FOUND and answer.next_offset <= offset
        return Page(
            _messages(to, answer.records),
            answer.next_offset,
            answer.min_offset,
            answer.max_offset,
            answer.status is PullStatus.NO_NEW or is_stuck,
        )

    async def entries(self, queue: MessageQueue, offset: int, *, count: int = 10, group: str = "") -> list[QueueEntry]:
        """Entries of a queue from an offset on; empty where there are none. With `group`, whether it would get each."""
        header = {"topic": queue.topic, "queueId": queue.queue_id, "index": offset, "count": count}
        header |= {"consumerGroup": group} if group else {}
        answer = await self._asking.broker(await self._place(queue), RequestCode.QUERY_CONSUME_QUEUE, header)
        found = answer.read(lambda body: [convert(one, _Entry) for one in listed(body, "queueData")])
        return [
            QueueEntry(offset + n, one.physic_offset, one.physic_size, one.tags_code, one.is_match if group else None)
            for n, one in enumerate(found)
        ]

    async def span(self, queue: MessageQueue) -> tuple[int, int]:
        """The offset of the oldest message, and that of the next one."""
        caller, to = self._asking.caller, await self._place(queue)
        first = await min_offset(caller, to, queue, ASK_SECONDS)
        return max(0, first), await max_offset(caller, to, queue, ASK_SECONDS)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message that was stored at this time or later; the end of the queue if there is none.

        Brokers answer with the last message for a time after it, with the nearest one for a time between two, and with
        any of those that were stored in the same millisecond: from there the first is looked for.
        """
        to = await self._place(queue)
        first, end = await self.span(queue)
        guess = await search_offset(self._asking.caller, to, queue, timestamp_ms, ASK_SECONDS)
        low, high = first, end  # Before `low` all are earlier, from `high` on none is.
        at, step = min(max(guess, first), end - 1), 1
        while low < high:
            if await self._is_earlier(queue, at, timestamp_ms):
                low = at + 1
                at = at + step if high == end else -1
            else:
                high = at
                at = at - step if low == first else -1
            step *= 2  # Away from the guess in growing steps; halves between both sides.
            if not low <= at < high:
                at = (low + high) // 2
        return low

    async def _is_earlier(self, queue: MessageQueue, offset: int, timestamp_ms: int) -> bool:
        """Whether the message was stored before this time; one that is gone was."""
        found = (await self.page(queue, offset, count=1)).messages
        return not found or found[0].message.queue_offset != offset or found[0].message.store_timestamp < timestamp_ms

    def tail(self, positions: Iterable[tuple[MessageQueue, int]], wanted: WantedMessages = EVERYTHING) -> "Tail":
        """The messages of queues from these offsets on, as they come."""
        return Tail(self, positions, wanted)

    def forget_places(self) -> None:
        """Brokers may have come back at other addresses."""
        self._asking.forget_places()

    async def _place(self, queue: MessageQueue) -> BrokerAddress:
        return await self._asking.queue_place(queue)


class Tail:
    """Queues that are followed, by one held pull each. A broker that does not answer, or has unregistered, is asked
    again after a second."""

    def __init__(
        self, messages: Messages, positions: Iterable[tuple[MessageQueue, int]], wanted: WantedMessages
    ) -> None:
        self._messages, self._wanted = messages, wanted
        self._positions = dict(positions)
        self._pulls: dict[asyncio.Task[Page | None], MessageQueue] = {}

    async def next(self, seconds: float) -> list[FoundMessage]:
        """What has come, oldest first; nothing, if nothing comes within `seconds`."""
        for queue in self._positions.keys() - set(self._pulls.values()):
            self._pulls[asyncio.create_task(self._pull(queue))] = queue
        done, _ = await asyncio.wait(self._pulls, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        found: list[FoundMessage] = []
        for task in done:
            queue = self._pulls.pop(task)
            page = task.result()
            if page is not None:
                found += page.messages
                self._positions[queue] = page.next_offset
        return sorted(found, key=lambda one: (one.message.store_timestamp, one.queue, one.message.queue_offset))

    async def close(self) -> None:
        for task in self._pulls:
            task.cancel()
        await asyncio.gather(*self._pulls, return_exceptions=True)
        self._pulls.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_problem: object) -> None:
        await self.close()

    async def _pull(self, queue: MessageQueue) -> Page | None:
        try:
            return await self._messages.page(queue, self._positions[queue], wanted=self._wanted, hold_ms=HOLD_MS)
        except (BrokerUnreachable, NameServersUnreachable, NameUnknown, BrokerBusy):
            self._messages.forget_places()
            await asyncio.sleep(RETRY_SECONDS)
            return None


def _messages(to: BrokerAddress, records: bytes) -> list[FoundMessage]:
    """The messages of stored records; AnswerInvalid when one does not add up."""
    found, at = [], 0
    while at < len(records):
        frame = decode(records, at, len(records), physical_offset=None, check_crc=True)
        if not isinstance(frame, Frame):
            raise AnswerInvalid("stored records", str(to), f"{frame!r} at byte {at} of {len(records):,}")
        found.append(FoundMessage(to.name, as_message(frame)))
        at += frame.size
    return found
