"""`embermq store trace`: what became of a message."""

import time
from pathlib import Path
from typing import Any

import click

from embermq.cli.output import Output, Rows, TableColumn, number, output_option, show_time
from embermq.cli.store import BadInput
from embermq.cli.store.options import directory_argument
from embermq.files import RealFiles
from embermq.inspect import Life, LifeStep, Survey, lives_of, message_by_id, seeds_by_key
from embermq.model.message import StoredMessage
from embermq.store.layout import ConsumerProgress, consumer_progress

_COLUMNS = (
    number("step", "step", str),
    TableColumn("what", "what"),
    TableColumn("topic", "topic"),
    number("queue_id", "queue", str),
    number("queue_offset", "offset"),
    TableColumn("message_id", "message id"),
    TableColumn("store_timestamp_ms", "stored at", show_time),
    number("after_ms", "after", lambda ms: f"{ms:,} ms"),
    TableColumn("due_ms", "due at", show_time),
    TableColumn("note", "note"),
    TableColumn("consumed_by", "consumed by", ", ".join),
)


@click.command()
@directory_argument
@click.option("--key", help="A key of the message, or its unique key.")
@click.option("--id", "message_id", metavar="ID", help="The id of any of its records.")
@click.option("--topic", help="With --key: begin with messages of this topic only.")
@click.option("--limit", type=click.IntRange(min=1), default=16, show_default=True, help="Most messages followed.")
@output_option
def trace(
    output: Output, directory: Path, key: str | None, message_id: str | None, topic: str | None, limit: int
) -> None:
    """Follow a message through its topics: delay, transaction, retries, dead letter.

    \b
    embermq store trace ~/store --key o-17
    embermq store trace ~/store --key o-17 --topic orders
    embermq store trace ~/store --id 7F00000100002A9F00000000000000E8

    A key may name several messages: the newest ones are followed, each on its own. Steps are in the order of the
    log. "consumed by" are the groups whose written-down progress is past the message.
    """
    if (key is None) == (message_id is None):
        raise click.UsageError("say which message: either --key K or --id ID")
    survey = Survey.open(directory)
    if message_id is not None:
        seeds = [_by_id(survey, message_id, directory)]
    else:
        with output.working(f"looking for {key}"):
            seeds = seeds_by_key(survey, key or "", topic)
        if not seeds:
            where = f"topic {topic!r} of {directory}" if topic else str(directory)
            raise click.ClickException(f"no message in {where} has the key {key!r}")
    with output.working("following it"):
        lives = lives_of(survey, seeds, limit)
    progress = consumer_progress(RealFiles(), directory)
    now_ms = time.time_ns() // 1_000_000
    output.record("messages", [_document(life, progress, now_ms) for life in lives])
    if not output.as_json:
        for life in lives:
            title = f"{life.name}: {_outcome(life, progress, now_ms)}"
            output.show(Rows("steps", title, _COLUMNS, _rows(life, progress)))


def _by_id(survey: Survey, message_id: str, directory: Path) -> StoredMessage:
    answer = message_by_id(survey, message_id)
    if answer.foreign_host is not None:
        own = ", ".join(map(str, answer.own_hosts))
        raise BadInput(f"{message_id} is an id of the store at {answer.foreign_host}; {directory} is that of {own}")
    if answer.message is None:
        raise click.ClickException(f"there is no message {message_id} in {directory}")
    return answer.message


def _rows(life: Life, progress: list[ConsumerProgress]) -> list[tuple[Any, ...]]:
    rows = []
    before: int | None = None
    for at, step in enumerate(life.steps, start=1):
        message = step.message
        after = None if before is None else message.store_timestamp - before
        before = message.store_timestamp
        rows.append(
            (
                at,
                str(step.kind),
                message.topic,
                message.queue_id,
                message.queue_offset,
                message.message_id,
                message.store_timestamp,
                after,
                step.due_ms,
                step.note,
                _consumers(step, progress),
            )
        )
    return rows


def _outcome(life: Life, progress: list[ConsumerProgress], now_ms: int) -> str:
    return life.outcome(now_ms, _consumers(life.steps[-1], progress))


def _consumers(step: LifeStep, progress: list[ConsumerProgress]) -> list[str]:
    message = step.message
    return [
        one.group
        for one in progress
        if (one.topic, one.queue_id) == (message.topic, message.queue_id) and one.offset > message.queue_offset
    ]


def _document(life: Life, progress: list[ConsumerProgress], now_ms: int) -> dict[str, Any]:
    keys = [column.key for column in _COLUMNS]
    steps = [dict(zip(keys, row, strict=True)) for row in _rows(life, progress)]
    first = life.steps[0].message
    return {"name": life.name, "keys": first.keys, "outcome": _outcome(life, progress, now_ms), "steps": steps}
