"""What a sink of a pipeline from a running cluster is given: a range of each queue. Driver side."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from embermq.spark.jobs.cluster_tasks import ProgressReport
from embermq.spark.lake.queue_ranges import QueueRows
from embermq.spark.wire.cluster import QueueName


@dataclass(frozen=True, slots=True)
class QueueBatch:
    """One micro-batch."""

    number: int
    wanted: QueueRows
    positions: Mapping[QueueName, int]  # next to read of every queue after this batch
    spark: SparkSession
    on_progress: ProgressReport | None = None
