"""The pipeline's query: follows logs for ever, or once to their end, and feeds the sinks batch by batch.

    done = pipeline(spark, ["/data/broker-a"], into="/data/lake", derive=["lake", "stats"]).once()

    running = pipeline(spark, ["/data/broker-a"], derive=["queues", "index"])
    for progress in running.follow():
        print(progress.lag_bytes)

What it follows, stores or a running cluster, is its source (batch_source.py).

How far it is stands in Spark's checkpoint: `<into>/_checkpoint`, or what the caller says. Killed anywhere and started
again it goes on with the batch that was under way. Driver side; one thread, the sinks run on Spark's.
"""

import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from embermq.errors import EmberError, StoreError
from embermq.spark.lake.topic_filter import EVERYTHING, TopicFilter
from embermq.spark.pipelines.batch_source import BatchProgress, BatchSource
from embermq.spark.pipelines.checkpoints import check_writable, note_sinks
from embermq.spark.runtime.error_parsing import error_in

BATCH_BYTES_MAX = 512 << 20
FOLLOW_INTERVAL = "500 milliseconds"
_WAIT_SECONDS = 0.05
_COMMIT_SECONDS = 5.0  # for Spark to note that a batch is done
_STOP_MS = 60_000
_INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling java.lang.InterruptedException"
_ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)(: .*)?")


@dataclass(slots=True)
class Pipeline:
    """A pipeline that is set up and does not run yet. Make one with `pipeline`."""

    spark: SparkSession
    source: BatchSource
    checkpoint: str
    topics: TopicFilter = EVERYTHING  # of lake and statistics
    kept: Sequence[str] = ()  # which of the sinks the progress is noted for
    _done: "queue.SimpleQueue[BatchProgress]" = field(default_factory=queue.SimpleQueue)
    _turn: threading.Lock = field(default_factory=threading.Lock)  # held by a batch
    _is_ending: bool = False
    _next_waits: threading.Event = field(default_factory=threading.Event)
    _failure: BaseException | None = None

    def check(self) -> None:
        """Raises if the sinks and what is followed do not fit. Done before the query starts, too."""
        self.source.check()

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
        self.source.open()
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
        rows = self.source.stream(self.spark)
        writer = rows.writeStream.foreachBatch(self._process).option("checkpointLocation", self.checkpoint)
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
            progress = self.source.work(self.spark, number, frame.collect(), began)
            if progress is not None:
                self._done.put(progress)
        except BaseException as problem:
            self._failure = problem
            raise

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
