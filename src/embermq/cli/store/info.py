"""`embermq store info`: what a store holds, how it was left, and what a start would do."""

from pathlib import Path

import click

from embermq import StoreSettings
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
from embermq.cli.store.meanwhile import telling_changes
from embermq.cli.store.options import directory_argument, files_with_log, settings_for, writing_options
from embermq.errors import StorePathInvalid
from embermq.files import Files, RealFiles
from embermq.format.checkpoint import Checkpoint
from embermq.inspect import (
    IndexFact,
    QueueFact,
    SegmentFact,
    StartPlan,
    Survey,
    checkpoint_of,
    index_facts,
    plan_start,
    quarantine_reports,
    queue_facts,
    segment_facts,
    spaces,
    writer_process,
)
from embermq.store import MessageStore
from embermq.store.recovery import IndexPlan
from embermq.store.services import load_scrub_state
from embermq.store.tables import ConsumerProgress, config_files, consumer_progress

_INDEX_PLANS = {
    IndexPlan.KEEP: "believe queues and index as they are",
    IndexPlan.RESTORE: "cut queues and index to what is proven, then bring them up to date",
    IndexPlan.REBUILD: "make queues and index again",
}


@click.command()
@directory_argument
@click.option("--queues", is_flag=True, help="Show every queue, not only topics.")
@click.option("--segments", is_flag=True, help="Show every log file.")
@click.option("--runtime", is_flag=True, help="Show RocketMQ's runtime keys as well.")
@writing_options
@output_option
def info(
    output: Output,
    directory: Path,
    queues: bool,
    segments: bool,
    runtime: bool,
    config_file: Path | None,
    changes: tuple[str, ...],
) -> None:
    """Show log, topics, index, checkpoint and config of a store, and what recovery at the next start would do.

    \b
    embermq store info ~/store
    embermq store info ~/store --queues --segments
    embermq store info ~/store --config broker.conf        where its log is, and what a start would do
    embermq store info ~/store --output json | jq .start

    Nothing is written, not even a lock: safe on the directory of a running broker. JSON has all tables.
    """
    with telling_changes(output, directory):
        settings = settings_for(directory, config_file, changes)
        disk = files_with_log(directory, settings)
        survey = Survey.open(directory, files=disk)
        _check_log(survey)
        facts = queue_facts(survey)
        files = segment_facts(survey)
        output.show(_log(survey, files, facts), _topics(facts))
        if queues or output.as_json:
            output.show(_queues(facts))
        if segments or output.as_json:
            output.show(_segments(files))
        output.show(_spaces(directory, disk), _index(index_facts(directory)))
        _show_config(output, directory, facts)
        output.show(_state(survey), _scrub(directory), _start(directory, settings, disk))
        if runtime:
            with MessageStore.open(directory, settings, read_only=True) as opened:
                pairs = sorted(opened.runtime_info().items())
            output.show(NamedValues("runtime", "runtime", [NamedValue(name, name, value) for name, value in pairs]))


def _check_log(survey: Survey) -> None:
    """StorePathInvalid, which says what was looked for, if there is no log at all: this is not an empty store."""
    if missing := survey.missing_directories():
        raise StorePathInvalid(
            survey.path,
            f"there is no log: no directory {' or '.join(map(str, missing))}; if it lies elsewhere, give the store's"
            " broker.conf (storePathCommitLog) with --config",
        )


def _log(survey: Survey, files: list[SegmentFact], queues: list[QueueFact]) -> NamedValues:
    times = [one.first_store_ms for one in files if one.first_store_ms is not None]
    newest = [one.last_store_ms for one in queues if one.last_store_ms is not None]
    return NamedValues(
        "log",
        "log",
        [
            NamedValue("path", "directory", str(survey.path)),
            NamedValue("min_physical_offset", "first physical offset", survey.log_min, show_count),
            NamedValue("max_physical_offset", "end physical offset", survey.log_end, show_count),
            NamedValue("log_bytes", "size", survey.log_end - survey.log_min, show_bytes),
            NamedValue("segments", "log files", len(files), show_count),
            NamedValue("segment_bytes", "size of a log file", files[0].size if files else None, show_bytes),
            NamedValue("first_store_timestamp_ms", "oldest message stored at", min(times, default=None), show_time),
            NamedValue("last_store_timestamp_ms", "newest message stored at", max(newest, default=None), show_time),
            NamedValue("identity", "identity", survey.identity),
        ],
    )


