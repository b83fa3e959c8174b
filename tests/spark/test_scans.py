"""A scan has the rows of the format, whatever the options; its plan is made at the call."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import embermq.spark
from embermq import MessageStore
from embermq.errors import EmberError, OptionInvalid, StorePathInvalid
from embermq.spark.options.schema import spark_schema
from embermq.testing.builder import StoreBuilder
from tests.support.orders import orders


@pytest.fixture
def store(make_store: Callable[..., Path]) -> Path:
    return make_store([*orders(200), *orders(100, "returns")])


def rows_of(frame: DataFrame) -> list[str]:
    return sorted(str(row.asDict()) for row in frame.collect())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"topic": "orders", "minPartitions": 7},
        {"topic": ["returns"], "queues": [1, 2]},
        {"topic": "orders", "subExpression": "paid || sent"},
        {"topic": "orders", "keys": ["o-3", "o-17"]},
        {"topic": "orders", "startingOffsets": {"orders": {"0": 20}}, "endingOffsets": {"orders": {"0": 30, "1": 5}}},
        {"schemaMode": "kafka", "includeHeaders": True},
        {"onCorrupt": "rows"},
        {"includeSystemTopics": True},
    ],
    ids=str,
)
def test_the_rows_of_the_format(spark: SparkSession, store: Path, options: dict[str, Any]) -> None:
    table, scan = (way(spark, store, **options) for way in (embermq.spark.table, embermq.spark.scan))
    assert scan.schema == table.schema
    rows = rows_of(scan)
    assert rows
    assert rows == rows_of(table)


def test_columns(spark: SparkSession, store: Path) -> None:
    scan = embermq.spark.scan(spark, [store], ["queueOffset", "BODY"], topic="returns")
    assert scan.columns == ["queueOffset", "BODY"]
    wanted = [(number // 4, one.body) for number, one in enumerate(orders(100))]
    assert sorted((row[0], bytes(row[1])) for row in scan.collect()) == sorted(wanted)


def test_a_task_for_each_slice(spark: SparkSession, store: Path) -> None:
    scan = embermq.spark.scan(spark, store, minPartitions=5)
    assert scan.rdd.getNumPartitions() >= 5
    assert scan.count() == 300


def test_several_stores(spark: SparkSession, make_store: Callable[..., Path]) -> None:
    stores = [make_store(orders(10), "broker-a"), make_store(orders(20), "broker-b")]
    counts = embermq.spark.scan(spark, stores).groupBy("brokerName").count().collect()
    assert {row[0]: row[1] for row in counts} == {"broker-a": 10, "broker-b": 20}


def test_an_empty_store(spark: SparkSession, make_store: Callable[..., Path]) -> None:
    scan = embermq.spark.scan(spark, make_store())
    assert scan.collect() == []
    assert scan.schema == spark_schema("rocketmq", exact=True)


def test_rows_of_the_moment_of_the_call(spark: SparkSession, store: Path) -> None:
    before = embermq.spark.scan(spark, store)
    with MessageStore.open(store, StoreBuilder(store).settings) as opened:
        opened.append_many(orders(5))
    assert before.count() == 300
    assert embermq.spark.scan(spark, store).count() == 305


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"topik": "orders"}, OptionInvalid, "did you mean topic"),
        ({"topic": "order"}, EmberError, "orders"),
        ({"columns": ["bodi"]}, OptionInvalid, "did you mean body"),
        ({"maxOffsetsPerTrigger": 5}, OptionInvalid, "stream"),
    ],
)
def test_mistakes_are_said_at_once(
    spark: SparkSession, store: Path, options: dict[str, Any], error: type[EmberError], said: str
) -> None:
    with pytest.raises(error, match=said):
        embermq.spark.scan(spark, store, **options)


def test_no_store(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StorePathInvalid, match="nowhere"):
        embermq.spark.scan(spark, tmp_path / "nowhere")


def test_damage_comes_as_a_message(spark: SparkSession, store: Path) -> None:
    """The cause, not the worker's call stack."""
    log = min((store / "commitlog").iterdir())
    content = bytearray(log.read_bytes())
    content[4096:4200] = bytes(104)
    log.write_bytes(content)
    with pytest.raises(PySparkException) as caught:
        embermq.spark.scan(spark, store).collect()
    assert "onCorrupt" in str(caught.value)
    assert "read_slice" not in str(caught.value)
    corrupt = embermq.spark.scan(spark, store, onCorrupt="rows").where("_corrupt is not null")
    assert corrupt.count() == 1
