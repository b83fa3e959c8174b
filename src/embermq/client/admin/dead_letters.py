"""Dead letters of a group over the wire: listed, and sent again one by one. The loop's thread only.

A message that the consumers of a group gave back until the broker gave up lies in %DLQ%group, and says in its
properties where it was sent to (RETRY_TOPIC) and its first id (ORIGIN_MESSAGE_ID). It is sent again to that topic, so
that every group gets it; to the retry topic of its group, so that only that one does; or to another topic. It keeps its
body as stored, its tags, keys, unique id and the user's properties, and gets RESENT_FROM, the id that it has as a dead
letter: what was sent again before is recognised by it and not sent twice. The dead letter stays where it is.
"""

import time
from collections.abc import Sequence

import msgspec

from embermq.client.admin.asking import ASK_SECONDS, Asking
from embermq.client.admin.messages import FOREVER_MS, FoundMessage, Messages
from embermq.client.calls import BrokerAddress, SendStatus, WireMessage, send
from embermq.client.message_queue import MessageQueue
from embermq.errors import ClientError, NameUnknown, RouteMissing
from embermq.model.flags import COMPRESSED, COMPRESSION_MASK
from embermq.model.message import StoredMessage
from embermq.model.names import dead_letter_topic, retry_topic, topic_objection
from embermq.model.properties import DELAY, REAL_QUEUE_ID, REAL_TOPIC, WAIT, encode_properties

ORIGIN_TOPIC, ORIGIN_ID, RESENT_FROM = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "RESENT_FROM"
PRODUCER_GROUP = "TOOLS_PRODUCER"
# What brokers and clients put there for one delivery: a delay, a transaction or a count would be begun again.
_NOT_AGAIN = frozenset(
    (
        DELAY,
        REAL_TOPIC,
        REAL_QUEUE_ID,
        WAIT,
        ORIGIN_TOPIC,
        ORIGIN_ID,
        "CLUSTER",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "RECONSUME_TIME",
        "MAX_RECONSUME_TIMES",
        "CONSUME_START_TIME",
        "TRAN_MSG",
        "PGROUP",
        "TRANSACTION_CHECK_TIMES",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "__transactionId__",
        "TIMER_DELIVER_MS",
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
    )
)
SENT, SKIPPED, FAILED = "sent", "skipped", "failed"


class DeadLetter(msgspec.Struct, frozen=True, rename="camel"):
    """A dead letter without its body. `topic` is where it was sent to, None if it does not say so."""

    group: str
    topic: str | None
    origin_msg_id: str
    msg_id: str
    uniq_key: str | None
    keys: str | None
    tags: str | None
    attempts: int
    dead_timestamp: int
    broker_name: str
    queue_id: int
    queue_offset: int
    size: int


class Resent(msgspec.Struct, frozen=True, rename="camel"):
    """What became of one dead letter. `outcome`: `sent`, `skipped` (it was sent again before) or `failed`."""

    msg_id: str
    topic: str | None  # where it was sent to now
    outcome: str
    new_msg_id: str | None = None
    reason: str | None = None


class Chosen(msgspec.Struct, frozen=True):
    """Which dead letters: stored in [begin_ms, end_ms), with a key, or those with these ids."""

    begin_ms: int = 0
    end_ms: int = FOREVER_MS
    key: str | None = None
    msg_ids: Sequence[str] = ()


EVERY_LETTER = Chosen()


