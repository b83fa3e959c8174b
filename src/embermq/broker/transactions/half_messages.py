"""The records of a transaction, and how one is made from another. Pure.

half      what the producer sent, under the half topic; REAL_TOPIC and REAL_QID name its own place
final     the same message at its own place, with the commit bits and the place of the half record
op        the queue offset of a decided half message, as text; its tag is `d`
given up  a half message that was asked about too often, put aside in TRANS_CHECK_MAX_TIME_TOPIC
"""

from embermq.format.frame import PROPERTIES_BYTES_MAX, encode
from embermq.model import flags
from embermq.model.message import Message, StoredMessage
from embermq.model.names import CHECK_MAX_TIME_TOPIC
from embermq.model.properties import (
    HALF_TOPIC,
    OP_TOPIC,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    UNIQ_KEY,
    WAIT,
    decode_properties,
    encode_properties,
)
from embermq.remoting import Command, RequestCode
from embermq.store.append import redirected

TRANSACTION_PROPERTY = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
OP_TAG = "d"
# The group whose offsets of the half topic and the op topic say how far RocketMQ's broker is with them.
CHECK_GROUP = "CID_RMQ_SYS_TRANS"


def is_half(properties: dict[str, str]) -> bool:
    """Whether a message that is sent begins a transaction."""
    return properties.get(TRANSACTION_PROPERTY, "").lower() == "true"


def half_of(message: Message) -> Message:
    """A message that begins a transaction, as it is stored until the decision."""
    return redirected(message, HALF_TOPIC, 0, sys_flag=message.sys_flag & ~flags.TRANSACTION_MASK)


def real_place(half: StoredMessage) -> tuple[str, int] | None:
    """The topic and queue of the message itself; None if this record does not say."""
    topic, queue_id = half.properties.get(REAL_TOPIC), half.properties.get(REAL_QUEUE_ID, "")
    return (topic, int(queue_id)) if topic and queue_id.isascii() and queue_id.isdigit() else None


def final_of(half: StoredMessage, place: tuple[str, int], checks: int = 0) -> Message:
    """The message itself, for its consumers; it says how often its producer was asked, where it was."""
    properties = _with(half, CHECK_TIMES, str(checks)) if checks else half.property_bytes
    return _copy(half, *place, properties, flags.COMMIT, half.physical_offset)


def op_of(half_offset: int) -> Message:
    """The record that a half message is decided."""
    return Message(OP_TOPIC, str(half_offset).encode(), properties={TAGS: OP_TAG, WAIT: "true"})


def decided_by(op: StoredMessage) -> list[int]:
    """The half messages that an op record names. Newer brokers name several in one, separated by commas."""
    texts = op.body.decode("ascii", "replace").split(",")
    return [int(text) for text in texts if text.isdigit()]


def given_up_of(half: StoredMessage, checks: int) -> Message:
    """The copy of a half message that is not asked about any more."""
    return _copy(half, CHECK_MAX_TIME_TOPIC, 0, _with(half, CHECK_TIMES, str(checks)))


def resumed_of(record: StoredMessage) -> Message:
    """A half message that was given up, as a new one that was never asked about."""
    return _copy(record, HALF_TOPIC, 0, _with(record, CHECK_TIMES, "0"))


def check_request(half: StoredMessage, place: tuple[str, int], checks: int) -> Command:
    """The question what became of a transaction. The producer sees its message under its own topic and queue."""
    unique_key = half.properties.get(UNIQ_KEY, "")
    fields = {
        "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.physical_offset),
        "msgId": unique_key,
        "transactionId": unique_key,
        "offsetMsgId": half.message_id,
    }
    record = encode(
        physical_offset=half.physical_offset,
        queue_id=place[1],
        queue_offset=half.queue_offset,
        topic=place[0],
        body=half.body,
        properties=_with(half, CHECK_TIMES, str(checks)),
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        store_timestamp=half.store_timestamp,
        store_host=half.store_host,
        flag=half.flag,
        sys_flag=half.sys_flag,
        reconsume_times=half.reconsume_times,
        prepared_transaction_offset=half.prepared_transaction_offset,
    )
    return Command(
        RequestCode.CHECK_TRANSACTION_STATE, ext={name: text for name, text in fields.items() if text}, body=record
    )


def _with(record: StoredMessage, name: str, text: str) -> bytes:
    """The properties of a record with one set; as they are where there is no room for it."""
    encoded = encode_properties(decode_properties(record.property_bytes) | {name: text})
    return encoded if len(encoded) <= PROPERTIES_BYTES_MAX else record.property_bytes


def _copy(
    record: StoredMessage,
    topic: str,
    queue_id: int,
    properties: bytes,
    transaction_bits: int = 0,
    prepared_transaction_offset: int = 0,
) -> Message:
    return Message(
        topic=topic,
        body=record.body,
        queue_id=queue_id,
        flag=record.flag,
        sys_flag=record.sys_flag & ~flags.TRANSACTION_MASK | transaction_bits,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        encoded_properties=properties,
    )
