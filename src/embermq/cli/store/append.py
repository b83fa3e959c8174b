"""`embermq store append`: messages from the command line or from lines of standard input."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from embermq import Message
from embermq.cli.given import message_bodies, parse_pairs, standard_input
from embermq.cli.output import Output, Rows, TableColumn, number, output_option, show_bytes
from embermq.cli.store.options import (
    directory_argument,
    settings_for,
    writing_options,
)
from embermq.cli.topic_words import TopicCommand, topic_parameter
from embermq.model.message import Receipt
from embermq.store import MessageStore

# Messages that are appended with one call, and so with one wait for the disk, when lines are read.
LINES_PER_APPEND = 256


@click.command(cls=TopicCommand)
@directory_argument
@topic_parameter()
@click.argument("body", required=False)
@click.option("--lines", is_flag=True, help="Each line of standard input becomes a message.")
@click.option("--queue", "queue_id", type=click.IntRange(min=0), default=0, show_default=True, help="Queue id.")
@click.option("--tags", help="Tag of the message.")
@click.option("--key", "keys", multiple=True, help="Key of the message. Repeatable.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="Property. Repeatable.")
@click.option("--delay-level", type=click.IntRange(min=0), default=0, help="Delay level: 1 is 1 s, 18 is 2 h.")
@writing_options
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
    config_file: Path | None,
    changes: tuple[str, ...],
) -> None:
    """Append BODY, or standard input, to TOPIC of the store in DIRECTORY. A missing store is created.

    \b
    embermq store append ~/store orders 'hello' --tags created --key o-17
    seq 1000 | embermq store append ~/store numbers --lines --queue 2
    embermq store append ~/store orders 'safe' --set flushDiskType=SYNC_FLUSH
    """
    if body is not None and lines:
        raise click.UsageError("--lines reads standard input: give either BODY or --lines")
    given = parse_pairs("--property", properties)
    source = standard_input() if body is None else None
    settings = settings_for(directory, config_file, changes)
    messages = (
        Message(topic, one, tags=tags, keys=keys, properties=given, queue_id=queue_id, delay_level=delay_level)
        for one in message_bodies(body, source, lines)
    )
    with MessageStore.open(directory, settings) as opened:
        receipts = [receipt for some in _in_runs(messages) for receipt in opened.append_many(some)]
    output.show(_receipts(receipts, None if delay_level else queue_id))  # A parked one waits elsewhere.
    if not all(receipt.ok for receipt in receipts):
        click.get_current_context().exit(1)


def _in_runs(messages: Iterable[Message]) -> Iterator[list[Message]]:
    run: list[Message] = []
    for message in messages:
        run.append(message)
        if len(run) == LINES_PER_APPEND:
            yield run
            run = []
    if run:
        yield run


def _receipts(receipts: list[Receipt], queue_id: int | None) -> Rows:
    columns = (
        TableColumn("message_id", "message id"),
        TableColumn("status", "status"),
        number("queue_id", "queue", str),
        number("queue_offset", "queue offset"),
        number("physical_offset", "physical offset"),
        number("size_bytes", "size", show_bytes),
    )
    rows = [
        (one.message_id, str(one.status), queue_id, one.queue_offset, one.physical_offset, one.size) for one in receipts
    ]
    return Rows("receipts", "", columns, rows, empty="no messages were given")
