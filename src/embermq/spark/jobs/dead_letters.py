"""Dead letters of a group: what its consumers gave back until the broker gave up, how it got there, and a way back.

A message that a consumer of group G fails on is stored again in %RETRY%G, once for each attempt, and at last in %DLQ%G.
All of these carry ORIGIN_MESSAGE_ID (the first one's id) and RETRY_TOPIC (the topic it was sent to); that is the
lineage. The broker keeps no reason; what consumers put into properties comes along. A letter that does not say where it
was sent to is listed, and is not sent anywhere. Driver side.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from embermq import StoreSettings
from embermq.errors import OptionInvalid, TopicNameInvalid
from embermq.spark.jobs.replay import send, where_holds
from embermq.spark.jobs.replay_marks import Replayed
from embermq.spark.reading.views import TopicPlaces, topic_messages
from embermq.spark.runtime.error_parsing import our_errors
from embermq.store.append import check_topic_name

RETRY, DEAD = "%RETRY%", "%DLQ%"
ORIGIN_ID, ORIGIN_TOPIC = "ORIGIN_MESSAGE_ID", "RETRY_TOPIC"


@dataclass(frozen=True, slots=True)
class Retry:
    """One time that a message was given to consumers again."""

    msg_id: str
    attempt: int
    stored_ms: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message that ended up dead. Times are of the broker, in milliseconds."""

    topic: str | None  # where it was sent to, if it says so
    origin_id: str  # its first id
    msg_id: str  # its id as a dead letter
    keys: str | None
    tags: str | None
    attempts: int  # how often it was tried again
    first_retry_ms: int | None
    dead_ms: int
    size: int
    properties: Mapping[str, str]  # a reason, if the consumer left one
    retries: Sequence[Retry]  # those that the log still has
    body: bytes

    def record(self) -> dict[str, object]:
        """As JSON can have it: the body in base64."""
        return asdict(self) | {"body": b64encode(self.body).decode()}


@dataclass(frozen=True, slots=True)
class DeadLetterTotal:
    """All dead letters of a group that came from one topic."""

    topic: str | None  # None: they do not say
    letters: int
    bytes: int
    first_ms: int
    last_ms: int


def dead_letter_totals(
    spark: SparkSession, paths: Sequence[str], group: str, *, lake: str | None = None, where: str | None = None
) -> list[DeadLetterTotal]:
    """How many there are, by the topic they came from, most first."""
    dead = _dead(spark, TopicPlaces.find(paths, lake), group, lake, where)
    at = F.unix_millis("deadTimestamp")
    figures = [F.count(F.lit(1)).alias("letters"), F.sum("size").alias("bytes"), F.min(at), F.max(at)]
    with our_errors(None if where is None else "where", where):
        rows = dead.groupBy("originTopic").agg(*figures).collect()
    found = [DeadLetterTotal(row[0], row[1], row[2], row[3] or 0, row[4] or 0) for row in rows]
    return sorted(found, key=lambda one: (-one.letters, one.topic or ""))


def dead_letters(
    spark: SparkSession,
    paths: Sequence[str],
    group: str,
    *,
    lake: str | None = None,
    where: str | None = None,
    limit: int | None = None,
) -> list[DeadLetter]:
    """The dead letters of a group, oldest first, so many at most; `where` is a condition on the dead letter's own
    columns."""
    rows = frame(spark, paths, group, lake=lake, where=where).orderBy("deadTimestamp", "msgId")
    if limit is not None:
        rows = rows.limit(limit)
    with our_errors(None if where is None else "where", where):
        return [_letter(row) for row in rows.toLocalIterator()]


def _letter(row: Row) -> DeadLetter:
    retries = [Retry(one["msgId"], one["attempt"], _ms(one["at"]) or 0) for one in row["retries"] or ()]
    return DeadLetter(
        row["originTopic"],
        row["originId"],
        row["msgId"],
        row["keys"],
        row["tags"],
        row["attempts"],
        _ms(row["firstRetryTimestamp"]),
        _ms(row["deadTimestamp"]) or 0,
        row["size"],
        dict(row["properties"] or {}),
        retries,
        bytes(row["body"] or b""),
    )


