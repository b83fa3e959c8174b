"""What Spark writes into the store of a stopped Java broker: the broker then serves the topic, and shows the group."""

import contextlib
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.interop import java_broker, reference
from tests.interop.java_broker import broker_config, free_port, java_server, mqadmin
from tests.interop.python_client import APACHE, ClusterUnderTest, stored
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

TOPIC, GROUP = "invoices", "lake"
BODIES = [f"invoice {number}" for number in range(9)]


@pytest.fixture(autouse=True)
def _fetched() -> None:
    try:
        java_broker.class_path()
    except reference.ReferenceMissing as why:
        pytest.skip(str(why))


def test_a_java_broker_serves_what_was_written_while_it_was_stopped(spark: SparkSession, directory: Path) -> None:
    place, names = directory, free_port()
    (place / "namesrv").mkdir(parents=True)
    address = f"127.0.0.1:{names}"
    config = broker_config(place, address)
    with contextlib.ExitStack() as stack:
        stack.enter_context(java_server("namesrv.NamesrvStartup", place / "namesrv", {"listenPort": names}))
        with java_server("broker.BrokerStartup", place, config) as broker:
            broker.stop()
        _write(spark, place)
        _follow(spark, place)
        stack.enter_context(java_server("broker.BrokerStartup", place, config))

        def lists_the_topic() -> bool:
            return re.search(rf"(?m)^{TOPIC}\s*$", mqadmin(place, ["topicList", "-n", address])) is not None

        wait_until(lists_the_topic, "the route of the topic", look_seconds=1)
        served = stored(ClusterUnderTest(APACHE, address), TOPIC, len(BODIES))
        assert sorted(message.body.decode() for message in served) == BODIES
        status = mqadmin(place, ["topicStatus", "-t", TOPIC, "-n", address])
        ends = [int(line.split()[3]) for line in status.splitlines() if line.startswith("broker-a")]
        assert sum(ends) == len(BODIES)
        _assert_at_the_end(place, address)


def _write(spark: SparkSession, place: Path) -> None:
    """With the broker's own settings: a store without files says nothing about their sizes."""
    rows = spark.createDataFrame([(TOPIC, body) for body in BODIES], "topic string, body string")
    writing = rows.write.format("rocketmq").option("storeConfig", str(place / "server.conf"))
    writing.mode("append").save(str(place / "store"))


def _follow(spark: SparkSession, place: Path) -> None:
    """A stream with a consumer group, to the end of the topic."""
    reading = spark.readStream.format("rocketmq").option("topic", TOPIC).option("groupId", GROUP)
    rows = reading.option("startingOffsets", "earliest").load(str(place / "store")).selectExpr("string(body) as body")
    writing = rows.writeStream.format("parquet").option("checkpointLocation", str(place / "progress"))
    writing.trigger(availableNow=True).start(str(place / "lake")).awaitTermination()
    read = spark.read.parquet(str(place / "lake")).collect()
    assert sorted(row.body for row in read) == BODIES


def _assert_at_the_end(place: Path, address: str) -> None:
    """mqadmin shows the group, and for each queue of the topic the same offset of broker and consumer."""

    def progress() -> str:
        return mqadmin(place, ["consumerProgress", "-g", GROUP, "-n", address])

    wait_until(lambda: f"{TOPIC} " in progress(), "the group in consumerProgress", look_seconds=1)
    shown = progress()
    rows = [line.split() for line in shown.splitlines() if line.startswith(TOPIC)]
    assert sum(int(row[3]) for row in rows) == sum(int(row[4]) for row in rows) == len(BODIES), shown
    assert "Diff Total: 0" in shown
