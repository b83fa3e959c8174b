"""`embermq store`: append to and read from a store directory, without a broker.

Everything but `append` opens the directory read-only: safe beside a running writer, and on a copy of a
store that Apache RocketMQ wrote.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

import click

from embermq import Message, MessageStore, StoreSettings
from embermq.cli.output import (
    Column,
    Fact,
    Facts,
    Output,
    Rows,
    number,
    output_option,
    show_body,
    show_bytes,
    show_count,
    show_seconds,
    show_time,
    show_yes,
)
from embermq.errors import CorruptFrame
from embermq.model.message import Receipt, StoredMessage

# Messages that are appended with one call, and so with one wait for the disk, when lines are read.
LINES_PER_APPEND = 256

_directory = click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
_settings = click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path),
    help="A broker.conf to take settings from.",
)


@click.group()
def store() -> None:
    """Append to and read from a store directory."""


def _load_settings(settings_file: Path | None) -> StoreSettings | None:
    return None if settings_file is None else StoreSettings.from_file(settings_file)


def _open_to_read(directory: Path, settings_file: Path | None) -> MessageStore:
    return MessageStore.open(directory, _load_settings(settings_file), read_only=True)


# -- append --------------------------------------------------------------------------------------------


@store.command()
@_directory
@click.argument("topic")
@click.argument("body", required=False)
@click.option("--lines", is_flag=True, help="Each line of standard input becomes a message.")
@click.option("--queue", "queue_id", type=click.IntRange(min=0), default=0, show_default=True, help="Queue id.")
@click.option("--tags", help="Tag of the message.")
@click.option("--key", "keys", multiple=True, help="A key to find the message by; may be given several times.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="A property; repeatable.")
@click.option("--delay-level", type=click.IntRange(min=0), default=0, help="Deliver later: 1 is 1 s, 18 is 2 h.")
@_settings
@output_option
def append(
    output: Output,
    directory: Path,
    topic: str,
    body: str | None,
    lines: bool,
    queue_id: int,
    tags: str | None,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    delay_level: int,
    settings_file: Path | None,
) -> None:
    """Append BODY, or standard input, to TOPIC of the store in DIRECTORY; the store is made if need be."""
    if body is not None and lines:
        raise click.UsageError("--lines reads standard input: give either BODY or --lines")
    given = _parse_properties(properties)
    messages = (
        Message(topic, one, tags=tags, keys=keys, properties=given, queue_id=queue_id, delay_level=delay_level)
        for one in _bodies(body, lines)
    )
    with MessageStore.open(directory, _load_settings(settings_file)) as opened:
        receipts = [receipt for some in _in_runs(messages) for receipt in opened.append_many(some)]
    output.show(_receipts(receipts, None if delay_level else queue_id))  # A parked one waits elsewhere.
    if not all(receipt.ok for receipt in receipts):
        click.get_current_context().exit(1)


def _bodies(body: str | None, lines: bool) -> Iterator[bytes]:
    if lines:
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\r\n")
    else:
        yield sys.stdin.buffer.read() if body is None else body.encode()


def _in_runs(messages: Iterable[Message]) -> Iterator[list[Message]]:
    run: list[Message] = []
    for message in messages:
        run.append(message)
        if len(run) == LINES_PER_APPEND:
            yield run
            run = []
    if run:
        yield run


def _parse_properties(pairs: Iterable[str]) -> dict[str, str]:
    parsed = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--property {pair!r}: NAME=VALUE is expected")
        parsed[name] = value
    return parsed


def _receipts(receipts: list[Receipt], queue_id: int | None) -> Rows:
    columns = (
        Column("message_id", "message id"),
        Column("status", "status"),
        number("queue_id", "queue", str),
        number("queue_offset", "queue offset"),
        number("physical_offset", "physical offset"),
        number("size_bytes", "size", show_bytes),
    )
    rows = [
        (one.message_id, str(one.status), queue_id, one.queue_offset, one.physical_offset, one.size) for one in receipts
    ]
    return Rows("receipts", "", columns, rows, empty="no messages were given")


# -- reading -------------------------------------------------------------------------------------------


@store.command()
@_directory
@click.argument("topic")
@click.argument("queue_id", metavar="QUEUE", type=click.IntRange(min=0))
@click.option("--offset", default="earliest", show_default=True, help="A queue offset, earliest, or a time.")
@click.option("--count", type=click.IntRange(min=1), default=32, show_default=True, help="Most messages shown.")
@click.option("--tags", default="*", show_default=True, help="Only these tags, for example `paid || shipped`.")
@_settings
@output_option
def fetch(
    output: Output,
    directory: Path,
    topic: str,
    queue_id: int,
    offset: str,
    count: int,
    tags: str,
    settings_file: Path | None,
) -> None:
    """Show messages of one QUEUE of TOPIC."""
    with _open_to_read(directory, settings_file) as opened:
        _require_queue(opened, topic, queue_id)
        at = _queue_offset(opened, topic, queue_id, offset)
        messages: list[StoredMessage] = []
        while True:
            outcome = opened.fetch(topic, queue_id, at, count - len(messages), tags)
            messages += outcome.messages
            if len(messages) >= count or outcome.next_offset <= at:
                break
            at = outcome.next_offset
    output.show(_messages(messages, "no message from there on"))
    output.show(
        Facts(
            "queue",
            "",
            [
                Fact("min_offset", "first offset", outcome.min_offset, show_count),
                Fact("max_offset", "end offset", outcome.max_offset, show_count),
                Fact("next_offset", "next to read", outcome.next_offset, show_count),
            ],
        )
    )


def _require_queue(opened: MessageStore, topic: str, queue_id: int) -> None:
    """Say what there is instead, so that a slip of the pen does not look like an empty queue."""
    topics = opened.topics()
    if topic not in topics:
        known = ", ".join(sorted(topics)[:10]) or "none"
        raise click.ClickException(f"there is no topic {topic!r} in this store; topics: {known}")
    if queue_id not in topics[topic]:
        known = ", ".join(str(one) for one in topics[topic][:10])
        raise click.ClickException(f"topic {topic!r} has no queue {queue_id}; queues: {known}")


def _queue_offset(opened: MessageStore, topic: str, queue_id: int, text: str) -> int:
    if text == "earliest":
        return opened.min_offset(topic, queue_id)
    if text.isascii() and text.isdigit():
        return int(text)
    return opened.offset_at(topic, queue_id, _time_ms(text))


def _time_ms(text: str) -> int:
    """Milliseconds since 1970 of `2024-01-31T12:00:00`, in local time unless it says otherwise."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise click.UsageError(
            f"{text!r} is no time; use 2024-01-31, 2024-01-31T12:00:00 or milliseconds since 1970"
        ) from None


