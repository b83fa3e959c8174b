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
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from embermq.errors import EmberError, OptionInvalid, StoreError
from embermq.settings import StoreSettings
from embermq.spark.jobs.cluster_tasks import ProgressReport
from embermq.spark.lake.commits import LakeFormat
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.header import load_head
from embermq.spark.lake.json_schemas import JsonSchemas
from embermq.spark.lake.names import LAKE
from embermq.spark.lake.topic_filter import EVERYTHING, TopicFilter
from embermq.spark.pipelines.batches import LogBatch, LogRange
from embermq.spark.pipelines.checkpoints import check_sinks, check_writable, checkpoint_in, note_sinks
from embermq.spark.pipelines.derive import DerivedSink
from embermq.spark.pipelines.ranges import FORMAT, LogRanges
from embermq.spark.pipelines.sinks import (
    KEPT,
    PipelineSink,
    SinkContext,
    SinkFigures,
    check_names,
    make_sinks,
)
from embermq.spark.pipelines.surveyed_stores import SurveyedStores
from embermq.spark.planning.stores import find_stores
from embermq.spark.runtime.error_parsing import error_in

BATCH_BYTES_MAX = 512 << 20
COMPACT_EVERY = 20
FILE_BYTES_MIN, FILE_BYTES_MAX = 1 << 20, 1 << 30
FOLLOW_INTERVAL = "500 milliseconds"
_WAIT_SECONDS = 0.05
_COMMIT_SECONDS = 5.0  # for Spark to note that a batch is done
_STOP_MS = 60_000
_INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling java.lang.InterruptedException"
_ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)(: .*)?")


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

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds > 0 else 0.0


