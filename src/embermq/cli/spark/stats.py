"""`embermq spark stats`: what the messages are like."""

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
)
from embermq.cli.spark.common import cluster_options, log_options, master_option, shown_paths, working
from embermq.cli.store.times import check_order, time_option
from embermq.clock import SystemClock
from embermq.errors import OptionInvalid
from embermq.spark import stats as job_stats
from embermq.spark.jobs import Stats, stats_report
from embermq.spark.report import check_report_place, write_report


@click.command()
@click.argument("paths", nargs=-1, metavar="[DIR]...")
@cluster_options
@click.option("--archive", "lake", metavar="LAKE", help="Lake to read archived messages from.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Include only this topic. Repeatable.")
@time_option("--since", "since_ms", "Include only messages stored at this time or later.")
@time_option("--until", "until_ms", "Include only messages stored before this time.")
@click.option("--report", metavar="FILE.html", help="Write an HTML report.")
@log_options
@master_option
@output_option
def stats(
    output: Output,
    paths: tuple[str, ...],
    name_server: str | None,
    access: dict[str, str],
    lake: str | None,
    topics: tuple[str, ...],
    since_ms: int | None,
    until_ms: int | None,
    report: str | None,
    master: str | None,
) -> None:
    """Volume over time, sizes, delay from producer to store, tags, hot keys, consumer lag.

    \b
    embermq spark stats /data/broker-a --report messages.html
    embermq spark stats /data/broker-a --since 2026-11-01 --until 2026-11-02T12:00:00Z
    embermq spark stats --name-server 127.0.0.1:9876 --topic orders
    """
    if not paths and name_server is None:
        raise OptionInvalid("store", "name at least one store, or a name server")
    check_order("--since", since_ms, "--until", until_ms)
    if report is not None:
        check_report_place(report)
    with working(output, master, "embermq stats") as (spark, on_progress):
        on_progress("counting", 0, 1)
        found = job_stats(
            spark,
            list(paths),
            lake=lake,
            topics=list(topics) or None,
            name_server=name_server,
            since_ms=since_ms,
            until_ms=until_ms,
            access=access,
        )
    output.record("stats", asdict(found))
    if not output.as_json:
        _show(output, found)
    if report is not None:
        source = shown_paths(paths) or str(name_server)
        place = write_report(stats_report(found, source, SystemClock().now_ms()), report)
        output.record("report", str(place))
        output.say(f"report: {place}")


def _show(output: Output, found: Stats) -> None:
    output.show(
        NamedValues(
            "all",
            "all messages",
            [
                NamedValue("messages", "messages", found.messages, show_count),
                NamedValue("bytes", "bytes of log", found.bytes, show_bytes),
                NamedValue("start_ms", "first stored", found.start_ms if found.messages else None, show_time),
                NamedValue("end_ms", "last stored", found.end_ms if found.messages else None, show_time),
            ],
        ),
        Rows(
            "topics",
            "topics",
            [
                TableColumn("topic", "topic"),
                number("messages", "messages"),
                number("bytes", "bytes", show_bytes),
                number("p50", "delay p50 ms"),
                number("p99", "p99 ms"),
                number("most", "most ms"),
            ],
            [
                [one.topic, one.messages, one.bytes, one.delay_p50_ms, one.delay_p99_ms, one.delay_max_ms]
                for one in found.topics[:50]
            ],
            empty="no messages",
        ),
        Rows(
            "keys",
            "most frequent keys",
            [TableColumn("key", "key"), number("messages", "messages")],
            [[one.name, one.messages] for one in found.hot_keys[:10]],
            empty="no keys",
        ),
        Rows(
            "lags",
            "consumers",
            [
                TableColumn("group", "group"),
                TableColumn("topic", "topic"),
                number("queue", "queue"),
                number("behind", "behind"),
            ],
            [
                [lag.group, lag.topic, lag.queue_id, lag.behind]
                for lag in sorted(found.lags, key=lambda lag: -lag.behind)[:20]
            ],
            empty="none known",
        ),
    )
