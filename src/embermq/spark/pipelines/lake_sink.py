"""The lake as a sink: each batch is a commit, which the lake notices if it has it already."""

from collections.abc import Mapping

from pyspark.sql.types import StructType

from embermq.inspect import Survey
from embermq.spark.lake import Lake
from embermq.spark.lake.commits import LakeFormat
from embermq.spark.lake.topic_filter import TopicFilter
from embermq.spark.pipelines.batches import LogBatch, LogRange
from embermq.spark.pipelines.sinks import SinkFigures
from embermq.spark.planning import plain_path


class LakeSink:
    """Messages as consumers see them, by topic and day; small files are joined now and then."""

    name = "lake"

    def __init__(
        self,
        root: str,
        compact_every: int,
        *,
        lake_format: LakeFormat | None = None,
        catalog: str | None = None,
        schemas: Mapping[str, StructType] | None = None,
        drop_bodies: bool = False,
        fail_on_data_loss: bool = True,
        topics: TopicFilter | None = None,
        file_bytes: int | None = None,
    ) -> None:
        self._lake = Lake.open(
            root,
            lake_format=lake_format,
            catalog=catalog,
            schemas=schemas,
            drop_bodies=drop_bodies,
            topics=topics,
            file_bytes=file_bytes,
            source="log",
        )
        self._compact_every, self._fail_on_data_loss = compact_every, fail_on_data_loss
        self._has_wanted_size = file_bytes is not None

    def process(self, batch: LogBatch) -> SinkFigures:
        records = files = undecoded = 0
        damages = []
        for one in batch.ranges:
            survey = batch.survey(one)
            start = self._start(one, survey)
            commit = self._lake.add(
                batch.spark, survey, one.broker_name, one.end, start=start, on_progress=batch.on_progress
            )
            if commit is not None:
                records += sum(part.records for part in commit.ranges)
                files += len(commit.files)
                undecoded += sum(part.undecoded for part in commit.ranges)
                lost = sum(part.damaged_bytes for part in commit.ranges)
                if lost:
                    where = f"{plain_path(one.path)}: {lost:,} bytes between {one.start:,} and {one.end:,}"
                    damages.append(f"{where} are no records")
        is_turn = self._compact_every and batch.number % self._compact_every == self._compact_every - 1
        if is_turn or self._has_wanted_size:
            self._lake.compact(batch.spark, batch.on_progress, full_only=not is_turn)
        return SinkFigures(records, files, damages, undecoded)

    def _start(self, one: LogRange, survey: Survey) -> int | None:
        """Where to begin, if that is not simply where the lake ends."""
        if self._lake.end_of(one.broker_name) is None:
            self._lake.refresh()
        if self._lake.end_of(one.broker_name) is None:
            return one.start  # A lake that begins in the middle of a log begins where the pipeline does.
        return None if self._fail_on_data_loss else survey.log_min  # The lake takes it if it ends before that.