def frame(
    spark: SparkSession, paths: Sequence[str], group: str, *, lake: str | None = None, where: str | None = None
) -> DataFrame:
    """The same as a DataFrame with all columns of the format, to look further or to save."""
    topics = TopicPlaces.find(paths, lake)
    dead = _dead(spark, topics, group, lake, where)
    if RETRY + group not in topics.names:
        none = {"firstRetryTimestamp": "timestamp", "retries": "array<struct<at:timestamp,attempt:int,msgId:string>>"}
        return dead.withColumns({name: F.lit(None).cast(kind) for name, kind in none.items()})
    retried = topic_messages(spark, topics, RETRY + group, lake=lake)
    retry = F.struct(F.col("storeTimestamp").alias("at"), F.col("reconsumeTimes").alias("attempt"), "msgId")
    tries = retried.select(F.col("properties")[ORIGIN_ID].alias("originId"), retry.alias("retry"))
    first, all_of_them = F.min("retry.at"), F.sort_array(F.collect_list("retry"))
    by_origin = tries.where("originId is not null").groupBy("originId")
    return dead.join(
        by_origin.agg(first.alias("firstRetryTimestamp"), all_of_them.alias("retries")), "originId", "left"
    )


def _dead(spark: SparkSession, topics: TopicPlaces, group: str, lake: str | None, where: str | None) -> DataFrame:
    """The letters by themselves, and what they say of their origin."""
    if DEAD + group not in topics.names:
        groups = [name.removeprefix(DEAD) for name in topics.names if name.startswith(DEAD)]
        known = f"; groups with dead letters: {', '.join(groups)}" if groups else "; no group has any"
        raise OptionInvalid("group", f"there are no dead letters{known}", value=group)
    dead = topic_messages(spark, topics, DEAD + group, lake=lake)
    if where is not None:
        dead = where_holds(dead, where)
    origin = F.col("properties")[ORIGIN_TOPIC]
    return dead.withColumns(
        {
            "originId": F.coalesce(F.col("properties")[ORIGIN_ID], F.col("msgId")),
            "originTopic": F.when(origin != F.col("topic"), origin),  # Nothing came from among the dead.
            "attempts": F.col("reconsumeTimes"),
            "deadTimestamp": F.col("storeTimestamp"),
        }
    )


def _ms(moment: object) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)  # type: ignore[attr-defined]


def resend(
    spark: SparkSession,
    paths: Sequence[str],
    group: str,
    target: str | Path,
    *,
    lake: str | None = None,
    where: str | None = None,
    dry_run: bool = False,
    settings: StoreSettings | None = None,
) -> dict[str, Replayed]:
    """Send dead letters back to the topics they came from; what was resent before is not sent again. By topic.

    Letters that do not say where they came from stay. OptionInvalid, before anything is sent, if one says something
    that is no topic.
    """
    dead = _dead(spark, TopicPlaces.find(paths, lake), group, lake, where)
    with our_errors(None if where is None else "where", where):
        origins = [row[0] for row in dead.select("originTopic").where("originTopic is not null").distinct().collect()]
        for topic in origins:
            _check_origin(topic)
        return {
            topic: send(
                dead.where(F.col("originTopic") == F.lit(topic)),
                target,
                to_topic=topic,
                replay_id=f"resend {group}",
                dry_run=dry_run,
                settings=settings,
            )
            for topic in sorted(origins)
        }


def _check_origin(topic: str) -> None:
    try:
        check_topic_name(topic)
    except TopicNameInvalid as problem:
        raise OptionInvalid(
            "where",
            f"a dead letter names no valid topic as its origin; exclude it with a condition: {problem.reason}",
        ) from None
