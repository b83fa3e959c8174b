"""A process that runs streams from a store to Parquet directories and says how far they are; made to be killed.

    python -m tests.spark.stream_child STORE PLACE QUERIES-AS-JSON

QUERIES are options by name of the query; each has a directory of its name below PLACE. Lines of its output: `begun`
when all queries run, then `batch NAME N` whenever Spark has finished a micro-batch.
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
    store, place, queries = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
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
    running = {}
    for name, options in queries.items():
        rows = spark.readStream.format("rocketmq").options(**options).load(store)
        running[name] = start(rows, place / name, available_now=False)
    print("begun", flush=True)
    reported = dict.fromkeys(running, -1)
    while all(query.isActive for query in running.values()):
        for name, query in running.items():
            progress = query.lastProgress
            if progress is not None and progress.batchId > reported[name] and progress.numInputRows:
                reported[name] = progress.batchId
                print("batch", name, reported[name], flush=True)
        time.sleep(0.01)
    for query in running.values():
        query.awaitTermination()


if __name__ == "__main__":
    main()
