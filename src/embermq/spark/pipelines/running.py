"""The pipeline's query: follows logs for ever, or once to their end, and feeds the sinks batch by batch.

    done = pipeline(spark, ["/data/broker-a"], into="/data/lake", derive=["lake", "stats"]).once()

    running = pipeline(spark, ["/data/broker-a"], derive=["queues", "index"])
    for progress in running.follow():
        print(progress.lag_bytes)

How far it is stands in Spark's checkpoint: `<into>/_checkpoint`, or what the caller says. Killed anywhere and started
again it goes on with the batch that was under way. Driver side; one thread, the sinks run on Spark's.
"""

import json
import queue
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from embermq.errors import EmberError, OptionInvalid, StoreError
from embermq.settings import StoreSettings
from embermq.spark.error_text import error_in
from embermq.spark.jobs.work import Told
from embermq.spark.lake.commits import LakeFormat
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.json_schemas import JsonSchemas
from embermq.spark.pipelines.batches import LogBatch, LogRange
from embermq.spark.pipelines.derive import DerivedSink
from embermq.spark.pipelines.log_ends import LogEnds
from embermq.spark.pipelines.ranges import FORMAT, LogRanges
from embermq.spark.pipelines.sinks import PipelineSink, SinkContext, SinkFigures, make_sinks
from embermq.spark.stores import find_stores

BATCH_BYTES_MAX = 512 << 20
COMPACT_EVERY = 20
FOLLOW_INTERVAL = "500 milliseconds"
CHECKPOINT = "_checkpoint"
_WAIT_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Progress:
    """What one batch did. A line of JSON for each is a log that programs can follow."""

    batch: int
    records: int  # of the sink that saw most
    bytes: int
    seconds: float
    lag_bytes: int  # of log that was there when the batch was done
    positions: dict[str, int]  # broker name -> next to read
    sinks: dict[str, SinkFigures] = field(default_factory=dict)

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds > 0 else 0.0


@dataclass(slots=True)
class Pipeline:
    """A pipeline that is set up and does not run yet. Make one with `pipeline`."""

    spark: SparkSession
    stores: dict[str, str]  # broker name -> path
    sinks: Sequence[PipelineSink]
    checkpoint: str
    batch_bytes_max: int = BATCH_BYTES_MAX
    fail_on_data_loss: bool = True
    starting_positions: dict[str, int] = field(default_factory=dict)
    told: Told | None = None
    _done: "queue.SimpleQueue[Progress]" = field(default_factory=queue.SimpleQueue)
    _failure: BaseException | None = None
    _log_ends: LogEnds | None = None

    def check(self) -> None:
        """StoreError if what is to be derived is being derived by somebody else. Done before the query starts, too."""
        for sink in self.sinks:
            if isinstance(sink, DerivedSink):
                sink.check(self.stores.values())

    def once(self) -> list[Progress]:
        """Work off what is there now. The batches that were needed."""
        return list(self._run(available_now=True))

    def follow(self, interval: str = FOLLOW_INTERVAL) -> Iterator[Progress]:
        """Work for ever; each batch as it is done. Closing the iterator stops the query."""
        return self._run(available_now=False, interval=interval)

    def _run(self, *, available_now: bool, interval: str = FOLLOW_INTERVAL) -> Iterator[Progress]:
        self.check()
        self._failure = None
        self._log_ends = LogEnds(self.stores)
        running = self._start(available_now, interval)
        try:
            while running.isActive:
                try:
                    yield self._done.get(timeout=_WAIT_SECONDS)
                except queue.Empty:
                    continue
            while not self._done.empty():
                yield self._done.get()
            self._raise_failure(running)
        finally:
            if running.isActive:
                running.stop()

    def _start(self, available_now: bool, interval: str) -> StreamingQuery:
        self.spark.dataSource.register(LogRanges)
        frame = (
            self.spark.readStream.format(FORMAT)
            .option("stores", json.dumps(self.stores))
            .option("maxBytesPerTrigger", str(self.batch_bytes_max))
            .option("failOnDataLoss", str(self.fail_on_data_loss).lower())
            .option("startingPositions", json.dumps(self.starting_positions))
            .load()
        )
        writer = frame.writeStream.foreachBatch(self._process).option("checkpointLocation", self.checkpoint)
        writer = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime=interval)
        return writer.start()

    def _process(self, frame: DataFrame, number: int) -> None:
        """One batch, on Spark's thread. What our code raises is kept, to be raised where people see it."""
        try:
            began = time.monotonic()
            ranges = tuple(LogRange(*row) for row in frame.collect())
            if not ranges:
                return
            batch = LogBatch(number, ranges, self.spark, self.told)
            figures = {sink.name: sink.process(batch) for sink in self.sinks}
            self._done.put(self._progress(batch, figures, time.monotonic() - began))
        except BaseException as problem:
            self._failure = problem
            raise

    def _progress(self, batch: LogBatch, figures: dict[str, SinkFigures], seconds: float) -> Progress:
        positions = {one.broker_name: one.end for one in batch.ranges}
        assert self._log_ends is not None
        ends = {name: self._log_ends.now(name) for name in positions}
        lag = sum(max(ends[name] - at, 0) for name, at in positions.items())
        records = max((one.records for one in figures.values()), default=0)
        return Progress(batch.number, records, batch.bytes, seconds, lag, positions, figures)

    def _raise_failure(self, ended: StreamingQuery) -> None:
        problem = ended.exception()
        if problem is None:
            return
        if isinstance(self._failure, EmberError):
            raise self._failure
        said = str(problem).strip()
        raise error_in(said) or StoreError(f"the pipeline stopped: {said.splitlines()[0]}") from None


def pipeline(
    spark: SparkSession, paths: Sequence[str], *, into: str | None = None, derive: Sequence[str] = ("lake", "stats"),
    checkpoint: str | None = None, settings: StoreSettings | None = None, sinks: Sequence[PipelineSink] = (),
    batch_bytes_max: int = BATCH_BYTES_MAX, fail_on_data_loss: bool = True, told: Told | None = None,
    lake_format: LakeFormat | None = None, catalog: str | None = None, json: JsonSchemas | None = None,
    drop_bodies: bool = False,
) -> Pipeline:  # fmt: skip
    """Set up a pipeline over these stores. `derive` names sinks that come along, `sinks` are your own.

    For the lake: `json` has a schema for the bodies of a topic, which become a typed column `value`; `drop_bodies`
    keeps no body beside a value. `lake_format` is parquet, delta or iceberg, `catalog` of Iceberg.
    """
    places = find_stores(paths)
    context = SinkContext(
        into, settings or StoreSettings(), COMPACT_EVERY, lake_format, catalog, json, drop_bodies
    )  # fmt: skip
    if "lake" not in derive and (lake_format or catalog or json or drop_bodies):
        raise OptionInvalid("derive", "a lake's format and JSON need the lake among what is derived")
    made = make_sinks(list(derive), context) if derive or not sinks else []
    if checkpoint is None:
        if into is None:
            raise OptionInvalid("checkpoint", "without a lake to write to, say where progress is to be kept")
        checkpoint = f"{LakeFiles(into).path if '://' not in into else into}/{CHECKPOINT}"
    stores = {place.broker_name: str(place.path) for place in places}
    return Pipeline(
        spark, stores, [*made, *sinks], checkpoint, batch_bytes_max, fail_on_data_loss, told=told
    )  # fmt: skip
