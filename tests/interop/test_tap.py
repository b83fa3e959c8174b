"""`embermq tap` at a running Apache RocketMQ: Spark reads the same rows from the copy as from the master's store."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import embermq.spark
from embermq.cli.app import run
from tests.interop.java_broker import free_port
from tests.interop.test_replication import SEGMENT, assert_same, end_of, fill, java
from tests.support.lent_session import lend
from tests.support.replication_processes import name_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.interop


@pytest.fixture(autouse=True)
def lend_session(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    lend(spark, monkeypatch)


def rows(frame: "DataFrame") -> list[tuple[object, ...]]:
    """In the order of the log, with every column that a store and a lake both have."""
    frame = frame.where("topic = 'T'").select(
        "topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "body"
    )
    return [tuple(row) for row in frame.orderBy("physicalOffset").collect()]


def test_a_tap_of_apaches_master_is_the_same_table(directory: Path, spark: "SparkSession") -> None:
    upper, copy, lake = directory / "java", directory / "copy", directory / "lake"
    port = free_port()
    master = f"127.0.0.1:{port}"
    words = ["tap", f"127.0.0.1:{port + 1}", "--into", str(copy), "--whole", "--once", "--archive", str(lake)]
    with name_server(directory / "ns") as names, java(upper, names, 0, port):
        fill(master, range(600))
        assert run(words) == 0
        fill(master, range(600, 1200))  # A second log file.
        assert run(words) == 0  # It goes on.
        end = end_of(master)
        assert end > SEGMENT
        assert_same(upper / "store", copy, end)
        theirs = rows(spark.read.format("rocketmq").load(str(upper / "store")))
    assert len(theirs) == 1200
    assert rows(spark.read.format("rocketmq").load(str(copy))) == theirs
    assert rows(embermq.spark.sql(spark, "select * from T", lake=str(lake))) == theirs
