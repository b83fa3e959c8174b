"""Replay: messages of a window back into a topic of a store, at a chosen rate, with their origin in properties.

    replay(spark, ["/data/broker-a"], Window("orders", where="tags = 'paid'"), "/data/target", to_topic="orders-again")

The window is chosen by Spark, sorted by store time, and streamed to the driver in batches; there each message is
appended to the target store. Properties, tags, keys and body come along; ORIGIN_* properties say where a message was,
and make a replay that is run again go on after the last one that went through. Driver side.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from embermq import Message, MessageStore, StoreSettings
from embermq.errors import OptionInvalid, TopicNameInvalid
from embermq.model.properties import DELAY, KEYS, TAGS, UNIQ_KEY
from embermq.spark.views import Topics, topic_messages
from embermq.store.admission import check_topic_name

ORIGIN_TOPIC = "ORIGIN_TOPIC"
ORIGIN_PLACE = "ORIGIN_PLACE"  # broker@physicalOffset: one name for one record
REPLAY_ID = "REPLAY_ID"
_BATCH = 256
NOT_AGAIN = {TAGS, KEYS, UNIQ_KEY, DELAY, "WAIT", "REAL_TOPIC", "REAL_QID"}


@dataclass(frozen=True, slots=True)
class Window:
    """Which messages: of a topic, stored in [begin_ms, end_ms), with these tags, for which a SQL condition holds."""

    topic: str
    begin_ms: int | None = None
    end_ms: int | None = None
    tags: str | None = None
    where: str | None = None
    queues: Sequence[int] | None = None
    start_offset: int | None = None  # queue offsets, half-open
    end_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did, or would do."""

    found: int
    skipped: int  # there already, from an earlier run
    appended: int
    seconds: float
    dry_run: bool


def replay(
    spark: SparkSession, paths: Sequence[str], window: Window, target: str | Path, *, to_topic: str,
    replay_id: str = "replay", lake: str | None = None, rate: float | None = None, dry_run: bool = False,
    settings: StoreSettings | None = None, told: Callable[[int, int], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Replayed:  # fmt: skip
    """Append the messages of a window to `to_topic` of the store at `target`; at most `rate` a second, if given."""
    if rate is not None and rate <= 0:
        raise OptionInvalid("rate", "messages a second; more than 0", value=rate)
    _check_target(to_topic)
    topics = Topics.find(paths, lake)
    topics.check(window.topic)
    frame = _chosen(topic_messages(spark, topics, window.topic, lake=lake), window)
    found = frame.count()
    began = time.monotonic()
    if dry_run or not found:
        return Replayed(found, 0, 0, time.monotonic() - began, dry_run)
    with MessageStore.open(target, settings) as store:
        done = _places_in(store, to_topic, replay_id)
        appended = skipped = 0
        for batch in _batches(frame):
            fresh = [row for row in batch if _place(row) not in done]
            skipped += len(batch) - len(fresh)
            if fresh:
                store.append_many([_message(row, to_topic, replay_id) for row in fresh])
            appended += len(fresh)
            if told is not None:
                told(appended + skipped, found)
            if rate is not None:
                sleep(max(0.0, began + appended / rate - time.monotonic()))
        store.flush()
    return Replayed(found, skipped, appended, time.monotonic() - began, dry_run)


def _check_target(topic: str) -> None:
    """OptionInvalid unless messages may be sent to a topic of this name: said before a store is made for them."""
    try:
        check_topic_name(topic)
    except TopicNameInvalid as problem:
        raise OptionInvalid("to-topic", problem.reason) from None


def _chosen(frame: DataFrame, window: Window) -> DataFrame:
    """Those of a topic's messages that lie in the window."""
    if window.begin_ms is not None:
        frame = frame.where(F.col("storeTimestamp") >= F.timestamp_millis(F.lit(window.begin_ms)))
    if window.end_ms is not None:
        frame = frame.where(F.col("storeTimestamp") < F.timestamp_millis(F.lit(window.end_ms)))
    if window.start_offset is not None:
        frame = frame.where(F.col("queueOffset") >= window.start_offset)
    if window.end_offset is not None:
        frame = frame.where(F.col("queueOffset") < window.end_offset)
    if window.queues is not None:
        frame = frame.where(F.col("queueId").isin(list(window.queues)))
    if window.tags is not None and window.tags != "*":
        frame = frame.where(F.col("tags").isin([tag.strip() for tag in window.tags.split("||")]))
    return frame if window.where is None else where_holds(frame, window.where)


def where_holds(frame: DataFrame, condition: str) -> DataFrame:
    """The rows for which a SQL condition holds; OptionInvalid, with Spark's reason in a line, if it is none."""
    try:
        return frame.where(condition)
    except (AnalysisException, ParseException) as problem:
        reason = (problem.getMessage() or str(problem)).strip().splitlines()[0]
        raise OptionInvalid("where", reason, value=condition) from None


def _batches(frame: DataFrame) -> Iterator[list[Row]]:
    """Rows in the order they were stored, a bounded number at a time."""
    names = ["topic", "brokerName", "queueId", "physicalOffset", "tags", "keys", "body", "properties", "flag"]
    ordered = frame.orderBy("storeTimestamp", "brokerName", "physicalOffset").select(*names)
    batch: list[Row] = []
    for row in ordered.toLocalIterator(prefetchPartitions=False):
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _place(row: Row) -> str:
    return f"{row['brokerName']}@{row['physicalOffset']}"


def _message(row: Row, topic: str, replay_id: str) -> Message:
    properties = {name: value for name, value in (row["properties"] or {}).items() if name not in NOT_AGAIN}
    properties |= {ORIGIN_TOPIC: row["topic"], ORIGIN_PLACE: _place(row), REPLAY_ID: replay_id}
    return Message(
        topic, bytes(row["body"] or b""), tags=row["tags"], keys=row["keys"] or "", properties=properties,
        queue_id=row["queueId"], flag=row["flag"],
    )  # fmt: skip


def _places_in(store: MessageStore, topic: str, replay_id: str) -> set[str]:
    """Which records an earlier run of this replay has brought already."""
    found: set[str] = set()
    for queue_id in store.topics().get(topic, []):
        at = store.min_offset(topic, queue_id)
        while (outcome := store.fetch(topic, queue_id, at, 1024)).messages:
            found |= {
                one.properties[ORIGIN_PLACE]
                for one in outcome.messages
                if one.properties.get(REPLAY_ID) == replay_id and ORIGIN_PLACE in one.properties
            }
            at = outcome.next_offset
    return found
