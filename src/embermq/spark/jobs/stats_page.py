"""The figures of `stats` as a page. Pure."""

from embermq.spark.jobs.stats import Stats
from embermq.spark.report import Bar, Bars, KeyFigure, Percentiles, ReportPage, Section, Spread, Table, TimeSeries
from embermq.spark.report.charts import amount, moment


def stats_report(found: Stats, subject: str, made_ms: int) -> ReportPage:
    """What people look at first: how much, when, of what, how late, who is behind."""
    behind = sum(lag.behind for lag in found.lags)
    seconds = max((found.end_ms - found.start_ms) / 1000, 1)
    first, last = (moment(at) if found.messages else "-" for at in (found.start_ms, found.end_ms))
    facts = [
        KeyFigure("messages", f"{found.messages:,}", f"{found.messages / seconds:,.0f} a second on average"),
        KeyFigure("bytes of log", amount(found.bytes, "bytes")),
        KeyFigure("topics", f"{len(found.topics):,}"),
        KeyFigure("from", first, f"to {last}"),
    ]
    if found.lags:
        facts.append(
            KeyFigure("messages not consumed", f"{behind:,}", f"{len({lag.group for lag in found.lags}):,} groups")
        )
    return ReportPage(
        "Message statistics",
        subject,
        made_ms,
        facts,
        [
            Section(
                "Volume",
                [
                    TimeSeries("Messages over time", found.steps_from_ms, found.step_ms, found.volume),
                    TimeSeries(
                        "Bytes of log over time", found.steps_from_ms, found.step_ms, found.volume_bytes, "bytes"
                    ),
                    Bars(
                        "Topics by size",
                        [Bar(one.topic, one.bytes, f"{one.messages:,} messages") for one in found.topics],
                        "bytes",
                    ),
                ],
            ),
            Section(
                "Delay",
                [
                    Percentiles(
                        "From the producer to the store",
                        [
                            Spread(one.topic, one.delay_p50_ms, one.delay_p90_ms, one.delay_p99_ms, one.delay_max_ms)
                            for one in found.topics[:20]
                        ],
                    ),
                ],
                "By the clocks of producer and broker; clocks that differ show up here.",
            ),
            Section(
                "Sizes, tags and keys",
                [
                    Bars("Record sizes", [Bar(one.name, one.messages) for one in found.sizes], in_order=True),
                    Bars("Topics and tags", [Bar(one.name, one.messages) for one in found.tags]),
                    Bars("Most frequent keys", [Bar(one.name, one.messages) for one in found.hot_keys]),
                ],
            ),
            Section(
                "Consumers",
                [
                    Table(
                        "Groups, furthest behind first",
                        ["group", "topic", "broker", "queue", "consumed", "end", "behind"],
                        [
                            [lag.group, lag.topic, lag.broker_name, lag.queue_id, lag.consumed, lag.end, lag.behind]
                            for lag in sorted(found.lags, key=lambda lag: -lag.behind)
                        ],
                    ),
                ],
            ),
        ],
    )
