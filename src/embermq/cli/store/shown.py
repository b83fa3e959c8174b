"""How messages are shown: many as a table, one as a list of its fields."""

from collections.abc import Iterable

from embermq.cli.output import (
    NamedValue,
    NamedValues,
    Rows,
    TableColumn,
    number,
    show_body,
    show_bytes,
    show_count,
    show_time,
)
from embermq.errors import CorruptFrame
from embermq.model.message import StoredMessage

_COLUMNS = (
    number("queue_id", "queue", str),
    number("queue_offset", "offset"),
    TableColumn("message_id", "message id"),
    TableColumn("store_timestamp_ms", "stored at", show_time),
    TableColumn("tags", "tags"),
    TableColumn("keys", "keys", " ".join),
    number("size_bytes", "size", show_bytes),
    TableColumn("body", "body", show_body),
)


def message_rows(messages: Iterable[StoredMessage], empty: str) -> Rows:
    rows = [
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
    return Rows("messages", "", _COLUMNS, rows, empty)


def readable_body(message: StoredMessage) -> bytes:
    """The payload, or the bytes as stored when they do not decompress: looking on must stay possible."""
    try:
        return message.payload
    except CorruptFrame:
        return message.body


def message_facts(message: StoredMessage) -> NamedValues:
    return NamedValues(
        "message",
        "",
        [
            NamedValue("message_id", "message id", message.message_id),
            NamedValue("topic", "topic", message.topic),
            NamedValue("queue_id", "queue", message.queue_id),
            NamedValue("queue_offset", "queue offset", message.queue_offset, show_count),
            NamedValue("physical_offset", "physical offset", message.physical_offset, show_count),
            NamedValue("size_bytes", "size", message.size, show_bytes),
            NamedValue("store_timestamp_ms", "stored at", message.store_timestamp, show_time),
            NamedValue("born_timestamp_ms", "born at", message.born_timestamp, show_time),
            NamedValue("store_host", "store host", str(message.store_host)),
            NamedValue("born_host", "born host", str(message.born_host)),
            NamedValue("flag", "flag", message.flag),
            NamedValue("sys_flag", "system flag", message.sys_flag),
            NamedValue("reconsume_times", "times reconsumed", message.reconsume_times),
            NamedValue(
                "prepared_transaction_offset", "half message at", message.prepared_transaction_offset, _show_place
            ),
            NamedValue("properties", "properties", message.properties, _show_properties),
            NamedValue("body", "body", readable_body(message), show_body),
        ],
    )


def _show_place(place: int) -> str:
    return f"{place:,}" if place else "none"


def _show_properties(properties: dict[str, str]) -> str:
    return "\n".join(f"{name} = {value}" for name, value in sorted(properties.items()))
