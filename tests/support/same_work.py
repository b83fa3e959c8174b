"""One job of everything a user does with stores, to be run on different masters: the answers have to be the same.

`answers` reads a store in several ways, streams it while it grows, and writes stores below `scratch`, which has to be
new. `expected` is what it has to answer: worked out from the messages, without Spark.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import embermq.spark
from embermq import Message, MessageStore
from embermq.testing.builder import SMALL, StoreBuilder
from tests.support.orders import orders

PLACE = ("topic", "queueId", "queueOffset", "body")
LATER = orders(50, "later")
MESSAGES = [message for part in range(4) for message in (*orders(250, f"topic-{part}", body_bytes=100), *orders(100))]


def make_store(directory: Path) -> Path:
    """The store the job is about: several log files."""
    builder = StoreBuilder(directory, segment_bytes=64 << 10)
    with builder.open() as opened:
        opened.append_many(MESSAGES)
    return directory


def answers(spark: SparkSession, store: Path, scratch: Path) -> dict[str, Any]:
    scratch.mkdir()
    return {
        "read": read(spark, str(store)),
        "follow": follow(spark, str(store), scratch),
        "write": write(spark, str(store), scratch),
    }


def read(spark: SparkSession, store: str) -> dict[str, Any]:
    """Batches: everything by both ways, with a filter, a stated range, and some columns under Kafka's names."""
    whole = spark.read.format("rocketmq").load(store)
    paid = embermq.spark.table(spark, store).where("topic = 'orders' and tags = 'paid'")
    ranged = spark.read.format("rocketmq").options(
        topic="orders", startingOffsets='{"orders": {"0": 5, "1": 3}}', endingOffsets='{"orders": {"0": 9, "1": -1}}'
    )
    kafka = embermq.spark.table(spark, store, ["value"], schemaMode="kafka", topic="topic-1")
    return {
        "rows": digest(whole.select(*PLACE).collect()),
        "scan": digest(embermq.spark.scan(spark, store, PLACE).collect()),
        "paid": digest(paid.select(*PLACE).collect()),
        "range": sorted([row[0], row[1]] for row in ranged.load(store).groupBy("queueId").count().collect()),
        "kafka": digest(kafka.collect()),
    }


def follow(spark: SparkSession, store: str, scratch: Path) -> dict[str, Any]:
    """A stream into Parquet; the store grows; the stream goes on from its checkpoint."""

    def run(options: dict[str, str]) -> None:
        stream = spark.readStream.format("rocketmq").options(startingOffsets="earliest", **options).load(store)
        query = (
            stream.select(*PLACE)
            .writeStream.format("parquet")
            .trigger(availableNow=True)
            .option("checkpointLocation", str(scratch / "follow-checkpoint"))
            .start(str(scratch / "followed"))
        )
        query.awaitTermination()

    run({"maxOffsetsPerTrigger": "800"})
    first = spark.read.parquet(str(scratch / "followed")).count()
    with MessageStore.open(store, StoreBuilder(Path(store)).settings) as opened:
        opened.append_many(LATER)
    run({})
    return {"first": first, "then": digest(spark.read.parquet(str(scratch / "followed")).collect())}


def write(spark: SparkSession, store: str, scratch: Path) -> dict[str, Any]:
    """A batch into a new store, a stream into another one."""
    small = {"settings.mappedFileSizeCommitLog": str(SMALL["segment_bytes"])}
    rows = spark.read.format("rocketmq").option("topic", "orders").load(store)
    wanted = rows.selectExpr("body", "'copied' as topic", "tags", "keys", "queueId")
    wanted.write.format("rocketmq").mode("append").options(**small).save(str(scratch / "written"))
    stream = spark.readStream.format("rocketmq").options(startingOffsets="earliest", topic="orders").load(store)
    query = (
        stream.selectExpr("body", "'streamed' as topic", "tags", "keys")
        .writeStream.format("rocketmq")
        .trigger(availableNow=True)
        .options(**small, checkpointLocation=str(scratch / "write-checkpoint"))
        .start(str(scratch / "streamed"))
    )
    query.awaitTermination()
    return {name: content(spark, scratch / name) for name in ("written", "streamed")}


def content(spark: SparkSession, store: Path) -> str:
    """What is in a store that was written, whichever order its messages came in."""
    table: DataFrame = spark.read.format("rocketmq").load(str(store))
    return digest(table.select("topic", "tags", "keys", "body").collect())


def expected() -> dict[str, Any]:
    """The answers."""
    placed = list(place(MESSAGES))
    found = [message for message in MESSAGES if message.topic == "orders"]
    rows = dict(zip(map(id, MESSAGES), placed, strict=True))
    return {
        "read": {
            "rows": digest(placed),
            "scan": digest(placed),
            "paid": digest(rows[id(message)] for message in found if message.tags == "paid"),
            "range": [[0, 4], [1, 97], [2, 100], [3, 100]],
            "kafka": digest([(message.body,) for message in MESSAGES if message.topic == "topic-1"]),
        },
        "follow": {"first": len(MESSAGES), "then": digest([*placed, *place(LATER)])},
        "write": {
            "written": digest([("copied", m.tags, " ".join(m.keys), m.body) for m in found]),
            "streamed": digest(("streamed", m.tags, " ".join(m.keys), m.body) for m in found),
        },
    }


def place(messages: Iterable[Message]) -> Iterable[tuple[str, int, int, bytes]]:
    """PLACE of messages that are appended in this order."""
    counts: Counter[tuple[str, int]] = Counter()
    for message in messages:
        queue = (message.topic, message.queue_id)
        yield (*queue, counts[queue], message.body)
        counts[queue] += 1


def digest(rows: Iterable[Sequence[Any]]) -> str:
    """Of the same rows always the same, whichever order they come in."""
    plain = [[bytes(value) if isinstance(value, bytearray) else value for value in row] for row in rows]
    lines = sorted(repr(row) for row in plain)
    return f"{len(lines)} rows, {hashlib.sha256(''.join(lines).encode()).hexdigest()[:16]}"
