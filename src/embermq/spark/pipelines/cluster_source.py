"""The source of a pipeline from a running cluster: the same query, lake and statistics, filled by pulls of queues.

    pipeline(spark, name_server="127.0.0.1:9876", into="/data/lake").once()

A batch is a range of each queue. What brokers do not say is not asked: queues and index are derived from logs only.
Driver side.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from embermq.columns import is_system_topic
from embermq.errors import OptionInvalid
from embermq.spark.jobs.cluster_tasks import ProgressReport
from embermq.spark.lake.json_schemas import read_schemas
from embermq.spark.lake.lakes import Lake
from embermq.spark.lake.queue_ranges import QueueRows
from embermq.spark.lake.topic_filter import TopicFilter
from embermq.spark.options.read_options import parse
from embermq.spark.pipelines.batch_source import BatchProgress
from embermq.spark.pipelines.queue_batches import QueueBatch
from embermq.spark.pipelines.queue_lake_sink import QueueLakeSink
from embermq.spark.pipelines.queue_minutes import QueueMinutesSink
from embermq.spark.pipelines.queue_stream import FORMAT, QueueRanges, stream_options
from embermq.spark.pipelines.sinks import SinkContext, SinkFigures
from embermq.spark.planning.offsets import ReadableQueue
from embermq.spark.wire.batch_reader import message_bytes, place_of
from embermq.spark.wire.cluster import Cluster, ClusterPlace
from embermq.spark.wire.stream_follower import name_of
from embermq.spark.wire.stream_offsets import WireOffset
from embermq.spark.wire.wanted import WireRange


class QueueSink(Protocol):
    """Takes batches of queues, each at least once, in order."""

    name: str

    def check(self, there: Sequence[ReadableQueue]) -> None:
        """Raises if what it has is not of these queues."""

    def process(self, batch: QueueBatch) -> SinkFigures: ...


@dataclass(slots=True)
class ClusterSource:
    """Queues of wanted topics of a cluster."""

    cluster: Mapping[str, str]  # options of the format: nameServer, account, TLS
    sinks: Sequence[QueueSink]
    topics: TopicFilter
    batch_bytes_max: int
    fail_on_data_loss: bool
    every_seconds: float
    on_progress: ProgressReport | None

    @property
    def _place(self) -> ClusterPlace:
        return place_of(parse(self.cluster, streaming=True))

    def check(self) -> None:
        """DataLost if a queue is shorter than what was derived of it. NameServersUnreachable."""
        with Cluster(self._place, patient=False) as cluster:
            there = self._ends(cluster)
        for sink in self.sinks:
            sink.check(there)

    def _ends(self, cluster: Cluster) -> list[ReadableQueue]:
        known = cluster.run(cluster.topics())
        topics = [one for one in known if not is_system_topic(one) and self.topics.wants(one)]
        return cluster.run(cluster.queue_ends(topics, skip_unreachable=True))

    def open(self) -> None:
        """Nothing is kept between batches."""

    def stream(self, spark: SparkSession) -> DataFrame:
        spark.dataSource.register(QueueRanges)
        options = stream_options(
            self.cluster, self.topics, self.batch_bytes_max, self.every_seconds, fail_on_loss=self.fail_on_data_loss
        )
        return spark.readStream.format(FORMAT).options(**options).load()

    def work(self, spark: SparkSession, number: int, rows: Sequence[Any], began: float) -> BatchProgress | None:
        positions = {(row["topic"], row["brokerName"], row["queueId"]): row["end"] for row in rows}
        ranges = [WireRange(*row) for row in rows if row["start"] < row["end"]]
        if not ranges:
            return None
        with Cluster(self._place) as cluster:
            size = message_bytes(cluster, ranges)
            wanted = QueueRows(cluster.place, ranges, size, self.fail_on_data_loss)
            batch = QueueBatch(number, wanted, positions, spark, self.on_progress)
            figures = {sink.name: sink.process(batch) for sink in self.sinks}
            seconds = time.monotonic() - began
            ends = self._ends(cluster)
        lag = sum(max(one.max_offset - positions.get(name_of(one), one.min_offset), 0) for one in ends)
        return BatchProgress(
            number,
            max((one.records for one in figures.values()), default=0),
            max((one.bytes for one in figures.values()), default=0),
            seconds,
            int(lag * size),
            {},
            figures,
            lag,
            WireOffset({(one.topic, one.broker_name, one.queue_id): one.end for one in ranges}).to_json(),
        )


def make_queue_sinks(names: Sequence[str], context: SinkContext) -> list[QueueSink]:
    """The sinks of these names."""
    made: list[QueueSink] = []
    assert context.into is not None
    if "lake" in names:
        lake = Lake.open(
            context.into,
            lake_format=context.lake_format,
            catalog=context.catalog,
            schemas=read_schemas(context.json),
            drop_bodies=context.drop_bodies,
            topics=context.topics,
            file_bytes=context.file_bytes,
            source="cluster",
        )
        made.append(QueueLakeSink(lake, context.compact_every))
    if "stats" in names:
        made.append(QueueMinutesSink(context.into, context.topics))
    return made


def cluster_options(name_server: str, access: Mapping[str, str] | None) -> dict[str, str]:
    """Options of the format that say where the cluster is and as whom it is asked."""
    return {"nameServer": name_server, **(access or {})}


def check_wire(options: Mapping[str, str], names: Sequence[str], sinks: Sequence[object], paths: Sequence[str]) -> None:
    """OptionInvalid if something is asked for that needs the directory of a store; NameServersUnreachable. Makes
    nothing."""
    if paths:
        raise OptionInvalid("name-server", "not together with stores; name one of the two")
    if logs := [name for name in names if name in ("queues", "index")]:
        raise OptionInvalid(
            "derive",
            "queues and index are made of a log, which brokers do not send; over the wire: lake, stats."
            " A copy of the log is made by `embermq tap`",
            value=logs[0],
        )
    if sinks:
        raise OptionInvalid("sinks", "your own sinks and the report read logs; name the directories of stores")
    with Cluster(place_of(parse(options, streaming=True)), patient=False) as cluster:
        cluster.run(cluster.topics())
