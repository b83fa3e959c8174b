"""Admission: may this message be stored, and as which bytes?

Everything that can be said about a message without knowing where it will lie: names and limits are checked, a delayed
message is turned towards the schedule topic and one with a delivery time of its own towards the timer topic (timed.py),
properties are encoded, hosts packed. What comes out (`Admitted`) only lacks its offsets and its time, which the writer
gives it.

Pure apart from a cache of topic names and the clock that delivery times begin at. Any thread.
"""

import re
from operator import index
from typing import Any

import msgspec

from embermq.clock import Clock, SystemClock
from embermq.errors import (
    BatchInvalid,
    BodyTooLarge,
    MessageRejected,
    PropertiesTooLarge,
    PropertyInvalid,
    QueueIdInvalid,
    RecordTooLarge,
    TopicNameInvalid,
)
from embermq.format.frame import (
    BLANK_BYTES,
    FIXED_BYTES,
    HOST_V4_BYTES,
    HOST_V6_EXTRA,
    PROPERTIES_BYTES_MAX,
    host_flags,
)
from embermq.model import flags
from embermq.model.hosts import Host, pack_host
from embermq.model.message import Message, MessageBatch
from embermq.model.properties import (
    DELAY,
    MULTI_DISPATCH,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    WAIT,
    decode_properties,
    encode_properties,
    has_meaning_to_store,
)
from embermq.settings import StoreSettings
from embermq.store.append.timed import TimedMessages
from embermq.store.queues.queue_table import is_directory_name

TOPIC_CHARACTERS_MAX = 127
QUEUE_ID_MAX = 2**31 - 1
FIXED_BUT_TOPIC_LENGTH = FIXED_BYTES - 1  # The topic's length byte is counted with the topic.
_BOTH_HOSTS_V4 = 2 * HOST_V4_BYTES
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")


class Admitted(msgspec.Struct, frozen=True, gc=False):
    """A message as bytes, all but its place and its time."""

    topic: str
    queue_id: int
    body: bytes
    topic_part: bytes  # length byte and name
    properties: bytes
    flag: int
    sys_flag: int
    born_timestamp: int | None
    born_host: bytes
    packed_store_host: bytes
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    size: int
    wait: bool
    multi_dispatch: bool


