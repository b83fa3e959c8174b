"""Streams with real Spark: stores at rest and being written, every trigger, restarts, errors as users see them."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from embermq import Message, MessageStore
from embermq.columns.plain.select import is_system_topic
from embermq.format.config_json import parse_config
from embermq.settings import FlushDisk
from embermq.testing.builder import StoreBuilder
from tests.crash import numbered
from tests.support import golden, waiting
from tests.support.surveys import frames_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_SECONDS = 180
Names = Counter[tuple[str, int, int]]


def stored(root: Path) -> Names:
    """Topic, queue and offset of every record a consumer would see."""
    return Counter(
        (one.topic, one.queue_id, one.queue_offset)
        for one in frames_of(root)
        if one.sys_flag & 4 == 0 and not is_system_topic(one.topic)
    )


class Sink:
    """A Parquet directory, a checkpoint, and queries that lead from a store to the one by the other."""

    def __init__(self, spark: "SparkSession", place: Path) -> None:
        self._spark, self._place = spark, place

    def stream(self, root: Path | str, **options: Any) -> "DataFrame":
        texts = {name: str(value) for name, value in options.items()}
        return self._spark.readStream.format("rocketmq").options(**texts).load(str(root))

    def start(self, root: Path | str, trigger: dict[str, Any] | None = None, **options: Any) -> StreamingQuery:
        rows = self.stream(root, **options).select("topic", "queueId", "queueOffset", "body")
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(self._place / "checkpoint"))
        return (writer.trigger(**trigger) if trigger else writer).start(str(self._place / "out"))

    def run(self, root: Path | str, **options: Any) -> StreamingQuery:
        """Everything that is there now, and no more."""
        query = self.start(root, {"availableNow": True}, **options)
        assert query.awaitTermination(PATIENCE_SECONDS)
        return query

    def names(self) -> Names:
        rows = self._spark.read.parquet(str(self._place / "out")).select("topic", "queueId", "queueOffset").collect()
        return Counter((row.topic, row.queueId, row.queueOffset) for row in rows)


@pytest.fixture
def sink(spark: "SparkSession", tmp_path: Path) -> Iterator[Sink]:
    yield Sink(spark, tmp_path / "sink")
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", **numbered.TINY)


def wait_for(reached: Callable[[], bool], query: StreamingQuery) -> None:
    def goes_on() -> None:
        problem = query.exception()
        assert problem is None, problem

    waiting.wait_until(reached, "a batch of the query", look_seconds=0.05, check=goes_on)


def rows_read(query: StreamingQuery) -> int:
    return sum(progress.numInputRows for progress in query.recentProgress)


@pytest.mark.parametrize("options", [{}, {"topic": "Topic0,Topic1,Batches"}])
def test_available_now_in_several_batches(builder: StoreBuilder, sink: Sink, options: dict[str, str]) -> None:
    with builder.open() as store:
        numbered.append_until(store, 0, 160)
    before = golden.tree_state(builder.root)
    query = sink.run(builder.root, startingOffsets="earliest", maxOffsetsPerTrigger=50, **options)
    sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert sink.names() == stored(builder.root)
    assert len(sizes) >= 3
    assert max(sizes) <= 58
    assert golden.tree_state(builder.root) == before
    # Again: there is nothing left to do.
    query = sink.run(builder.root, startingOffsets="earliest", maxOffsetsPerTrigger=50, **options)
    assert rows_read(query) == 0
    assert sink.names() == stored(builder.root)


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_a_store_that_is_being_written(tmp_path: Path, sink: Sink, flush: FlushDisk) -> None:
    """A thread writes all the time, rolls files and makes topics; the query is stopped and started again."""
    settings = numbered.TINY | {"segment_bytes": 1 << 16, "flush": flush}
    builder = StoreBuilder(tmp_path / "store", **settings)
    stop = threading.Event()
    with builder.open() as store:

        def write() -> None:
            n = 0
            while not stop.is_set():
                n += len(numbered.append(store, n))
                if n % 160 == 0:
                    store.append(Message(f"new{n}", b"a topic of its own", queue_id=n % 7))
                time.sleep(0.002)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(2):
                query = sink.start(builder.root, startingOffsets="earliest")
                wait_for(lambda query=query: len([p for p in query.recentProgress if p.numInputRows]) >= 3, query)  # type: ignore[misc]
                query.stop()
        finally:
            stop.set()
            writer.join()
        sink.run(builder.root, startingOffsets="earliest")
        assert sink.names() == stored(builder.root)
        assert set(sink.names().values()) == {1}


def test_topics_that_come_later(builder: StoreBuilder, sink: Sink) -> None:
    with builder.open() as store:
        store.append(Message("orders-1", b"x"))
        query = sink.start(builder.root, startingOffsets="earliest", subscribePattern="orders-.*")
        wait_for(lambda: rows_read(query) == 1, query)
        store.append_many([Message(f"orders-{n}", b"x", queue_id=n) for n in (2, 3)])
        store.append(Message("other", b"x"))
        wait_for(lambda: rows_read(query) == 3, query)
        query.stop()
        assert {name[0] for name in sink.names()} == {"orders-1", "orders-2", "orders-3"}


def test_a_golden_store(sink: Sink, tmp_path: Path) -> None:
    root = golden.restore("transaction", tmp_path)
    before = golden.tree_state(root)
    sink.run(root, startingOffsets="earliest")
    records = [one for one in golden.manifest("transaction").records if not one.blank]
    assert sink.names() == Counter(
        (one.topic, one.queue_id, one.queue_offset)
        for one in records
        if one.sys_flag & 4 == 0 and not is_system_topic(one.topic)
    )
    assert golden.tree_state(root) == before


def progress_of(root: Path) -> dict[str, dict[int, int]]:
    file = root / "config" / "consumerOffset.json"
    table: dict[str, dict[int, int]] = parse_config(file.read_text())["offsetTable"] if file.exists() else {}
    return table


def test_progress_of_a_group(builder: StoreBuilder, sink: Sink) -> None:
    with builder.open() as store:
        store.append_many([Message("t", b"x", queue_id=n % 2) for n in range(9)])
        query = sink.start(builder.root, startingOffsets="earliest", groupId="lake")
        wait_for(lambda: progress_of(builder.root) == {"t@lake": {0: 5, 1: 4}}, query)
        store.append(Message("t", b"x", queue_id=0))
        wait_for(lambda: progress_of(builder.root) == {"t@lake": {0: 6, 1: 4}}, query)
        query.stop()


def test_progress_of_the_only_batch(builder: StoreBuilder, sink: Sink) -> None:
    with builder.open() as store:
        store.append_many([Message("t", b"x", queue_id=n % 2) for n in range(9)])
    sink.run(builder.root, startingOffsets="earliest", groupId="lake", topic="t")
    assert progress_of(builder.root) == {"t@lake": {0: 5, 1: 4}}


@pytest.mark.parametrize("options", [{}, {"topic": "t"}])
def test_a_sink_that_fails_moves_no_progress(
    builder: StoreBuilder, sink: Sink, tmp_path: Path, options: dict[str, str]
) -> None:
    with builder.open() as store:
        store.append_many([Message("t", b"x") for _ in range(9)])
    stream = sink.stream(builder.root, startingOffsets="earliest", groupId="lake", maxOffsetsPerTrigger=3, **options)
    seen: list[dict[str, dict[int, int]]] = []

    def run(failing: int | None) -> StreamingQuery:
        def write(rows: "DataFrame", number: int) -> None:
            seen.append(progress_of(builder.root))
            if number == failing:
                raise RuntimeError("the sink is full")

        writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "failing"))
        return writer.trigger(availableNow=True).start()

    for failing, done in ((0, {}), (1, {"t@lake": {0: 3}}), (1, {"t@lake": {0: 3}})):
        assert "the sink is full" in failure_of(run(failing))
        assert progress_of(builder.root) == done
    assert run(None).awaitTermination(PATIENCE_SECONDS)
    assert progress_of(builder.root) == {"t@lake": {0: 9}}
    assert seen == [{}, {}, {"t@lake": {0: 3}}, {"t@lake": {0: 3}}, {"t@lake": {0: 3}}, {"t@lake": {0: 6}}]


def test_nothing_to_do_takes_no_time(spark: "SparkSession", builder: StoreBuilder, sink: Sink) -> None:
    """Looking at a store that stands still; the bound is that of the product, the machine may be busy."""
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "50")
    with builder.open() as store:
        numbered.append_until(store, 0, 64)
        query = sink.start(builder.root, {"processingTime": "100 milliseconds"}, startingOffsets="earliest")
        wait_for(lambda: rows_read(query) > 0, query)
        looks: list[int] = []

        def looked() -> bool:
            progress = query.lastProgress
            if progress is not None and not progress.numInputRows:
                looks.append(progress.durationMs["latestOffset"])
            return len(looks) >= 5

        wait_for(looked, query)
        query.stop()
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
        assert min(looks) < 500, looks


# -- errors --------------------------------------------------------------------------------------------------


def failure_of(query: StreamingQuery) -> str:
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(PATIENCE_SECONDS)
    return str(raised.value)


def test_loss_is_an_error_that_says_what_to_do(builder: StoreBuilder, sink: Sink) -> None:
    with builder.open() as store:
        numbered.append_until(store, 0, 200)
    start = '{"Topic0": {"0": 0, "1": 0, "2": 0}}'
    sink.run(builder.root, startingOffsets=start, topic="Topic0", maxOffsetsPerTrigger=1000)
    with MessageStore.open(builder.root, builder.settings) as store:
        numbered.append_until(store, 200, 400)
    for path in sorted((builder.root / "commitlog").iterdir())[:-1]:
        path.unlink()
    text = failure_of(sink.start(builder.root, {"availableNow": True}, startingOffsets=start, topic="Topic0"))
    assert "were deleted before they were read" in text
    assert "set failOnDataLoss=false" in text
    assert "Traceback" not in text
    seen = sink.names()
    sink.run(builder.root, startingOffsets=start, topic="Topic0", failOnDataLoss="false")
    left = Counter({name: 1 for name in stored(builder.root) if name[0] == "Topic0"})
    assert sink.names() == seen | left


def test_another_store_is_an_error(builder: StoreBuilder, sink: Sink, tmp_path: Path) -> None:
    with builder.open() as store:
        numbered.append_until(store, 0, 40)
    sink.run(builder.root, startingOffsets="earliest")
    builder.root.rename(tmp_path / "before")
    with builder.open() as store:
        numbered.append_until(store, 4800, 4900)
    text = failure_of(sink.start(builder.root, {"availableNow": True}, startingOffsets="earliest"))
    assert "is not the store that was read before" in text
    assert "Traceback" not in text


def test_a_topic_nobody_has_is_an_error(builder: StoreBuilder, sink: Sink) -> None:
    with builder.open() as store:
        store.append(Message("orders", b"x"))
    text = failure_of(sink.start(builder.root, {"availableNow": True}, topic="oders"))
    assert "topic 'oders' is not in" in text
    assert "did you mean orders?" in text
    assert "Traceback" not in text