def _topics(facts: list[QueueFact]) -> Rows:
    by_topic: dict[str, list[QueueFact]] = {}
    for fact in facts:
        by_topic.setdefault(fact.span.topic, []).append(fact)
    rows = [
        (
            topic,
            len(its),
            sum(one.span.max_offset - one.span.min_offset for one in its),
            min((one.first_store_ms for one in its if one.first_store_ms is not None), default=None),
            max((one.last_store_ms for one in its if one.last_store_ms is not None), default=None),
        )
        for topic, its in by_topic.items()
    ]
    columns = (
        TableColumn("topic", "topic"),
        number("queues", "queues"),
        number("messages", "messages"),
        TableColumn("first_store_timestamp_ms", "oldest", show_time),
        TableColumn("last_store_timestamp_ms", "newest", show_time),
    )
    return Rows("topics", "topics", columns, rows, empty="none")


def _queues(facts: list[QueueFact]) -> Rows:
    columns = (
        TableColumn("topic", "topic"),
        number("queue_id", "queue", str),
        number("min_offset", "first offset"),
        number("max_offset", "end offset"),
        number("messages", "messages"),
        TableColumn("first_store_timestamp_ms", "oldest", show_time),
        TableColumn("last_store_timestamp_ms", "newest", show_time),
    )
    rows = [
        (
            one.span.topic,
            one.span.queue_id,
            one.span.min_offset,
            one.span.max_offset,
            one.span.max_offset - one.span.min_offset,
            one.first_store_ms,
            one.last_store_ms,
        )
        for one in facts
    ]
    return Rows("queues", "queues", columns, rows, empty="none")


def _segments(files: list[SegmentFact]) -> Rows:
    columns = (
        TableColumn("name", "log file"),
        number("size_bytes", "size", show_bytes),
        number("used_bytes", "used", show_bytes),
        number("allocated_bytes", "on the disk", show_bytes),
        TableColumn("first_store_timestamp_ms", "begins", show_time),
    )
    rows = [(one.name, one.size, one.used, one.allocated, one.first_store_ms) for one in files]
    return Rows("segments", "log files", columns, rows, empty="none")


def _spaces(directory: Path, files: Files) -> Rows:
    columns = (
        TableColumn("directory", "directory"),
        number("files", "files"),
        number("size_bytes", "size", show_bytes),
        number("allocated_bytes", "on the disk", show_bytes),
    )
    rows = [(one.name, one.files, one.bytes, one.allocated) for one in spaces(directory, files)]
    return Rows("sizes", "sizes", columns, rows, empty="none")


def _index(facts: list[IndexFact]) -> Rows:
    columns = (
        TableColumn("name", "index file"),
        number("keys", "keys"),
        number("begin_physical_offset", "from offset"),
        number("end_physical_offset", "to offset"),
        TableColumn("begin_timestamp_ms", "oldest", show_time),
        TableColumn("end_timestamp_ms", "newest", show_time),
    )
    rows = []
    for one in facts:
        head = one.header
        times = (head.begin_timestamp, head.end_timestamp) if head.count > 1 else (None, None)
        rows.append((one.name, head.count - 1, head.begin_physical, head.end_physical, *times))
    return Rows("index", "index", columns, rows, empty="none")


def _show_config(output: Output, directory: Path, facts: list[QueueFact]) -> None:
    files = RealFiles()
    columns = (TableColumn("name", "config file"), number("entries", "entries"), TableColumn("fault", "wrong with it"))
    rows = [(one.name, one.entries, one.fault) for one in config_files(files, directory)]
    output.show(Rows("config", "config", columns, rows, empty="none"))
    progress = consumer_progress(files, directory)
    if progress or output.as_json:
        output.show(_groups(progress, facts))


