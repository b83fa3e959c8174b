"""What a user runs in test_spark_story.py, in an environment with the wheel, its extra, and nothing of the tests.

    python spark_story_jobs.py before STORE PLACE     a batch read, then a stream and a pipeline, until it is killed
    python spark_story_jobs.py after STORE PLACE      both to their ends, then the commands

Rows go to PLACE/rows as Parquet, what commands print to PLACE/answers.
"""

import contextlib
import io
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import embermq.spark
from embermq.cli.app import run

BUSY = "failed to connect back"
STARTS_MAX = 20
QUERY = """
select topic, tags, count(*) as messages, sum(size) as bytes, min(queueOffset) as lowest, max(queueOffset) as highest,
       sum(length(body)) as body_bytes
from messages group by topic, tags
"""


def before(store: str, place: Path) -> None:
    """Does not end by itself. Small batches, so that many are done when it is killed."""
    spark = embermq.spark.session("before")
    spark.read.format("rocketmq").load(store).write.parquet(str(place / "rows" / "batch"))
    everything = {"includeSystemTopics": "true", "decompress": "false"}
    spark.read.format("rocketmq").options(**everything).load(store).write.parquet(str(place / "rows" / "records"))
    streaming = threading.Thread(target=_started_again, args=(lambda: _run_stream(spark, store, place, "256k", {}),))
    streaming.start()
    while not list(place.glob("checkpoint/commits/[0-9]*")):
        time.sleep(0.1)  # One after the other: two that start at once take longer than Spark waits.
    _started_again(lambda: _follow(spark, store, place))
    streaming.join()


def after(store: str, place: Path) -> None:
    spark = embermq.spark.session("after")
    _started_again(lambda: _run_stream(spark, store, place, "64m", {"availableNow": True}))
    # Files that the killed query left behind are no part of the table: Spark's list of committed files says so.
    spark.read.parquet(str(place / "stream")).write.parquet(str(place / "rows" / "stream"))
    spark.stop()
    (place / "answers").mkdir()
    _ask(place, "pipeline", store, "--into", str(place / "lake"))
    _ask(place, "archive", store, "--into", str(place / "archive"))
    _ask(place, "sql", QUERY, "--store", store, "--archive", str(place / "lake"))
    _ask(place, "stats", store)
    _ask(place, "audit", store, "--save", str(place / "findings.jsonl"))


def _run_stream(spark: SparkSession, store: str, place: Path, most: str, trigger: dict[str, Any]) -> None:
    source = spark.readStream.format("rocketmq").option("startingOffsets", "earliest")
    sink = source.option("maxBytesPerTrigger", most).load(store).writeStream.format("parquet")
    if trigger:
        sink = sink.trigger(**trigger)
    sink.option("checkpointLocation", str(place / "checkpoint")).start(str(place / "stream")).awaitTermination()


def _follow(spark: SparkSession, store: str, place: Path) -> None:
    followed = embermq.spark.pipeline(spark, [store], into=str(place / "lake"), batch_bytes_max=1 << 18)
    for _ in followed.follow():
        pass


def _started_again(work: Callable[[], None]) -> None:
    """As a supervisor does: Spark gives a Python process ten seconds to start, which a busy machine may exceed."""
    for attempt in range(STARTS_MAX):
        try:
            return work()
        except Exception as problem:
            if BUSY not in str(problem) or attempt == STARTS_MAX - 1:
                raise


def _ask(place: Path, verb: str, *words: str) -> None:
    def ask() -> None:
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(io.StringIO()) as noted:
            code = run(["spark", verb, *words, "--output", "json"])
        if code:
            raise RuntimeError(f"embermq spark {verb} ended with {code}: {said.getvalue()} {noted.getvalue()}"[:4000])
        (place / "answers" / f"{verb}.json").write_text(said.getvalue())

    _started_again(ask)


if __name__ == "__main__":
    {"before": before, "after": after}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
