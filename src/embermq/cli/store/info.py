"""`embermq store info`: what a store holds, how it was left, and what a start would do."""

from pathlib import Path
from typing import Any

import click

from embermq import MessageStore, StoreSettings
from embermq.cli.output import (
    Column,
    Fact,
    Facts,
    Output,
    Rows,
    number,
    output_option,
    show_bytes,
    show_count,
    show_time,
    show_yes,
)
from embermq.cli.store.meanwhile import telling_changes
from embermq.cli.store.options import directory_argument, settings_for, writing_options
from embermq.files.files import RealFiles
from embermq.format.checkpoint import Checkpoint
from embermq.inspect import overview
from embermq.inspect.overview import IndexFact, QueueFact, SegmentFact, StartPlan
from embermq.inspect.snapshot import Survey
from embermq.store.layout.config_directory import Progress, config_files, consumer_progress
from embermq.store.recovery.plan import IndexPlan
from embermq.store.services.scrub_state import load_scrub_state

_INDEX_PLANS = {
    IndexPlan.KEEP: "believe queues and index as they are",
    IndexPlan.RESTORE: "cut queues and index to what is proven, then bring them up to date",
    IndexPlan.REBUILD: "make queues and index again",
}


@click.command()
@directory_argument
@click.option("--queues", is_flag=True, help="Show every queue, not only topics.")
@click.option("--segments", is_flag=True, help="Show every log file.")
@click.option("--runtime", is_flag=True, help="Show the reference's runtime keys as well.")
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
    """Show what a store holds: log, topics, index, checkpoint, config, and what a start would do.

    \b
    embermq store info ~/store
    embermq store info ~/store --queues --segments
    embermq store info ~/store --config broker.conf        what a start with these settings would do
    embermq store info ~/store --output json | jq .start

    Nothing is written, not even a lock: safe on the directory of a running broker. JSON has all tables.
    """
    with telling_changes(output, directory):
        settings = settings_for(directory, config_file, changes)
        survey = Survey.open(directory)
        facts = overview.queue_facts(survey)
        files = overview.segment_facts(survey)
        output.show(_log(survey, files, facts), _topics(facts))
        if queues or output.as_json:
            output.show(_queues(facts))
        if segments or output.as_json:
            output.show(_segments(files))
        output.show(_spaces(directory), _index(overview.index_facts(directory)))
        _show_config(output, directory, facts)
        output.show(_state(survey), _scrub(directory), _start(directory, settings))
        if runtime:
            with MessageStore.open(directory, read_only=True) as opened:
                pairs = sorted(opened.runtime_info().items())
            output.show(Facts("runtime", "runtime", [Fact(name, name, value) for name, value in pairs]))


def _log(survey: Survey, files: list[SegmentFact], queues: list[QueueFact]) -> Facts:
    times = [one.first_store_ms for one in files if one.first_store_ms is not None]
    newest = [one.last_store_ms for one in queues if one.last_store_ms is not None]
    return Facts(
        "log",
        "log",
        [
            Fact("path", "directory", str(survey.path)),
            Fact("min_physical_offset", "first physical offset", survey.log_min, show_count),
            Fact("max_physical_offset", "end physical offset", survey.log_end, show_count),
            Fact("log_bytes", "size", survey.log_end - survey.log_min, show_bytes),
            Fact("segments", "log files", len(files), show_count),
            Fact("segment_bytes", "size of a log file", files[0].size if files else None, show_bytes),
            Fact("first_store_timestamp_ms", "oldest message stored at", min(times, default=None), show_time),
            Fact("last_store_timestamp_ms", "newest message stored at", max(newest, default=None), show_time),
            Fact("identity", "identity", survey.identity),
        ],
    )


def _topics(facts: list[QueueFact]) -> Rows:
    by_topic: dict[str, list[QueueFact]] = {}
    for fact in facts:
        by_topic.setdefault(fact.span.topic, []).append(fact)
    rows = [
        (
            topic, len(its), sum(one.span.max_offset - one.span.min_offset for one in its),
            min((one.first_store_ms for one in its if one.first_store_ms is not None), default=None),
            max((one.last_store_ms for one in its if one.last_store_ms is not None), default=None),
        )
        for topic, its in by_topic.items()
    ]  # fmt: skip
    columns = (
        Column("topic", "topic"),
        number("queues", "queues"),
        number("messages", "messages"),
        Column("first_store_timestamp_ms", "oldest", show_time),
        Column("last_store_timestamp_ms", "newest", show_time),
    )
    return Rows("topics", "topics", columns, rows, empty="none")


def _queues(facts: list[QueueFact]) -> Rows:
    columns = (
        Column("topic", "topic"),
        number("queue_id", "queue", str),
        number("min_offset", "first offset"),
        number("max_offset", "end offset"),
        number("messages", "messages"),
        Column("first_store_timestamp_ms", "oldest", show_time),
        Column("last_store_timestamp_ms", "newest", show_time),
    )
    rows = [
        (
            one.span.topic, one.span.queue_id, one.span.min_offset, one.span.max_offset,
            one.span.max_offset - one.span.min_offset, one.first_store_ms, one.last_store_ms,
        )
        for one in facts
    ]  # fmt: skip
    return Rows("queues", "queues", columns, rows, empty="none")


def _segments(files: list[SegmentFact]) -> Rows:
    columns = (
        Column("name", "log file"),
        number("size_bytes", "size", show_bytes),
        number("used_bytes", "used", show_bytes),
        number("allocated_bytes", "on the disk", show_bytes),
        Column("first_store_timestamp_ms", "begins", show_time),
    )
    rows = [(one.name, one.size, one.used, one.allocated, one.first_store_ms) for one in files]
    return Rows("segments", "log files", columns, rows, empty="none")