def _groups(progress: list[ConsumerProgress], facts: list[QueueFact]) -> Rows:
    """Consumer groups and how many messages they have not consumed yet."""
    ends = {(one.span.topic, one.span.queue_id): one.span.max_offset for one in facts}
    by_group: dict[tuple[str, str], list[int]] = {}
    for one in progress:
        behind = max(0, ends.get((one.topic, one.queue_id), one.offset) - one.offset)
        by_group.setdefault((one.group, one.topic), []).append(behind)
    columns = (
        TableColumn("group", "consumer group"),
        TableColumn("topic", "topic"),
        number("queues", "queues"),
        number("behind_messages", "messages behind"),
    )
    rows = [(group, topic, len(behind), sum(behind)) for (group, topic), behind in sorted(by_group.items())]
    return Rows("groups", "consumer groups", columns, rows, empty="none")


def _state(survey: Survey) -> NamedValues:
    directory, page = survey.path, survey.state_page
    checkpoint = checkpoint_of(directory) or Checkpoint()
    facts: list[NamedValue] = [
        NamedValue("writer_pid", "open for writing by process", writer_process(directory)),
        NamedValue("clean", "closed cleanly", not (directory / "abort").exists(), show_yes),
        NamedValue("checkpoint_log_ms", "checkpoint: log", checkpoint.log_ms or None, show_time),
        NamedValue("checkpoint_queues_ms", "checkpoint: queues", checkpoint.queues_ms or None, show_time),
        NamedValue("checkpoint_index_ms", "checkpoint: index", checkpoint.index_ms or None, show_time),
        NamedValue("flushed_offset", "proven durable: log", None if page is None else page.flushed, show_count),
        NamedValue(
            "queues_durable", "proven durable: queues", None if page is None else page.queues_durable, show_count
        ),
        NamedValue("quarantined", "damaged ranges in quarantine", quarantine_reports(directory), show_count),
    ]
    return NamedValues("state", "state", facts)


def _scrub(directory: Path) -> NamedValues:
    """How far the comparing of the store with itself is, as it was last written down."""
    state = load_scrub_state(RealFiles(), directory)
    position = state.position if state.round_began_ms else None
    facts: list[NamedValue] = [
        NamedValue("finished_ms", "last whole round finished at", state.finished_ms or None, show_time),
        NamedValue("round_began_ms", "round under way since", state.round_began_ms or None, show_time),
        NamedValue("position", "it has come to", position, show_count),
        NamedValue("bytes_per_second", "bytes a second", state.bytes_per_second or None, show_bytes),
        NamedValue("findings", "findings", state.findings, show_count),
        NamedValue("healed", "repaired", state.healed, show_count),
        NamedValue("rounds", "whole rounds", state.rounds, show_count),
    ]
    return NamedValues("scrub", "scrub", facts)


def _start(directory: Path, settings: StoreSettings, files: Files) -> NamedValues:
    """What opening the store would do; with the sizes found there, unless settings are given."""
    pid = writer_process(directory)
    if pid is not None:
        reason = f"process {pid or '(unknown)'} has it open"
        return NamedValues("start", "a start would", [NamedValue("reason", "refuse, because", reason)])
    return NamedValues("start", "a start would", _plan_facts(plan_start(directory, settings, files)))


def _plan_facts(plan: StartPlan) -> list[NamedValue]:
    return [
        NamedValue("reason", "because it was", plan.reason),
        NamedValue("walk_from", "read the log from", plan.walk_from, show_count),
        NamedValue("walk_bytes", "that is", plan.walk_bytes, show_bytes),
        NamedValue("derived", "and", plan.index.name.lower(), _show_plan),
        NamedValue("findings", "findings", plan.findings, _show_findings),
    ]


def _show_plan(name: object) -> str:
    return _INDEX_PLANS[IndexPlan[str(name).upper()]]


def _show_findings(findings: list[str]) -> str:
    shown = findings[:5]
    more = [f"… and {len(findings) - len(shown)} more"] if len(findings) > len(shown) else []
    return "\n".join([*shown, *more]) or "none"
