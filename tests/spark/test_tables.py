"""Tables and streams in one call: options as Python values, columns as a schema, mistakes at once."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

import embermq.spark
from embermq import Message, MessageStore
from embermq.errors import OptionInvalid
from embermq.spark.jobs.archive import archive
from embermq.spark.options.read_options import parse
from embermq.spark.options.schema import spark_schema
from embermq.spark.reading.tables import chosen_schema, option_texts
from embermq.spark.runtime.sessions import PUSH_DOWN
from embermq.testing.builder import StoreBuilder
from tests.support.orders import orders

# --- options -----------------------------------------------------------------------------------------

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("orders", "orders"),
        (True, "true"),
        (False, "false"),
        (17, "17"),
        (["orders", "returns"], "orders,returns"),
        (("a",), "a"),
        ({"orders": {"0": 5}}, '{"orders": {"0": 5}}'),
        ({"orders": {0: 5}}, '{"orders": {"0": 5}}'),
        (NOON, "1714564800000"),
        (NOON.astimezone(timezone(timedelta(hours=8))), "1714564800000"),
        (NOON + timedelta(microseconds=1500), "1714564800002"),
    ],
)
def test_values(value: Any, text: str) -> None:
    assert option_texts({"some": value}, "store")["some"] == text


def test_keys_may_hold_commas() -> None:
    texts = option_texts({"keys": ["a,b", "c"]}, "store")
    assert parse(texts, streaming=False).keys == ("a,b", "c")


def test_none_is_not_given() -> None:
    assert option_texts({"topic": None}, "store").keys() == {"paths"}


@pytest.mark.parametrize(
    ("path", "paths"),
    [("a", ["a"]), (Path("a"), ["a"]), (["a", Path("b")], ["a", "b"]), ((name for name in "ab"), ["a", "b"])],
)
def test_paths(path: Any, paths: list[str]) -> None:
    assert json.loads(option_texts({}, path)["paths"]) == paths


@pytest.mark.parametrize("path", [5, ["a", 5], [None], b"a", {"a": 1}.items()])
def test_paths_that_are_none(path: Any) -> None:
    with pytest.raises(OptionInvalid, match="must be a store directory, a glob or an address") as caught:
        option_texts({}, path)
    assert caught.value.option == "path"


@pytest.mark.parametrize(
    ("value", "said"), [(datetime(2024, 5, 1), "needs a time zone"), (object(), "a object cannot be an option")]
)
def test_values_that_are_none(value: Any, said: str) -> None:
    with pytest.raises(OptionInvalid, match=said) as caught:
        option_texts({"startingTimestamp": value}, "store")
    assert caught.value.option == "startingTimestamp"


# --- columns -----------------------------------------------------------------------------------------


def chosen(columns: Any, **options: str) -> StructType:
    return chosen_schema(columns, parse({"path": "store", **options}, streaming=False))


def test_columns_in_the_order_given() -> None:
    whole = spark_schema("rocketmq", exact=True)
    assert chosen(None) == whole
    assert chosen(["body", "topic"]) == StructType([whole["body"], whole["topic"]])
    assert chosen("keys") == StructType([whole["keys"]])
    assert chosen(["BODY"]) == StructType([StructField("BODY", whole["body"].dataType, False)])
    assert chosen(["value", "headers"], schemaMode="kafka", includeHeaders="true").names == ["value", "headers"]
    assert chosen(["topic", "_corrupt"], onCorrupt="rows").names == ["topic", "_corrupt"]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["bodi"], "there is no column bodi; did you mean body"),
        (["_corrupt"], "needs onCorrupt=rows"),
        (["topic", "topic"], "named twice"),
        ([], "at least one is needed"),
    ],
)
def test_columns_there_are_not(columns: list[str], said: str) -> None:
    with pytest.raises(OptionInvalid, match=said):
        chosen(columns)


# --- with Spark --------------------------------------------------------------------------------------


@pytest.fixture
def store(make_store: Callable[..., Path]) -> Path:
    return make_store([*orders(20), *orders(10, "returns")])


def test_a_table(spark: SparkSession, store: Path) -> None:
    spark.conf.set(PUSH_DOWN, "false")
    table = embermq.spark.table(spark, store, ["tags", "queueOffset"], topic=["returns"], queues=[1, 2])
    assert spark.conf.get(PUSH_DOWN) == "true"
    assert table.columns == ["tags", "queueOffset"]
    wanted = [(one.tags, number // 4) for number, one in enumerate(orders(10)) if one.queue_id in (1, 2)]
    assert sorted(tuple(row) for row in table.collect()) == sorted(wanted)


def test_all_columns(spark: SparkSession, store: Path) -> None:
    table = embermq.spark.table(spark, [store])
    assert table.schema == spark_schema("rocketmq", exact=True)
    assert table.count() == 30


def test_rows_of_system_topics_and_unique_keys(spark: SparkSession, make_store: Callable[..., Path]) -> None:
    """As Spark hands options and filters over: no row too many, and none missing."""
    keys = ["plain", "with space 4", " ", "4"]
    names = [("orders", 0), ("orders", 1), ("returns", 0), ("returns", 1)]
    store = make_store(
        [
            Message(topic, key.encode(), queue_id=number, properties={"UNIQ_KEY": key})
            for key in keys
            for topic, number in names
        ]
    )
    queues = {"orders": [0], "returns": [1]}
    for system in (False, True):
        table = embermq.spark.table(spark, store, queues=queues, includeSystemTopics=system)
        counts = table.groupBy("topic", "queueId").count().collect()
        assert sorted(map(tuple, counts)) == [("orders", 0, 4), ("returns", 1, 4)]
        assert table.where("queueId = 1").select("topic").distinct().collect() == [("returns",)]
    table = embermq.spark.table(spark, store)
    for key in keys:
        assert table.where(f"uniqKey = '{key}'").count() == 4
    fresh = embermq.spark.table(spark, store, ["uniqKey"])
    assert fresh.where("uniqKey in ('with space 4', 'plain', 'with')").count() == 8


def test_a_table_with_a_lake(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    """Archived, and then some more: one table, each message once."""
    lake = str(tmp_path / "lake")
    archive(spark, [str(store)], lake)
    with MessageStore.open(store, StoreBuilder(store).settings) as opened:
        opened.append_many(orders(5, "returns"))
    table = embermq.spark.table(spark, store, ["body", "tags"], topic="returns", lake=lake)
    assert table.columns == ["body", "tags"]
    wanted = [(one.body, one.tags) for one in [*orders(10), *orders(5)]]
    assert sorted((bytes(row[0]), row[1]) for row in table.collect()) == sorted(wanted)
    with pytest.raises(OptionInvalid, match="not together with a lake"):
        embermq.spark.table(spark, store, lake=lake, startingOffsets="earliest")


def test_a_stream(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    stream = embermq.spark.stream(spark, store, ["body"], topic="returns", startingOffsets="earliest")
    assert stream.isStreaming
    query = stream.writeStream.format("parquet").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out")).awaitTermination()
    bodies = {bytes(row["body"]) for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert bodies == {message.body for message in orders(10, "returns")}


def test_mistakes_are_said_at_once(spark: SparkSession, store: Path) -> None:
    """In this process, before Spark starts one to ask the source."""
    with pytest.raises(OptionInvalid, match="did you mean topic"):
        embermq.spark.table(spark, store, topik="orders")
    with pytest.raises(OptionInvalid, match="only a batch"):
        embermq.spark.stream(spark, store, endingOffsets="latest")


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="a Python without the package is needed")
@pytest.mark.slow(15)
def test_a_session_whose_python_has_no_package(store: Path, tmp_path: Path) -> None:
    """Made otherwise than by us, with another `python3` on the path: what to do is said, without Java's stack."""
    code = """
import sys
import embermq.spark
from embermq.errors import SettingsError
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.driver.memory", "512m").getOrCreate()
for call in (embermq.spark.table, embermq.spark.stream):
    for options in {}, {"onCorrupt": "rows", "schemaMode": "kafka"}:
        try:
            call(spark, sys.argv[1], **options)
        except SettingsError as problem:
            print(problem)
"""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK_HOME"))
    } | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "JAVA_HOME": str(embermq.spark.find_java().home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code, str(store)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    for line in lines:
        assert line.startswith("Spark does not find the format rocketmq: ")
        assert f"set PYSPARK_PYTHON={sys.executable}" in line
