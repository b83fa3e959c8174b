"""Running pieces of work on the cluster: one task each, results in order, progress while they run.

Driver side. The pieces go through Spark's scheduler as an RDD, so they are retried where a task is retried, and must
not mind being done twice. `on_progress` is called with how many of how many are done, from another thread, a few times
a second.
"""

import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from pyspark.core.rdd import RDD
from pyspark.sql import SparkSession

from embermq.spark.runtime.gc_freeze import settle

Piece = TypeVar("Piece")
Result = TypeVar("Result")
ProgressReport = Callable[[str, int, int], None]

LOOK_SECONDS = 0.25


def run(
    spark: SparkSession,
    function: Callable[[Piece], Result],
    pieces: Sequence[Piece],
    title: str,
    on_progress: ProgressReport | None = None,
) -> list[Result]:
    """`function` of every piece, each in a task of its own."""
    if not pieces:
        return []
    mapped = spark.sparkContext.parallelize(pieces, len(pieces)).map(partial(_settled, function))
    return collected(spark, mapped, len(pieces), title, on_progress)


def _settled(function: Callable[[Piece], Result], piece: Piece) -> Result:
    result = function(piece)
    settle()
    return result


def collected(
    spark: SparkSession, results: RDD[Result], task_count: int, title: str, on_progress: ProgressReport | None = None
) -> list[Result]:
    """All of an RDD that takes so many tasks, over all its stages."""
    context = spark.sparkContext
    group = f"embermq-{uuid.uuid4()}"
    context.setJobGroup(group, title)
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, group, title, task_count, on_progress, done), daemon=True)
    if on_progress is not None:
        on_progress(title, 0, task_count)
        watcher.start()
    try:
        found: list[Result] = results.collect()
    finally:
        done.set()
        if on_progress is not None:
            watcher.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    if on_progress is not None:
        on_progress(title, task_count, task_count)
    return found


def _watch(
    spark: SparkSession, group: str, title: str, total: int, on_progress: ProgressReport, done: threading.Event
) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not done.wait(LOOK_SECONDS):
        finished = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                state = tracker.getStageInfo(stage)
                finished += state.numCompletedTasks if state is not None else 0
        on_progress(title, min(finished, total), total)


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once."""
    return max(1, int(spark.sparkContext.defaultParallelism))