@store.command()
@_directory
@click.argument("topic")
@click.argument("key")
@click.option("--begin", default="0", help="Only messages stored at or after this time.")
@click.option("--end", help="Only messages stored at or before this time.")
@click.option("--limit", type=click.IntRange(min=1), default=64, show_default=True, help="Most messages shown.")
@_settings
@output_option
def find(
    output: Output,
    directory: Path,
    topic: str,
    key: str,
    begin: str,
    end: str | None,
    limit: int,
    settings_file: Path | None,
) -> None:
    """Find messages of TOPIC by KEY, through the index; with a limit, the newest ones."""
    begin_ms = _time_ms(begin)
    end_ms = None if end is None else _time_ms(end)
    with _open_to_read(directory, settings_file) as opened:
        began = time.perf_counter()
        messages = opened.find(topic, key, begin_ms, end_ms, limit)
        seconds = time.perf_counter() - began
    output.show(_messages(messages, f"no message of topic {topic!r} has the key {key!r}"))
    output.show(Facts("query", "", [Fact("seconds", "looked up in", seconds, show_seconds)]))
    if not messages:
        click.get_current_context().exit(1)


@store.command()
@_directory
@click.argument("message_id")
@click.option("--body", "body_only", is_flag=True, help="Write the body to standard output, and nothing else.")
@_settings
@output_option
def get(output: Output, directory: Path, message_id: str, body_only: bool, settings_file: Path | None) -> None:
    """Show one message by its id (32 or 56 hexadecimal digits)."""
    if body_only and output.as_json:
        raise click.UsageError("--body writes the bytes as they are; it does not go with --output json")
    with _open_to_read(directory, settings_file) as opened:
        message = opened.get(message_id)
    if message is None:
        raise click.ClickException(f"there is no message {message_id} in {directory}")
    if body_only:
        sys.stdout.buffer.write(message.payload)
    else:
        output.show(_whole(message))


