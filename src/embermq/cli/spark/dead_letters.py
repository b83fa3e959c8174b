"""`embermq spark dead-letters`: what a group's consumers gave up on, and the way back."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from embermq.cli.output import Output, Rows, TableColumn, number, output_option, show_bytes, show_time
from embermq.cli.spark.common import log_options, master_option, stores_argument, working
from embermq.cli.store.options import settings_for, writing_options
from embermq.errors import OptionInvalid
from embermq.spark import dead_letters as job_dead_letters
from embermq.spark.jobs import DeadLetter, DeadLetterTotal, dead_letter_totals, resend


@click.command("dead-letters")
@stores_argument
@click.option("--group", required=True, help="Consumer group.")
@click.option("--where", help="List only dead letters that match this SQL condition, for example \"keys = 'o-1'\".")
@click.option("--archive", "lake", metavar="LAKE", help="Lake to read archived messages from.")
@click.option(
    "--limit",
    default=1000,
    show_default=True,
    type=click.IntRange(0),
    help="Maximum number of letters to show; 0: all.",
)
@click.option("--export", metavar="FILE.jsonl", help="Write the dead letters to this file, one JSON object per line.")
@click.option("--resend-into", metavar="STORE", help="Append the dead letters to their original topics in this store.")
@click.option("--dry-run", is_flag=True, help="With --resend-into: count the messages without sending them.")
@log_options
@writing_options
@master_option
@output_option
def dead_letters(
    output: Output,
    config_file: Path | None,
    changes: tuple[str, ...],
    paths: tuple[str, ...],
    group: str,
    where: str | None,
    lake: str | None,
    limit: int,
    export: str | None,
    resend_into: str | None,
    dry_run: bool,
    master: str | None,
) -> None:
    """List the dead letters of a group with origin, number of attempts and time.

    Totals are of all of them; so are --export and --resend-into.

    \b
    embermq spark dead-letters /data/broker-a --group shop --export dead.jsonl
    embermq spark dead-letters /data/broker-a --group shop --where "tags = 'paid'" --resend-into /data/target
    """
    with working(output, master, "embermq dead-letters") as (spark, on_progress):
        on_progress("looking", 0, 1)
        totals = dead_letter_totals(spark, list(paths), group, lake=lake, where=where)
        shown_max = limit or None if export is None else None
        found = job_dead_letters(spark, list(paths), group, lake=lake, where=where, limit=shown_max)
        if export is not None:
            _export(export, found)
        found = found[:limit] if limit else found
        resent = {}
        if resend_into is not None:
            settings = settings_for(Path(resend_into), config_file, changes)
            resent = resend(
                spark, list(paths), group, resend_into, lake=lake, where=where, dry_run=dry_run, settings=settings
            )
    output.record("dead_letters", [one.record() for one in found])
    output.record("total", sum(one.letters for one in totals))
    output.record("totals", [asdict(one) for one in totals])
    if not output.as_json:
        _show(output, group, found)
        _show_totals(output, totals, len(found))
    output.record("resent", {topic: asdict(done) for topic, done in resent.items()})
    for topic, done in resent.items():
        verb = "would be resent" if dry_run else "resent"
        count = done.found - done.skipped if dry_run else done.appended
        output.say(f"{topic}: {count:,} {verb}, {done.skipped:,} were already")
    lost = sum(one.letters for one in totals if one.topic is None)
    if lost and resend_into is not None:
        output.record("without_origin", lost)
        output.say(f"{lost:,} do not say which topic they came from, and stay where they are")


def _show(output: Output, group: str, found: list[DeadLetter]) -> None:
    columns = [
        TableColumn("topic", "came from"),
        TableColumn("origin_id", "first id"),
        TableColumn("keys", "keys"),
        TableColumn("tags", "tags"),
        number("attempts", "attempts"),
        TableColumn("dead_ms", "died", show_time),
    ]
    rows = [[one.topic or "(unknown)", one.origin_id, one.keys, one.tags, one.attempts, one.dead_ms] for one in found]
    output.show(Rows("dead_letters", f"dead letters of {group}", columns, rows, empty="none"))


def _show_totals(output: Output, totals: list[DeadLetterTotal], shown: int) -> None:
    columns = [
        TableColumn("topic", "came from"),
        number("letters", "letters"),
        number("bytes", "bytes", show_bytes),
        TableColumn("first_ms", "first", show_time),
        TableColumn("last_ms", "last", show_time),
    ]
    rows = [[one.topic or "(unknown)", one.letters, one.bytes, one.first_ms, one.last_ms] for one in totals]
    total = sum(one.letters for one in totals)
    output.show(Rows("totals", f"in all: {total:,}", columns, rows, empty="none"))
    if shown < total:
        output.say(f"only the first {shown:,} are shown; --limit shows more, --export writes all")


def _export(place: str, found: list[DeadLetter]) -> None:
    try:
        with Path(place).open("x", encoding="utf-8") as file:
            file.writelines(json.dumps(one.record()) + "\n" for one in found)
    except FileExistsError:
        raise OptionInvalid("export", "there is a file of this name already", value=place) from None
    except OSError as problem:
        raise OptionInvalid("export", problem.strerror or str(problem), value=place) from None