@dataclass(slots=True)
class Pipeline:
    """A pipeline that is set up and does not run yet. Make one with `pipeline`."""

    spark: SparkSession
    stores: dict[str, str]  # broker name -> path, as `StorePlace.source` has it
    sinks: Sequence[PipelineSink]
    checkpoint: str
    batch_bytes_max: int = BATCH_BYTES_MAX
    fail_on_data_loss: bool = True
    starting_positions: dict[str, int] = field(default_factory=dict)
    on_progress: ProgressReport | None = None
    topics: TopicFilter = EVERYTHING  # of lake and statistics
    every_seconds: float = 0.0  # between batches that are not full, while it follows
    _done: "queue.SimpleQueue[BatchProgress]" = field(default_factory=queue.SimpleQueue)
    kept: Sequence[str] = ()  # which of the sinks the progress is noted for
    _turn: threading.Lock = field(default_factory=threading.Lock)  # held by a batch
    _is_ending: bool = False
    _next_waits: threading.Event = field(default_factory=threading.Event)
    _failure: BaseException | None = None
    _surveyed: SurveyedStores | None = None

    def check(self) -> None:
        """StoreError if what is to be derived is being derived by another process. Done before the query starts,
        too."""
        for sink in self.sinks:
            if isinstance(sink, DerivedSink):
                sink.check(self.stores.values())

    def once(self) -> list[BatchProgress]:
        """Work off what is there now. The batches that were needed."""
        return list(self.work_off())

    def work_off(self, *, stop: Callable[[], bool] | None = None) -> Iterator[BatchProgress]:
        """The same, each batch as it is done. `stop` is asked now and then; the batch in hand is brought to its end."""
        return self._run(available_now=True, stop=stop)

    def follow(
        self, interval: str = FOLLOW_INTERVAL, *, stop: Callable[[], bool] | None = None
    ) -> Iterator[BatchProgress]:
        """Work for ever; each batch as it is done. Closing the iterator stops the query, as `stop` does."""
        return self._run(available_now=False, interval=interval, stop=stop)

    def _run(
        self, *, available_now: bool, interval: str = FOLLOW_INTERVAL, stop: Callable[[], bool] | None = None
    ) -> Iterator[BatchProgress]:
        self.check()
        check_writable(self.checkpoint, "checkpoint")
        note_sinks(self.checkpoint, self.kept, self.topics)
        self._failure, self._is_ending = None, False
        self._next_waits.clear()
        self._surveyed = SurveyedStores(self.stores)
        running = self._start(available_now, interval)
        try:
            while running.isActive and not (stop is not None and stop()):
                try:
                    yield self._done.get(timeout=_WAIT_SECONDS)
                except queue.Empty:
                    continue
            if running.isActive:
                self._end(running)
            while not self._done.empty():
                yield self._done.get()
            self._raise_failure(running)
        except GeneratorExit:
            self._end(running)
            raise
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
            .option("everySeconds", str(self.every_seconds))
            .load()
        )
        writer = frame.writeStream.foreachBatch(self._process).option("checkpointLocation", self.checkpoint)
        writer = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime=interval)
        try:
            return writer.start()
        except (Py4JJavaError, PySparkException) as problem:
            raise error_in(str(problem)) or StoreError(f"the pipeline cannot start: {_reason(problem)}") from None

    def _end(self, running: StreamingQuery) -> None:
        """Stop the query between two batches: Spark would break off the one in hand, with all that its tasks do."""
        with self._turn:
            self._is_ending = True
        until = time.monotonic() + _COMMIT_SECONDS
        while running.isActive and running.status["isTriggerActive"] and time.monotonic() < until:
            if self._next_waits.wait(_WAIT_SECONDS):  # So the one before is noted as done.
                break
        running.stop()

    def _wait_for_end(self) -> None:
        """In a batch that is not to be begun, on Spark's thread, until the stop of the query interrupts that. By this
        text Spark knows that it was one; after it the whole trace would follow, and its search has no stack for that.
        """
        self._next_waits.set()
        context = self.spark.sparkContext
        assert context._jvm is not None
        try:
            context._jvm.java.lang.Thread.sleep(_STOP_MS)
        except Py4JJavaError:
            raise StoreError(_INTERRUPTED) from None
        raise StoreError("the pipeline was stopped")

    def _process(self, frame: DataFrame, number: int) -> None:
        """One batch, on Spark's thread. What our code raises is kept, to be raised where people see it."""
        with self._turn:
            if not self._is_ending:
                self._process_now(frame, number)
                return
        self._wait_for_end()

    def _process_now(self, frame: DataFrame, number: int) -> None:
        try:
            began = time.monotonic()
            ranges = tuple(LogRange(*row) for row in frame.collect())
            if not ranges:
                return
            assert self._surveyed is not None
            self._surveyed.begin_batch()
            batch = LogBatch(number, ranges, self.spark, self._surveyed, self.on_progress)
            figures = {sink.name: sink.process(batch) for sink in self.sinks}
            self._done.put(self._progress(batch, figures, time.monotonic() - began))
        except BaseException as problem:
            self._failure = problem
            raise

    def _progress(self, batch: LogBatch, figures: dict[str, SinkFigures], seconds: float) -> BatchProgress:
        positions = {one.broker_name: one.end for one in batch.ranges}
        ends = {name: batch.stores.log_end(name) for name in positions}
        lag = sum(max(ends[name] - at, 0) for name, at in positions.items())
        records = max((one.records for one in figures.values()), default=0)
        return BatchProgress(batch.number, records, batch.bytes, seconds, lag, positions, figures)

    def _raise_failure(self, ended: StreamingQuery) -> None:
        problem = ended.exception()
        if problem is None or (self._is_ending and self._failure is None):
            return
        if isinstance(self._failure, EmberError):
            raise self._failure
        found = error_in(str(self._failure or "")) or error_in(str(problem))
        raise found or StoreError(f"the pipeline stopped: {_reason(self._failure or problem)}") from self._failure


def _reason(problem: BaseException) -> str:
    """In one line. Of a trace that came as a text, the last line of Python's own."""
    lines = [line.strip() for line in str(problem).splitlines()]
    for line in reversed(lines):
        if _ERROR_LINE.match(line):
            return line
    if isinstance(problem, Py4JJavaError) and problem.java_exception is not None:
        return str(problem.java_exception.toString()).splitlines()[0]
    first = next(filter(None, lines), "")
    return first if isinstance(problem, PySparkException) else f"{type(problem).__name__}: {first}".rstrip(": ")


