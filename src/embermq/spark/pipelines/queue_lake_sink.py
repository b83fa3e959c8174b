"""The lake as a sink of a pipeline from a running cluster: each batch is a commit. Driver side."""

from collections.abc import Sequence

from embermq.spark.lake import Lake
from embermq.spark.lake.queue_ranges import QueueEnds, add_queues
from embermq.spark.pipelines.queue_batches import QueueBatch
from embermq.spark.pipelines.sinks import SinkFigures
from embermq.spark.planning.offsets import ReadableQueue


class QueueLakeSink:
    """Messages as consumers see them, by topic and day; small files are joined now and then."""

    name = "lake"

    def __init__(self, lake: Lake, compact_every: int) -> None:
        self._lake, self._compact_every = lake, compact_every
        self._ends = QueueEnds()

    def check(self, there: Sequence[ReadableQueue]) -> None:
        """DataLost if a queue is shorter than what the lake has of it."""
        self._lake.refresh()
        self._ends.refresh(self._lake)
        self._ends.check(there, f"the lake {self._lake.files.root}")

    def process(self, batch: QueueBatch) -> SinkFigures:
        added = add_queues(self._lake, self._ends, batch.spark, batch.wanted, batch.on_progress)
        is_turn = self._compact_every and batch.number % self._compact_every == self._compact_every - 1
        if is_turn or self._lake.file_bytes is not None:
            self._lake.compact(batch.spark, batch.on_progress, full_only=not is_turn)
        if added is None:
            return SinkFigures()
        return SinkFigures(added.rows, added.files, added.troubles, added.undecoded, added.bytes)
