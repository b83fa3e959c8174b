"""`embermq store trace`: what became of a message."""

import time
from collections.abc import Iterator
from pathlib import Path

import click

from embermq.cli.output import Output, Rows, TableColumn, number, output_option, show_time
from embermq.cli.store.by_id import stored_with_id
from embermq.cli.store.options import directory_argument
from embermq.cli.store.shown import body_option, document_of
from embermq.cli.topic_words import TopicCommand, topic_parameter
from embermq.files import RealFiles
from embermq.inspect import Lineage, LineageStep, Survey, lineages_of, seeds_by_key
from embermq.store.tables import ConsumerProgress, consumer_progress

_COLUMNS = (
    number("step", "step", str),
    TableColumn("what", "what"),
    TableColumn("topic", "topic"),
    number("queueId", "queue", str),
    number("queueOffset", "offset"),
    TableColumn("msgId", "message id"),
    TableColumn("storeTimestamp", "stored at", show_time),
    number("after_ms", "after", lambda ms: f"{ms:,} ms"),
    TableColumn("due_ms", "due at", show_time),
    TableColumn("note", "note"),
    TableColumn("consumed_by", "consumed by", ", ".join),
)


@click.command(cls=TopicCommand)
@directory_argument
@topic_parameter(required=False, help="With --key: start with messages of this topic only.")
@click.option("--key", help="Key or unique key of the message.")
@click.option("--id", "message_id", metavar="ID", help="Message id of one of its records.")
@click.option("--limit", type=click.IntRange(min=1), default=16, show_default=True, help="Maximum number of messages.")
@body_option
@output_option
def trace(
    output: Output, directory: Path, key: str | None, message_id: str | None, topic: str | None, limit: int, body: str
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
        seeds = [stored_with_id(survey, message_id, directory)]
    else:
        with output.working(f"looking for {key}"):
            seeds = seeds_by_key(survey, key or "", topic)
        if not seeds:
            where = f"topic {topic!r} of {directory}" if topic else str(directory)
            raise click.ClickException(f"no message in {where} has the key {key!r}")
    with output.working("following it"):
        lineages = lineages_of(survey, seeds, limit)
    progress = consumer_progress(RealFiles(), directory)
    now_ms = time.time_ns() // 1_000_000
    if output.as_json:
        output.record("messages", [_document(lineage, progress, now_ms, body) for lineage in lineages])
        return
    for lineage in lineages:
        title = f"{lineage.name}: {_outcome(lineage, progress, now_ms)}"
        output.show(Rows("steps", title, _COLUMNS, _rows(lineage, progress)))


def _rows(lineage: Lineage, progress: list[ConsumerProgress]) -> list[tuple[object, ...]]:
    return [
        (
            at,
            str(step.kind),
            step.message.topic,
            step.message.queue_id,
            step.message.queue_offset,
            step.message.message_id,
            step.message.store_timestamp,
            after_ms,
            step.due_ms,
            step.note,
            _consumers(step, progress),
        )
        for at, (step, after_ms) in enumerate(_timed(lineage), start=1)
    ]


def _timed(lineage: Lineage) -> Iterator[tuple[LineageStep, int | None]]:
    """Each step, and how long after the one before it was stored."""
    before: int | None = None
    for step in lineage.steps:
        stored_ms = step.message.store_timestamp
        yield step, None if before is None else stored_ms - before
        before = stored_ms


def _outcome(lineage: Lineage, progress: list[ConsumerProgress], now_ms: int) -> str:
    return lineage.outcome(now_ms, _consumers(lineage.steps[-1], progress))


def _consumers(step: LineageStep, progress: list[ConsumerProgress]) -> list[str]:
    message = step.message
    return [
        one.group
        for one in progress
        if (one.topic, one.queue_id) == (message.topic, message.queue_id) and one.offset > message.queue_offset
    ]


def _document(lineage: Lineage, progress: list[ConsumerProgress], now_ms: int, body: str) -> dict[str, object]:
    steps = [
        {
            "step": at,
            "what": str(step.kind),
            "after_ms": after_ms,
            "due_ms": step.due_ms,
            "note": step.note,
            "consumed_by": _consumers(step, progress),
            "message": document_of(step.message, body),
        }
        for at, (step, after_ms) in enumerate(_timed(lineage), start=1)
    ]
    return {"name": lineage.name, "outcome": _outcome(lineage, progress, now_ms), "steps": steps}