def pipeline(
    spark: SparkSession,
    paths: Sequence[str],
    *,
    into: str | None = None,
    derive: Sequence[str] = ("lake", "stats"),
    checkpoint: str | None = None,
    settings: StoreSettings | None = None,
    sinks: Sequence[PipelineSink] = (),
    batch_bytes_max: int = BATCH_BYTES_MAX,
    fail_on_data_loss: bool = True,
    on_progress: ProgressReport | None = None,
    lake_format: LakeFormat | None = None,
    catalog: str | None = None,
    json: JsonSchemas | None = None,
    drop_bodies: bool = False,
    topics: TopicFilter | None = None,
    every_seconds: float = 0.0,
    file_bytes: int | None = None,
) -> Pipeline:
    """Set up a pipeline over these stores. `derive` names sinks that come along, `sinks` are your own.

    For the lake: `json` has a schema for the bodies of a topic, which become a typed column `value`; `drop_bodies`
    keeps no body beside a value. `lake_format` is parquet, delta or iceberg, `catalog` of Iceberg. `topics` are those
    that lake and statistics are about; None for what they were before, or all. `file_bytes` is the size that files of
    the lake should have.

    `every_seconds` lets a pipeline that follows wait so long between batches, unless a full one is there.
    """
    places = find_stores(paths)
    names = list(derive)
    if file_bytes is not None and not FILE_BYTES_MIN <= file_bytes <= FILE_BYTES_MAX:
        raise OptionInvalid("file-size", "from 1 MiB to 1 GiB: a task has a whole file in memory", value=file_bytes)
    if "lake" not in names and (lake_format or catalog or json or drop_bodies or file_bytes):
        raise OptionInvalid("derive", "a lake's format, file size and JSON need the lake among what is derived")
    if topics is not None and (not names or not set(names) <= set(KEPT)):
        raise OptionInvalid("topic", "only lake and stats can be of some topics; queues and index are of all")
    context = SinkContext(
        into, settings or StoreSettings(), COMPACT_EVERY, lake_format, catalog, json, drop_bodies, fail_on_data_loss
    )
    if names or not sinks:
        check_names(names, context)
    kept = [name for name in names if name in KEPT]
    checkpoint, known = _checked_checkpoint(spark, checkpoint, into, kept, topics)
    wanted = topics or known or _topics_of_lake(into)
    made = make_sinks(names, replace(context, topics=wanted, file_bytes=file_bytes))
    stores = {place.broker_name: place.source for place in places}
    return Pipeline(
        spark,
        stores,
        [*made, *sinks],
        checkpoint,
        batch_bytes_max,
        fail_on_data_loss,
        on_progress=on_progress,
        topics=wanted,
        every_seconds=every_seconds,
        kept=kept,
    )


def _topics_of_lake(into: str | None) -> TopicFilter:
    """What the lake that is there has; everything if there is none."""
    head = load_head(LakeFiles(into)) if into is not None and LakeFiles(into).exists(LAKE) else None
    return EVERYTHING if head is None else head.topics


def _checked_checkpoint(
    spark: SparkSession, given: str | None, into: str | None, kept: Sequence[str], topics: TopicFilter | None
) -> tuple[str, TopicFilter | None]:
    """Where progress is kept, before anything is made: a lake is not begun that cannot go on. And, if there is some,
    of which topics it is."""
    if given is None and into is None:
        raise OptionInvalid("checkpoint", "without a lake to write to, say where progress is to be kept")
    if given is not None:
        check_writable(given, "checkpoint")
    if into is not None and "stats" in kept and "lake" not in kept:  # A lake looks for itself, and makes what it needs.
        check_writable(into, "into")
    place = given if given is not None else checkpoint_in(spark, str(into))
    return place, check_sinks(place, kept, topics)
