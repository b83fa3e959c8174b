"""`embermq store dump`: a store as lines of JSON on standard output."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from embermq.cli.output import Output, report_option, show_bytes, show_count
from embermq.cli.store.meanwhile import telling_changes
from embermq.cli.store.options import directory_argument
from embermq.cli.store.shown import BODY_FORMS, body_option
from embermq.cli.store.times import time_option
from embermq.cli.topic_words import TopicCommand, topic_parameter
from embermq.format.message_json import BodyForm
from embermq.inspect import Dump, DumpFilter, Survey, require_topic
from embermq.model.properties import tag_texts
from embermq.store.log import DamagedRange


@click.command(cls=TopicCommand)
@directory_argument
@topic_parameter(required=False, help="Write only this topic.")
@click.option("--queue", "queue_id", type=click.IntRange(min=0), help="Write only queues with this id.")
@click.option("--from", "start", type=click.IntRange(min=0), metavar="OFFSET", help="Begin at this physical offset.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Maximum number of messages.")
@time_option("--since", "since_ms", "Only messages stored at or after this time.")
@time_option("--until", "until_ms", "Only messages stored before this time.")
@click.option("--tags", default="*", show_default=True, help="Tags to select, for example `paid || shipped`.")
@body_option
@click.option("--raw", is_flag=True, help="Write bodies as stored, without decompression.")
@report_option
def dump(
    output: Output,
    directory: Path,
    topic: str | None,
    queue_id: int | None,
    start: int | None,
    limit: int | None,
    since_ms: int | None,
    until_ms: int | None,
    tags: str,
    body: str,
    raw: bool,
) -> None:
    """Write every record of the log, including system topics, in log order as JSON lines.

    \b
    embermq store dump ~/store > all.jsonl
    embermq store dump ~/store orders --tags 'paid || shipped' --body text | jq .body
    embermq store dump ~/store --since 2024-01-31T12:00 --until 2024-01-31T13:00 --limit 1000
    embermq store dump ~/store --raw | embermq store load ~/copy --from -

    The keys are those of the Spark schema; times are milliseconds since 1970. Damaged places are reported on standard
    error, everything else is dumped, and the exit code is 1. `--output json` makes what is said there JSON.
    """
    wanted = DumpFilter(topic, queue_id, tag_texts(tags), since_ms, until_ms, start, limit)
    form = BODY_FORMS[body] | (BodyForm.RAW if raw else BodyForm.BASE64)
    survey = Survey.open(directory)
    job = Dump(survey, wanted, form)
    damages: list[DamagedRange] = []
    with telling_changes(output, directory), _progress(output) as progress:
        for piece in job.pieces():
            if isinstance(piece, DamagedRange):
                damages.append(piece)
                output.say(f"damaged: {directory}, physical offset {piece.start:,} to {piece.end:,}: {piece.reason}")
            else:
                sys.stdout.buffer.write(piece)
                progress(job)
    sys.stdout.buffer.flush()
    if topic is not None and not job.messages:
        require_topic(survey, topic)
    _report(output, directory, job, damages)
    if damages or job.broken_bodies:
        click.get_current_context().exit(1)


def _report(output: Output, directory: Path, job: Dump, damages: list[DamagedRange]) -> None:
    output.record("messages", job.messages)
    output.record("start_physical_offset", job.start)
    output.record("end_physical_offset", job.position)
    output.record("damages", [{"start": one.start, "end": one.end, "reason": one.reason} for one in damages])
    output.record("broken_bodies", job.broken_bodies)
    if job.broken_bodies:
        output.say(f"{show_count(job.broken_bodies)} bodies do not decompress and are given as they are stored")
    if damages:
        lost = sum(one.end - one.start for one in damages)
        output.say(
            f"{show_count(job.messages)} messages dumped; {len(damages)} damaged places hold {show_bytes(lost)}"
            f" (`embermq store verify {directory}` says more)"
        )


@contextmanager
def _progress(output: Output) -> Iterator[Callable[[Dump], None]]:
    """A line that grows on the terminal, if what is dumped goes elsewhere."""
    if not output.notes.is_terminal or sys.stdout.isatty():
        yield lambda _job: None
        return
    columns = (
        TextColumn("dumping"),
        BarColumn(bar_width=40),
        TextColumn("{task.fields[messages]:>11,} messages"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=output.notes, transient=True) as line:
        task = line.add_task("", total=None, messages=0)

        def progress(job: Dump) -> None:
            line.update(task, total=job.end - job.start, completed=job.position - job.start, messages=job.messages)

        yield progress
