"""`embermq spark audit`: is what lies in stores sound and complete?"""

from dataclasses import asdict

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
from embermq.cli.spark.common import log_options, master_option, shown_paths, stores_argument, working
from embermq.cli.store.times import check_order, time_option
from embermq.clock import SystemClock
from embermq.spark import audit as job_audit
from embermq.spark.jobs import Audit, AuditFinding, StoreAudit, audit_report, check_place
from embermq.spark.report import check_report_place, write_report


@click.command()
@stores_argument
@click.option(
    "--save",
    metavar="DIR_OR_FILE",
    help="Also write the findings: FILE.parquet or FILE.jsonl; into a directory, records by topic, tag and hour too.",
)
@click.option("--report", metavar="FILE.html", help="Write an HTML report.")
@time_option("--since", "since_ms", "Report counts and findings of messages stored at this time or later.")
@time_option("--until", "until_ms", "Report counts and findings of messages stored before this time.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(0),
    help="Maximum number of findings to show; faults come first.",
)
@log_options
@master_option
@output_option
def audit(
    output: Output,
    paths: tuple[str, ...],
    save: str | None,
    report: str | None,
    since_ms: int | None,
    until_ms: int | None,
    limit: int,
    master: str | None,
) -> None:
    """Check every record of stores, and compare log, queues and index with each other.

    Checksums, sizes and places; queue offsets that go on; entries and index entries without their record, and the
    other way round; unique keys that a topic has twice; times without messages. Nothing is written into the stores;
    they may be in use.

    \b
    embermq spark audit /data/broker-a --report audit.html
    embermq spark audit '/data/broker-*' --save findings.parquet
    embermq spark audit /data/broker-a --since 2026-11-01 --until 2026-11-02
    """
    check_order("--since", since_ms, "--until", until_ms)
    if save is not None:
        check_place(save)
    if report is not None:
        check_report_place(report)
    with working(output, master, "embermq audit") as (spark, on_progress):
        found = job_audit(spark, list(paths), since_ms=since_ms, until_ms=until_ms, on_progress=on_progress)
    _show(output, found, limit)
    if since_ms is not None or until_ms is not None:
        output.record("records_in_window", found.counted)
        output.say(f"records stored in this time: {show_count(found.counted)}; all of the log was read")
    if save is not None:
        files = found.save(save)
        output.record("saved", files)
        output.say(f"saved: {', '.join(files)}")
    if report is not None:
        place = write_report(audit_report(found, shown_paths(paths), SystemClock().now_ms()), report)
        output.record("report", str(place))
        output.say(f"report: {place}")
    if not found.is_sound:
        output.say(f"\nfaults: {show_count(found.faults)}", style="bold red")
        click.get_current_context().exit(1)
    output.say("\nsound", style="bold green")


def _show(output: Output, found: Audit, limit: int) -> None:
    findings = found.findings
    if output.as_json:
        output.record("stores", [_summary(store) for store in found.stores])
        output.record("findings", [asdict(one) for one in findings[:limit]])
        output.record("findings_total", len(findings))
        output.record("faults", found.faults)
        output.record("sound", found.is_sound)
        return
    for store in found.stores:
        output.show(NamedValues("store", store.broker_name, _facts(store)), _topics(store))
    output.show(_rows(findings[:limit]))
    if len(findings) > limit:
        output.say(f"and {len(findings) - limit:,} more; --save writes all of them")


def _facts(store: StoreAudit) -> list[NamedValue]:
    report = store.report
    facts = [
        NamedValue("path", "directory", store.path),
        NamedValue("live", "being written", report.is_live, show_yes),
        NamedValue("log_bytes", "log", store.log_bytes, show_bytes),
        NamedValue("segments", "log files", len(store.segments), show_count),
        NamedValue("records", "records", report.records, show_count),
        NamedValue("damaged_bytes", "damaged", store.damaged_bytes, show_bytes),
        NamedValue("queues", "queues", report.queues, show_count),
        NamedValue("queue_entries", "queue entries", report.queue_entries, show_count),
        NamedValue("index_entries", "index entries", report.index_entries, show_count),
    ]
    pending = (
        NamedValue("pending_entries", "records on their way to queues", report.pending_entries, show_count),
        NamedValue("pending_keys", "keys on their way to the index", report.pending_keys, show_count),
    )
    return [*facts, *(fact for fact in pending if fact.value)]


def _summary(store: StoreAudit) -> dict[str, object]:
    """A store for programs."""
    report = store.report
    return {
        "broker_name": store.broker_name,
        "path": store.path,
        "live": report.is_live,
        "log_start": report.log_min,
        "log_end": report.log_end,
        "segments": len(store.segments),
        "records": report.records,
        "queues": report.queues,
        "queue_entries": report.queue_entries,
        "index_entries": report.index_entries,
        "pending_entries": report.pending_entries,
        "pending_keys": report.pending_keys,
        "damaged_bytes": store.damaged_bytes,
        "damages": [asdict(damage) for damage in store.damages],
        "topics": [
            {"topic": topic, "messages": messages, "bytes": octets}
            for topic, (messages, octets) in store.totals.topics().items()
        ],
    }


def _topics(store: StoreAudit) -> Rows:
    columns = [TableColumn("topic", "topic"), number("messages", "records"), number("bytes", "bytes", show_bytes)]
    rows = [[topic, *counts] for topic, counts in list(store.totals.topics().items())[:20]]
    return Rows("topics", "largest topics", columns, rows, empty="no records")


def _rows(findings: list[AuditFinding]) -> Rows:
    columns = [
        TableColumn("severity", ""),
        TableColumn("kind", "kind"),
        TableColumn("where", "where"),
        number("at", "at offset"),
        number("queue_offset", "queue offset"),
        number("times", "times"),
        TableColumn("since", "since", show_time),
        TableColumn("fault", "problem"),
        TableColumn("remedy", "remedy"),
    ]
    rows = [
        [
            one.severity,
            one.kind,
            f"{one.broker_name}: {one.file or one.topic or ''}",
            one.physical_offset,
            one.queue_offset,
            one.times,
            one.start_ms,
            one.fault,
            one.remedy,
        ]
        for one in findings
    ]
    return Rows("findings", "findings", columns, rows, empty="none")
