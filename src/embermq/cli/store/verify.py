"""`embermq store verify`: is this store sound?"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from embermq.cli.output import (
    NamedValue,
    NamedValues,
    Output,
    Rows,
    TableColumn,
    number,
    output_option,
    row_documents,
    show_bytes,
    show_count,
    show_seconds,
    show_yes,
)
from embermq.cli.store import BadInput
from embermq.cli.store.meanwhile import tell_changes
from embermq.cli.store.options import directory_argument
from embermq.repair.verify import Flaw, VerifyReport
from embermq.repair.verify import verify as verify_store


@click.command()
@directory_argument
@click.option(
    "--fast", is_flag=True, help="Check structure only: names, lengths, headers, order of entries; no checksums."
)
@click.option(
    "--save",
    metavar="FILE.jsonl",
    type=click.Path(path_type=Path),
    help="Also write every finding, one JSON line each.",
)
@output_option
def verify(output: Output, directory: Path, fast: bool, save: Path | None) -> None:
    """Compare log, queues, extension, index, checkpoint and config with each other, and check every checksum.

    \b
    embermq store verify ~/store                 every byte that has a checksum, every entry, every key
    embermq store verify ~/store --fast          a look at the structure, in a fraction of the time
    embermq store verify ~/store --save findings.jsonl
    embermq store verify ~/store --output json | jq '.findings[] | select(.severity == "fault")'

    A fault is something the next start would not repair by itself; it makes the exit code 1. A note is worth knowing:
    what a crash left, what was lost and repaired earlier. Nothing is written, not even a lock: safe on the directory
    of a running broker, where nothing counts that is still on its way. What retention or a deletion of topics
    removes meanwhile is reported, and is no fault.
    """
    if save is not None:
        _check_place(save)
    with progress_line(output, "verifying") as progress:
        report = verify_store(directory, fast=fast, progress=progress)
    output.show(_facts(report), finding_rows(report.flaws))
    output.record("sound", report.is_sound)
    if save is not None:
        _save(save, report.flaws)
        output.record("saved", [str(save)])
        output.say(f"saved: {save}")
    tell_changes(output, report.meanwhile)
    if not report.is_sound:
        output.say(f"\nfaults: {show_count(report.faults)}{_in_places(report)}", style="bold red")
        click.get_current_context().exit(1)
    output.say("\nsound", style="bold green")


def _check_place(file: Path) -> None:
    """BadInput if no findings can be saved there, before anything was read for it."""
    if file.suffix != ".jsonl":
        raise BadInput(f"--save {file}: a file that ends in .jsonl is expected")
    if file.is_dir():
        raise BadInput(f"--save {file}: this is a directory; name a file")
    if not os.access(file.absolute().parent, os.W_OK):
        raise BadInput(f"--save {file}: {file.absolute().parent} is not a directory that can be written")


def _save(file: Path, flaws: list[Flaw]) -> None:
    """All of them or none: a file of this name is replaced when the new one is complete."""
    half = file.with_name(f".{file.name}.part")
    try:
        half.write_text("".join(f"{json.dumps(row)}\n" for row in row_documents(finding_rows(flaws))), "utf-8")
        half.replace(file)
    except OSError as problem:
        half.unlink(missing_ok=True)
        raise BadInput(f"--save {file}: cannot be written: {problem.strerror or problem}") from None


def _in_places(report: VerifyReport) -> str:
    return f", in {show_count(report.faulty_places)} places" if report.faulty_places > report.faults else ""


def _facts(report: VerifyReport) -> NamedValues:
    facts = [
        NamedValue("path", "directory", str(report.path)),
        NamedValue("mode", "looked at", "structure" if report.is_fast else "everything"),
        NamedValue("live", "being written", report.is_live, show_yes),
        NamedValue("clean", "closed cleanly", report.is_clean, show_yes),
        NamedValue("log_bytes", "log", report.log_end - report.log_min, show_bytes),
        NamedValue("segments", "log files", report.segments, show_count),
        NamedValue("records", "records", None if report.is_fast else report.records, show_count),
        NamedValue("queues", "queues", report.queues, show_count),
        NamedValue("queue_entries", "queue entries", report.queue_entries, show_count),
        NamedValue("index_entries", "index entries", report.index_entries, show_count),
        NamedValue("pending_entries", "records on their way to queues", report.pending_entries, show_count),
        NamedValue("pending_keys", "keys on their way to the index", report.pending_keys, show_count),
        NamedValue("seconds", "took", report.seconds, show_seconds),
    ]
    shown = [fact for fact in facts if fact.value is not None and (fact.value or not fact.key.startswith("pending"))]
    return NamedValues("store", "store", shown)


def finding_rows(flaws: list[Flaw]) -> Rows:
    """Findings as a table: what, where, how often, and what helps."""
    columns = (
        TableColumn("severity", ""),
        TableColumn("family", "family"),
        TableColumn("file", "file"),
        number("physical_offset", "at offset"),
        number("queue_offset", "queue offset"),
        number("byte_offset", "byte"),
        number("count", "times"),
        TableColumn("fault", "problem"),
        TableColumn("remedy", "remedy"),
    )
    rows = [
        (
            str(flaw.severity),
            flaw.family,
            flaw.file,
            flaw.physical_offset,
            flaw.queue_offset,
            flaw.byte_offset,
            flaw.count,
            flaw.fault,
            flaw.remedy,
        )
        for flaw in flaws
    ]
    return Rows("findings", "findings", columns, rows, empty="none")


@contextmanager
def progress_line(output: Output, verb: str) -> Iterator[Callable[[int, int], None]]:
    """A line that grows on the terminal while a log is read; nothing without a terminal."""
    if not output.notes.is_terminal:
        yield lambda done, total: None
        return
    columns = (
        TextColumn(verb),
        BarColumn(bar_width=40),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=output.notes, transient=True) as line:
        task = line.add_task("", total=None)
        yield lambda done, total: line.update(task, total=total, completed=done)
