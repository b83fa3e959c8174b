"""Workers put what they have loaded aside, once; other processes are left alone."""

import gc
from typing import TYPE_CHECKING

import pytest

from embermq.spark.runtime import gc_freeze as worker_heap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_only_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = gc.get_freeze_count()
    worker_heap.settle()
    assert gc.get_freeze_count() == frozen
    monkeypatch.setattr(worker_heap, "_is_worker", lambda: True)
    monkeypatch.setattr(worker_heap, "_modules_known", 0)
    try:
        worker_heap.settle()
        assert gc.get_freeze_count() > frozen + 1000
        gc.unfreeze()
        worker_heap.settle()
        assert gc.get_freeze_count() == 0  # Nothing was loaded since.
    finally:
        gc.unfreeze()


def test_in_a_worker(spark: "SparkSession") -> None:
    def task(number: int) -> tuple[int, int]:
        import gc

        from embermq.spark.runtime.gc_freeze import settle

        settle()
        before = gc.get_freeze_count()
        settle()
        return before, gc.get_freeze_count()

    counts = spark.sparkContext.parallelize(range(2), 2).map(task).collect()
    assert all(before == after > 1000 for before, after in counts)
