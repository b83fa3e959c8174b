"""Spark finds the format by itself, in every way a format can be named, and finding it costs nobody much."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

import pyspark_rocketmq
from embermq.spark.reading.source import RocketMQSource
from embermq.spark.runtime.sessions import PUSH_DOWN
from tests.support.orders import orders


def test_the_module_offers_the_source() -> None:
    assert pyspark_rocketmq.DefaultSource is RocketMQSource
    assert issubclass(RocketMQSource, DataSource)
    assert RocketMQSource.name() == "rocketmq"


@pytest.mark.parametrize("heavy", ["numba", "numpy", "pyarrow", "pandas"])
def test_finding_it_loads_nothing_heavy(heavy: str) -> None:
    """Spark imports the module for every user of the environment, whichever format was asked for."""
    code = f"import pyspark.sql.datasource, sys; before = {heavy!r} in sys.modules; import pyspark_rocketmq; "
    code += f"sys.exit({heavy!r} in sys.modules and not before)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def store(make_store: Callable[..., Path]) -> Path:
    return make_store([*orders(20), *orders(10, "returns")])


@pytest.mark.parametrize("name", ["rocketmq", "RocketMQ"])
def test_by_name(spark: SparkSession, store: Path, name: str) -> None:
    assert spark.read.format(name).load(str(store)).count() == 30


def test_by_sql(spark: SparkSession, store: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW found USING rocketmq OPTIONS (path '{store}', TOPIC 'returns')")
    try:
        assert spark.sql("select count(*), max(queueOffset) from found").collect()[0] == (10, 2)
    finally:
        spark.catalog.dropTempView("found")


@pytest.mark.parametrize("setting", ["true", "false"])
def test_in_a_session_of_somebody_else(spark: SparkSession, store: Path, setting: str) -> None:
    """Filters work whether or not Spark hands them to the source."""
    spark.conf.set(PUSH_DOWN, setting)
    try:
        table = spark.read.format("rocketmq").load(str(store))
        assert table.where("topic = 'returns' and queueId = 1").count() == 3
    finally:
        spark.conf.set(PUSH_DOWN, "true")
