"""A lake on an S3 server (moto, on loopback): it is written and checked there; what Spark cannot do there is said."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embermq import Message
from embermq.errors import OptionInvalid
from embermq.spark.jobs.archive import archive, archive_guard
from embermq.spark.lake import Lake
from embermq.spark.pipelines import pipeline
from embermq.spark.reading.views import messages
from embermq.store.services.retention import OldSegment
from embermq.testing.builder import StoreBuilder
from tests.spark.test_shipped_s3 import SECRET, address, endpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

__all__ = ["endpoint"]  # a fixture


def test_written_there_and_read_elsewhere(spark: "SparkSession", endpoint: str, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "broker-a", segment_bytes=8192)
    store, lake = str(builder.root), address(endpoint, "bucket/lake")
    for _ in range(4):
        with builder.open() as opened:
            opened.append_many([Message("orders", b"x" * 100) for _ in range(30)])
        archive(spark, [store], lake)
    opened_lake = Lake.open(lake)
    assert opened_lake.check(spark) == 1, "small files were joined"
    assert [one.rows for one in opened_lake.covered("broker-a")] == [120]
    assert [path for path in opened_lake.files.list(recursive=True) if path.endswith(".parquet")] == [
        file.path for file in opened_lake.live_files()
    ]
    assert archive_guard(lake, "broker-a")(
        OldSegment(builder.root, builder.root / "commitlog" / f"{0:020d}", 0, 8192, 0, True)
    )
    with pytest.raises(OptionInvalid, match="no file system for s3://") as problem:
        messages(spark, [store], lake=lake)
    assert SECRET not in str(problem.value)
    other = address(endpoint, "bucket/other")
    with pytest.raises(OptionInvalid, match="name a directory for it") as problem:
        pipeline(spark, [store], into=other)
    assert SECRET not in str(problem.value)
    with pytest.raises(OptionInvalid, match="there is no lake here"):
        Lake.open(other, make=False)
    done = pipeline(spark, [store], into=other, checkpoint=str(tmp_path / "progress")).once()
    assert sum(one.records for one in done) == 120
