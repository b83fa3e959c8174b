"""The one JSON form of a message: its keys, their order, and how values are written. Pure.

`embermq store` find, get, fetch, trace and dump write it, `load` reads it (repair.load.json_input), and the compiled
loops of columns write the same bytes. The keys are the columns of the Spark schema but brokerName, which a store does
not know; always all of them, always in the order of KEYS:

    topic queueId queueOffset physicalOffset msgId uniqKey tags keys body properties flag sysFlag bornTimestamp
    bornHost storeTimestamp storeHost reconsumeTimes preparedTransactionOffset bodyCrc size

Times are milliseconds since 1970, hosts `1.2.3.4:10911` or `[::1]:10911`, a text that is absent is null, and bytes
that are not UTF-8 are replaced in texts. The body is decompressed and in base64; BodyForm changes that. Two keys appear
only where they are needed to lose nothing, after the others:

    bodyBase64        with TEXT, of a body that is not UTF-8; body is then null
    propertiesBase64  with RAW, of a property string that the map does not give back: repeated or empty pairs, a
                      separator at the end, bytes that are not UTF-8

bodyCrc is the checksum of the stored body, so a reader can tell a decompressed body from one that is as stored.
"""

from base64 import b64encode
from enum import IntFlag
from functools import lru_cache

import msgspec

from embermq.errors import CorruptFrame
from embermq.model.hosts import unpack_host
from embermq.model.message import StoredMessage
from embermq.model.properties import KEYS as KEYS_PROPERTY
from embermq.model.properties import TAGS, UNIQ_KEY

KEYS = (
    "topic",
    "queueId",
    "queueOffset",
    "physicalOffset",
    "msgId",
    "uniqKey",
    "tags",
    "keys",
    "body",
    "properties",
    "flag",
    "sysFlag",
    "bornTimestamp",
    "bornHost",
    "storeTimestamp",
    "storeHost",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "bodyCrc",
    "size",
)

MessageDocument = dict[str, str | int | dict[str, str] | None]


class BodyForm(IntFlag):
    """How bodies are written."""

    BASE64 = 0
    TEXT = 1
    RAW = 2  # as they are stored, not decompressed


def message_document(message: StoredMessage, form: BodyForm = BodyForm.BASE64) -> tuple[MessageDocument, bool]:
    """The message as JSON has it, and whether its body is whole: one that does not decompress is given as it is
    stored, so that looking on stays possible."""
    is_raw = bool(form & BodyForm.RAW)
    body, is_whole = (message.body, True) if is_raw else _readable_body(message)
    is_text = bool(form & BodyForm.TEXT)
    text = _as_text(body) if is_text else b64encode(body).decode()
    born_host, _ = _host_texts(message.packed_born_host)
    store_host, id_prefix = _host_texts(message.packed_store_host)
    properties = message.properties
    document: MessageDocument = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "msgId": f"{id_prefix}{message.physical_offset:016X}",
        "uniqKey": properties.get(UNIQ_KEY),
        "tags": properties.get(TAGS),
        "keys": properties.get(KEYS_PROPERTY),
        "body": text,
        "properties": properties,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": born_host,
        "storeTimestamp": message.store_timestamp,
        "storeHost": store_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCrc": message.body_crc,
        "size": message.size,
    }
    if text is None:
        document["bodyBase64"] = b64encode(body).decode()
    if is_raw and encode_in_order(properties) != message.property_bytes:
        document["propertiesBase64"] = b64encode(message.property_bytes).decode()
    return document, is_whole


def message_line(message: StoredMessage, form: BodyForm = BodyForm.BASE64) -> tuple[bytes, bool]:
    """The same as one line of text, without spaces."""
    document, is_whole = message_document(message, form)
    return msgspec.json.encode(document) + b"\n", is_whole


def encode_in_order(properties: dict[str, str]) -> bytes:
    """The property string of these pairs in their own order: the inverse of reading one."""
    return "\x02".join([f"{name}\x01{value}" for name, value in properties.items()]).encode()


def _readable_body(message: StoredMessage) -> tuple[bytes, bool]:
    try:
        return message.payload, True
    except CorruptFrame:
        return message.body, False


def _as_text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


@lru_cache(maxsize=4096)
def _host_texts(packed: bytes) -> tuple[str, str]:
    """A host as people write it, and as it begins a message id."""
    return str(unpack_host(packed)), packed.hex().upper()
