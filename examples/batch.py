"""A store directory as a Spark table.

python batch.py                          # makes a small store of orders first
python batch.py /data/broker-a orders    # a store of yours, also a Java broker's, also while it runs
"""

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, desc, get_json_object
from pyspark.sql.functions import sum as total

import embermq.spark
from embermq import Message, MessageStore


def make_store(path: Path) -> None:
    """A thousand orders, each created, most of them paid."""
    with MessageStore.open(path) as store:
        for number in range(1000):
            key = f"order-{number}"
            store.append(Message("orders", b'{"amount": %d}' % (number % 90), tags="created", keys=[key]))
            if number % 10:
                store.append(Message("orders", b'{"amount": %d}' % (number % 90), tags="paid", keys=[key], queue_id=1))


def main(spark: SparkSession, path: str, topic: str) -> dict[str, int]:
    # spark.read.format("rocketmq").option("topic", topic).load(path) is the same, but for filters: `table` uses them.
    orders = embermq.spark.table(spark, path, topic=topic)

    print("By tag. Only the tags are read: bodies stay where they are.")
    by_tag = embermq.spark.table(spark, path, ["tags"], topic=topic).groupBy("tags").count().orderBy("tags")
    by_tag.show()

    print("The newest messages of each queue:")
    orders.orderBy(desc("storeTimestamp"), desc("queueOffset")).select(
        "queueId", "queueOffset", "tags", "keys", "storeTimestamp"
    ).show(4, truncate=False)

    print("One key: looked up in the store's index, not by reading everything.")
    some_key = orders.select("keys").where("keys is not null").first()
    one = orders.where(col("keys") == (some_key["keys"] if some_key else ""))
    one.select("tags", col("body").cast("string"), "bornTimestamp").show(truncate=False)

    print("Bodies as JSON:")
    amount = get_json_object(col("body").cast("string"), "$.amount").cast("double")
    orders.where("tags = 'paid'").select(total(amount).alias("paid")).show()
    return {row["tags"]: row["count"] for row in by_tag.collect()}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(embermq.spark.session("batch"), sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "orders")
    else:
        with tempfile.TemporaryDirectory() as directory:
            make_store(Path(directory) / "store")
            main(embermq.spark.session("batch"), str(Path(directory) / "store"), "orders")
