"""A stream that follows a store while it is written; stopped, and started again where it was.

python stream.py
"""

import tempfile
import threading
from pathlib import Path

from pyspark.sql import SparkSession

import embermq.spark
from embermq import Message, MessageStore


def write(store: MessageStore, first: int, end: int) -> None:
    for number in range(first, end):
        store.append(Message("orders", b"...", tags="created", keys=[f"order-{number}"]))


def follow(spark: SparkSession, path: str, lake: str, checkpoint: str) -> None:
    """Whatever the store has and the lake has not. With `trigger(processingTime="5 seconds")` it would go on."""
    source = spark.readStream.format("rocketmq").options(topic="orders", startingOffsets="earliest")
    stream = source.load(path)
    query = (
        stream.select("queueId", "queueOffset", "keys", "storeTimestamp")
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(lake)
    )
    query.awaitTermination()


def main(spark: SparkSession, directory: Path) -> list[int]:
    path, lake, checkpoint = str(directory / "store"), str(directory / "lake"), str(directory / "checkpoint")
    counts = []
    with MessageStore.open(path) as store:
        write(store, 0, 500)
        writer = threading.Thread(target=write, args=(store, 500, 3000))
        writer.start()
        follow(spark, path, lake, checkpoint)
        counts.append(spark.read.parquet(lake).count())
        print(f"The store is still being written; the lake has the first {counts[0]:,} orders.")
        writer.join()
        store.flush()
        follow(spark, path, lake, checkpoint)
    rows = spark.read.parquet(lake)
    counts += [rows.count(), rows.select("keys").distinct().count()]
    print(f"Started again from its checkpoint: {counts[1]:,} orders, {counts[2]:,} of them different.")
    return counts


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(embermq.spark.session("stream"), Path(scratch))
