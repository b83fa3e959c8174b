"""What a pipeline did as a page: how much came when, of what, how late, and how the pipeline kept up. Pure."""

from collections.abc import Sequence

from embermq.columns import is_system_topic
from embermq.spark.pipelines.batch_source import BatchProgress
from embermq.spark.pipelines.report_sink import LogFigures, RunFigures
from embermq.spark.report import (
    Bar,
    Bars,
    DamagedStretch,
    DamageMap,
    KeyFigure,
    Percentiles,
    ReportPage,
    Section,
    Spread,
    Steps,
    Table,
    TimeSeries,
)
from embermq.spark.report.charts import amount
from embermq.spark.report.times import usual_span

BATCHES_SHOWN_MAX = 50


def pipeline_report(counted: RunFigures, done: Sequence[BatchProgress], subject: str, made_ms: int) -> ReportPage:
    """Of the batches of one run; `done` may be the last ones of very many."""
    topics = dict(sorted(counted.topics.items(), key=lambda item: (-item[1].bytes, item[0])))
    users = {topic: figures for topic, figures in topics.items() if not is_system_topic(topic)}
    names = [f"batch {one.batch}" for one in done]
    return ReportPage(
        "Pipeline run",
        subject,
        made_ms,
        _facts(counted, done),
        [
            Section(
                "Volume",
                [
                    *_volume(counted),
                    Bars(
                        "Bytes by topic",
                        [
                            Bar(topic, figures.bytes, f"{figures.messages:,} records")
                            for topic, figures in topics.items()
                        ],
                        "bytes",
                    ),
                ],
            ),
            Section(
                "Latency",
                [
                    Percentiles(
                        "From producer to broker (storeTimestamp - bornTimestamp)",
                        [
                            Spread(topic, *(figures.delay_ms(share) for share in (0.5, 0.9, 0.99, 1.0)))
                            for topic, figures in list(users.items())[:20]
                        ],
                    ),
                ],
                "Measured with the clocks of producer and broker, which may differ.",
            ),
            Section(
                "Lag and throughput",
                [
                    Steps("Lag after each batch", names, [one.lag_bytes for one in done], "bytes"),
                    Steps("Throughput of each batch", names, [one.bytes_per_second for one in done], "bytes/s"),
                    Table(
                        "Batches, newest first",
                        ["batch", "records", "bytes", "seconds", "throughput", "lag"],
                        [
                            [
                                one.batch,
                                one.records,
                                amount(one.bytes, "bytes"),
                                round(one.seconds, 2),
                                amount(one.bytes_per_second, "bytes/s"),
                                amount(one.lag_bytes, "bytes"),
                            ]
                            for one in reversed(done)
                        ],
                        BATCHES_SHOWN_MAX,
                    ),
                ],
            ),
            Section(
                "Log integrity",
                [_map(name, log) for name, log in sorted(counted.logs.items())],
                "What this run read, from the oldest byte to the newest. Damaged ranges are red.",
            ),
        ],
    )


def _facts(counted: RunFigures, done: Sequence[BatchProgress]) -> list[KeyFigure]:
    octets, seconds = sum(one.bytes for one in done), sum(one.seconds for one in done)
    messages = sum(figures.messages for figures in counted.topics.values())
    lost = sum(damage.end - damage.start for log in counted.logs.values() for damage in log.damages)
    behind = done[-1].lag_bytes if done else 0
    return [
        KeyFigure("Records", f"{messages:,}", f"{len(counted.topics):,} topics"),
        KeyFigure("Log processed", amount(octets, "bytes"), f"{len(done):,} batches"),
        KeyFigure("Throughput", amount(octets / seconds if seconds else 0, "bytes/s"), "while batches ran"),
        KeyFigure("Lag", amount(behind, "bytes"), "after the last batch", "plain" if behind else "good"),
        KeyFigure("Damaged", amount(lost, "bytes"), "of what was read", "bad" if lost else "good"),
    ]


def _volume(counted: RunFigures) -> list[TimeSeries]:
    start, end = usual_span(counted.volume)
    counts = [counted.volume.get(step, (0, 0)) for step in range(start, end)]
    first, step_ms = start * counted.step_ms, counted.step_ms
    return [
        TimeSeries("Records over time", first, step_ms, [messages for messages, _ in counts]),
        TimeSeries("Bytes over time", first, step_ms, [octets for _, octets in counts], "bytes"),
    ]


def _map(name: str, log: LogFigures) -> DamageMap:
    damaged = [DamagedStretch(one.start, one.end, one.reason) for one in log.damages]
    return DamageMap(name, log.start, log.end, sorted(log.segments), damaged)
