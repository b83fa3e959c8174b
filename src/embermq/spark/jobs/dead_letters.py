"""Dead letters of a group: what its consumers gave back until the broker gave up, how it got there, and a way back.

A message that a consumer of group G fails on is stored again in %RETRY%G, once for each attempt, and at last in %DLQ%G.
All of these carry ORIGIN_MESSAGE_ID (the first one's id) and RETRY_TOPIC (the topic it was sent to); that is the
lineage. The broker keeps no reason; what consumers put into properties comes along. Driver side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from embermq import StoreSettings
from embermq.errors import OptionInvalid
from embermq.spark.jobs.replay import Replayed, Window, replay, where_holds
from embermq.spark.views import Topics, topic_messages

RETRY, DEAD = "%RETRY%", "%DLQ%"
ORIGIN_ID, ORIGIN_TOPIC = "ORIGIN_MESSAGE_ID", "RETRY_TOPIC"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message that ended up dead. Times are of the broker, in milliseconds."""

    topic: str  # where it was sent to
    origin_id: str  # its first id
    msg_id: str  # its id as a dead letter
    keys: str | None
    tags: str | None
    attempts: int  # how often it was tried again
    first_retry_ms: int | None
    dead_ms: int
    size: int


def dead_letters(
    spark: SparkSession, paths: Sequence[str], group: str, *, lake: str | None = None, where: str | None = None
) -> list[DeadLetter]:
    """The dead letters of a group, oldest first; `where` is a condition on the dead letter's own columns."""
    rows = frame(spark, paths, group, lake=lake, where=where).orderBy("deadTimestamp", "msgId").collect()
    return [
        DeadLetter(
            row["originTopic"], row["originId"], row["msgId"], row["keys"], row["tags"], row["attempts"],
            _ms(row["firstRetryTimestamp"]), _ms(row["deadTimestamp"]) or 0, row["size"],
        )
        for row in rows
    ]  # fmt: skip


def frame(
    spark: SparkSession, paths: Sequence[str], group: str, *, lake: str | None = None, where: str | None = None
) -> DataFrame:
    """The same as a DataFrame with all columns of the format, to look further or to save."""
    topics = Topics.find(paths, lake)
    if DEAD + group not in topics.names:
        groups = [name.removeprefix(DEAD) for name in topics.names if name.startswith(DEAD)]
        known = f"; groups with dead letters: {', '.join(groups)}" if groups else "; no group has any"
        raise OptionInvalid("group", f"there are no dead letters{known}", value=group)
    dead = topic_messages(spark, topics, DEAD + group, lake=lake)
    if where is not None:
        dead = where_holds(dead, where)
    origin = F.coalesce(F.col("properties")[ORIGIN_ID], F.col("msgId"))
    dead = dead.withColumns({
        "originId": origin,
        "originTopic": F.coalesce(F.col("properties")[ORIGIN_TOPIC], F.col("topic")),
        "attempts": F.col("reconsumeTimes"),
        "deadTimestamp": F.col("storeTimestamp"),
    })  # fmt: skip
    if RETRY + group not in topics.names:
        return dead.withColumn("firstRetryTimestamp", F.lit(None).cast("timestamp"))
    retried = topic_messages(spark, topics, RETRY + group, lake=lake)
    first = retried.select(F.col("properties")[ORIGIN_ID].alias("originId"), "storeTimestamp")
    first = first.groupBy("originId").agg(F.min("storeTimestamp").alias("firstRetryTimestamp"))
    return dead.join(first, "originId", "left")


def _ms(moment: object) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)  # type: ignore[attr-defined]


def resend(
    spark: SparkSession, paths: Sequence[str], group: str, target: str | Path, *, lake: str | None = None,
    where: str | None = None, dry_run: bool = False, settings: StoreSettings | None = None,
) -> dict[str, Replayed]:  # fmt: skip
    """Send dead letters back to the topics they came from; what was resent before is not sent again. By topic."""
    found = dead_letters(spark, paths, group, lake=lake, where=where)
    done = {}
    for topic in sorted({letter.topic for letter in found}):
        condition = f"coalesce(properties['{ORIGIN_TOPIC}'], topic) = '{topic}'"
        window = Window(DEAD + group, where=condition if where is None else f"({where}) and {condition}")
        done[topic] = replay(
            spark, paths, window, target, to_topic=topic, replay_id=f"resend {group}", lake=lake, dry_run=dry_run,
            settings=settings,
        )  # fmt: skip
    return done
