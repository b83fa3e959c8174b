"""The format as Spark sees it: found, loaded, in SQL, with schemas, in a session that knows nothing of us."""

import doctest
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embermq import Message
from embermq.spark.options.schema import COLUMNS, KAFKA_COLUMNS, spark_schema
from embermq.spark.reading import source
from tests.spark.conftest import StoreMaker
from tests.support import golden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def messages(count: int = 40) -> Iterator[Message]:
    for n in range(count):
        topic, queue_id = ("orders", "returns")[n % 2], n // 2 % 2
        yield Message(topic, b"body %02d" % n, queue_id=queue_id, tags=f"t{n % 3}", keys=[f"k{n}"])


def test_the_docstring_runs(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Spark's processes have another directory: the path must be seen from there.
    text = (source.RocketMQSource.__doc__ or "").replace('"store"', f'"{tmp_path / "store"}"')
    test = doctest.DocTestParser().get_doctest(text, {"spark": spark}, "RocketMQSource", None, 0)
    said: list[str] = []
    result = doctest.DocTestRunner().run(test, out=said.append)
    assert result.attempted > 0
    assert result.failed == 0, "".join(said)


def test_the_source_is_light_to_import() -> None:
    """Spark imports it for everybody who asks for any Python format."""
    code = (
        "import sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_rocketmq;"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"embermq", "pyspark_rocketmq"}


def test_columns_and_types(spark: "SparkSession", make_store: StoreMaker) -> None:
    store = str(make_store(messages()))
    frame = spark.read.format("rocketmq").load(store)
    assert frame.columns == [column.name for column in COLUMNS]
    assert frame.schema == spark_schema("rocketmq", exact=True)
    kafka = spark.read.format("rocketmq").option("schemaMode", "kafka").load(store)
    assert kafka.columns == [column.name for column in KAFKA_COLUMNS]
    row = kafka.where("offset = 3 and partition = 1 and topic = 'orders'").first()
    assert row is not None
    assert (bytes(row.key), bytes(row.value)) == (b"k14", b"body 14")
    headers = spark.read.format("rocketmq").options(schemaMode="kafka", includeHeaders="true").load(store)
    assert {header.key for header in headers.select("headers").first()[0]} == {"KEYS", "TAGS"}  # type: ignore[index]
    corrupt = spark.read.format("rocketmq").option("onCorrupt", "rows").load(store)
    assert corrupt.columns[-1] == "_corrupt"
    assert corrupt.where("_corrupt is not null").count() == 0


def test_all_ways_to_say_which_rows(spark: "SparkSession", make_store: StoreMaker) -> None:
    store = make_store(messages(), "broker-a/store")
    other = make_store(messages(10), "broker-b/store")
    read = spark.read.format("rocketmq")
    assert read.option("topic", "orders").load(str(store)).count() == 20
    assert spark.read.format("rocketmq").load([str(store), str(other)]).count() == 50
    both = spark.read.format("rocketmq").load(f"{store.parents[1]}/*/store").groupBy("brokerName").count()
    assert {row.brokerName: row["count"] for row in both.collect()} == {"broker-a": 40, "broker-b": 10}
    options = f"path '{store}', topic 'returns', queues '1'"
    spark.sql(f"create or replace temporary view messages using rocketmq options ({options})")
    assert spark.sql("select count(*), min(queueOffset), max(queueOffset) from messages").first() == (10, 0, 9)
    spark.catalog.dropTempView("messages")
    schema = "tags string, QUEUEOFFSET bigint, body binary"
    small = spark.read.format("rocketmq").schema(schema).option("startingOffsets", json.dumps({"orders": {"0": 8}}))
    frame = small.load(str(store))
    assert frame.columns == ["tags", "QUEUEOFFSET", "body"]
    assert frame.where("tags = 't2' and queueOffset >= 8").count() == len(
        [n for n in range(40) if n % 3 == 2 and n // 4 >= 8]
    )


def test_partitions_are_tasks(spark: "SparkSession", make_store: StoreMaker) -> None:
    store = make_store(messages(400))
    frame = spark.read.format("rocketmq").option("minPartitions", "5").load(str(store))
    assert frame.rdd.getNumPartitions() == 5
    assert frame.count() == 400
    none = spark.read.format("rocketmq").option("subExpression", "nobody").load(str(store))
    assert none.count() == 0


def test_nothing_is_written_and_nothing_is_locked(spark: "SparkSession", make_store: StoreMaker) -> None:
    store = make_store(messages())
    before = golden.tree_state(store)
    assert spark.read.format("rocketmq").option("topic", "orders").load(str(store)).count() == 20
    assert golden.tree_state(store) == before


def test_a_session_that_hands_no_filters_over(spark: "SparkSession", make_store: StoreMaker) -> None:
    """Spark's default: the query works all the same."""
    store = str(make_store(messages()))
    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    spark.conf.unset(setting)
    try:
        assert spark.conf.get(setting) == "false"
        for option in ("true", "false"):
            frame = spark.read.format("rocketmq").option("pushdown", option).load(store)
            assert frame.where("topic = 'orders' and queueOffset < 5").count() == 10
    finally:
        spark.conf.set(setting, str(before))
