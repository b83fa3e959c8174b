"""The session beside Kafka, in a process of its own: reads lines of JSON, answers each with one.

    python -m bench.peers.kafka_session SERVERS JARS MASTER MEMORY

    {"do": "fill", "topic": ..., "store": ...}        the rows of a store into a topic      {"rows": ...}
    {"do": "read", "topic": ..., "columns": [...]}    all rows into the noop sink           {"seconds": ...}
    {"do": "answer", "topic": ..., "columns": [...]}  a hash of all rows                    {"answer": ..., "rows": ...}

Ends with its standard input. `kafka_peer.py` starts it.
"""

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from bench.spark_side import answer_of, seconds_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Answer = dict[str, Any]


class Session:
    """What can be asked."""

    def __init__(self, spark: "SparkSession", servers: str) -> None:
        self._spark, self._servers = spark, servers

    def fill(self, topic: str, store: str) -> Answer:
        rows = self._spark.read.format("rocketmq").load(store)
        rows = rows.selectExpr("keys as key", "body as value", "queueId as partition")
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", self._servers)
        writer.option("topic", topic).save()
        return {"rows": self._table(topic, ["offset"]).count()}

    def read(self, topic: str, columns: list[str]) -> Answer:
        return {"seconds": seconds_of(lambda: self._table(topic, columns))}

    def answer(self, topic: str, columns: list[str]) -> Answer:
        answer, rows = answer_of(lambda: self._table(topic, []), tuple(columns))
        return {"answer": answer, "rows": rows}

    def _table(self, topic: str, columns: list[str]) -> "DataFrame":
        reader = self._spark.read.format("kafka").option("kafka.bootstrap.servers", self._servers)
        rows = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
        return rows.select(*columns) if columns else rows


def _main(servers: str, jars: str, master: str, memory: str) -> None:
    import embermq.spark

    # Standard output carries the answers only, whatever Java or Spark print.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = embermq.spark.session("spark_kafka", master, driver_memory=memory, jars=jars)
    session = Session(spark, servers)
    print(json.dumps({"is": "ready"}), file=answers, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        answer = getattr(session, question.pop("do"))(**question)
        print(json.dumps(answer), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    _main(*sys.argv[1:])
