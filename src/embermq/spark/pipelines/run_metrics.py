"""What a pipeline did since it was started, added up batch by batch, for Prometheus. Driver side, one thread."""

from collections import Counter

from embermq.spark.pipelines.batch_source import BatchProgress
from embermq.spark.report.metrics import Metric, Sample


class RunMetrics:
    """Totals of one run."""

    def __init__(self, started_ms: int) -> None:
        self._started_ms = started_ms
        self._last: BatchProgress | None = None
        self._last_ms = 0
        self._positions: dict[str, int] = {}
        self._totals: Counter[str] = Counter()
        self._by_sink: Counter[str] = Counter()

    def add(self, progress: BatchProgress, now_ms: int) -> None:
        self._last, self._last_ms = progress, now_ms
        self._positions |= progress.positions
        self._totals += Counter(batches=1, records=progress.records, bytes=progress.bytes)
        for name, figures in progress.sinks.items():
            self._totals += Counter(damages=len(figures.damages), undecoded=figures.undecoded)
            self._by_sink[name] += figures.records

    def metrics(self) -> list[Metric]:
        """As they are now. Counters begin with 0, so that a rate can be made of them from the first batch on."""
        counters = [
            ("batches", "Batches since the start."),
            ("records", "Records of the log in these batches."),
            ("bytes", "Bytes of the log in these batches."),
            ("damages", "Damaged ranges that were skipped."),
            ("undecoded", "JSON bodies that did not fit their schema."),
        ]
        found = [
            Metric(f"embermq_pipeline_{name}_total", "counter", words, [Sample(self._totals[name], {})])
            for name, words in counters
        ]
        sinks = [Sample(count, {"sink": name}) for name, count in sorted(self._by_sink.items())]
        places = [Sample(at, {"broker": name}) for name, at in sorted(self._positions.items())]
        return [
            Metric("embermq_pipeline_start_timestamp_seconds", "gauge", "When it was started.", _at(self._started_ms)),
            *found,
            Metric("embermq_pipeline_sink_records_total", "counter", "Records that a sink processed.", sinks),
            Metric("embermq_pipeline_position_bytes", "gauge", "Next to read of each log.", places),
            *self._of_last(),
        ]

    def _of_last(self) -> list[Metric]:
        last = self._last
        if last is None:
            return []
        left = [] if last.lag_messages is None else [Sample(last.lag_messages, {})]
        return [
            Metric(
                "embermq_pipeline_lag_bytes", "gauge", "Log left after the last batch.", [Sample(last.lag_bytes, {})]
            ),
            Metric("embermq_pipeline_lag_messages", "gauge", "Messages left after the last batch.", left),
            Metric("embermq_pipeline_last_batch_seconds", "gauge", "What it took.", [Sample(last.seconds, {})]),
            Metric("embermq_pipeline_last_batch_timestamp_seconds", "gauge", "When it ended.", _at(self._last_ms)),
        ]


def _at(ms: int) -> list[Sample]:
    return [Sample(ms / 1000, {})]
