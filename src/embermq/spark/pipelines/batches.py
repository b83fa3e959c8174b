"""What a sink is given: a stretch of each log, and ways to look at the records in it. Driver side."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from embermq.inspect import Survey, record_starts, slice_count
from embermq.spark.jobs.cluster_tasks import ProgressReport, parallelism
from embermq.spark.lake.names import stem
from embermq.spark.pipelines.surveyed_stores import SurveyedStores
from embermq.spark.reading.tables import table
from embermq.store.log import LogSegment

SLICE_BYTES_MAX = 64 << 20
SLICE_BYTES_MIN = 4 << 20


@dataclass(frozen=True, slots=True)
class LogRange:
    """Records that begin in [start, end) of one log; both are where a record begins or the log ends."""

    broker_name: str
    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RangeSlice:
    """A part of a range for one task: workers need no more than this."""

    broker_name: str
    segments: tuple[LogSegment, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class LogBatch:
    """One micro-batch."""

    number: int
    ranges: tuple[LogRange, ...]
    spark: SparkSession
    stores: SurveyedStores
    on_progress: ProgressReport | None = None

    @property
    def bytes(self) -> int:
        return sum(one.end - one.start for one in self.ranges)

    @property
    def name(self) -> str:
        """For what is made of this batch: no other has it, and the batch has it again when it comes again."""
        first = self.ranges[0]
        return stem(first.broker_name, first.start, first.end)

    def survey(self, one: LogRange) -> Survey:
        """The store of a range, looked at once for all sinks."""
        return self.stores.at(one.path)

    def frame(self, columns: Sequence[str] | None = None, **options: Any) -> DataFrame:
        """The messages of this batch in the columns of the format; nothing else of the logs is read."""
        parts = []
        for one in self.ranges:
            wanted = None if columns is None else list(dict.fromkeys([*columns, "physicalOffset"]))
            at = F.col("physicalOffset")
            part = table(self.spark, one.path, wanted, **options).where((at >= one.start) & (at < one.end))
            if columns is None or "brokerName" in columns:
                part = part.withColumn("brokerName", F.lit(one.broker_name))
            parts.append(part if columns is None else part.select(*columns))
        return reduce(DataFrame.unionByName, parts)

    def slices(self) -> list[RangeSlice]:
        """The batch in even parts for tasks, each beginning where a record begins."""
        cores = parallelism(self.spark)
        found = []
        for one in self.ranges:
            survey = self.survey(one)
            count = slice_count(one.end - one.start, cores, SLICE_BYTES_MIN, SLICE_BYTES_MAX)
            starts = record_starts(one.start, one.end, count, survey.record_start)
            for low, high in pairwise([*starts, one.end]):
                segments = tuple(part for part in survey.segments if part.start < high and part.end > low)
                found.append(RangeSlice(one.broker_name, segments, low, high))
        return found
