"""The pipeline's query: follows logs for ever, or once to their end, and feeds the sinks batch by batch.

    done = pipeline(spark, ["/data/broker-a"], into="/data/lake", derive=["lake", "stats"]).once()

    running = pipeline(spark, ["/data/broker-a"], derive=["queues", "index"])
    for progress in running.follow():
        print(progress.lag_bytes)

With `name_server` in place of stores it pulls from a running cluster (cluster_pipeline.py).

How far it is stands in Spark's checkpoint: `<into>/_checkpoint`, or what the caller says. Killed anywhere and started
again it goes on with the batch that was under way. Driver side; one thread, the sinks run on Spark's.
"""

import json
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from embermq.errors import EmberError, StoreError
from embermq.spark.jobs.cluster_tasks import ProgressReport
from embermq.spark.lake.topic_filter import EVERYTHING, TopicFilter
from embermq.spark.pipelines.batches import LogBatch, LogRange
from embermq.spark.pipelines.checkpoints import check_writable, note_sinks
from embermq.spark.pipelines.derive import DerivedSink
from embermq.spark.pipelines.ranges import FORMAT, LogRanges
from embermq.spark.pipelines.sinks import (
    PipelineSink,
    SinkFigures,
)
from embermq.spark.pipelines.surveyed_stores import SurveyedStores
from embermq.spark.runtime.error_parsing import error_in

BATCH_BYTES_MAX = 512 << 20
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
    lag_messages: int | None = None  # over the wire; `lag_bytes` is then by the average message
    offsets: dict[str, object] = field(default_factory=dict)  # over the wire: next to read, as its checkpoint has it

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
        self._open()
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

    def _open(self) -> None:
        self._surveyed = SurveyedStores(self.stores)

    def _stream(self) -> DataFrame:
        """A row for each range of the next batch."""
        self.spark.dataSource.register(LogRanges)
        return (
            self.spark.readStream.format(FORMAT)
            .option("stores", json.dumps(self.stores))
            .option("maxBytesPerTrigger", str(self.batch_bytes_max))
            .option("failOnDataLoss", str(self.fail_on_data_loss).lower())
            .option("startingPositions", json.dumps(self.starting_positions))
            .option("everySeconds", str(self.every_seconds))
            .load()
        )

    def _start(self, available_now: bool, interval: str) -> StreamingQuery:
        writer = self._stream().writeStream.foreachBatch(self._process).option("checkpointLocation", self.checkpoint)
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
            progress = self._work(number, frame.collect(), began)
            if progress is not None:
                self._done.put(progress)
        except BaseException as problem:
            self._failure = problem
            raise

    def _work(self, number: int, rows: Sequence[Any], began: float) -> BatchProgress | None:
        """Feed the sinks; None if the batch has nothing."""
        ranges = tuple(LogRange(*row) for row in rows)
        if not ranges:
            return None
        assert self._surveyed is not None
        self._surveyed.begin_batch()
        batch = LogBatch(number, ranges, self.spark, self._surveyed, self.on_progress)
        figures = {sink.name: sink.process(batch) for sink in self.sinks}
        return self._progress(batch, figures, time.monotonic() - began)

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
