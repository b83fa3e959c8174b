"""Statistics of stores (and a lake): volume, sizes, delay from producer to store, tags, hot keys, consumer lag.

One pass over narrow columns, aggregated by Spark; what comes back to the driver is small whatever the log's size:
topics, tags and minutes are as many as there are, of keys only the most frequent come. Driver side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from embermq.spark.jobs.lag import Lag, find_lags
from embermq.spark.planning.stores import find_stores
from embermq.spark.reading.views import check_alone, messages
from embermq.spark.wire.views import cluster_messages

STEPS_MAX = 240
SIZE_BOUNDS = (128, 256, 512, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20)
NO_TAG = "(no tag)"
TOPICS_APART = 5
OTHER_TOPICS = "(other topics)"
_STEPS_MS = (100, 1000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000)


@dataclass(frozen=True, slots=True)
class TopicStats:
    """One topic; delays are from born to stored, in milliseconds."""

    topic: str
    messages: int
    bytes: int
    queues: int
    delay_p50_ms: float
    delay_p90_ms: float
    delay_p99_ms: float
    delay_max_ms: float


@dataclass(frozen=True, slots=True)
class Share:
    """Something counted."""

    name: str
    messages: int


@dataclass(slots=True)
class Stats:
    """All of it. `volume[i]` and `volume_bytes[i]` belong to steps_from_ms + i * step_ms."""

    messages: int = 0
    bytes: int = 0
    start_ms: int = 0
    end_ms: int = 0
    steps_from_ms: int = 0
    step_ms: int = 1000
    volume: list[int] = field(default_factory=list)
    volume_bytes: list[int] = field(default_factory=list)
    volume_by_topic: dict[str, list[int]] = field(default_factory=dict)  # the topics with most messages, and the rest
    topics: list[TopicStats] = field(default_factory=list)
    sizes: list[Share] = field(default_factory=list)
    tags: list[Share] = field(default_factory=list)
    hot_keys: list[Share] = field(default_factory=list)
    lags: list[Lag] = field(default_factory=list)


def stats(
    spark: SparkSession,
    paths: Sequence[str] = (),
    *,
    lake: str | None = None,
    topics: Sequence[str] | None = None,
    hot_keys: int = 20,
    name_server: str | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
    access: Mapping[str, str] | None = None,
) -> Stats:
    """Statistics of every message there is, or of these topics. With `name_server`, in place of stores, of a running
    cluster, without the lag of its consumers. With `since_ms` and `until_ms`, of those stored from the one on and
    before the other; lag is as it is now. `access` are options of the format that say as whom a cluster is asked."""
    wanted = ["topic", "queueId", "tags", "keys", "size", "bornTimestamp", "storeTimestamp"]
    if name_server is not None:
        check_alone(name_server, paths, lake)
        frame = cluster_messages(spark, name_server, topics, access=access).select(*wanted)
    else:
        frame = messages(spark, paths, lake=lake, topics=topics).select(*wanted)
    stored = F.col("storeTimestamp")
    if since_ms is not None:
        frame = frame.where(stored >= F.timestamp_millis(F.lit(since_ms)))
    if until_ms is not None:
        frame = frame.where(stored < F.timestamp_millis(F.lit(until_ms)))
    found = Stats()
    _count_topics(frame, found)
    if found.messages:
        _count_over_time(frame, found)
        found.sizes = _sizes(frame)
        tag = F.when(F.col("tags") != "", F.col("tags")).otherwise(NO_TAG)
        found.tags = _top(frame.select(F.concat_ws(" ", "topic", tag).alias("name")), 200)
        key = F.explode(F.split(F.col("keys"), " +")).alias("name")
        found.hot_keys = _top(frame.where("keys is not null").select(key).where("name <> ''"), hot_keys)
    for place in find_stores(paths, shipped=True) if name_server is None else ():
        lags = find_lags(place, place.survey())
        found.lags += [lag for lag in lags if topics is None or lag.topic in topics]
    return found


def _count_topics(frame: DataFrame, found: Stats) -> None:
    delay = F.unix_millis("storeTimestamp") - F.unix_millis("bornTimestamp")
    rows = (
        frame.withColumn("delay", delay)
        .groupBy("topic")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.sum("size").alias("bytes"),
            F.countDistinct("queueId").alias("queues"),
            F.percentile_approx("delay", [0.5, 0.9, 0.99], 1000).alias("delays"),
            F.max("delay").alias("most"),
            F.min(F.unix_millis("storeTimestamp")).alias("first"),
            F.max(F.unix_millis("storeTimestamp")).alias("last"),
        )
        .orderBy(F.desc("bytes"), "topic")
        .collect()
    )
    for row in rows:
        p50, p90, p99 = row["delays"] or (0, 0, 0)
        counts = row["messages"], row["bytes"], row["queues"]
        found.topics.append(TopicStats(row["topic"], *counts, p50, p90, p99, row["most"] or 0))
    found.messages = sum(one.messages for one in found.topics)
    found.bytes = sum(one.bytes for one in found.topics)
    times = [(row["first"], row["last"]) for row in rows if row["first"] is not None]
    if times:
        found.start_ms, found.end_ms = min(first for first, _ in times), max(last for _, last in times)


def _count_over_time(frame: DataFrame, found: Stats) -> None:
    """Equal steps from the first message to the last, as fine as can be shown."""
    length = found.end_ms - found.start_ms
    found.step_ms = _step_ms(length)
    found.steps_from_ms = found.start_ms - found.start_ms % found.step_ms
    step = F.floor((F.unix_millis("storeTimestamp") - F.lit(found.steps_from_ms)) / F.lit(found.step_ms))
    busiest = [one.topic for one in sorted(found.topics, key=lambda one: -one.messages)[:TOPICS_APART]]
    topic = F.when(F.col("topic").isin(busiest), F.col("topic")).otherwise(OTHER_TOPICS)
    figures = [F.count(F.lit(1)).alias("n"), F.sum("size").alias("b")]
    rows = frame.groupBy(step.alias("step"), topic.alias("topic")).agg(*figures).collect()
    count = (found.end_ms - found.steps_from_ms) // found.step_ms + 1
    found.volume, found.volume_bytes = [0] * count, [0] * count
    names = [*busiest, *([OTHER_TOPICS] if len(found.topics) > len(busiest) else [])]
    found.volume_by_topic = {name: [0] * count for name in names}
    for row in rows:
        if row["step"] is not None:
            found.volume[row["step"]] += row["n"]
            found.volume_bytes[row["step"]] += row["b"]
            found.volume_by_topic[row["topic"]][row["step"]] = row["n"]


def _step_ms(length_ms: int) -> int:
    """A step of which STEPS_MAX are enough, wherever the first of them begins."""
    day = _STEPS_MS[-1]
    whole_days = -(-length_ms // (day * (STEPS_MAX - 1))) * day
    return next((step for step in _STEPS_MS if length_ms <= step * (STEPS_MAX - 1)), whole_days)


def _sizes(frame: DataFrame) -> list[Share]:
    """How many records are up to each size; the names say the bound in bytes."""
    bucket = F.lit(len(SIZE_BOUNDS))
    for number, bound in reversed(list(enumerate(SIZE_BOUNDS))):
        bucket = F.when(F.col("size") <= bound, number).otherwise(bucket)
    counts = {row["bucket"]: row["count"] for row in frame.groupBy(bucket.alias("bucket")).count().collect()}
    names = [f"up to {bound:,} B" for bound in SIZE_BOUNDS] + [f"over {SIZE_BOUNDS[-1]:,} B"]
    return [Share(name, counts[number]) for number, name in enumerate(names) if number in counts]


def _top(names: DataFrame, count: int) -> list[Share]:
    rows = names.groupBy("name").count().orderBy(F.desc("count"), "name").limit(count).collect()
    return [Share(row["name"].strip(), row["count"]) for row in rows]
