"""Answers as tables for people and JSON for programs.

JSON has every field of a value, under the name that RocketMQ gives it; a table has the columns that people look for. A
column is named by its JSON key, so that both always agree.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from embermq.cli.output import NamedValue, NamedValues, Output, Rows, TableColumn, number, show_time
from embermq.cli.store.shown import show_messages
from embermq.client import MessageQueue
from embermq.client.admin import Admin, FoundMessage
from embermq.client.calls import BrokerAddress
from embermq.errors import OptionInvalid


def show_table(
    output: Output,
    key: str,
    columns: Sequence[TableColumn],
    values: Sequence[msgspec.Struct],
    *,
    title: str = "",
    empty: str = "nothing",
) -> None:
    """Values of one kind: `key` names the list in JSON."""
    documents = [document_of(value) for value in values]
    if output.as_json:
        output.record(key, documents)
        return
    rows = [[document[column.key] for column in columns] for document in documents]
    output.show(Rows(key, title, columns, rows, empty))


def document_of(value: msgspec.Struct) -> dict[str, Any]:
    """The JSON form of a value."""
    found: dict[str, Any] = msgspec.to_builtins(value)
    return found


def show_texts(output: Output, key: str, texts: dict[str, str], *, title: str = "") -> None:
    """Names and texts, such as settings."""
    if output.as_json:
        output.record(key, texts)
    else:
        output.show(NamedValues(key, title, [NamedValue(name, name, text) for name, text in texts.items()]))


def perm_text(perm: int) -> str:
    """Permissions as RocketMQ's tools show them: `RW-`; X is for topics that others are made from."""
    return "".join(letter if perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))


def show_rate(value: float) -> str:
    return f"{value:,.2f}"


PERMISSIONS = {"r": 4, "w": 2, "rw": 6}

PROGRESS_COLUMNS = (
    TableColumn("topic", "topic"),
    TableColumn("brokerName", "broker"),
    number("queueId", "queue", str),
    number("brokerOffset", "end offset"),
    number("consumerOffset", "consumed to"),
    number("lag", "lag"),
    TableColumn("lastTimestamp", "last consumed was stored", show_time),
)


def places_of(admin: Admin, cluster: str, broker: str) -> list[BrokerAddress]:
    """The brokers that the options name, all of them without an option."""
    if broker and cluster:
        raise OptionInvalid("--broker", "either a cluster or a broker")
    return [admin.brokers.place(broker)] if broker else admin.brokers.places(cluster)


def show_found(output: Output, found: list[FoundMessage], empty: str, body: str) -> None:
    """Messages with their brokers."""
    show_messages(output, [one.message for one in found], empty, body, [one.broker for one in found])


def queue_of(topic: str, text: str) -> MessageQueue:
    """`broker-a:0` of a topic."""
    broker, _, digits = text.rpartition(":")
    if not broker or not digits.isdigit():
        raise OptionInvalid("--queue", "a queue is BROKER:ID, for example broker-a:0", value=text)
    return MessageQueue(topic, broker, int(digits))
