"""Records of topics that were deleted are still in the log, and no row of a read, whichever way it is read."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import embermq.spark
from embermq import Message
from embermq.testing.builder import StoreBuilder
from tests.support.orders import orders

pytestmark = pytest.mark.extended

SEEN = {"kept": 20, "reused": 3}
LOGGED = {"kept": 20, "reused": 13, "gone": 10}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    builder = StoreBuilder(tmp_path / "store")
    with builder.open() as opened:
        opened.append_many(orders(10, "reused") + orders(10, "gone") + orders(10, "kept"))
        opened.delete_topic("reused")
        opened.delete_topic("gone")
        opened.append_many([Message("reused", b"new", tags="paid", keys=[f"o-{n}"]) for n in range(3)])
        opened.append_many(orders(10, "kept"))
    return builder.root


def counts(frame: DataFrame) -> dict[str, int]:
    return {row[0]: row[1] for row in frame.groupBy("topic").count().collect()}


def test_every_way_of_reading(spark: SparkSession, store: Path) -> None:
    assert counts(spark.read.format("rocketmq").load(str(store))) == SEEN
    assert counts(embermq.spark.table(spark, store)) == SEEN
    assert counts(embermq.spark.scan(spark, store)) == SEEN
    assert counts(embermq.spark.scan(spark, store, ["topic", "body"], minPartitions=9)) == SEEN
    assert counts(embermq.spark.table(spark, store, subscribePattern="reused|kept")) == SEEN


def test_with_those_of_the_system(spark: SparkSession, store: Path) -> None:
    assert counts(embermq.spark.table(spark, store, includeSystemTopics=True)) == LOGGED


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("topic = 'reused'", 3),
        ("topic = 'gone'", 0),
        ("tags = 'paid'", 3 + 8),
        ("keys = 'o-1'", 1 + 2),
        ("queueId = 0", 3 + 6),
    ],
)
def test_filters(spark: SparkSession, store: Path, condition: str, expected: int) -> None:
    """The same on a new table, and on one whose plan other queries have widened to the whole log."""
    table = embermq.spark.table(spark, store)
    assert table.where(condition).count() == expected
    assert table.count() == sum(SEEN.values())
    assert table.where(condition).count() == expected
    assert spark.read.format("rocketmq").load(str(store)).where(condition).count() == expected


def test_sql(spark: SparkSession, store: Path) -> None:
    query = "select (select count(*) from reused), (select count(*) from messages where topic = 'reused')"
    assert [tuple(row) for row in embermq.spark.sql(spark, query, [str(store)]).collect()] == [(3, 3)]
