"""Shipping without a Spark session: the job's own steps in this process, pieces pickled as Spark would."""

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from embermq.clock import Clock
from embermq.spark.jobs import ship as job
from embermq.spark.jobs import ship_store
from embermq.spark.jobs.ship import Shipped
from tests.support.spark_reads import Read, read

NO_SPARK = cast(SparkSession, None)
STRETCH_BYTES = 64 << 10


def run_here(monkeypatch: pytest.MonkeyPatch, parallel: int = 2) -> None:
    """Tasks run here, one after the other; stretches are small, as the stores of tests are."""

    def run(spark: Any, function: Callable[[Any], Any], pieces: Sequence[Any], title: str, reported: Any) -> list[Any]:
        return [pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(piece))))) for piece in pieces]

    monkeypatch.setattr(ship_store, "run", run)
    monkeypatch.setattr(ship_store, "parallelism", lambda spark: parallel)
    monkeypatch.setattr(ship_store, "STRETCH_BYTES", STRETCH_BYTES)


def ship(
    store: Path, target: str | Path, *, tail: bool = True, ignore_data_loss: bool = False, clock: Clock | None = None
) -> Shipped:
    """One store, by one run."""
    (done,) = job.ship(NO_SPARK, [str(store)], str(target), tail=tail, ignore_data_loss=ignore_data_loss, clock=clock)
    return done


def read_at(*addresses: str | Path, **options: Any) -> Read:
    return read(*cast(tuple[Path, ...], addresses), **options)


def rows_of(found: Read) -> list[dict[str, Any]]:
    """In log order, without the broker's name, which is the folder's for a plain directory."""
    rows = [{name: value for name, value in row.items() if name != "brokerName"} for row in found.rows]
    return sorted(rows, key=lambda row: (row["physicalOffset"], row["topic"] or ""))


def objects_in(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}
