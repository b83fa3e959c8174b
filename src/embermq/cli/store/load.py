"""`embermq store load`: the messages of a dump, or of lines written by hand, into a store."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from embermq.cli.given import standard_input
from embermq.cli.output import (
    NamedValue,
    NamedValues,
    Output,
    output_option,
    show_bytes,
    show_count,
    show_rate,
    show_yes,
)
from embermq.cli.store import BadInput
from embermq.cli.store.options import directory_argument, settings_for, writing_options
from embermq.cli.store.shown import BODY_FORMS
from embermq.repair.load import LoadReport, Source, Times, load_messages, open_source


@click.command()
@directory_argument
@click.option("--from", "source", required=True, metavar="FILE", help="File of JSON lines; - is standard input.")
@click.option(
    "--body",
    type=click.Choice(list(BODY_FORMS)),
    default="base64",
    show_default=True,
    help="Encoding of bodies in the file, as in `dump`.",
)
@click.option(
    "--times",
    type=click.Choice([one.value for one in Times]),
    default=Times.AUTO.value,
    show_default=True,
    help="Store times: keep those of the file, set new ones, or keep them only if the store is empty.",
)
@click.option("--start-line", type=click.IntRange(min=1), default=1, help="Skip the lines before this one.")
@writing_options
@output_option
def load(
    output: Output,
    directory: Path,
    source: str,
    body: str,
    times: str,
    start_line: int,
    config_file: Path | None,
    changes: tuple[str, ...],
) -> None:
    """Append the messages of a dump to the store in DIRECTORY. A missing store is created.

    \b
    embermq store dump ~/store --raw > all.jsonl && embermq store load ~/copy --from all.jsonl
    embermq store dump ~/store --topic orders | embermq store load ~/orders --from -
    echo '{"topic": "orders", "body": "hello", "tags": "paid"}' | embermq store load ~/new --from - --body text
    embermq store fetch ~/store orders 0 --output json | jq -c '.messages[]' | embermq store load ~/new --from -
    embermq store load ~/store --from rest.jsonl --start-line 4711 --set flushDiskType=SYNC_FLUSH

    Kept are topic, queueId, body, properties (tags, keys, uniqKey), flag, sysFlag, bornTimestamp, bornHost,
    storeHost, reconsumeTimes, preparedTransactionOffset, and in an empty store storeTimestamp. The store gives
    physicalOffset and queueOffset anew, in the order of the lines, and with them msgId.

    A line that is no message is named with its column, and is exit code 2; what came before it stays.
    """
    settings = settings_for(directory, config_file, changes)
    try:
        lines, size = open_source(source, standard_input() if source == "-" else io.BytesIO())
    except OSError as problem:
        raise BadInput(f"{source}: {problem.strerror}") from problem
    name = "standard input" if source == "-" else source
    with lines, _progress(output, size) as progress:
        report = load_messages(
            directory, settings, Source(lines, name, start_line, body == "text"), times=Times(times), progress=progress
        )
    output.show(_facts(report))


def _facts(report: LoadReport) -> NamedValues:
    return NamedValues(
        "loaded",
        "",
        [
            NamedValue("messages", "messages loaded", report.messages, show_count),
            NamedValue("log_bytes", "in the log", report.end - report.start, show_bytes),
            NamedValue("start_physical_offset", "from physical offset", report.start, show_count),
            NamedValue("end_physical_offset", "to physical offset", report.end, show_count),
            NamedValue("kept_times", "store times kept", report.kept_times, show_yes),
            NamedValue("already_delivered", "delayed, counted as delivered", report.counted_as_delivered, show_count),
        ],
    )


@contextmanager
def _progress(output: Output, size: int | None) -> Iterator[Callable[[LoadReport], None]]:
    """A line that grows, for people who watch; nothing otherwise."""
    if not output.notes.is_terminal:
        yield lambda _report: None
        return
    columns = (
        TextColumn("loading"),
        BarColumn(bar_width=40),
        TextColumn("{task.fields[messages]:>11,} messages"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=output.notes, transient=True) as line:
        task = line.add_task("", total=size, messages=0, rate="")

        def progress(report: LoadReport) -> None:
            elapsed = line.tasks[0].elapsed or 0.0
            rate = show_rate(report.messages / elapsed) if elapsed else ""
            line.update(task, completed=report.bytes_read, messages=report.messages, rate=rate)

        yield progress