class Admission:
    """The checks of one store, with its limits."""

    def __init__(
        self, settings: StoreSettings, record_bytes_max: int, store_host: Host, clock: Clock | None = None
    ) -> None:
        self.body_bytes_max = settings.message_bytes_max
        self.record_bytes_max = record_bytes_max - BLANK_BYTES
        self._delay_levels = len(settings.delay_ms)
        self._multi_dispatch = settings.multi_dispatch
        self._timed = TimedMessages(settings, clock or SystemClock())
        self.store_host = store_host
        self.packed_store_host = pack_host(store_host)
        self._topic_parts: dict[str, bytes] = {}

    def admit(self, message: Message, encoded: bytes | None = None) -> Admitted:
        """`message` as bytes; MessageRejected when it cannot be stored. `encoded`: its properties, if they are known
        (keys may be an iterator, which gives them once)."""
        if encoded is None:
            encoded = message.property_bytes()
        if has_meaning_to_store(encoded):
            return self._admit_with_meaning(message, encoded)
        return self._encode(message, encoded, message.wait_for_store, False)

    def _admit_with_meaning(self, message: Message, encoded: bytes) -> Admitted:
        """A message one of whose properties tells the store what to do."""
        properties = decode_properties(encoded)
        level = _delay_level(properties.get(DELAY))
        if flags.has_queue_entry(message.sys_flag):
            place = self._park(properties, level) if level > 0 else self._timed.park(message.topic, properties)
            if place is not None:
                message = redirected(message, *place, properties=properties)
                encoded = message.property_bytes()
        multi = self._multi_dispatch and MULTI_DISPATCH in properties
        if multi:
            _check_queue_names(properties[MULTI_DISPATCH])
        wait = message.wait_for_store and properties.get(WAIT, "true") == "true"
        return self._encode(message, encoded, wait, multi)

    def _park(self, properties: dict[str, str], level: int) -> tuple[str, int]:
        """The queue of the schedule topic in which a delayed message waits."""
        level = min(level, self._delay_levels)
        properties[DELAY] = str(level)
        return SCHEDULE_TOPIC, level - 1

    def _encode(self, message: Message, properties: bytes, wait: bool, multi_dispatch: bool) -> Admitted:
        body = message.body if message.body.__class__ is bytes else _as_bytes(message.body)
        queue_id = message.queue_id
        sys_flag = message.sys_flag
        topic_part = self._topic_parts.get(message.topic) or self._topic_part(message.topic)
        size = FIXED_BUT_TOPIC_LENGTH + len(body) + len(topic_part) + len(properties)
        store_host, packed_store = self.store_host, self.packed_store_host
        if message.store_host is not None:
            store_host = message.store_host
            packed_store = _packed("store_host", store_host)
        packed_born = packed_store if message.born_host is None else _packed("born_host", message.born_host)
        if sys_flag != 0 or len(packed_born) + len(packed_store) > _BOTH_HOSTS_V4:
            _check_bits("sys_flag", sys_flag, 32)
            sys_flag = host_flags(sys_flag, packed_born, packed_store)
            size += HOST_V6_EXTRA * (sys_flag & flags.HOST_V6_MASK).bit_count()
        if (
            len(properties) > PROPERTIES_BYTES_MAX
            or len(body) > self.body_bytes_max
            or size > self.record_bytes_max
            or type(queue_id) is not int
            or not 0 <= queue_id <= QUEUE_ID_MAX
        ):
            raise self._objection(queue_id, body, properties, size)
        if message.flag != 0 or message.reconsume_times != 0 or message.prepared_transaction_offset != 0:
            _check_numbers(message)
        if message.born_timestamp is not None:
            check_born(message.born_timestamp)
        return Admitted(
            message.topic,
            queue_id,
            body,
            topic_part,
            properties,
            message.flag,
            sys_flag,
            message.born_timestamp,
            packed_born,
            packed_store,
            store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            size,
            wait,
            multi_dispatch,
        )

    def admit_as_is(self, message: Message) -> Admitted:
        """A message of the broker's own (internal.py): its properties tell the store nothing, it is not parked."""
        return self._encode(message, message.property_bytes(), message.wait_for_store, False)

    @property
    def plain_bytes_max(self) -> int:
        """A message whose body and properties take no more than this breaks no limit; -1: none is sure not to."""
        if len(self.packed_store_host) != HOST_V4_BYTES:
            return -1
        room = self.record_bytes_max - FIXED_BYTES - TOPIC_CHARACTERS_MAX
        return min(self.body_bytes_max, PROPERTIES_BYTES_MAX, room)

    def check_place(self, topic: Any, queue_id: Any) -> None:
        """MessageRejected unless this is a topic and a queue id that messages may be sent to."""
        self._topic_part(topic)
        _check_queue_id(queue_id)

    def check_sizes(self, properties_bytes: int, record_bytes: int) -> None:
        """MessageRejected for properties or a record that have become too large."""
        if properties_bytes > PROPERTIES_BYTES_MAX:
            raise PropertiesTooLarge(properties_bytes)
        if record_bytes > self.record_bytes_max:
            raise RecordTooLarge(record_bytes, self.record_bytes_max)

    def _objection(self, queue_id: object, body: bytes, properties: bytes, size: int) -> MessageRejected:
        """Which limit a message breaks, in RocketMQ's order."""
        if len(properties) > PROPERTIES_BYTES_MAX:
            return _properties_too_large(properties)
        if len(body) > self.body_bytes_max:
            return BodyTooLarge(len(body), self.body_bytes_max)
        if size > self.record_bytes_max:
            return RecordTooLarge(size, self.record_bytes_max)
        return QueueIdInvalid(queue_id)

    def _topic_part(self, topic: Any) -> bytes:
        """Length byte and name of a valid topic; names are kept, so this is slow only once."""
        check_topic_name(topic)
        part: bytes = bytes([len(topic)]) + topic.encode()
        if len(self._topic_parts) < 100_000:  # A bound, not a limit: more topics are only checked each time.
            self._topic_parts[topic] = part
        return part

    def admit_batch(self, batch: MessageBatch) -> list[Admitted]:
        """A batch as its records; MessageRejected when any part of it cannot be stored."""
        header = batch.header
        if not batch.items:
            raise BatchInvalid("the batch has no messages")
        if header.sys_flag & flags.TRANSACTION_MASK:
            raise BatchInvalid("a batch cannot be transactional; send its messages one by one")
        shared = header.property_bytes()
        properties = decode_properties(shared)
        if _delay_level(properties.get(DELAY)) > 0 or self._timed.applies(header.topic, properties):
            raise BatchInvalid("a batch cannot be delayed; send its messages one by one")
        if len(shared) > PROPERTIES_BYTES_MAX:
            raise _properties_too_large(shared)
        wait = header.wait_for_store and properties.get(WAIT, "true") == "true"
        items = []
        for item in batch.items:
            own = item.property_bytes()
            separator = b"\x02" if own and shared and not own.endswith(b"\x02") else b""
            message = _with_body(header, item.body, item.flag)
            items.append(self._encode(message, own + separator + shared, wait, False))
        self._check_batch_fits(items)
        return items

    def _check_batch_fits(self, items: list[Admitted]) -> None:
        total = sum(item.size for item in items)
        if total > self.record_bytes_max:
            raise BatchInvalid(
                f"batch of {total:,} bytes does not fit a log file (at most {self.record_bytes_max:,} bytes);"
                " split it, or raise mappedFileSizeCommitLog"
            )


