"""`embermq store salvage`: what is whole of a damaged store, in a new one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from embermq.cli.output import (
    NamedValue,
    NamedValues,
    Output,
    Rows,
    TableColumn,
    number,
    output_option,
    show_bytes,
    show_count,
    show_seconds,
)
from embermq.cli.store.options import directory_argument, settings_for, writing_options
from embermq.cli.store.verify import progress_line
from embermq.format.names import segment_name
from embermq.repair.salvage import LostRange, Salvaged
from embermq.repair.salvage import salvage as salvage_store


@click.command()
@directory_argument
@click.option(
    "--into", type=click.Path(path_type=Path), required=True, metavar="NEW", help="New store; it must not exist."
)
@writing_options
@output_option
def salvage(output: Output, directory: Path, into: Path, config_file: Path | None, changes: tuple[str, ...]) -> None:
    """Copy every valid record of a damaged store into a new one, and report what was lost.

    \b
    embermq store verify ~/store                            what is wrong
    embermq store salvage ~/store --into ~/store-new        save the rest
    embermq store salvage ~/store --into ~/store-new --output json | jq .lost_messages

    What is whole stays what it was: place, message id, queue, queue offset, bytes; consumers go on where they were.
    Damaged ranges become filler records that no consumer gets, and lie as they were in NEW/quarantine/. The old store
    is only read. EmberMQ and Apache RocketMQ open the new one. Exit code 1: something was lost. The rest of an append
    that a crash tore off was never confirmed and does not count.
    """
    settings = settings_for(directory, config_file, changes)
    with _progress(output) as progress:
        saved = salvage_store(directory, into, settings, progress=progress)
    output.show(_facts(saved), _ranges(saved), _messages(saved), _files(saved))
    if not saved.is_complete:
        output.say(f"\n{', '.join(_losses(saved))} are lost", style="bold red")
        click.get_current_context().exit(1)
    output.say("\nnothing was lost", style="bold green")


def _losses(saved: Salvaged) -> Iterator[str]:
    if saved.lost_ranges:
        yield f"{show_bytes(saved.lost_bytes)} in {len(saved.lost_ranges)} ranges of the log"
    if saved.lost_ranges or saved.lost_messages:
        yield f"at least {show_count(saved.lost_count)} messages"
    if saved.strays:
        yield f"places of records in {len(saved.strays)} queues"
    if saved.bad_blocks:
        yield f"{show_count(len(saved.bad_blocks))} blocks of the disk"
    if saved.config_faults:
        yield f"{len(saved.config_faults)} config files"


def _facts(saved: Salvaged) -> NamedValues:
    return NamedValues(
        "salvaged",
        "salvaged",
        [
            NamedValue("path", "from", str(saved.path)),
            NamedValue("target", "into", str(saved.target)),
            NamedValue("segments", "log files with records", saved.segments, show_count),
            NamedValue("segment_bytes", "size of a log file", saved.segment_bytes, show_bytes),
            NamedValue("min_physical_offset", "first physical offset", saved.log_min, show_count),
            NamedValue("max_physical_offset", "end physical offset", saved.log_end, show_count),
            NamedValue("records", "whole records", saved.records, show_count),
            NamedValue("queues", "queues", saved.queues, show_count),
            NamedValue("config_files", "config files taken along", saved.config_files, ", ".join),
            NamedValue("seconds", "took", saved.seconds, show_seconds),
        ],
    )


def _ranges(saved: Salvaged) -> Rows:
    columns = (
        number("physical_offset", "at offset"),
        number("length_bytes", "length", show_bytes),
        TableColumn("reason", "what was there"),
        TableColumn("kept_in", "kept in"),
    )
    rows = [(lost.physical_offset, lost.length, lost.reason, lost.kept_in) for lost in saved.lost_ranges]
    return Rows("lost_ranges", "lost: ranges of the log", columns, rows, empty="none")


def _messages(saved: Salvaged) -> Rows:
    columns = (
        TableColumn("topic", "topic"),
        number("queue_id", "queue", str),
        number("first_offset", "from offset"),
        number("end_offset", "to before"),
        number("messages", "messages"),
    )
    rows = [(one.topic, one.queue_id, one.first, one.end, one.end - one.first) for one in saved.lost_messages]
    return Rows("lost_messages", "lost: messages", columns, rows, empty="none known")


def _files(saved: Salvaged) -> Rows:
    rows = [(str(one.path), f"belongs at {one.start}, and was put there") for one in saved.moved]
    rows += [(str(one.path), f"not taken along: {one.reason}") for one in saved.refused]
    rows += [(str(block.path), f"the disk cannot read the 4096 bytes at {block.at}") for block in saved.bad_blocks]
    rows += [(one.partition(": ")[0], one.partition(": ")[2]) for one in (*saved.config_faults, *saved.strays)]
    rows += [
        (segment_name(one.physical_offset - one.physical_offset % saved.segment_bytes), _torn(one))
        for one in saved.torn
    ]
    return Rows(
        "files", "files worth a look", (TableColumn("file", "file"), TableColumn("note", "note")), rows, empty="none"
    )


def _torn(one: LostRange) -> str:
    kept = f"; it is kept in {one.kept_in}" if one.kept_in else ""
    return f"ends with the rest of an append at {one.physical_offset}, which is no loss{kept}"


@contextmanager
def _progress(output: Output) -> Iterator[Callable[[str, int, int], None]]:
    with progress_line(output, "salvaging") as line:
        # Copying and comparing read the log once each; recovering tells nothing of itself.
        shares = {"copying": 0, "recovering": 1, "comparing": 2}
        yield lambda what, done, total: line(shares[what] * total + done, 3 * max(total, 1))
