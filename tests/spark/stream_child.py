"""A process that runs a stream from a store to a Parquet directory and says how far it is; made to be killed.

    python -m tests.spark.stream_child STORE PLACE OPTIONS-AS-JSON

Lines of its output: `begun` when the query runs, then `batch N` whenever Spark has finished a micro-batch.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

import embermq.spark


def start(rows: DataFrame, place: Path, *, available_now: bool) -> StreamingQuery:
    """The query: rows into `place`/out, with its checkpoint beside it."""
    writer = (
        rows.select("topic", "queueId", "queueOffset", "body")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(place / "checkpoint"))
    )
    return (writer.trigger(availableNow=True) if available_now else writer).start(str(place / "out"))


def main() -> None:
    store, place, given = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    spark = embermq.spark.session(
        "stream child",
        "local[2]",
        **{
            "spark.driver.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(place / "warehouse"),
            "spark.local.dir": str(place / "local"),
        },
    )
    rows = spark.readStream.format("rocketmq").options(**given).load(store)
    query = start(rows, place, available_now=False)
    print("begun", flush=True)
    told = -1
    while query.isActive:
        progress = query.lastProgress
        if progress is not None and progress.batchId > told and progress.numInputRows:
            told = progress.batchId
            print("batch", told, flush=True)
        time.sleep(0.01)
    query.awaitTermination()


if __name__ == "__main__":
    main()
