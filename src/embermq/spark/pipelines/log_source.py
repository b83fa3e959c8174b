"""The source of a pipeline over stores: a batch is a stretch of each log. Driver side."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from embermq.spark.jobs.cluster_tasks import ProgressReport
from embermq.spark.pipelines.batch_source import BatchProgress
from embermq.spark.pipelines.batches import LogBatch, LogRange
from embermq.spark.pipelines.derive import DerivedSink
from embermq.spark.pipelines.ranges import FORMAT, LogRanges
from embermq.spark.pipelines.sinks import PipelineSink, SinkFigures
from embermq.spark.pipelines.surveyed_stores import SurveyedStores


@dataclass(slots=True)
class LogSource:
    """Logs of these stores."""

    stores: dict[str, str]  # broker name -> path, as `StorePlace.source` has it
    sinks: Sequence[PipelineSink]
    batch_bytes_max: int
    fail_on_data_loss: bool
    every_seconds: float
    on_progress: ProgressReport | None
    _surveyed: SurveyedStores | None = None

    def check(self) -> None:
        """StoreError if what is to be derived is being derived by another process."""
        for sink in self.sinks:
            if isinstance(sink, DerivedSink):
                sink.check(self.stores.values())

    def open(self) -> None:
        self._surveyed = SurveyedStores(self.stores)

    def stream(self, spark: SparkSession) -> DataFrame:
        spark.dataSource.register(LogRanges)
        return (
            spark.readStream.format(FORMAT)
            .option("stores", json.dumps(self.stores))
            .option("maxBytesPerTrigger", str(self.batch_bytes_max))
            .option("failOnDataLoss", str(self.fail_on_data_loss).lower())
            .option("everySeconds", str(self.every_seconds))
            .load()
        )

    def work(self, spark: SparkSession, number: int, rows: Sequence[Any], began: float) -> BatchProgress | None:
        ranges = tuple(LogRange(*row) for row in rows)
        if not ranges:
            return None
        assert self._surveyed is not None, "open comes first"
        self._surveyed.begin_batch()
        batch = LogBatch(number, ranges, spark, self._surveyed, self.on_progress)
        figures = {sink.name: sink.process(batch) for sink in self.sinks}
        return _progress(batch, figures, time.monotonic() - began)


def _progress(batch: LogBatch, figures: dict[str, SinkFigures], seconds: float) -> BatchProgress:
    positions = {one.broker_name: one.end for one in batch.ranges}
    ends = {name: batch.stores.log_end(name) for name in positions}
    lag = sum(max(ends[name] - at, 0) for name, at in positions.items())
    records = max((one.records for one in figures.values()), default=0)
    return BatchProgress(batch.number, records, batch.bytes, seconds, lag, positions, figures)
