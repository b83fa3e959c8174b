"""Replay into a running cluster: the chosen messages through the sink of the format, oldest first.

Those that an earlier run of the same replay brought are found by their ORIGIN_PLACE in the target topic and left out;
the sink sees to it that a task which is tried again sends no row twice. So a message comes exactly once into EmberMQ,
and at least once into Apache RocketMQ (docs/spark-wire.md#writing). Rows of one queue stay in one queue, in their
order. Driver side.
"""

import time
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from embermq.spark.jobs.replay_marks import NOT_AGAIN, ORIGIN_PLACE, ORIGIN_TOPIC, REPLAY_ID, Replayed
from embermq.spark.options.read_options import parse
from embermq.spark.reading.tables import table
from embermq.spark.wire.batch_reader import place_of
from embermq.spark.wire.cluster import Cluster
from embermq.spark.wire.sent_rows import PRODUCER, SEQUENCE

_PLACE = "originPlace"
_ORDER = ("storeTimestamp", "brokerName", "physicalOffset")


def send_to_cluster(
    frame: DataFrame, cluster: Mapping[str, str], *, to_topic: str, replay_id: str, dry_run: bool = False
) -> Replayed:
    """Send messages, in the columns of the format. `cluster` has nameServer and as whom it is asked."""
    began = time.monotonic()
    spark, brokers = frame.sparkSession, _brokers_of(cluster, to_topic)
    own = F.col("brokerName").isin(brokers) & (F.col("topic") == to_topic) & _is_of(replay_id)
    frame = frame.where(~own).withColumn(_PLACE, F.concat_ws("@", "brokerName", "physicalOffset"))
    fresh = frame.join(_brought(spark, cluster, to_topic, replay_id), _PLACE, "left_anti") if brokers else frame
    # What is counted is what is sent: a store may grow meanwhile.
    rows = _rows(fresh, replay_id).persist()
    try:
        found, missing = frame.count(), rows.count()
        if not dry_run and missing:
            ordered = rows.repartition(1).sortWithinPartitions(*_ORDER).drop(*_ORDER)
            ordered.write.format("rocketmq").mode("append").options(**cluster, topic=to_topic).save()
    finally:
        rows.unpersist()
    sent = 0 if dry_run else missing
    return Replayed(max(found, missing), max(found - missing, 0), sent, time.monotonic() - began, dry_run)


def _brokers_of(cluster: Mapping[str, str], topic: str) -> list[str]:
    """The brokers that have a topic; none if there is no such topic yet."""
    with Cluster(place_of(parse(cluster, streaming=False)), patient=False) as asked:
        if topic not in asked.run(asked.topics()):
            return []
        return sorted({one.broker_name for one in asked.run(asked.queue_ends([topic]))})


def _is_of(replay_id: str) -> Column:
    return F.coalesce(F.col("properties")[REPLAY_ID], F.lit("")) == F.lit(replay_id)


def _brought(spark: SparkSession, cluster: Mapping[str, str], topic: str, replay_id: str) -> DataFrame:
    """Where the messages were that an earlier run has brought."""
    target = table(spark, columns=["properties"], topic=topic, **cluster)
    return target.where(_is_of(replay_id)).select(F.col("properties")[ORIGIN_PLACE].alias(_PLACE))


def _rows(fresh: DataFrame, replay_id: str) -> DataFrame:
    """The columns of the sink, and those by which rows are sorted."""
    left_out = sorted(NOT_AGAIN | {PRODUCER, SEQUENCE, ORIGIN_TOPIC, ORIGIN_PLACE, REPLAY_ID})
    kept = F.map_filter("properties", lambda name, value: ~name.isin(left_out) & (F.length(value) > 0))
    origin = F.create_map(
        F.lit(ORIGIN_TOPIC), F.col("topic"), F.lit(ORIGIN_PLACE), F.col(_PLACE), F.lit(REPLAY_ID), F.lit(replay_id)
    )
    return fresh.select(
        F.coalesce("body", F.lit(b"")).alias("body"),
        "tags",
        "keys",
        F.map_concat(F.coalesce(kept, F.create_map().cast("map<string,string>")), origin).alias("properties"),
        F.concat_ws("@", "brokerName", "queueId").alias("shardingKey"),
        *_ORDER,
    )
