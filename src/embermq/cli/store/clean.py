"""`embermq store clean`: old log files go now, by the same rules as in a running store."""

import time
from contextlib import nullcontext
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
    show_time,
    show_yes,
)
from embermq.cli.store import BadInput
from embermq.cli.store.meanwhile import telling_changes
from embermq.cli.store.options import directory_argument, settings_for, writing_options
from embermq.cli.store.times import time_option
from embermq.errors import StoreLocked
from embermq.inspect import Preview, Survey, preview
from embermq.settings import StoreSettings
from embermq.store import open_for_maintenance
from embermq.store.services import Cleaned, OldSegment, RetentionGuard


@click.command()
@directory_argument
@click.option("--expired", is_flag=True, help="Delete files older than fileReservedTime; this is the default.")
@time_option("--all-before", "before_ms", "Instead: files all of whose messages were stored before this time.")
@click.option("--archived-in", "lake", metavar="LAKE", help="Delete only files whose messages are all in this lake.")
@click.option("--broker", "broker_name", help="With --archived-in: name of the broker in the lake.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, without deleting it.")
@writing_options
@output_option
def clean(
    output: Output,
    directory: Path,
    expired: bool,
    before_ms: int | None,
    lake: str | None,
    broker_name: str | None,
    dry_run: bool,
    config_file: Path | None,
    changes: tuple[str, ...],
) -> None:
    """Delete old log files of a store that is not running, and the queue and index files derived from them.

    \b
    embermq store clean ~/store --dry-run                                what is expired
    embermq store clean ~/store --set fileReservedTime=24                delete what is older than a day
    embermq store clean ~/store --all-before 2024-01-31                  delete by the time of messages
    embermq store clean ~/store --archived-in ~/lake --broker broker-a   only what the archive has

    Whole files, the oldest first, never the newest one, and nothing that is still needed: a delayed message that is
    not delivered yet, a file the archive has not got. Queue offsets go on where they are. The store must not be
    open elsewhere, but for --dry-run; a running one deletes by itself, or when its process calls
    `store.delete_expired()`.
    """
    if expired and before_ms is not None:
        raise click.UsageError("give either --expired or --all-before TIME")
    if (lake is None) != (broker_name is None):
        raise click.UsageError("--archived-in LAKE and --broker NAME go together")
    with telling_changes(output, directory) if dry_run else nullcontext():
        survey = Survey.open(directory)  # Nothing is made where there is no store.
        settings = settings_for(directory, config_file, changes)
        guard = _archive_guard(lake, broker_name) if lake is not None and broker_name is not None else None
        now_ms = time.time_ns() // 1_000_000
        expected = preview(survey, settings, now_ms, before_ms=before_ms, guard=guard)
    if dry_run:
        output.show(_files(expected.files), _facts(directory, _expected(expected), dry_run=True))
        return
    cleaned = _clean(directory, settings, before_ms, guard)
    gone = [old for old in expected.files if not old.path.exists()]
    output.show(_files(gone), _facts(directory, cleaned, dry_run=False))


def _archive_guard(lake: str, broker_name: str) -> RetentionGuard:
    from embermq.spark.jobs import archive_guard

    return archive_guard(lake, broker_name)


def _clean(directory: Path, settings: StoreSettings, before_ms: int | None, guard: RetentionGuard | None) -> Cleaned:
    # Only what was asked for: nothing goes by force, however full the disk is, and no one else has to be let through.
    # Nothing is appended, so no replica is promised.
    calm = settings.replace(
        delete_when_full=False, delete_segment_pause_ms=0, delete_queue_pause_ms=0, allow_unreplicated=True
    )
    try:
        store = open_for_maintenance(directory, calm, retention_guard=guard)
    except StoreLocked as locked:
        who = f"process {locked.holder_pid}" if locked.holder_pid else "another process"
        raise BadInput(
            f"{directory} is open in {who}, which deletes by itself (fileReservedTime, deleteWhen); stop it first,"
            " or have it call store.delete_expired(); --dry-run works beside it"
        ) from locked
    with store:
        total = Cleaned()
        while True:
            cleaned = store.delete_expired(before_ms=before_ms)
            total = total.plus(cleaned)
            if not cleaned.segments:
                return total


def _expected(found: Preview) -> Cleaned:
    log_bytes = sum(old.end - old.start for old in found.files)
    return Cleaned(segments=len(found.files), log_bytes=log_bytes, held_by=found.held_by)


def _files(files: list[OldSegment]) -> Rows:
    columns = (
        TableColumn("path", "log file"),
        number("start_physical_offset", "from offset"),
        number("end_physical_offset", "to before"),
        number("size_bytes", "size", show_bytes),
        TableColumn("last_change_ms", "last written to", show_time),
    )
    rows = [(str(old.path), old.start, old.end, old.end - old.start, old.last_change_ms) for old in files]
    return Rows("files", "log files", columns, rows, empty="none")


def _facts(directory: Path, cleaned: Cleaned, *, dry_run: bool) -> NamedValues:
    facts = [
        NamedValue("path", "directory", str(directory)),
        NamedValue("dry_run", "only looked", dry_run, show_yes),
        NamedValue("segments", "log files", cleaned.segments, show_count),
        NamedValue("log_bytes", "that is", cleaned.log_bytes, show_bytes),
    ]
    if not dry_run:
        facts += [
            NamedValue("queue_files", "queue files", cleaned.queue_files, show_count),
            NamedValue("index_files", "index files", cleaned.index_files, show_count),
        ]
    facts.append(NamedValue("held_by", "the next one is needed by", cleaned.held_by, absent="nothing"))
    return NamedValues("cleaned", "would be deleted" if dry_run else "deleted", facts)
