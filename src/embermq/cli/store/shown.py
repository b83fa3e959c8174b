"""How commands show messages: for people, many as a table and one as a list of its fields; for programs, every one in
the JSON form of `embermq store dump` (format.message_json)."""

from collections.abc import Sequence

import click

from embermq.cli.output import (
    NamedValue,
    NamedValues,
    Output,
    Rows,
    TableColumn,
    number,
    show_body,
    show_bytes,
    show_count,
    show_time,
)
from embermq.errors import CorruptFrame
from embermq.format.message_json import BodyForm, MessageDocument, message_document
from embermq.model.message import StoredMessage

BODY_FORMS = {"base64": BodyForm.BASE64, "text": BodyForm.TEXT}

_COLUMNS = (
    number("queueId", "queue", str),
    number("queueOffset", "offset"),
    TableColumn("msgId", "message id"),
    TableColumn("storeTimestamp", "stored at", show_time),
    TableColumn("tags", "tags"),
    TableColumn("keys", "keys", " ".join),
    number("size", "size", show_bytes),
    TableColumn("body", "body", show_body),
)

body_option = click.option(
    "--body",
    type=click.Choice(list(BODY_FORMS)),
    default="base64",
    show_default=True,
    help="How bodies are written in JSON.",
)


def show_messages(output: Output, messages: Sequence[StoredMessage], empty: str, body: str) -> None:
    """A table, or the list `messages`; `empty` is said in place of a table without rows."""
    if output.as_json:
        output.record("messages", [document_of(one, body) for one in messages])
        return
    rows = [
        (
            one.queue_id,
            one.queue_offset,
            one.message_id,
            one.store_timestamp,
            one.tags,
            one.keys,
            one.size,
            _readable_body(one),
        )
        for one in messages
    ]
    output.show(Rows("messages", "", _COLUMNS, rows, empty))


def show_message(output: Output, message: StoredMessage, body: str) -> None:
    """The fields of one message, or the object `message`."""
    if output.as_json:
        output.record("message", document_of(message, body))
    else:
        output.show(_fields(message))


def document_of(message: StoredMessage, body: str) -> MessageDocument:
    """The JSON form; a body that does not decompress is given as it is stored."""
    return message_document(message, BODY_FORMS[body])[0]


def _readable_body(message: StoredMessage) -> bytes:
    """The payload, or the bytes as stored when they do not decompress: looking on must stay possible."""
    try:
        return message.payload
    except CorruptFrame:
        return message.body


def _fields(message: StoredMessage) -> NamedValues:
    return NamedValues(
        "message",
        "",
        [
            NamedValue("msgId", "message id", message.message_id),
            NamedValue("topic", "topic", message.topic),
            NamedValue("queueId", "queue", message.queue_id),
            NamedValue("queueOffset", "queue offset", message.queue_offset, show_count),
            NamedValue("physicalOffset", "physical offset", message.physical_offset, show_count),
            NamedValue("size", "size", message.size, show_bytes),
            NamedValue("storeTimestamp", "stored at", message.store_timestamp, show_time),
            NamedValue("bornTimestamp", "born at", message.born_timestamp, show_time),
            NamedValue("storeHost", "store host", str(message.store_host)),
            NamedValue("bornHost", "born host", str(message.born_host)),
            NamedValue("flag", "flag", message.flag),
            NamedValue("sysFlag", "system flag", message.sys_flag),
            NamedValue("reconsumeTimes", "times reconsumed", message.reconsume_times),
            NamedValue(
                "preparedTransactionOffset", "half message at", message.prepared_transaction_offset, _show_place
            ),
            NamedValue("properties", "properties", message.properties, _show_properties),
            NamedValue("body", "body", _readable_body(message), show_body),
        ],
    )


def _show_place(place: int) -> str:
    return f"{place:,}" if place else "none"


def _show_properties(properties: dict[str, str]) -> str:
    return "\n".join(f"{name} = {value}" for name, value in sorted(properties.items()))