def _spaces(directory: Path) -> Rows:
    columns = (
        Column("directory", "directory"),
        number("files", "files"),
        number("size_bytes", "size", show_bytes),
        number("allocated_bytes", "on the disk", show_bytes),
    )
    rows = [(one.name, one.files, one.bytes, one.allocated) for one in overview.spaces(directory)]
    return Rows("sizes", "sizes", columns, rows, empty="none")


def _index(facts: list[IndexFact]) -> Rows:
    columns = (
        Column("name", "index file"),
        number("keys", "keys"),
        number("begin_physical_offset", "from offset"),
        number("end_physical_offset", "to offset"),
        Column("begin_timestamp_ms", "oldest", show_time),
        Column("end_timestamp_ms", "newest", show_time),
    )
    rows = []
    for one in facts:
        head = one.header
        times = (head.begin_timestamp, head.end_timestamp) if head.count > 1 else (None, None)
        rows.append((one.name, head.count - 1, head.begin_physical, head.end_physical, *times))
    return Rows("index", "index", columns, rows, empty="none")


def _show_config(output: Output, directory: Path, facts: list[QueueFact]) -> None:
    files = RealFiles()
    columns = (Column("name", "config file"), number("entries", "entries"), Column("fault", "wrong with it"))
    rows = [(one.name, one.entries, one.fault) for one in config_files(files, directory)]
    output.show(Rows("config", "config", columns, rows, empty="none"))
    progress = consumer_progress(files, directory)
    if progress or output.as_json:
        output.show(_groups(progress, facts))


def _groups(progress: list[Progress], facts: list[QueueFact]) -> Rows:
    """Consumer groups and how many messages they have not consumed yet."""
    ends = {(one.span.topic, one.span.queue_id): one.span.max_offset for one in facts}
    by_group: dict[tuple[str, str], list[int]] = {}
    for one in progress:
        behind = max(0, ends.get((one.topic, one.queue_id), one.offset) - one.offset)
        by_group.setdefault((one.group, one.topic), []).append(behind)
    columns = (
        Column("group", "consumer group"),
        Column("topic", "topic"),
        number("queues", "queues"),
        number("behind_messages", "messages behind"),
    )
    rows = [(group, topic, len(behind), sum(behind)) for (group, topic), behind in sorted(by_group.items())]
    return Rows("groups", "consumer groups", columns, rows, empty="none")


def _state(survey: Survey) -> Facts:
    directory, page = survey.path, survey.state_page
    checkpoint = overview.checkpoint_of(directory) or Checkpoint()
    facts: list[Fact] = [
        Fact("writer_pid", "open for writing by process", overview.writer_process(directory)),
        Fact("clean", "closed cleanly", not (directory / "abort").exists(), show_yes),
        Fact("checkpoint_log_ms", "checkpoint: log", checkpoint.log_ms or None, show_time),
        Fact("checkpoint_queues_ms", "checkpoint: queues", checkpoint.queues_ms or None, show_time),
        Fact("checkpoint_index_ms", "checkpoint: index", checkpoint.index_ms or None, show_time),
        Fact("flushed_offset", "proven durable: log", None if page is None else page.flushed, show_count),
        Fact("queues_durable", "proven durable: queues", None if page is None else page.queues_durable, show_count),
        Fact("quarantined", "damaged ranges in quarantine", overview.quarantine_reports(directory), show_count),
    ]
    return Facts("state", "state", facts)


def _scrub(directory: Path) -> Facts:
    """How far the comparing of the store with itself is, as it was last written down."""
    state = load_scrub_state(RealFiles(), directory)
    position = state.position if state.round_began_ms else None
    facts: list[Fact] = [
        Fact("finished_ms", "last whole round finished at", state.finished_ms or None, show_time),
        Fact("round_began_ms", "round under way since", state.round_began_ms or None, show_time),
        Fact("position", "it has come to", position, show_count),
        Fact("bytes_per_second", "bytes a second", state.bytes_per_second or None, show_bytes),
        Fact("findings", "findings", state.findings, show_count),
        Fact("healed", "mended", state.healed, show_count),
        Fact("rounds", "whole rounds", state.rounds, show_count),
    ]
    return Facts("scrub", "scrub", facts)


def _start(directory: Path, settings: StoreSettings) -> Facts:
    """What opening the store would do; with the sizes found there, unless settings are given."""
    pid = overview.writer_process(directory)
    if pid is not None:
        reason = f"process {pid or '(unknown)'} has it open"
        return Facts("start", "a start would", [Fact("reason", "refuse, because", reason)])
    return Facts("start", "a start would", _plan_facts(overview.plan_start(directory, settings)))


def _plan_facts(plan: StartPlan) -> list[Fact]:
    return [
        Fact("reason", "because it was", plan.reason),
        Fact("walk_from", "read the log from", plan.walk_from, show_count),
        Fact("walk_bytes", "that is", plan.walk_bytes, show_bytes),
        Fact("derived", "and", plan.index.name.lower(), _show_plan),
        Fact("findings", "findings", plan.findings, _show_findings),
    ]


def _show_plan(name: Any) -> str:
    return _INDEX_PLANS[IndexPlan[str(name).upper()]]


def _show_findings(findings: list[str]) -> str:
    shown = findings[:5]
    more = [f"… and {len(findings) - len(shown)} more"] if len(findings) > len(shown) else []
    return "\n".join([*shown, *more]) or "none"
