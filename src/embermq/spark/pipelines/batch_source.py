"""What a pipeline follows: a source gives the stream of ranges, and feeds its sinks each batch. Driver side.

log_source.py       logs of stores, by physical offsets
cluster_source.py   a running cluster, by offsets of queues
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from embermq.spark.pipelines.sinks import SinkFigures


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """What one batch did. A line of JSON for each is a log that programs can follow."""

    batch: int
    records: int  # of the sink that saw most
    bytes: int
    seconds: float
    lag_bytes: int  # of log that was there when the batch was done
    positions: dict[str, int]  # broker name -> next to read
    sinks: dict[str, SinkFigures] = field(default_factory=dict)
    lag_messages: int | None = None  # over the wire; `lag_bytes` is then by the average message
    offsets: dict[str, object] = field(default_factory=dict)  # over the wire: next to read, as its checkpoint has it

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds > 0 else 0.0


class BatchSource(Protocol):
    """Where the batches of a pipeline come from."""

    def check(self) -> None:
        """Raises if what is derived already does not belong to this source, or another process derives it."""

    def open(self) -> None:
        """The query is about to start."""

    def stream(self, spark: SparkSession) -> DataFrame:
        """A row for each range of the next batch."""
        ...

    def work(self, spark: SparkSession, number: int, rows: Sequence[Any], began: float) -> BatchProgress | None:
        """Feed the sinks with the ranges of a batch that began then; None if it has nothing."""
        ...
