"""What a user does with one version of Spark, in an environment with the wheel and nothing of the tests.

    python features.py PLACE      prints one JSON document: for each feature its rows, or the error it ended with

PLACE is an empty directory. Expected rows are in test_spark_versions.py.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import embermq.spark
from embermq import Message, MessageStore
from embermq.settings import StoreSettings

Rows = list[list[Any]]
BUSY = "failed to connect back"
STARTS_MAX = 20
COLUMNS = ["topic", "queueId", "queueOffset", "tags", "keys", "string(body)"]


def append(store: Path, start: int, count: int) -> None:
    with MessageStore.open(store, StoreSettings(segment_bytes=1 << 20)) as opened:
        for number in range(start, start + count):
            topic = "orders" if number % 2 else "returns"
            body = json.dumps({"id": number}).encode()
            opened.append(Message(topic, body, tags=f"t{number % 3}", keys=[f"k-{number}"], queue_id=0))


class Features:
    """Each method is a feature, and answers with rows in a fixed order."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place, self.store = spark, place, str(place / "broker-a")

    def _read(self, **options: str) -> DataFrame:
        return self.spark.read.format("rocketmq").options(**options).load(self.store)

    def batch(self) -> Rows:
        return rows(self._read().selectExpr(*COLUMNS))

    def options(self) -> Rows:
        offsets = json.dumps({"orders": {"0": 2}})
        return rows(self._read(topic="orders", startingOffsets=offsets).selectExpr(*COLUMNS))

    def kafka_schema(self) -> Rows:
        frame = self._read(schemaMode="kafka", topic="returns")
        return rows(frame.selectExpr("topic", "partition", "offset", "string(key)", "string(value)"))

    def filters(self) -> Rows:
        frame = self._read(pushdown="true").where("topic = 'orders' and keys in ('k-7', 'k-9', 'k-8')")
        return rows(frame.selectExpr(*COLUMNS))

    def table(self) -> Rows:
        frame = embermq.spark.table(self.spark, self.store, ["keys", "queueOffset"], topic="returns")
        return rows(frame.where("queueOffset < 3"))

    def scan(self) -> Rows:
        return rows(embermq.spark.scan(self.spark, self.store).selectExpr(*COLUMNS))

    def sql(self) -> Rows:
        query = "select tags, count(*) as messages from orders group by tags"
        return rows(embermq.spark.sql(self.spark, query, [self.store]))

    def stats(self) -> Rows:
        figures = embermq.spark.stats(self.spark, [self.store])
        return sorted([one.topic, one.messages] for one in figures.topics)

    def audit(self) -> Rows:
        return [[embermq.spark.audit(self.spark, [self.store]).is_sound]]

    def archive(self) -> Rows:
        lake = str(self.place / "archive")
        embermq.spark.archive(self.spark, [self.store], lake)
        return rows(embermq.spark.messages(self.spark, [self.store], lake=lake).selectExpr(*COLUMNS))

    def json_values(self) -> Rows:
        schema = StructType([StructField("id", LongType())])
        frame = embermq.spark.messages(self.spark, [self.store], topics=["orders"], value=schema)
        return rows(frame.selectExpr("keys", "value.id"))

    def write(self) -> Rows:
        target = str(self.place / "written")
        frame = self._read(topic="orders").selectExpr("'copies' as topic", "body")
        frame.write.format("rocketmq").option("settings.mappedFileSizeCommitLog", "1048576").mode("append").save(target)
        return rows(self.spark.read.format("rocketmq").load(target).selectExpr("topic", "string(body)"))

    def stream(self) -> Rows:
        """Two runs of one query, with new messages in between."""
        started_again(self._stream_once)
        append(self.place / "broker-a", 60, 20)
        started_again(self._stream_once)
        return rows(self.spark.read.parquet(str(self.place / "streamed")))

    def _stream_once(self) -> None:
        reading = self.spark.readStream.format("rocketmq").option("topic", "orders")
        frame = reading.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "12").load(self.store)
        writing = frame.selectExpr(*COLUMNS).writeStream.format("parquet").trigger(availableNow=True)
        query = writing.option("checkpointLocation", str(self.place / "progress")).start(str(self.place / "streamed"))
        query.awaitTermination()

    def pipeline(self) -> Rows:
        lake = str(self.place / "lake")
        started_again(lambda: embermq.spark.pipeline(self.spark, [self.store], into=lake).once())
        return rows(self.spark.read.parquet(lake).selectExpr(*COLUMNS))


FEATURES: tuple[Callable[[Features], Rows], ...] = (
    Features.batch,
    Features.options,
    Features.kafka_schema,
    Features.filters,
    Features.table,
    Features.scan,
    Features.sql,
    Features.stats,
    Features.audit,
    Features.archive,
    Features.json_values,
    Features.write,
    Features.stream,
    Features.pipeline,
)


def started_again(work: Callable[[], object]) -> None:
    """As a supervisor does: Spark gives the Python process of a stream ten seconds to start, which a busy machine may
    exceed."""
    for attempt in range(STARTS_MAX):
        try:
            work()
            return
        except Exception as problem:
            if BUSY not in str(problem) or attempt == STARTS_MAX - 1:
                raise


def rows(frame: DataFrame) -> Rows:
    return sorted([list(row) for row in frame.collect()])


def main(place: Path) -> None:
    append(place / "broker-a", 0, 60)
    features = Features(embermq.spark.session("versions", "local[2]"), place)
    found: dict[str, Any] = {}
    for feature in FEATURES:
        try:
            found[feature.__name__] = feature(features)
        except Exception as problem:
            found[feature.__name__] = f"{type(problem).__name__}: {problem}"
    features.spark.stop()
    print(json.dumps({"spark": pyspark.__version__, "features": found}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
