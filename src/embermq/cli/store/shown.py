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
    help="Encoding of bodies in JSON.",
)


def show_messages(
    output: Output, messages: Sequence[StoredMessage], empty: str, body: str, brokers: Sequence[str] = ()
) -> None:
    """A table, or the list `messages`; `empty` is said in place of a table without rows. `brokers`: that of each
    message, where there may be several."""
    if output.as_json:
        documents = [document_of(one, body) for one in messages]
        if brokers:
            documents = [named_document(broker, one) for broker, one in zip(brokers, documents, strict=True)]
        output.record("messages", documents)
        return
    rows = message_rows(messages)
    columns: Sequence[TableColumn] = _COLUMNS
    if brokers:
        columns = (TableColumn("brokerName", "broker"), *_COLUMNS)
        rows = [(broker, *row) for broker, row in zip(brokers, rows, strict=True)]
    output.show(Rows("messages", "", columns, rows, empty))


def message_rows(messages: Sequence[StoredMessage]) -> list[tuple[object, ...]]:
    """Messages as rows of that table."""
    return [
        (
            one.queue_id,
            one.queue_offset,
            one.message_id,
            one.store_timestamp,
            one.tags,
            one.keys,
            one.size,
            readable_body(one),
        )
        for one in messages
    ]


def show_message(output: Output, message: StoredMessage, body: str, broker: str = "") -> None:
    """The fields of one message, or the object `message`, with the broker that has it if it is given."""
    if output.as_json:
        document = document_of(message, body)
        output.record("message", named_document(broker, document) if broker else document)
    else:
        fields = _fields(message)
        if broker:
            named_value = NamedValue("brokerName", "broker", broker)
            fields = NamedValues(fields.key, fields.title, [named_value, *fields.facts])
        output.show(fields)


def document_of(message: StoredMessage, body: str) -> MessageDocument:
    """The JSON form; a body that does not decompress is given as it is stored."""
    return message_document(message, BODY_FORMS[body])[0]


def named_document(broker: str, document: MessageDocument) -> MessageDocument:
    """The JSON form of a message that a cluster has: the broker comes first."""
    named: MessageDocument = {"brokerName": broker}
    return named | document


def readable_body(message: StoredMessage) -> bytes:
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
            NamedValue("body", "body", readable_body(message), show_body),
        ],
    )


def _show_place(place: int) -> str:
    return f"{place:,}" if place else "none"


def _show_properties(properties: dict[str, str]) -> str:
    return "\n".join(f"{name} = {value}" for name, value in sorted(properties.items()))
