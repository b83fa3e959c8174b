"""The figures of `stats` as a page. Pure."""

from collections import Counter
from collections.abc import Sequence

from embermq.model.names import is_system_group
from embermq.spark.jobs.lag import Lag
from embermq.spark.jobs.stats import Stats
from embermq.spark.report import (
    Bar,
    Bars,
    KeyFigure,
    Percentiles,
    ReportPage,
    Section,
    Spread,
    StackedSeries,
    Table,
    TimeSeries,
)
from embermq.spark.report.charts import amount, moment

_LAG_COLUMNS = ["group", "topic", "broker", "queue", "consumer offset", "broker offset", "lag"]


def stats_report(found: Stats, subject: str, made_ms: int) -> ReportPage:
    """What people look at first: how much, when, of what, how late, who is behind."""
    users = [lag for lag in found.lags if not is_system_group(lag.group)]
    system = [lag for lag in found.lags if is_system_group(lag.group)]
    sections = [_volume(found), _latency(found), _kinds(found), _lag(users)]
    if system:
        sections.append(Section("System groups", [Table("Lag by queue", _LAG_COLUMNS, _lag_rows(system))]))
    return ReportPage("Message statistics", subject, made_ms, _facts(found, users), sections)


def _facts(found: Stats, users: Sequence[Lag]) -> list[KeyFigure]:
    seconds = max((found.end_ms - found.start_ms) / 1000, 1)
    first, last = (moment(at) if found.messages else "-" for at in (found.start_ms, found.end_ms))
    facts = [
        KeyFigure("Messages", f"{found.messages:,}"),
        KeyFigure("Average rate", f"{found.messages / seconds:,.1f}/s" if found.messages else "-"),
        KeyFigure("Log size", amount(found.bytes, "bytes")),
        KeyFigure("Topics", f"{len(found.topics):,}"),
        KeyFigure("Time range", first, f"to {last}"),
    ]
    if users:
        behind, groups = sum(lag.behind for lag in users), len({lag.group for lag in users})
        facts.append(KeyFigure("Consumer lag", f"{behind:,}", f"messages, {groups:,} consumer groups"))
    return facts


def _volume(found: Stats) -> Section:
    first, step_ms = found.steps_from_ms, found.step_ms
    return Section(
        "Volume",
        [
            StackedSeries("Messages over time by topic", first, step_ms, list(found.volume_by_topic.items())),
            TimeSeries("Bytes over time", first, step_ms, found.volume_bytes, "bytes"),
            Bars("Messages by topic", [Bar(one.topic, one.messages) for one in found.topics]),
            Bars("Bytes by topic", [Bar(one.topic, one.bytes) for one in found.topics], "bytes"),
        ],
    )


def _latency(found: Stats) -> Section:
    spreads = [
        Spread(one.topic, one.delay_p50_ms, one.delay_p90_ms, one.delay_p99_ms, one.delay_max_ms)
        for one in found.topics[:20]
    ]
    return Section(
        "Latency",
        [Percentiles("From producer to broker (storeTimestamp - bornTimestamp)", spreads)],
        "Measured with the clocks of producer and broker, which may differ.",
    )


def _kinds(found: Stats) -> Section:
    return Section(
        "Message sizes, tags and keys",
        [
            Bars("Message size distribution", [Bar(one.name, one.messages) for one in found.sizes], in_order=True),
            Bars("Messages by topic and tag", [Bar(one.name, one.messages) for one in found.tags]),
            Bars("Most frequent keys", [Bar(one.name, one.messages) for one in found.hot_keys]),
        ],
    )


def _lag(users: Sequence[Lag]) -> Section:
    return Section(
        "Consumer lag",
        [
            Bars("Messages behind by consumer group", _by_group(users)),
            Table("Lag by queue", _LAG_COLUMNS, _lag_rows(users)),
        ],
        "From the offsets that the broker saves every few seconds.",
    )


def _by_group(lags: Sequence[Lag]) -> list[Bar]:
    """All queues of a group together; one that is up to date is a bar of no length."""
    behind, topics = Counter[str](), dict[str, set[str]]()
    for lag in lags:
        behind[lag.group] += lag.behind
        topics.setdefault(lag.group, set()).add(lag.topic)
    return [Bar(group, count, ", ".join(sorted(topics[group])[:3])) for group, count in behind.items()]


def _lag_rows(lags: Sequence[Lag]) -> list[list[object]]:
    return [
        [lag.group, lag.topic, lag.broker_name, lag.queue_id, lag.consumed, lag.end, lag.behind]
        for lag in sorted(lags, key=lambda lag: -lag.behind)
    ]
