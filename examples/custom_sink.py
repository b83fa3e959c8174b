"""A sink of one's own in the pipeline: revenue by region, exactly once.

    python custom_sink.py

A sink is a name and `process(batch)`. A batch is a stretch of each log; after a kill the same stretch comes again. So a
result is named after its batch, and made again it replaces itself: nothing is counted twice.
"""

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count
from pyspark.sql.functions import sum as total

import embermq.spark
from embermq import Message, MessageStore
from embermq.spark.pipelines import LogBatch, SinkFigures

REGIONS = ("eu", "us", "ap")


class Revenue:
    """Sums amounts by region; one small file for each batch."""

    name = "revenue"

    def __init__(self, root: Path) -> None:
        self.root = root

    def process(self, batch: LogBatch) -> SinkFigures:
        orders = batch.frame(["topic", "properties"]).where("topic = 'orders'")
        sums = orders.groupBy(col("properties")["region"].alias("region")).agg(
            total(col("properties")["amount"].cast("double")).alias("amount"), count("*").alias("orders")
        )
        sums.coalesce(1).write.mode("overwrite").json(str(self.root / batch.name))
        return SinkFigures(records=sum(row["orders"] for row in sums.collect()))


def make_store(path: Path) -> None:
    with MessageStore.open(path) as store:
        store.append_many(
            Message("orders", b"...", properties={"region": REGIONS[number % 3], "amount": str(number % 50)})
            for number in range(3000)
        )


def main(spark: SparkSession, directory: Path) -> dict[str, float]:
    make_store(directory / "store")
    work = embermq.spark.pipeline(
        spark,
        [str(directory / "store")],
        derive=[],
        sinks=[Revenue(directory / "revenue")],
        checkpoint=str(directory / "progress"),
        batch_bytes_max=256 << 10,
    )
    for progress in work.once():
        print(f"batch {progress.batch}: {progress.records:,} records, {progress.lag_bytes:,} bytes to go")
    revenue = spark.read.json(str(directory / "revenue" / "*")).groupBy("region").agg(total("amount").alias("amount"))
    revenue.orderBy("region").show()
    return {row["region"]: row["amount"] for row in revenue.collect()}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(embermq.spark.session("custom sink"), Path(scratch))
