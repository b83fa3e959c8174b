"""Rebuild: queues and index of a store again from its log, in bulk: many tasks, each with its slice of the log.

    rebuild(spark, "/data/broker-a")                              # in the store, which must not be open
    rebuild(spark, "/data/broker-a", into="/data/derived")        # beside it

What `embermq store rebuild` makes on one core, byte for byte, and swapped in by the same steps; there is no shuffle:
a record says itself where its queue entry belongs. Tasks write below `embermq.rebuild` in the store, or beside `into`,
and must see both under the same path as the driver. Killed at any step, the same call goes on, or begins anew; tasks
that a killed driver left behind can do no harm. Driver side.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from embermq.errors import StoreError
from embermq.files import RealFiles
from embermq.inspect import found_shape
from embermq.repair.rebuild import BulkBuild, Rebuilt, settings_as_found
from embermq.repair.rebuild import rebuild as rebuild_store
from embermq.settings import StoreSettings
from embermq.spark.jobs.cluster_tasks import ProgressReport, parallelism, run
from embermq.spark.runtime.error_parsing import our_errors
from embermq.spark.runtime.error_rendering import clear_errors

P = TypeVar("P")
R = TypeVar("R")


class SparkWorkers:
    """Tasks of a session, for the pieces of a rebuild."""

    def __init__(self, spark: SparkSession, on_progress: ProgressReport | None) -> None:
        self._spark, self._on_progress = spark, on_progress

    @property
    def cores(self) -> int:
        return parallelism(self._spark)

    def __call__(self, function: Callable[[P], R], pieces: Sequence[P], title: str) -> list[R]:
        with our_errors():
            return run(self._spark, partial(_with_clear_errors, function), pieces, title, self._on_progress)


@clear_errors
def _with_clear_errors(function: Callable[[P], R], piece: P) -> R:
    """In a task. What the disk refuses arrives at the driver as one line."""
    try:
        return function(piece)
    except OSError as problem:
        where = problem.filename or "a task"
        raise StoreError(f"{where}: {problem.strerror or problem}; call it again to continue") from problem


def found_settings(path: str | Path) -> StoreSettings:
    """Settings of a store as its files show them: their sizes, and what is on."""
    root, files = Path(path), RealFiles()
    return found_shape(files, root).applied_to(StoreSettings()).replace(**settings_as_found(files, root))


def rebuild(
    spark: SparkSession,
    path: str | Path,
    *,
    settings: StoreSettings | None = None,
    queues: bool = True,
    index: bool = True,
    into: str | Path | None = None,
    on_progress: ProgressReport | None = None,
) -> Rebuilt:
    """Make queues, index or both again. Without `settings` they are those the store's files show.

    StorePathInvalid if there is no store, or if `into` exists; StoreLocked if the store is open;
    StoreError if what was built does not agree with the log, in which case nothing is swapped.
    """
    build = partial(BulkBuild, workers=SparkWorkers(spark, on_progress))
    return rebuild_store(
        path, settings or found_settings(path), queues=queues, index=index, into=into, make_build=build
    )
