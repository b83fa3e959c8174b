"""From a user's Message to what a send carries: checked, named, compressed. Pure but for the id; any thread."""

import time
from collections.abc import Mapping

import msgspec

from embermq.client.calls import WireMessage
from embermq.client.namespaces import with_namespace
from embermq.client.produce.compression import compressed
from embermq.client.produce.settings import ProducerSettings
from embermq.client.produce.unique_ids import UniqueIds
from embermq.errors import BodyTooLarge, MessageRejected, PropertiesTooLarge, TopicNameInvalid
from embermq.model.message import NO_PROPERTIES, Message
from embermq.model.names import topic_objection
from embermq.model.properties import NAME_END, PAIR_END, UNIQ_KEY, WAIT

INSTANCE_ID = "INSTANCE_ID"
# RocketMQ's brokers refuse more, so that what they add themselves still fits a record.
PROPERTIES_BYTES_MAX = 32767


class Outgoing(msgspec.Struct):
    """A message, and its form on the wire, whose queue is chosen with every try."""

    message: Message
    message_id: str
    wire: WireMessage
    size: int = 0  # of body and properties

    def __post_init__(self) -> None:
        self.size = len(self.wire.body) + len(self.wire.properties)


class Packer:
    """Makes messages ready to be sent, for one producer."""

    def __init__(self, settings: ProducerSettings, ids: UniqueIds) -> None:
        self._settings, self._ids = settings, ids
        self._group = with_namespace(settings.group, settings.namespace)
        self._more = {INSTANCE_ID: settings.namespace} if settings.namespace else {}

    def pack(self, message: Message, more: Mapping[str, str] = NO_PROPERTIES, sys_flag: int = 0) -> Outgoing:
        """MessageRejected (BodyTooLarge, TopicNameInvalid, PropertyInvalid, ...) when it can never be sent.

        `more` are properties that are added.
        """
        body, bits = self._body(message)
        message_id, properties = self.properties(message, more)
        wire = self.wire(message, body, properties)
        wire.sys_flag = sys_flag | bits
        return Outgoing(message, message_id, wire)

    def wire(self, message: Message, body: bytes, properties: str) -> WireMessage:
        """A message with a body and properties that are ready."""
        return WireMessage(
            self._group,
            self.topic(message.topic),
            body,
            properties,
            flag=message.flag,
            born_timestamp=message.born_timestamp or time.time_ns() // 1_000_000,
            default_queues=self._settings.new_topic_queues,
        )

    def topic(self, topic: str) -> str:
        """The topic on the wire; TopicNameInvalid."""
        if topic.__class__ is not str:
            raise TopicNameInvalid(topic, "a text is expected")
        wire = with_namespace(topic, self._settings.namespace) if self._settings.namespace else topic
        problem = topic_objection(wire)
        if problem is not None:
            raise TopicNameInvalid(topic, problem)
        return wire

    def properties(self, message: Message, more: Mapping[str, str]) -> tuple[str, str]:
        """The id of a message, and the text of its properties with the id in it."""
        text = message.property_bytes().decode()
        given = message.properties is not NO_PROPERTIES or message.encoded_properties is not None
        if not given and not more and not self._more and message.wait_for_store and len(text) < 4096:
            message_id = self._ids.next()  # The commonest case by the shortest way.
            return message_id, f"{text}\x02UNIQ_KEY\x01{message_id}" if text else f"UNIQ_KEY\x01{message_id}"
        return self._all_properties(message, text, given, more)

    def _all_properties(self, message: Message, text: str, given: bool, more: Mapping[str, str]) -> tuple[str, str]:
        message_id = message.all_properties().get(UNIQ_KEY) if given else None
        pairs: list[str] = [text] if text else []
        if message_id is None:
            message_id = self._ids.next()
            pairs.append(f"{UNIQ_KEY}{NAME_END}{message_id}")
        if not message.wait_for_store:
            pairs.append(f"{WAIT}{NAME_END}false")
        if self._more or more:
            pairs += [f"{name}{NAME_END}{value}" for name, value in {**self._more, **more}.items()]
        whole = PAIR_END.join(pairs)
        if len(whole) * 4 > PROPERTIES_BYTES_MAX and len(whole.encode()) > PROPERTIES_BYTES_MAX:
            raise PropertiesTooLarge(len(whole.encode()), PROPERTIES_BYTES_MAX)
        return message_id, whole

    def check_body(self, message: Message) -> bytes:
        body = message.body
        if body.__class__ is not bytes:
            if not isinstance(body, bytes | bytearray | memoryview):
                raise MessageRejected(f"topic {message.topic!r}: the body is {type(body).__name__}, bytes are expected")
            body = bytes(body)
        if len(body) > self._settings.message_bytes_max:
            raise BodyTooLarge(len(body), self._settings.message_bytes_max)
        return body

    def _body(self, message: Message) -> tuple[bytes, int]:
        body, settings = self.check_body(message), self._settings
        if len(body) < settings.compress_from_bytes:
            return body, 0
        return compressed(body, settings.compression, settings.compression_level)
