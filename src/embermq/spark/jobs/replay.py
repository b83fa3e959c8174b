"""Replay: messages of a window back into a topic of a store, at a chosen rate, with their origin in properties.

    replay(spark, ["/data/broker-a"], Window("orders", where="tags = 'paid'"), "/data/target", to_topic="orders-again")

The window is chosen by Spark, sorted by store time, and streamed to the driver in batches; there each message is
appended to the target store. Properties, tags, keys and body come along; ORIGIN_* properties say where a message was,
and make a replay that is run again go on after the last one that went through. With `name_server` in place of a
target store the messages are sent to a running cluster (replay_wire.py), with `from_name_server` in place of stores
they are read from one. Driver side.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from embermq import Message, StoreSettings
from embermq.errors import OptionInvalid, TopicNameInvalid, TopicUnknown
from embermq.spark.jobs.replay_marks import NOT_AGAIN, ORIGIN_PLACE, ORIGIN_TOPIC, REPLAY_ID, Replayed
from embermq.spark.jobs.replay_wire import send_to_cluster
from embermq.spark.options.values import parse_tags
from embermq.spark.planning.offsets import nearest_names
from embermq.spark.planning.stores import find_stores
from embermq.spark.reading.views import TopicPlaces, check_alone, topic_messages
from embermq.spark.runtime.error_parsing import our_errors
from embermq.spark.wire.views import cluster_messages, cluster_topics
from embermq.store import MessageStore
from embermq.store.append import check_topic_name

_BATCH = 256
_STEP_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ReplayWindow:
    """Which messages: of a topic, stored in [begin_ms, end_ms), with these tags, for which a SQL condition holds."""

    topic: str
    begin_ms: int | None = None
    end_ms: int | None = None
    tags: str | None = None
    where: str | None = None
    queues: Sequence[int] | None = None
    start_offset: int | None = None  # queue offsets, half-open
    end_offset: int | None = None


def replay(
    spark: SparkSession,
    paths: Sequence[str],
    window: ReplayWindow,
    target: str | Path | None,
    *,
    to_topic: str | None = None,
    replay_id: str = "replay",
    lake: str | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    settings: StoreSettings | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
    name_server: str | None = None,
    from_name_server: str | None = None,
    access: Mapping[str, str] | None = None,
) -> Replayed:
    """Append the messages of a window to `to_topic` of the store at `target`; at most `rate` a second, if given.

    `to_topic` is the window's if none is given. A dry run needs no target: it then says how many there are. `access`
    are options of the format that say as whom clusters are asked.
    """
    if target is None and name_server is None and not dry_run:
        raise OptionInvalid("into", "name the store to append to, or ask for a dry run")
    _check_clusters(target, name_server, rate)
    to_topic = to_topic or window.topic
    pace = RateLimit(rate, sleep, now)
    _check_target(to_topic)
    if from_name_server is not None:
        frame = _chosen(_pulled(spark, from_name_server, access or {}, window.topic, paths, lake), window)
    else:
        topics = TopicPlaces.find(paths, lake)
        topics.check(window.topic)
        frame = _chosen(topic_messages(spark, topics, window.topic, lake=lake), window)
        if target is not None and window.topic == to_topic:
            frame = _without_own(frame, topics.with_topic(to_topic), target, replay_id)
    if name_server is not None:
        cluster = {"nameServer": name_server, **(access or {})}
        with our_errors(None if window.where is None else "where", window.where):
            return send_to_cluster(frame, cluster, to_topic=to_topic, replay_id=replay_id, dry_run=dry_run)
    with our_errors(None if window.where is None else "where", window.where):
        return send(
            frame,
            target,
            to_topic=to_topic,
            replay_id=replay_id,
            dry_run=dry_run,
            settings=settings,
            on_progress=on_progress,
            pace=pace,
        )


def _check_clusters(target: str | Path | None, name_server: str | None, rate: float | None) -> None:
    """OptionInvalid if a cluster is named beside what it stands in for."""
    if name_server is not None and target is not None:
        raise OptionInvalid("name-server", "not together with a store to append to; name one of the two")
    if name_server is not None and rate is not None:
        raise OptionInvalid("rate", "only a store is appended to at a rate; replay into one, or leave the rate out")


def _pulled(
    spark: SparkSession,
    name_server: str,
    access: Mapping[str, str],
    topic: str,
    paths: Sequence[str],
    lake: str | None,
) -> DataFrame:
    """The messages of a topic of a running cluster; TopicUnknown."""
    check_alone(name_server, paths, lake)
    known = cluster_topics(name_server, access)
    if topic not in known:
        raise TopicUnknown(topic, f"the cluster of {name_server}", nearest_names(topic, known))
    return cluster_messages(spark, name_server, [topic], include_system=True, access=access)


def send(
    frame: DataFrame,
    target: str | Path | None,
    *,
    to_topic: str,
    replay_id: str,
    dry_run: bool = False,
    settings: StoreSettings | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    pace: "RateLimit | None" = None,
) -> Replayed:
    """Append these messages, in the columns of the format, except those that this replay brought before."""
    pace = pace or RateLimit(None)
    began = time.monotonic()
    found = frame.count()
    if dry_run or not found:
        skipped = _count_there(frame, target, to_topic, replay_id, settings) if found and target is not None else 0
        return Replayed(found, skipped, 0, time.monotonic() - began, dry_run)
    assert target is not None
    with MessageStore.open(target, settings) as store:
        done = _places_in(store, to_topic, replay_id)
        appended = skipped = 0
        for batch in _batches(frame, pace.batch):
            fresh = [row for row in batch if _place(row) not in done]
            skipped += len(batch) - len(fresh)
            if fresh:
                pace.wait(len(fresh))
                store.append_many([_message(row, to_topic, replay_id) for row in fresh])
            appended += len(fresh)
            if on_progress is not None:
                on_progress(appended + skipped, found)
        store.flush()
    return Replayed(found, skipped, appended, time.monotonic() - began, dry_run)


class RateLimit:
    """At most `rate` messages a second, a tenth of a second's worth at a time; lost time is not made up for."""

    def __init__(
        self,
        rate: float | None,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        if rate is not None and not (rate > 0 and math.isfinite(rate)):
            raise OptionInvalid("rate", "messages a second; a number above 0", value=rate)
        self._rate, self._sleep, self._now = rate, sleep, now
        self._due: float | None = None
        self.batch = _BATCH if rate is None else max(1, min(_BATCH, int(rate * _STEP_SECONDS)))

    def wait(self, count: int) -> None:
        """Until so many may go."""
        if self._rate is None:
            return
        now = self._now()
        due = now if self._due is None else self._due
        if due > now:
            self._sleep(due - now)
        self._due = max(due, now - _STEP_SECONDS) + count / self._rate


def _check_target(topic: str) -> None:
    """OptionInvalid unless messages may be sent to a topic of this name: said before a store is made for them."""
    try:
        check_topic_name(topic)
    except TopicNameInvalid as problem:
        raise OptionInvalid("to-topic", problem.reason) from None


def _without_own(frame: DataFrame, paths: Sequence[str], target: str | Path, replay_id: str) -> DataFrame:
    """Without what this replay appended itself, if its target is among the stores it reads."""
    own = Path(target).resolve()
    places = find_stores(paths, shipped=True)
    names = [one.broker_name for one in places if one.shipped is None and one.path.resolve() == own]
    brought = F.coalesce(F.col("properties")[REPLAY_ID], F.lit("")) == F.lit(replay_id)
    return frame.where(~(F.col("brokerName").isin(names) & brought)) if names else frame


def _chosen(frame: DataFrame, window: ReplayWindow) -> DataFrame:
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
    tags = parse_tags("tags", window.tags or "*", instead="where")
    if tags is not None:
        frame = frame.where(F.col("tags").isin(list(tags)))
    return frame if window.where is None else where_holds(frame, window.where)


def where_holds(frame: DataFrame, condition: str) -> DataFrame:
    """The rows for which a SQL condition holds; OptionInvalid, with Spark's reason in a line, if it is none."""
    with our_errors("where", condition):
        return frame.where(condition)


def _batches(frame: DataFrame, size: int) -> Iterator[list[Row]]:
    """Rows in the order they were stored, so many at a time."""
    names = ["topic", "brokerName", "queueId", "physicalOffset", "tags", "keys", "body", "properties", "flag"]
    ordered = frame.orderBy("storeTimestamp", "brokerName", "physicalOffset").select(*names)
    batch: list[Row] = []
    for row in ordered.toLocalIterator(prefetchPartitions=False):
        batch.append(row)
        if len(batch) == size:
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
        topic,
        bytes(row["body"] or b""),
        tags=row["tags"],
        keys=row["keys"] or "",
        properties=properties,
        queue_id=row["queueId"],
        flag=row["flag"],
    )


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


def _count_there(
    frame: DataFrame, target: str | Path, topic: str, replay_id: str, settings: StoreSettings | None
) -> int:
    """How many of these messages an earlier run has brought; the target is only looked at."""
    place = Path(target)
    if not place.exists() or (place.is_dir() and not any(place.iterdir())):  # A store would be made there.
        return 0
    with MessageStore.open(target, settings, read_only=True) as store:
        done = _places_in(store, topic, replay_id)
    if not done:
        return 0
    rows = frame.select("brokerName", "physicalOffset").toLocalIterator(prefetchPartitions=False)
    return sum(_place(row) in done for row in rows)
