"""A store as a Spark stream: what a micro-batch of nothing takes, and whether the stream keeps up with a busy writer.

    idle trigger     nothing is new: Spark asks how far the log is, and makes no batch
    one message      a micro-batch of one row, with all that Spark does for a batch: two logs of its own, tasks, commit
    sustained        another process appends messages of 1 KiB at a steady pace; the stream follows without limits, so
                     each micro-batch takes what came during the one before: its size is how far the stream is behind

One query into the noop sink, from the first message to the last; times are those in the query's own progress. A stream
that keeps up has batches of the same size in the end as in the beginning; one that does not has ever larger ones. The
answer is the number of rows and the end of the log.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import fresh
from bench.answers import joined
from bench.course import Course
from bench.figures import Figure, at_least, at_most
from bench.spark_side import held, message, session, worker_peak_mb
from bench.workload import load_kernels
from embermq import MessageStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME = "spark_stream"
ABOUT = "a store as a Spark stream: small micro-batches, and a steady writer"
BODY_BYTES = 1024
PACE = 105e6  # bytes of log a second: a little more than is asked for, as a clock never fits exactly
_IDLE_CONF = "spark.sql.streaming.noDataProgressEventInterval"
_PATIENCE_SECONDS = 300.0
_POLL_SECONDS = 0.1
_POOL = bytes(range(256)) * 8


class Batch(NamedTuple):
    """One trigger, as the query tells it."""

    began: str
    rows: int
    start: int
    end: int
    trigger_seconds: float

    @property
    def bytes(self) -> int:
        return self.end - self.start


class Followed:
    """A running query, and all the progress it has reported so far."""

    def __init__(self, query: "StreamingQuery") -> None:
        self._query = query
        self.batches: dict[str, Batch] = {}

    def wait(self, done: "Callable[[Followed], bool]", doing: Callable[[], object] = lambda: None) -> None:
        """Until enough was reported; ends with the query's own error if it fails."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not done(self):
            doing()
            if (problem := self._query.exception()) is not None:
                raise problem
            assert time.monotonic() < deadline, list(self.batches.values())[-3:]
            time.sleep(_POLL_SECONDS)
            for progress in self._query.recentProgress:
                batch = _batch(json.loads(progress.json))
                self.batches.setdefault(batch.began, batch)

    @property
    def idle(self) -> list[Batch]:
        return [batch for batch in self.batches.values() if not batch.rows]

    @property
    def with_rows(self) -> list[Batch]:
        return [batch for batch in self.batches.values() if batch.rows]

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches.values())


def _batch(measured: dict[str, Any]) -> Batch:
    (source,) = measured["sources"]
    start, end = (_position(source[name]) for name in ("startOffset", "endOffset"))
    seconds = max(1, measured["durationMs"].get("triggerExecution", 0)) / 1000  # Reported in whole milliseconds.
    return Batch(measured["timestamp"], int(measured["numInputRows"]), start, end, seconds)


def _position(offset: Any) -> int:
    """The place in the log that an offset of a stream without topics names; 0 where there is none yet."""
    parsed = json.loads(offset) if isinstance(offset, str) else offset
    if not parsed:
        return 0
    (store,) = parsed["stores"].values()
    return int(store["position"])


def run(course: Course) -> list[Figure]:
    load_kernels()
    with session(course, NAME) as spark, course.scratch() as scratch:
        path = scratch / "store"
        with MessageStore.open(path, course.settings()) as store:
            store.append(message(0, BODY_BYTES, _POOL))
        with _query(spark, path, scratch / "checkpoint") as followed:
            figures = _small(course, path, followed)
            figures += _sustained(course, path, followed)
        return [*figures, Figure("workers", "resident, peak", "MB", [worker_peak_mb()], at_most(600))]


@contextmanager
def _query(spark: "SparkSession", path: Path, checkpoint: Path) -> Iterator[Followed]:
    """The stream from its first message on; tells of idle triggers as well."""
    usual = spark.conf.get(_IDLE_CONF)
    spark.conf.set(_IDLE_CONF, "1")
    rows = spark.readStream.format("rocketmq").option("startingOffsets", "earliest").load(str(path))
    query = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        yield Followed(query)
    finally:
        query.stop()
        assert usual is not None
        spark.conf.set(_IDLE_CONF, usual)


def _small(course: Course, path: Path, followed: Followed) -> list[Figure]:
    """Triggers without rows, and batches of one row."""
    course.note(f"{NAME}: nothing, and one message at a time")
    count = course.pick(2, 15)
    followed.wait(lambda seen: seen.rows == 1 and len(seen.idle) >= 2 * count)
    idle = followed.idle[-count:]
    warm = len(followed.with_rows)
    with MessageStore.open(path, course.settings()) as store:
        for number in range(2 * count):
            store.append(message(1 + number, BODY_BYTES, _POOL))
            followed.wait(lambda seen, rows=2 + number: seen.rows == rows)  # type: ignore[misc]
    ones = followed.with_rows[warm + count :]
    answer = joined(followed.rows)
    return [
        Figure("idle trigger", "time", "s", [batch.trigger_seconds for batch in idle], held(course, at_most(0.5))),
        Figure(
            "one message",
            "micro-batch",
            "s",
            [batch.trigger_seconds for batch in ones],
            held(course, at_most(0.5)),
            answer,
        ),
    ]


def _sustained(course: Course, path: Path, followed: Followed) -> list[Figure]:
    """A writer in a process of its own; the stream beside it until everything is read."""
    pace, seconds = course.pick(4e6, PACE), course.pick(2, 75)
    course.note(f"{NAME}: {pace / 1e6:.0f} MB/s for {seconds} s")
    before, known = len(followed.with_rows), followed.rows
    with fresh.start("write", path, BODY_BYTES, int(pace), int(pace * seconds), course.size) as writer:
        followed.wait(lambda seen: writer.poll() is not None)
        assert writer.stdout is not None
        measured: fresh.Figures = json.loads(writer.stdout.readline())
        assert writer.returncode == 0, writer.returncode
    written, began = followed.with_rows[-1].end, time.monotonic()
    followed.wait(lambda seen: seen.rows == known + measured["messages"])
    behind_seconds = time.monotonic() - began
    batches = followed.with_rows[before:]
    assert batches[-1].end == measured["log_end"], (batches[-1], measured)
    assert written <= measured["log_end"]
    case, answer = f"{pace / 1e6:.0f} MB/s for {seconds} s", joined(measured["messages"], measured["log_end"])
    lags = [batch.bytes / 1e6 for batch in batches]
    third = max(1, len(lags) // 3)
    # The first batches find the writer at its start, the last one finds it gone.
    early, late = lags[1 : 1 + third] or lags, lags[-1 - third : -1] or lags
    growth = statistics.median(late) / statistics.median(early)
    read_seconds = measured["seconds"] + behind_seconds
    return [
        Figure(case, "written", "MB/s", [measured["log_bytes"] / measured["seconds"] / 1e6], answer=answer),
        Figure(case, "read", "MB/s", [measured["log_bytes"] / read_seconds / 1e6], held(course, at_least(100)), answer),
        Figure(case, "lag at each batch", "MB", lags, answer=answer),
        Figure(case, "lag at the end / at the beginning", "x", [growth], held(course, at_most(1.25)), answer),
        Figure(case, "micro-batch", "s", [batch.trigger_seconds for batch in batches], answer=answer),
        Figure(case, "behind when the writer ends", "s", [behind_seconds], answer=answer),
    ]
