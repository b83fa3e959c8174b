"""One job of everything a user does with stores, to be run on different masters: the answers have to be the same.

    python -m tests.support.same_work MASTER STORE SCRATCH [NAME=VALUE ...]

reads STORE in several ways, streams it while it grows, and writes stores below SCRATCH, which has to be new. Prints one
JSON document, in which nothing depends on the master. The settings are Spark's own.
"""

import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

import embermq.spark
from embermq import MessageStore
from tests.support.orders import orders

PLACE = ("topic", "queueId", "queueOffset", "body")
LATER = 50


def read(spark: SparkSession, store: str) -> dict[str, Any]:
    """Batches: everything, some columns, filters, a stated range, Kafka's columns."""
    whole = spark.read.format("rocketmq").load(store)
    narrow = embermq.spark.table(spark, store, ["topic", "size"])
    paid = embermq.spark.table(spark, store).where("topic = 'orders' and tags = 'paid'")
    ranged = spark.read.format("rocketmq").options(
        topic="orders", startingOffsets='{"orders": {"0": 5, "1": 3}}', endingOffsets='{"orders": {"0": 9, "1": -1}}'
    )
    kafka = spark.read.format("rocketmq").option("schemaMode", "kafka").load(store)
    return {
        "columns": whole.columns,
        "rows": digest(whole.select(*PLACE).collect()),
        "bytes by topic": plain(narrow.groupBy("topic").sum("size").orderBy("topic").collect()),
        "paid": digest(paid.select(*PLACE).collect()),
        "one key": plain(embermq.spark.table(spark, store, ["keys", "queueOffset"], keys=["o-7"]).collect()),
        "range": plain(ranged.load(store).groupBy("queueId").count().orderBy("queueId").collect()),
        "kafka": plain(kafka.groupBy("topic", "timestampType").count().orderBy("topic").collect()),
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

    run({"maxOffsetsPerTrigger": "70"})
    first = spark.read.parquet(str(scratch / "followed")).count()
    with MessageStore.open(store) as opened:
        opened.append_many(orders(LATER, "later"))
    run({})
    return {"first": first, "then": digest(spark.read.parquet(str(scratch / "followed")).collect())}


def write(spark: SparkSession, store: str, scratch: Path) -> dict[str, Any]:
    """A batch into a new store, more of it, and a stream into another one."""
    rows = spark.read.format("rocketmq").load(store).where("topic = 'orders'")
    wanted = rows.selectExpr("body", "'copied' as topic", "tags", "keys", "queueId")
    for _ in range(2):
        wanted.write.format("rocketmq").mode("append").save(str(scratch / "written"))
    stream = spark.readStream.format("rocketmq").options(startingOffsets="earliest", topic="orders").load(store)
    query = (
        stream.selectExpr("body", "'streamed' as topic", "tags", "keys")
        .writeStream.format("rocketmq")
        .trigger(availableNow=True)
        .option("path", str(scratch / "streamed"))
        .option("checkpointLocation", str(scratch / "write-checkpoint"))
        .start()
    )
    query.awaitTermination()
    return {"written": content(spark, scratch / "written"), "streamed": content(spark, scratch / "streamed")}


def content(spark: SparkSession, store: Path) -> dict[str, Any]:
    """What is in a store that was written, whichever order its messages came in."""
    table: DataFrame = spark.read.format("rocketmq").load(str(store))
    rows = table.select("topic", "tags", "keys", "body").collect()
    return {"count": len(rows), "rows": digest(rows)}


def digest(rows: Iterable[Row]) -> str:
    lines = sorted(repr(plain([row])) for row in rows)
    return f"{len(lines)} rows, {hashlib.sha256(''.join(lines).encode()).hexdigest()[:16]}"


def plain(rows: Iterable[Row]) -> list[list[Any]]:
    return [[bytes(value).hex() if isinstance(value, bytes | bytearray) else value for value in row] for row in rows]


def main(master: str, store: str, scratch: str, *settings: str) -> None:
    conf = dict(setting.split("=", 1) for setting in settings)
    spark = embermq.spark.session("same work", master, **conf)
    place = Path(scratch)
    place.mkdir()
    answers = {"read": read(spark, store), "follow": follow(spark, store, place), "write": write(spark, store, place)}
    print(json.dumps(answers))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