class DeadLetters:
    """Questions about dead letters."""

    def __init__(self, asking: Asking, messages: Messages) -> None:
        self._asking, self._messages = asking, messages

    async def found(self, group: str, chosen: Chosen = EVERY_LETTER) -> list[FoundMessage]:
        """The messages, oldest first; NameUnknown if the group has no dead letters at all. For many of them: scan."""
        scanned, found = await self.scan(group, chosen), list[FoundMessage]()
        while page := await scanned.next():
            found += page
        return sorted(found, key=lambda one: (one.message.store_timestamp, one.broker, one.message.queue_offset))

    async def scan(self, group: str, chosen: Chosen = EVERY_LETTER) -> "LetterScan":
        """The same page by page, each queue from its oldest on; only a page is in memory."""
        topic = dead_letter_topic(group)
        try:
            queues = await self._messages.queues(topic)
            if chosen.msg_ids:
                return LetterScan(self._messages, chosen, [], await self._by_ids(topic, chosen.msg_ids))
            if chosen.key is not None:
                return LetterScan(self._messages, chosen, [], await self._messages.by_key(topic, chosen.key))
        except RouteMissing:
            raise NameUnknown("group", group, (), "no broker has dead letters of it") from None
        return LetterScan(self._messages, chosen, queues, [])

    async def _by_ids(self, topic: str, msg_ids: Sequence[str]) -> list[FoundMessage]:
        """By the id that each has as a dead letter, or by its unique id."""
        found: list[FoundMessage] = []
        for message_id in msg_ids:
            named = await self._messages.by_unique_id(topic, message_id)
            if not named:
                one = await self._messages.by_id(message_id)
                named = [one] if one is not None and one.message.topic == topic else []
            if not named:
                raise NameUnknown("message", message_id, (), f"it is not among the dead letters in {topic}")
            found += named
        return found

    async def resend(
        self, group: str, letter: FoundMessage, *, to_topic: str | None = None, again: bool = False
    ) -> Resent:
        """Send one dead letter again: to the topic it came from, or to another. With `again`, a second time too."""
        message = letter.message
        topic = to_topic or origin_topic(message)
        if topic is None or topic_objection(topic) is not None:
            return Resent(message.message_id, topic, FAILED, reason="it does not say which topic it came from")
        try:
            if not again and await self._was_sent(topic, message):
                return Resent(message.message_id, topic, SKIPPED, reason="it was sent again before")
            stored_id, status = await self._send(topic, group, message)
        except ClientError as problem:
            return Resent(message.message_id, topic, FAILED, reason=str(problem))
        reason = None if status is SendStatus.SEND_OK else f"stored with a reservation: {status}"
        return Resent(message.message_id, topic, SENT, stored_id, reason)

    async def _was_sent(self, topic: str, message: StoredMessage) -> bool:
        if message.unique_key is None:
            return False
        try:
            found = await self._messages.by_unique_id(topic, message.unique_key)
        except RouteMissing:
            return False  # Sending says so, or makes the topic.
        return any(one.message.properties.get(RESENT_FROM) == message.message_id for one in found)

    async def _send(self, topic: str, group: str, message: StoredMessage) -> tuple[str, SendStatus]:
        route = await self._asking.route(topic)
        queues = route.write_queues()
        if not queues:
            raise RouteMissing(topic, self._asking.name_servers, "none of its queues can be written to")
        queue: MessageQueue = queues[message.queue_offset % len(queues)]
        properties = {name: value for name, value in message.properties.items() if name not in _NOT_AGAIN}
        properties[RESENT_FROM] = message.message_id
        if topic == retry_topic(group) and (origin := origin_topic(message)) is not None:
            properties[ORIGIN_TOPIC] = origin  # Consumers show a retried message under it.
        wire = WireMessage(
            PRODUCER_GROUP,
            topic,
            message.body,
            encode_properties(properties).decode(),
            queue.queue_id,
            sys_flag=message.sys_flag & (COMPRESSED | COMPRESSION_MASK),
            flag=message.flag,
            born_timestamp=time.time_ns() // 1_000_000,
        )
        to = BrokerAddress(queue.broker, route.address(queue.broker) or "")
        stored = await send(self._asking.caller, to, wire, ASK_SECONDS)
        return stored.offset_message_id, stored.status


class LetterScan:
    """Dead letters, a page at a time."""

    def __init__(
        self, messages: Messages, chosen: Chosen, queues: Sequence[MessageQueue], known: Sequence[FoundMessage]
    ) -> None:
        """`known` are those that were asked for singly, or by key; else `queues` are read."""
        self._messages, self._chosen = messages, chosen
        self._queues, self._known = list(reversed(queues)), list(known)
        self._at = self._end = 0
        self._queue: MessageQueue | None = None

    async def next(self) -> list[FoundMessage]:
        """The next of them; none at the end."""
        if self._known:
            known, self._known = self._known, []
            return self._within(known)
        while await self._has_more():
            assert self._queue is not None
            page = await self._messages.page(self._queue, self._at)
            is_past = bool(page.messages) and page.messages[-1].message.store_timestamp >= self._chosen.end_ms
            self._at = self._end if page.is_end or is_past else page.next_offset
            found = self._within(page.messages)
            if found:
                return found
        return []

    async def _has_more(self) -> bool:
        """Whether there is something left in this queue, or in the next one."""
        while self._at >= self._end:
            if not self._queues:
                return False
            self._queue = self._queues.pop()
            self._at, self._end = await self._messages.span(self._queue)
            if self._chosen.begin_ms and self._at < self._end:
                self._at = await self._messages.offset_at(self._queue, self._chosen.begin_ms)
        return True

    def _within(self, found: Sequence[FoundMessage]) -> list[FoundMessage]:
        return [one for one in found if self._chosen.begin_ms <= one.message.store_timestamp < self._chosen.end_ms]


def letter_of(group: str, found: FoundMessage) -> DeadLetter:
    """What a message among the dead letters says of itself."""
    message = found.message
    return DeadLetter(
        group,
        origin_topic(message),
        message.properties.get(ORIGIN_ID) or message.message_id,
        message.message_id,
        message.unique_key,
        " ".join(message.keys) or None,
        message.tags,
        message.reconsume_times,
        message.store_timestamp,
        found.broker,
        message.queue_id,
        message.queue_offset,
        message.size,
    )


def origin_topic(message: StoredMessage) -> str | None:
    """Where a dead letter was sent to first; nothing came from among the dead."""
    origin = message.properties.get(ORIGIN_TOPIC)
    return None if origin == message.topic else origin
