"""Batch reads over the wire: the rows of a cluster are those of its stores, and mistakes are one clear line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan, In

import embermq.spark
from embermq import Message
from embermq.errors import (
    BrokerUnreachable,
    EmberError,
    NameServersUnreachable,
    OptionInvalid,
    TopicUnknown,
)
from embermq.spark.wire.cluster import Cluster as WireCluster
from embermq.spark.wire.cluster import ClusterPlace
from embermq.spark.wire.pulling import WireSlice, read_wire_slice
from tests.support.clusters import Cluster, cluster_on_thread
from tests.support.spark_reads import read
from tests.support.wire_reads import Row, wire_rows, wire_slices
from tests.support.wire_topics import create_topic

TOPIC = "orders"
PER_BROKER = 200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_on_thread(tmp_path_factory.mktemp("wire"), brokers=2, store={"filter_properties": True}) as running:
        addresses = [broker.address for broker in running.brokers.values()]
        for topic in (TOPIC, "returns"):
            create_topic(addresses, running.name_server, topic)
        for name, broker in running.brokers.items():
            broker.store.append_many([_message(name, n) for n in range(PER_BROKER)])
            broker.store.append(Message("returns", b"one", queue_id=0))
            broker.store.wait_for_dispatch()
        yield running


def _message(name: str, n: int) -> Message:
    return Message(
        TOPIC,
        f"{name}-{n}".encode() * (1 if n % 7 else 300),
        tags=("paid", "sent", "made")[n % 3],
        keys=[f"k-{name}-{n}"],
        queue_id=n % 4,
        properties={"n": str(n), "price": str(n % 10)},
    )


def paths_of(cluster: Cluster) -> list[Path]:
    return [broker.store.path for broker in cluster.brokers.values()]


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["brokerName"], row["topic"], row["queueId"], row["queueOffset"]))


@pytest.mark.slow(seconds=8)
def test_spark_gets_every_column_of_every_row_as_from_the_stores(spark: SparkSession, cluster: Cluster) -> None:
    reading = spark.read.format("rocketmq").option("nameServer", cluster.name_server)
    pulled = [row.asDict() for row in reading.option("topic", TOPIC).load().collect()]
    stored = read(*paths_of(cluster), topic=TOPIC).rows
    assert len(pulled) == 2 * PER_BROKER
    for row in stored:  # As Spark shows them: bytes, dicts, times of the session's zone without a name.
        row["properties"] = dict(row["properties"])
    unshown = ("bornTimestamp", "storeTimestamp")
    assert [{name: value for name, value in row.items() if name not in unshown} for row in ordered(pulled)] == [
        {name: value for name, value in row.items() if name not in unshown} for row in ordered(stored)
    ]
    wanted = embermq.spark.table(spark, columns=["queueId", "tags"], nameServer=cluster.name_server, topic=TOPIC)
    assert wanted.where("tags = 'paid' and queueId in (0, 1)").count() == 2 * sum(
        n % 3 == 0 and n % 4 < 2 for n in range(PER_BROKER)
    )
    with pytest.raises(PySparkException) as raised:
        reading.option("topic", "oders").load()
    text = str(raised.value)
    assert "topic 'oders' is not in the cluster of" in text
    assert "did you mean orders?" in text
    assert "Traceback" not in text


def test_every_column_is_that_of_the_stores(cluster: Cluster) -> None:
    assert ordered(wire_rows(cluster.name_server, topic=TOPIC)) == ordered(read(*paths_of(cluster), topic=TOPIC).rows)
    assert len(wire_rows(cluster.name_server)) == 2 * PER_BROKER + 2


@pytest.mark.parametrize(
    "options",
    [
        {"subExpression": "paid || sent"},
        {"sqlExpression": "price > 6"},
        {"sqlExpression": "price > 6", "subExpression": "paid"},
        {"keys": "k-a-17,k-b-18"},
        {"queues": "1,3", "minPartitions": "7"},
        {"startingOffsets": json.dumps({TOPIC: {"0": 7, "a": {"2": 11}}})},
        {"endingOffsets": json.dumps({TOPIC: {"0": 7, "3": 1}})},
        {"batchRows": "3", "queues": "0"},
        {"subscribePattern": "ord.*", "queues": "2"},
    ],
)
def test_options_leave_the_same_rows(cluster: Cluster, options: dict[str, str]) -> None:
    options = options if "subscribePattern" in options else {"topic": TOPIC} | options
    pulled = ordered(wire_rows(cluster.name_server, **options))
    assert 0 < len(pulled) < 2 * PER_BROKER
    assert pulled == ordered(read(*paths_of(cluster), **options).rows)


def test_a_read_begins_and_ends_at_times(cluster: Cluster) -> None:
    times = sorted(row["storeTimestamp"] for row in wire_rows(cluster.name_server, topic=TOPIC))
    middle = round(times[len(times) // 2].timestamp() * 1000)
    for option in ("startingTimestamp", "endingTimestamp"):
        options = {"topic": TOPIC, option: str(middle)}
        expected = ordered(read(*paths_of(cluster), **options).rows)
        assert ordered(wire_rows(cluster.name_server, **options)) == expected
    later = str(round(times[-1].timestamp() * 1000) + 1)
    assert wire_rows(cluster.name_server, topic=TOPIC, startingTimestamp=later) == []


def test_filters_of_a_query_leave_queues_unpulled(cluster: Cluster) -> None:
    filters = [EqualTo(("topic",), TOPIC), In(("queueId",), (1, 2)), GreaterThan(("queueOffset",), 44)]
    slices = wire_slices(cluster.name_server, filters=filters)
    ranges = [one for part in slices for one in part.ranges]
    assert {(one.topic, one.queue_id, one.start) for one in ranges} == {(TOPIC, 1, 45), (TOPIC, 2, 45)}
    tagged = wire_slices(cluster.name_server, filters=[EqualTo(("tags",), "paid")], topic=TOPIC)
    assert {one.selection.tags for one in tagged} == {frozenset({"paid"})}


def test_slices_are_of_one_broker_and_cover_every_offset_once(cluster: Cluster) -> None:
    slices = wire_slices(cluster.name_server, topic=TOPIC, minPartitions="9")
    assert 9 <= len(slices) <= 11
    assert all(len({one.broker_name for one in part.ranges}) == 1 for part in slices)
    offsets = [
        (one.broker_name, one.queue_id, at)
        for part in slices
        for one in part.ranges
        for at in range(one.start, one.end)
    ]
    assert len(offsets) == len(set(offsets)) == 2 * PER_BROKER


def test_a_broker_without_sql_filters_answers_everything_and_rows_are_compared_here(tmp_path: Path) -> None:
    with cluster_on_thread(tmp_path) as running:
        create_topic([running.broker.address], running.name_server, TOPIC)
        running.broker.store.append_many([_message("a", n) for n in range(50)])
        running.broker.store.wait_for_dispatch()
        rows = wire_rows(running.name_server, topic=TOPIC, sqlExpression="price = 3")
        assert {dict(row["properties"])["price"] for row in rows} == {"3"}
        assert len(rows) == 5


def test_offsets_that_are_not_there_are_refused_or_left_out(cluster: Cluster) -> None:
    with pytest.raises(OptionInvalid, match="orders queue 0 on a: offset 1000 is out of range"):
        wire_slices(cluster.name_server, topic=TOPIC, startingOffsets=json.dumps({TOPIC: {"0": 1000}}))
    rows = wire_rows(
        cluster.name_server, topic=TOPIC, startingOffsets=json.dumps({TOPIC: {"0": 1000}}), failOnDataLoss="false"
    )
    assert {row["queueId"] for row in rows} == {1, 2, 3}


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"topic": "oders"}, TopicUnknown, "did you mean orders?"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, OptionInvalid, "includeSystemTopics=true"),
        ({"topic": TOPIC, "queues": "9"}, OptionInvalid, "no wanted topic has a queue 9"),
        ({"subscribePattern": "nothing.*"}, OptionInvalid, "matches no topic of the cluster of"),
        ({"topic": TOPIC, "startingPhysicalOffset": "5"}, OptionInvalid, "means nothing over the wire"),
        ({"topic": TOPIC, "path": "/store"}, OptionInvalid, "contradicts path"),
    ],
)
def test_mistakes_are_said_on_the_driver(
    cluster: Cluster, options: dict[str, str], kind: type[EmberError], text: str
) -> None:
    with pytest.raises(kind) as raised:
        wire_slices(cluster.name_server, **options)
    assert text in str(raised.value)


def test_a_name_server_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(NameServersUnreachable, match=r"check that one runs at 127\.0\.0\.1:1 "):
        wire_slices("127.0.0.1:1", topic=TOPIC)


def test_a_task_gives_up_on_its_broker_after_a_time(tmp_path: Path) -> None:
    with cluster_on_thread(tmp_path) as running:
        create_topic([running.broker.address], running.name_server, TOPIC)
        running.broker.store.append_many([_message("a", n) for n in range(50)])
        running.broker.store.wait_for_dispatch()
        slices = wire_slices(running.name_server, topic=TOPIC, brokerTimeout="300ms")
    with pytest.raises((NameServersUnreachable, BrokerUnreachable)):
        _rows_of(slices)


def _rows_of(slices: list[WireSlice]) -> list[Row]:
    return [row for one in slices for batch in read_wire_slice(one) for row in batch.to_pylist()]


def test_an_offset_by_time_is_the_first_of_its_millisecond(cluster: Cluster) -> None:
    with WireCluster(ClusterPlace((cluster.name_server,))) as asked:
        ends = asked.run(asked.queue_ends([TOPIC]))
        for one in ends:
            assert asked.run(asked.offset_at(one, 0)) == one.min_offset
            assert asked.run(asked.offset_at(one, 1 << 45)) == one.max_offset