_MESSAGE_COLUMNS = (
    number("queue_id", "queue", str),
    number("queue_offset", "offset"),
    Column("message_id", "message id"),
    Column("store_timestamp_ms", "stored at", show_time),
    Column("tags", "tags"),
    Column("keys", "keys", " ".join),
    number("size_bytes", "size", show_bytes),
    Column("body", "body", show_body),
)


def _messages(messages: Iterable[StoredMessage], empty: str) -> Rows:
    rows = [
        (
            one.queue_id, one.queue_offset, one.message_id, one.store_timestamp, one.tags, one.keys, one.size,
            _readable_body(one),
        )
        for one in messages
    ]  # fmt: skip
    return Rows("messages", "", _MESSAGE_COLUMNS, rows, empty)


def _readable_body(message: StoredMessage) -> bytes:
    """The payload, or the bytes as stored when they do not decompress: looking on must stay possible."""
    try:
        return message.payload
    except CorruptFrame:
        return message.body


def _whole(message: StoredMessage) -> Facts:
    return Facts(
        "message",
        "",
        [
            Fact("message_id", "message id", message.message_id),
            Fact("topic", "topic", message.topic),
            Fact("queue_id", "queue", message.queue_id),
            Fact("queue_offset", "queue offset", message.queue_offset, show_count),
            Fact("physical_offset", "physical offset", message.physical_offset, show_count),
            Fact("size_bytes", "size", message.size, show_bytes),
            Fact("store_timestamp_ms", "stored at", message.store_timestamp, show_time),
            Fact("born_timestamp_ms", "born at", message.born_timestamp, show_time),
            Fact("store_host", "store host", str(message.store_host)),
            Fact("born_host", "born host", str(message.born_host)),
            Fact("flag", "flag", message.flag),
            Fact("sys_flag", "system flag", message.sys_flag),
            Fact("reconsume_times", "times reconsumed", message.reconsume_times),
            Fact("properties", "properties", message.properties, _show_properties),
            Fact("body", "body", _readable_body(message), show_body),
        ],
    )


def _show_properties(properties: dict[str, str]) -> str:
    return "\n".join(f"{name} = {value}" for name, value in sorted(properties.items()))


# -- info ----------------------------------------------------------------------------------------------


@store.command()
@_directory
@click.option("--runtime", is_flag=True, help="Show the reference's runtime keys as well.")
@_settings
@output_option
def info(output: Output, directory: Path, runtime: bool, settings_file: Path | None) -> None:
    """Show what a store holds: positions, topics, and how it was found."""
    with _open_to_read(directory, settings_file) as opened:
        output.show(_positions(opened, directory), topic_rows(opened), recovery_facts(opened))
        if runtime:
            pairs = sorted(opened.runtime_info().items())
            output.show(Facts("runtime", "runtime", [Fact(name, name, value) for name, value in pairs]))


def _positions(opened: MessageStore, directory: Path) -> Facts:
    return Facts(
        "log",
        "log",
        [
            Fact("path", "directory", str(directory)),
            Fact("min_physical_offset", "first physical offset", opened.min_physical, show_count),
            Fact("max_physical_offset", "end physical offset", opened.max_physical, show_count),
            Fact("log_bytes", "size", opened.max_physical - opened.min_physical, show_bytes),
        ],
    )


def topic_rows(opened: MessageStore) -> Rows:
    """Every topic with its queues and the number of messages that can be fetched from them."""
    rows = []
    for topic, queue_ids in sorted(opened.topics().items()):
        counts = [opened.max_offset(topic, one) - opened.min_offset(topic, one) for one in queue_ids]
        rows.append((topic, len(queue_ids), sum(counts)))
    columns = (Column("topic", "topic"), number("queues", "queues"), number("messages", "messages"))
    return Rows("topics", "topics", columns, rows, empty="none")


def recovery_facts(opened: MessageStore) -> Facts:
    """What opening the store found and did."""
    report = opened.recovery
    return Facts(
        "recovery",
        "recovery",
        [
            Fact("clean", "closed cleanly before", report.clean, show_yes),
            Fact("scanned_bytes", "log read", report.scanned_bytes, show_bytes),
            Fact("records", "records checked", report.records, show_count),
            Fact("truncated_bytes", "torn tail cut off", report.truncated_bytes, show_bytes),
            Fact("seconds", "took", report.seconds, show_seconds),
        ],
    )


__all__ = ["recovery_facts", "store", "topic_rows"]