def check_topic_name(topic: Any) -> None:
    """TopicNameInvalid unless messages may be sent to a topic of this name."""
    if not isinstance(topic, str) or not topic:
        raise TopicNameInvalid(topic, "a topic name is a text of 1 to 127 characters")
    if len(topic) > TOPIC_CHARACTERS_MAX:
        raise TopicNameInvalid(topic, f"{len(topic)} characters; at most {TOPIC_CHARACTERS_MAX} are allowed")
    if not _TOPIC.fullmatch(topic):
        bad = next(character for character in topic if not _TOPIC.fullmatch(character))
        raise TopicNameInvalid(topic, f"character {bad!r} is not allowed; use letters, digits, and any of % | - _")


def _check_queue_names(names: str) -> None:
    """PropertyInvalid unless all further queues that a message names can be queues."""
    for name in names.split(","):
        if not is_directory_name(name):
            raise PropertyInvalid(f"property {MULTI_DISPATCH}: {name!r} cannot be the name of a queue")


def _as_bytes(body: Any) -> bytes:
    """A body that is something else than bytes, as bytes."""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise MessageRejected(f"the body is of type {type(body).__name__}; bytes are expected")


def _properties_too_large(properties: bytes) -> MessageRejected:
    error = PropertiesTooLarge(len(properties))
    if len(properties.decode("utf-8", "replace").encode("utf-16-le")) // 2 > PROPERTIES_BYTES_MAX:
        error.status = "MESSAGE_ILLEGAL"  # RocketMQ distinguishes too many characters and too many bytes.
    return error


def _delay_level(text: str | None) -> int:
    if text is None:
        return 0
    try:
        return int(text)
    except ValueError:
        raise PropertyInvalid(f"property DELAY = {text!r}: a delay level is a whole number") from None


def _check_queue_id(queue_id: object) -> None:
    if type(queue_id) is not int or not 0 <= queue_id <= QUEUE_ID_MAX:
        raise QueueIdInvalid(queue_id)


def _check_numbers(message: Message) -> None:
    _check_bits("flag", message.flag, 32)
    _check_bits("reconsume_times", message.reconsume_times, 32)
    _check_bits("prepared_transaction_offset", message.prepared_transaction_offset, 64)


def check_born(timestamp: Any) -> None:
    """MessageRejected unless this is a time in whole milliseconds."""
    _check_bits("born_timestamp", timestamp, 64)


def packed_v4(host: Host) -> bytes | None:
    """The host as it stands in a record; None if it is no IPv4 address with a port."""
    try:
        packed = pack_host(host)
    except (ValueError, OverflowError, TypeError, AttributeError):
        return None
    return packed if len(packed) == HOST_V4_BYTES else None


def _packed(name: str, host: Host) -> bytes:
    try:
        return pack_host(host)
    except (ValueError, OverflowError, TypeError, AttributeError):
        raise MessageRejected(f"{name} {host!r} is no address with a port") from None


def _check_bits(name: str, number: Any, bits: int) -> None:
    """Refuse what is no signed number of so many bits. Asked of no range: one counts up to what is not quite an int."""
    try:
        fits = -(1 << bits - 1) <= index(number) < 1 << bits - 1
    except TypeError:
        fits = False
    if not fits:
        raise MessageRejected(f"{name} {number!r} is not a {bits}-bit number")


def redirected(
    message: Message,
    topic: str,
    queue_id: int,
    *,
    properties: dict[str, str] | None = None,
    sys_flag: int | None = None,
) -> Message:
    """`message` for a topic of the broker's: its own topic and queue go into the properties REAL_TOPIC and REAL_QID.

    MessageRejected if a message could never be stored there. `properties` and `sys_flag` are used in place of its own:
    a half message is stored as one of no transaction.
    """
    check_topic_name(message.topic)
    _check_queue_id(message.queue_id)
    kept = decode_properties(message.property_bytes()) if properties is None else properties
    kept[REAL_TOPIC] = message.topic
    kept[REAL_QUEUE_ID] = str(message.queue_id)
    return Message(
        topic=topic,
        body=message.body,
        queue_id=queue_id,
        flag=message.flag,
        sys_flag=message.sys_flag if sys_flag is None else sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        wait_for_store=message.wait_for_store,
        encoded_properties=encode_properties(kept),
    )


def _with_body(header: Message, body: bytes, flag: int) -> Message:
    return Message(
        topic=header.topic,
        body=body,
        queue_id=header.queue_id,
        flag=flag,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=header.born_host,
        store_host=header.store_host,
        reconsume_times=header.reconsume_times,
        wait_for_store=header.wait_for_store,
    )
