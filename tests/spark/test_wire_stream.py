"""Streams over the wire: every message once, over restarts, new queues and brokers, limits and losses."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import embermq.spark
from embermq import Message, MessageStore
from embermq.client.calls import BrokerAddress, consumer_offset
from embermq.client.message_queue import MessageQueue
from embermq.errors import DataLost, NameServersUnreachable, OptionInvalid
from embermq.spark.wire.cluster import Cluster as WireCluster
from embermq.spark.wire.cluster import ClusterPlace
from tests.spark.stream_drive import Drive
from tests.support.clusters import Cluster, cluster_on_thread
from tests.support.wire_topics import create_topic

TOPIC = "orders"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with cluster_on_thread(tmp_path) as running:
        create_topic([running.broker.address], running.name_server, TOPIC)
        yield running


_started: list[Drive] = []


@pytest.fixture(autouse=True)
def stop_drives() -> Iterator[None]:
    """Readers that no Spark stops keep their connections, and the thread of the client."""
    yield
    while _started:
        _started.pop().reader.stop()


def started(**options: str) -> Drive:
    _started.append(Drive(**options))
    return _started[-1]


def append(cluster: Cluster, start: int, end: int, topic: str = TOPIC, queues: int = 4) -> None:
    put(cluster.broker.store, [Message(topic, b"%d" % n, queue_id=n % queues) for n in range(start, end)])


def put(store: MessageStore, messages: list[Message]) -> None:
    """Messages that can be pulled when this returns."""
    store.append_many(messages)
    store.wait_for_dispatch()


def bodies(drive: Drive) -> list[int]:
    return sorted(int(row[3]) for row in drive.rows)


def drive_of(cluster: Cluster, **options: str) -> Drive:
    return started(nameServer=cluster.name_server, topic=TOPIC, **({"startingOffsets": "earliest"} | options))


def test_every_message_comes_once_over_restarts(cluster: Cluster) -> None:
    append(cluster, 0, 100)
    drive = drive_of(cluster)
    assert drive.run() == [100]
    append(cluster, 100, 150)
    planned = drive.plan()
    append(cluster, 150, 160)
    drive.restart()  # The batch was planned, and not read: it is read by the next run, as it was planned.
    rows = drive.read(planned)
    assert sorted(int(row[3]) for row in rows) == list(range(100, 150))
    drive.rows += rows
    drive.commit(planned)
    assert drive.run() == [10]
    assert bodies(drive) == list(range(160))
    assert json.loads(drive.offset) == {"cluster": {TOPIC: {"a": {str(n): 40 for n in range(4)}}}}


def test_a_stream_begins_at_the_latest_and_at_offsets_and_times(cluster: Cluster) -> None:
    append(cluster, 0, 100)
    latest = started(nameServer=cluster.name_server, topic=TOPIC)
    assert latest.run() == []
    append(cluster, 100, 104)
    assert latest.run() == [4]
    at = drive_of(cluster, startingOffsets=json.dumps({TOPIC: {"0": 20, "1": -1, "2": -2, "3": 25}}))
    assert at.run() == [6 + 26 + 1]


def test_limits_of_a_micro_batch(cluster: Cluster) -> None:
    append(cluster, 0, 100)
    drive = drive_of(cluster, maxOffsetsPerTrigger="40")
    assert drive.run() == [40, 40, 20]
    assert bodies(drive) == list(range(100))
    by_bytes = drive_of(cluster, maxBytesPerTrigger="4k")
    sizes = by_bytes.run()
    assert len(sizes) > 1
    assert sum(sizes) == 100
    waiting = drive_of(cluster, minOffsetsPerTrigger="101", maxTriggerDelay="1h")
    assert waiting.run() == []
    append(cluster, 100, 101)
    assert waiting.run() == [101]


def test_available_now_ends_at_what_was_there(cluster: Cluster) -> None:
    append(cluster, 0, 30)
    drive = drive_of(cluster, maxOffsetsPerTrigger="20")
    drive.begin()
    drive.reader.prepareForTriggerAvailableNow()
    append(cluster, 30, 60)
    assert drive.run() == [22, 8]  # each queue gets its share, rounded up
    assert bodies(drive) == list(range(30))


def test_new_queues_and_topics_are_found_while_it_runs(cluster: Cluster) -> None:
    append(cluster, 0, 8)
    drive = started(nameServer=cluster.name_server, subscribePattern="orders.*", startingOffsets="earliest")
    assert drive.run() == [8]
    create_topic([cluster.broker.address], cluster.name_server, TOPIC, 6)
    put(cluster.broker.store, [Message(TOPIC, b"8", queue_id=5), Message(TOPIC, b"9", queue_id=4)])
    assert drive.run() == [2]
    create_topic([cluster.broker.address], cluster.name_server, "orders-eu", 2)
    append(cluster, 10, 12, "orders-eu", 2)
    assert drive.run() == [2]
    assert bodies(drive) == list(range(12))


def test_a_broker_that_comes_later_is_read_from_its_beginning(
    tmp_path: Path,
) -> None:
    with cluster_on_thread(tmp_path / "one", brokers=2) as running:
        first, second = running.brokers.values()
        create_topic([first.address], running.name_server, TOPIC)
        put(first.store, [Message(TOPIC, b"%d" % n, queue_id=n % 4) for n in range(10)])
        drive = drive_of(running)
        assert drive.run() == [10]
        create_topic([first.address, second.address], running.name_server, TOPIC)
        put(second.store, [Message(TOPIC, b"%d" % n, queue_id=n % 4) for n in range(10, 15)])
        assert drive.run() == [5]
        assert bodies(drive) == list(range(15))
        known = drive.offset
    drive.restart(brokerTimeout="200ms")
    with pytest.raises(NameServersUnreachable):
        drive.plan()
    assert drive.offset == known


def test_progress_of_a_group_is_committed_to_the_brokers(cluster: Cluster) -> None:
    append(cluster, 0, 40)
    drive = drive_of(cluster, groupId="spark-job", maxOffsetsPerTrigger="20")
    assert drive.step() == 20
    place = ClusterPlace((cluster.name_server,))

    async def committed(asked: WireCluster) -> list[int | None]:
        route = await asked.routes.route(TOPIC)
        address = route.address("a")
        assert address is not None
        to = BrokerAddress("a", address)
        queues = [MessageQueue(TOPIC, "a", n) for n in range(4)]
        return list(await asyncio.gather(*(consumer_offset(asked.caller, to, "spark-job", one, 5) for one in queues)))

    with WireCluster(place) as asked:
        assert asked.run(committed(asked)) == [5, 5, 5, 5]
        assert drive.run() == [20]
        assert drive.plan() == drive.offset  # Asked for the next batch, the last one is known to be done.
        assert asked.run(committed(asked)) == [10, 10, 10, 10]
        assert "%RETRY%spark-job" in asked.run(asked.topics())  # What RocketMQ's consumerProgress looks for.


def test_a_queue_that_lost_messages_is_data_loss(cluster: Cluster) -> None:
    append(cluster, 0, 40)
    drive = drive_of(cluster)
    assert drive.run() == [40]
    ahead = json.dumps({"cluster": {TOPIC: {"a": {"0": 1000, "1": 10, "2": 10, "3": 10}}}})
    drive.offset = ahead
    with pytest.raises(DataLost, match=r"orders queue 0 on a: was read up to 1000 and ends at 10 now"):
        drive.plan()
    drive.restart(failOnDataLoss="false")
    drive.offset = ahead
    assert drive.run() == [10]


def test_a_checkpoint_of_a_path_is_refused(cluster: Cluster) -> None:
    drive = drive_of(cluster)
    drive.offset = json.dumps({"stores": {"a": {"identity": "x", "position": 1}}})
    with pytest.raises(OptionInvalid, match="of a stream that reads a path"):
        drive.plan()


@pytest.mark.slow(seconds=8)
def test_a_query_of_spark_follows_a_cluster(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    append(cluster, 0, 50)
    columns = ["queueId", "queueOffset", "body"]
    rows = embermq.spark.stream(
        spark, columns=columns, nameServer=cluster.name_server, topic=TOPIC, startingOffsets="earliest", groupId="g"
    )
    for _ in range(2):
        writing = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writing.trigger(availableNow=True).start(str(tmp_path / "rows"))
        assert query.awaitTermination(120)
        append(cluster, 50, 60)
    found = [int(row["body"]) for row in spark.read.parquet(str(tmp_path / "rows")).collect()]
    assert sorted(found) == list(range(60))
