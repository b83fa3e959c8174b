"""A pipeline from a running cluster: the lake and statistics have each message once, whatever comes in between."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from embermq import Message
from embermq.errors import DataLost, NameServersUnreachable, OptionInvalid
from embermq.spark.lake import Lake, LakeFormat, TopicFilter
from embermq.spark.lake.commits import LakeQueueRange
from embermq.spark.options.read_options import parse
from embermq.spark.pipelines import Pipeline, pipeline
from embermq.spark.pipelines.queue_stream import Interval, stream_options
from embermq.spark.reading import views
from embermq.spark.wire.stream_follower import WireFollower
from embermq.spark.wire.stream_offsets import WireOffset
from embermq.spark.wire.stream_reader import ClusterFollowing
from embermq.testing.builder import StoreBuilder
from tests.support.clusters import Cluster, cluster_on_thread
from tests.support.minutes import read_minutes
from tests.support.wire_topics import create_topic

pytestmark = pytest.mark.extended

TOPICS = ("orders", "returns")
Row = tuple[str, int, int, int]  # topic, queue id, queue offset, number


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with cluster_on_thread(tmp_path / "brokers") as running:
        for topic in TOPICS:
            create_topic([running.broker.address], running.name_server, topic)
        yield running


def put(cluster: Cluster, start: int, end: int, topics: tuple[str, ...] = TOPICS, queues: int = 4) -> None:
    """Messages that can be pulled when this returns."""
    store = cluster.broker.store
    store.append_many(
        [
            Message(topic, b'{"n": %d}' % n, tags=("paid", "sent")[n % 2], queue_id=n % queues)
            for n in range(start, end)
            for topic in topics
        ]
    )
    store.wait_for_dispatch()


def numbers(spark: SparkSession, lake: str, topic: str = "orders") -> list[int]:
    rows = Lake.open(lake, make=False).frame(spark, [topic]).select("body", "brokerName", "queueId", "queueOffset")
    found = [(json.loads(bytes(row["body"]))["n"], tuple(row)[1:]) for row in rows.collect()]
    assert len({place for _, place in found}) == len(found)
    return sorted(number for number, _ in found)


def counted(lake: str) -> int:
    minutes = read_minutes(lake)
    assert minutes is not None
    return sum(minutes["messages"].to_pylist())


def made(spark: SparkSession, cluster: Cluster, lake: Path, **more: object) -> Pipeline:
    return pipeline(spark, name_server=cluster.name_server, into=str(lake), **more)  # type: ignore[arg-type]


@pytest.mark.slow(seconds=20)
def test_lake_and_statistics_have_each_message_once(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    put(cluster, 0, 60)
    done = made(spark, cluster, tmp_path / "lake").once()
    assert [(one.records, one.lag_messages, one.lag_bytes) for one in done] == [(120, 0, 0)]
    assert done[0].bytes == sum(one.size for one in cluster.broker.store.scan())
    assert done[0].offsets == {"cluster": {topic: {"a": {str(n): 15 for n in range(4)}} for topic in TOPICS}}
    assert numbers(spark, lake) == list(range(60))
    create_topic([cluster.broker.address], cluster.name_server, "late", 2)
    put(cluster, 60, 70)
    put(cluster, 0, 6, ("late",), 2)
    again = made(spark, cluster, tmp_path / "lake")
    assert [one.records for one in again.once()] == [26]
    assert again.once() == []
    assert numbers(spark, lake) == numbers(spark, lake, "returns") == list(range(70))
    assert numbers(spark, lake, "late") == list(range(6))
    assert counted(lake) == 146
    files = sorted(path.name for path in (tmp_path / "lake").glob("topic=late/date=*/*.parquet"))
    assert files == [f"a-queues-{2:020d}-{0:04d}.parquet"]
    # A new checkpoint: everything comes again, and nothing is derived twice.
    other = made(spark, cluster, tmp_path / "lake", checkpoint=str(tmp_path / "other"), batch_bytes_max=1 << 16)
    assert sum(one.records for one in other.once()) == 0
    assert counted(lake) == 146
    assert len(Lake.open(lake).commits) == 2
    Lake.open(lake).check(spark)


@pytest.mark.slow(seconds=12)
@pytest.mark.parametrize("lake_format", ["delta", "iceberg"])
def test_tables_of_some_topics_with_values(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, lake_format: LakeFormat
) -> None:
    put(cluster, 0, 20)
    (done,) = made(
        spark,
        cluster,
        tmp_path / "lake",
        derive=["lake"],
        lake_format=lake_format,
        json={"orders": "n int"},
        topics=TopicFilter.of(["ord*"], []),
    ).once()
    assert (done.records, done.sinks["lake"].undecoded) == (20, 0)
    lake = Lake.open(str(tmp_path / "lake"), make=False)
    assert lake.head.source == "cluster"
    rows = lake.frame(spark, ["orders"], value=lake.schemas["orders"]).select("value.n", "date").collect()
    assert sorted(row["n"] for row in rows) == list(range(20))
    assert lake.frame(spark, ["returns"]).count() == 0
    assert lake.commits[0].queues[0] == LakeQueueRange("orders", "a", 0, 0, 5)


@pytest.mark.slow(seconds=12)
def test_a_pipeline_that_follows(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    put(cluster, 0, 30)
    running = made(
        spark, cluster, tmp_path / "lake", derive=["lake"], batch_bytes_max=4_000, access={"groupId": "lake"}
    )
    seen, steps = 0, running.follow("50 milliseconds")
    for step in steps:
        seen += step.records
        if seen == 60:
            put(cluster, 30, 35)
        if seen == 70:
            break
    steps.close()  # type: ignore[attr-defined]
    assert numbers(spark, str(tmp_path / "lake")) == list(range(35))
    assert len(Lake.open(str(tmp_path / "lake")).commits) > 2


@pytest.mark.slow(seconds=10)
def test_a_queue_that_is_shorter_than_the_lake_stops_it(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    put(cluster, 0, 8)
    made(spark, cluster, tmp_path / "lake").once()
    with cluster_on_thread(tmp_path / "others") as other:
        for topic in TOPICS:
            create_topic([other.broker.address], other.name_server, topic)
        for loss in (True, False):
            with pytest.raises(DataLost, match=r"has it up to 2, and it ends at 0 now.*another lake and checkpoint"):
                made(spark, other, tmp_path / "lake", fail_on_data_loss=loss).once()


def test_what_cannot_be_is_said_before_a_query(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(OptionInvalid, match="not together with stores"):
        pipeline(spark, ["store"], name_server=cluster.name_server, into=str(tmp_path / "lake"))
    with pytest.raises(OptionInvalid, match=r"queues and index are made of a log.*embermq tap"):
        made(spark, cluster, tmp_path / "lake", derive=["lake", "queues"])
    with pytest.raises(OptionInvalid, match="your own sinks and the report read logs"):
        made(spark, cluster, tmp_path / "lake", sinks=[object()])
    with pytest.raises(NameServersUnreachable):
        pipeline(spark, name_server="127.0.0.1:1", into=str(tmp_path / "lake"))
    with pytest.raises(OptionInvalid, match="accessKey"):
        made(spark, cluster, tmp_path / "lake", access={"secretKey": "s"})
    assert not (tmp_path / "lake").exists()
    made(spark, cluster, tmp_path / "lake")
    builder = StoreBuilder(tmp_path / "store")
    with builder.open() as store:
        store.append(Message("orders", b"1"))
    with pytest.raises(OptionInvalid, match="this lake is filled from a cluster, not from the logs of stores"):
        pipeline(spark, [str(builder.root)], into=str(tmp_path / "lake"), checkpoint=str(tmp_path / "progress"))
    with pytest.raises(OptionInvalid, match="this lake is filled from a cluster"):
        views.messages(spark, [str(builder.root)], lake=str(tmp_path / "lake"))


def test_a_batch_waits_unless_it_is_full(cluster: Cluster) -> None:
    options = stream_options({"nameServer": cluster.name_server}, TopicFilter(), 1_000_000, 60.0, fail_on_loss=True)
    given = {name: text for name, text in options.items() if name not in ("wantedTopics", "everySeconds")}
    now = [100.0]
    parsed, wants = parse(given, streaming=True), TopicFilter.of([], ["returns"]).wants
    interval = Interval(60.0, 1_000_000, lambda: now[0])
    following = ClusterFollowing(parsed, WireFollower(parsed), wants, interval)
    try:
        start = following.initial()
        assert {topic for topic, _, _ in start.queues} & set(TOPICS) == {"orders"}

        def until(known: WireOffset) -> int:
            end = following.until(known, limited=True, done=False)
            return sum(end.queues.values())

        put(cluster, 0, 4)
        assert until(start) == 4  # The first does not wait.
        now[0] += 59.0
        assert until(start) == 0
        now[0] += 2.0
        assert until(start) == 4
        store = cluster.broker.store
        store.append_many([Message("orders", bytes(100_000), queue_id=n % 4) for n in range(12)])
        store.wait_for_dispatch()
        assert 4 <= until(start) < 16  # More than one batch: at once, and no more than a batch.
    finally:
        following.close()
