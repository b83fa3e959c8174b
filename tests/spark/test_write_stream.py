"""writeStream.format("rocketmq"): each micro-batch once, also when Spark forgets that it was written."""

import json
import os
import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from embermq import StoredMessage
from embermq.testing.builder import StoreBuilder
from tests.spark.test_write_batch import SETTINGS

PATIENCE_SECONDS = 600
FED_AT = 1_700_000_000


class Stream:
    """A directory of JSON files as a source, one file a micro-batch, and a store as its sink."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark = spark
        self.source, self.store, self.checkpoint = place / "source", place / "store", place / "checkpoint"
        self.source.mkdir()
        self._files = 0

    def feed(self, *bodies: str | None) -> None:
        """One more file, which is one more micro-batch."""
        path = self.source / f"{self._files:04}.json"
        path.with_suffix(".tmp").write_text("".join(json.dumps({"body": body}) + "\n" for body in bodies))
        # Spark takes files in the order of these times, of which many a file system has only whole seconds.
        os.utime(path.with_suffix(".tmp"), (FED_AT + 10 * self._files,) * 2)
        path.with_suffix(".tmp").rename(path)
        self._files += 1

    def frame(self) -> DataFrame:
        return self.spark.readStream.schema("body string").option("maxFilesPerTrigger", 1).json(str(self.source))

    def run(self, frame: DataFrame | None = None, mode: str = "append", **options: str) -> None:
        """Process everything there is, one file after another."""
        writer = (frame if frame is not None else self.frame()).writeStream.format("rocketmq").outputMode(mode)
        chosen = SETTINGS | {"topic": "orders", "checkpointLocation": str(self.checkpoint)} | options
        query = writer.options(**chosen).trigger(availableNow=True).start(str(self.store))
        try:
            assert query.awaitTermination(PATIENCE_SECONDS)
        finally:
            query.stop()

    def messages(self) -> list[StoredMessage]:
        with StoreBuilder(self.store).open() as store:
            assert store.recovery.clean
            assert not store.recovery.damages
            return list(store.scan())

    def bodies(self) -> list[str]:
        return [one.body.decode() for one in self.messages()]

    @property
    def query_id(self) -> str:
        found = json.loads((self.checkpoint / "metadata").read_text())["id"]
        assert isinstance(found, str)
        return found


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


def test_batch_after_batch_and_restarts(stream: Stream) -> None:
    stream.feed("a", "b")
    stream.feed("c")
    stream.run()
    assert stream.bodies() == ["a", "b", "c"]
    stream.run()
    stream.feed("d")
    stream.run()
    assert stream.bodies() == ["a", "b", "c", "d"]
    journal = json.loads((stream.store / "embermq.commits" / f"query-{stream.query_id}.json").read_text())
    assert (journal["batch"], journal["label"]) == (2, stream.query_id)
    assert list((stream.store / "embermq.staging" / f"query-{stream.query_id}").iterdir()) == []


def test_a_batch_that_spark_forgot_is_recognised(stream: Stream) -> None:
    """Killed between our commit and its own note of it, Spark runs the batch again: ids in the task name it."""
    stream.feed("a")
    stream.feed("b", "c")
    stream.run()
    before = stream.messages()
    noted = stream.checkpoint / "commits"
    (noted / "1").unlink()
    (noted / ".1.crc").unlink(missing_ok=True)
    stream.feed("d")
    stream.run()
    assert stream.messages()[: len(before)] == before
    assert stream.bodies() == ["a", "b", "c", "d"]


def test_another_query_is_another_write(stream: Stream) -> None:
    stream.feed("a")
    stream.run()
    shutil.rmtree(stream.checkpoint)
    stream.run()
    assert stream.bodies() == ["a", "a"]
    assert len({one.unique_key for one in stream.messages()}) == 2


def test_a_row_that_cannot_be_stored_stops_the_stream_and_leaves_nothing(stream: Stream) -> None:
    stream.feed("a")
    stream.feed("b", None)
    with pytest.raises(StreamingQueryException) as caught:
        stream.run()
    assert "nothing was written: partition 0, row 1: body is null" in str(caught.value)
    assert stream.bodies() == ["a"]
    frame = stream.frame().where("body is not null")
    stream.run(frame)
    assert stream.bodies() == ["a", "b"]


def test_a_failing_task_leaves_nothing(stream: Stream) -> None:
    stream.feed("a")
    stream.feed("b", "bad")
    with pytest.raises(StreamingQueryException, match="no such luck"):
        stream.run(stream.frame().selectExpr("if(body = 'bad', raise_error('no such luck'), body) as body"))
    assert stream.bodies() == ["a"]
    stream.run()
    assert stream.bodies() == ["a", "b", "bad"]


def test_empty_batches_do_not_touch_the_store(stream: Stream) -> None:
    stream.feed("a")
    stream.feed()
    stream.run()
    touched = (stream.store / "checkpoint").stat().st_mtime_ns
    stream.feed()
    stream.run()
    assert (stream.store / "checkpoint").stat().st_mtime_ns == touched
    stream.feed("b")
    stream.run()
    assert stream.bodies() == ["a", "b"]


def test_complete_mode_is_refused(stream: Stream) -> None:
    stream.feed("a")
    with pytest.raises((StreamingQueryException, PySparkException)) as caught:
        stream.run(stream.frame().groupBy("body").count().select("body"), "complete")
    assert "a store cannot be overwritten with each micro-batch; use append" in str(caught.value)


def test_bad_options_are_named(stream: Stream) -> None:
    stream.feed("a")
    with pytest.raises((StreamingQueryException, PySparkException)) as caught:
        stream.run(writeId="x")
    assert "option writeId: only a batch (df.write) has this" in str(caught.value)
    assert not stream.store.exists()


def test_batches_by_hand_with_a_name_each(stream: Stream) -> None:
    """foreachBatch is a batch write: its name makes it happen once."""
    stream.feed("a")
    stream.feed("b")

    def write(frame: DataFrame, batch: int) -> None:
        for _ in range(2):
            named = frame.write.format("rocketmq").mode("append").options(**SETTINGS)
            named.option("topic", "orders").option("writeId", f"copy/{batch}").save(str(stream.store))

    query = (
        stream.frame()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(stream.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_SECONDS)
    assert stream.bodies() == ["a", "b"]
