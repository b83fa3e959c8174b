"""df.write.format("rocketmq"): every column there and back, save modes, bad input, failed tasks. With real Spark."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from embermq import Message, MessageStore, StoredMessage
from embermq.testing.builder import SMALL, StoreBuilder

SETTINGS = {
    "settings.mappedFileSizeCommitLog": str(SMALL["segment_bytes"]),
    "settings.mappedFileSizeConsumeQueue": str(SMALL["queue_file_bytes"]),
    "settings.maxHashSlotNum": str(SMALL["index_slots_max"]),
    "settings.maxIndexNum": str(SMALL["index_entries_max"]),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def write(frame: DataFrame, path: Path, mode: str = "append", **options: str) -> None:
    frame.write.format("rocketmq").mode(mode).options(**(SETTINGS | options)).save(str(path))


def messages(path: Path) -> list[StoredMessage]:
    """Everything in the store's log; the store verifies, and its queues are complete."""
    with StoreBuilder(path).open() as opened:
        assert opened.recovery.clean
        assert not opened.recovery.damages
        found = list(opened.scan())
        assert sorted(place for place in _queued(opened)) == [
            one.physical_offset for one in found if not one.topic.startswith("SCHEDULE")
        ]
    return found


def _queued(opened: MessageStore) -> Iterator[int]:
    for topic, queue_ids in opened.topics().items():
        if topic.startswith("SCHEDULE"):
            continue
        for queue_id in queue_ids:
            at = opened.min_offset(topic, queue_id)
            while (outcome := opened.fetch(topic, queue_id, at)).status == "FOUND":
                yield from (one.physical_offset for one in outcome.messages)
                at = outcome.next_offset


def rows_of(spark: SparkSession, count: int, partitions: int = 2, columns: dict[str, str] | None = None) -> DataFrame:
    expressions = {"body": "concat('body ', id)", "topic": "'orders'"} | (columns or {})
    return spark.range(0, count, 1, partitions).selectExpr(*[f"{text} as {name}" for name, text in expressions.items()])


def failure(frame: DataFrame, path: Path, mode: str = "append", **options: str) -> str:
    with pytest.raises(PySparkException) as caught:
        write(frame, path, mode, **options)
    return str(caught.value)


# -- what is written -------------------------------------------------------------------------------------------


def test_every_column_there_and_back(spark: SparkSession, store: Path) -> None:
    schema = (
        "body binary, topic string, tags string, keys array<string>, properties map<string,string>, queueId int,"
        " delayLevel int"
    )
    rows: list[tuple[Any, ...]] = [
        (bytearray(b"\x00\xff"), "orders", "paid", ["o-1", "eu"], {"a": "1", "ä": "😀"}, 3, None),
        (bytearray(b""), "returns", None, None, None, None, None),
        (bytearray(b"later"), "orders", "due", ["o-2"], {}, 1, 2),
    ]
    write(spark.createDataFrame(rows, schema).coalesce(1), store)
    found = messages(store)
    assert [(one.topic, one.queue_id, one.body) for one in found] == [
        ("orders", 3, b"\x00\xff"),
        ("returns", 1, b""),
        ("SCHEDULE_TOPIC_XXXX", 1, b"later"),
    ]
    first, second, parked = (dict(one.properties) for one in found)
    assert len({one.unique_key for one in found}) == 3
    for properties in (first, second, parked):
        assert len(properties.pop("UNIQ_KEY")) == 32
    assert first == {"TAGS": "paid", "KEYS": "o-1 eu", "a": "1", "ä": "😀"}
    assert second == {}
    assert parked == {"TAGS": "due", "KEYS": "o-2", "DELAY": "2", "REAL_TOPIC": "orders", "REAL_QID": "1"}


def test_the_columns_of_a_kafka_sink(spark: SparkSession, store: Path) -> None:
    frame = spark.range(3).selectExpr("string(id) as value", "'Ignored' as topic")
    write(frame.coalesce(1), store, topic="orders", uniqueKeys="false", queues="1")
    found = messages(store)
    assert [(one.topic, one.queue_id, one.body, one.property_bytes) for one in found] == [
        ("orders", 0, b"%d" % n, b"") for n in range(3)
    ]


def test_rows_of_one_sharding_key_share_a_queue_in_order(spark: SparkSession, store: Path) -> None:
    frame = rows_of(spark, 500, 2, dict.fromkeys(("shardingKey", "keys"), "concat('customer-', id % 7)"))
    write(frame, store, queues="5")
    queues: dict[str, set[int]] = {}
    last: dict[tuple[str, bool], int] = {}
    for one in messages(store):
        queues.setdefault(one.keys[0], set()).add(one.queue_id)
        number = int(one.body.split()[1])
        place = one.keys[0], number < 250  # of the first partition
        assert number > last.get(place, -1)
        last[place] = number
    assert len(queues) == 7
    assert all(len(found) == 1 for found in queues.values())
    assert len(set.union(*queues.values())) > 1


def test_partitions_come_one_after_another(spark: SparkSession, store: Path) -> None:
    write(rows_of(spark, 3000, 4), store)
    assert [one.body for one in messages(store)] == [b"body %d" % n for n in range(3000)]
    assert list((store / "embermq.staging").iterdir()) == []
    assert list((store / "embermq.commits").iterdir()) == []


def test_large_rows_over_several_log_files(spark: SparkSession, store: Path) -> None:
    write(rows_of(spark, 60, 2, {"body": "repeat(string(id % 10), 100000)"}), store)
    assert [one.body for one in messages(store)] == [b"%d" % (n % 10) * 100_000 for n in range(60)]
    assert len(list((store / "commitlog").iterdir())) >= 6


def test_an_empty_frame_makes_an_empty_store(spark: SparkSession, store: Path) -> None:
    write(rows_of(spark, 0), store)
    assert messages(store) == []


def test_a_store_of_rocketmq_is_continued(spark: SparkSession, golden_store: Any) -> None:
    path = golden_store("basic")
    sizes = {file.stat().st_size for file in (path / "consumequeue").rglob("0" * 20)}
    with MessageStore.open(path, read_only=True) as opened:
        before = list(opened.scan())
    index_sizes = {file.stat().st_size for file in (path / "index").iterdir()}
    rows_of(spark, 100).write.format("rocketmq").mode("append").save(str(path))
    with MessageStore.open(path, read_only=True) as opened:
        assert not opened.recovery.damages
        found = list(opened.scan())
    assert [one.physical_offset for one in found[: len(before)]] == [one.physical_offset for one in before]
    assert [one.body for one in found[len(before) :]] == [b"body %d" % n for n in range(100)]
    assert {file.stat().st_size for file in (path / "consumequeue").rglob("0" * 20)} == sizes
    assert {file.stat().st_size for file in (path / "index").iterdir()} == index_sizes
    assert index_sizes == {40 + 4 * 100 + 20 * 400}  # As its broker.conf says; found in the files.


def test_a_copy_of_a_store_made_by_reading_and_writing(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    """Tags, keys and unique keys are among the properties; hosts and times are those of the copy."""
    original = tmp_path / "original"
    with StoreBuilder(original).open() as opened:
        for n in range(20):
            sent = {"n": str(n), "UNIQ_KEY": f"id-{n}"} if n % 3 else {}
            opened.append(Message(f"topic{n % 2}", b"%d" % n, "paid", [f"k{n}"], sent, queue_id=n % 3))
        wanted = sorted((m.topic, m.queue_id, m.queue_offset, m.body, m.tags, m.keys) for m in opened.scan())
        ids = {m.body: m.unique_key for m in opened.scan() if m.unique_key}
    frame = spark.read.format("rocketmq").load(str(original))
    write(frame.select("topic", "queueId", "body", "properties").coalesce(1), store)
    found = messages(store)
    assert sorted((m.topic, m.queue_id, m.queue_offset, m.body, m.tags, m.keys) for m in found) == wanted
    assert all(m.unique_key == ids[m.body] for m in found if m.body in ids)
    assert all(m.unique_key is not None for m in found)


def test_staging_where_nothing_can_be_written(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = failure(rows_of(spark, 10), store, stagingPath=str(tmp_path / "file" / "staging"))
    assert "cannot be written" in text
    assert "Traceback" not in text
    assert not store.exists()


def test_staging_somewhere_else(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    write(rows_of(spark, 10), store, stagingPath=str(tmp_path / "elsewhere"))
    assert len(messages(store)) == 10
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert not (store / "embermq.staging").exists()


# -- save modes, and the same write twice ------------------------------------------------------------------------


def test_append_appends(spark: SparkSession, store: Path) -> None:
    for _ in range(2):
        write(rows_of(spark, 10, 1), store)
    assert [one.body for one in messages(store)] == [b"body %d" % n for n in range(10)] * 2


def test_overwrite_is_refused_and_says_why(spark: SparkSession, store: Path) -> None:
    write(rows_of(spark, 10), store)
    text = failure(rows_of(spark, 10), store, "overwrite")
    assert "a store cannot be overwritten" in text
    assert "Traceback" not in text
    assert len(messages(store)) == 10


@pytest.mark.parametrize("mode", ["errorifexists", "ignore"])
def test_other_modes_are_refused_by_spark(spark: SparkSession, store: Path, mode: str) -> None:
    """Spark gives a Python format no way to say whether something exists."""
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        write(rows_of(spark, 10), store, mode)
    assert not store.exists()


def test_a_write_with_a_name_happens_once(spark: SparkSession, store: Path) -> None:
    write(rows_of(spark, 10), store, writeId="import of 1 May")
    write(rows_of(spark, 10), store, writeId="import of 1 May")
    write(rows_of(spark, 5), store, writeId="import of 2 May")
    assert len(messages(store)) == 15
    assert list((store / "embermq.staging").iterdir()) == []


# -- bad input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({}, {"topci": "x"}, "option topci: no such option of a write; did you mean topic?"),
        ({"tag": "'x'"}, {}, "did you mean tags?"),
        ({"queueOffset": "id"}, {}, "the store gives queueOffset itself"),
        ({"topic": "id"}, {}, "column topic is bigint; string is expected"),
        ({}, {"queues": "many"}, "option queues = 'many'"),
        ({}, {"topic": "SCHEDULE_TOPIC_XXXX"}, "option topic: SCHEDULE_TOPIC_XXXX is a system topic"),
        ({}, {"settings.flushDiskType": "MAYBE"}, "flushDiskType"),
        ({}, {"storeConfig": "/no/such.conf"}, "/no/such.conf"),
    ],
)
def test_what_is_wrong_is_said_before_any_task(
    spark: SparkSession, store: Path, columns: dict[str, str], options: dict[str, str], words: str
) -> None:
    text = failure(rows_of(spark, 10, columns=columns), store, **options)
    assert words in text.splitlines()[0]
    assert "Traceback" not in text
    assert not store.exists()


def test_a_directory_that_is_no_store(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    text = failure(rows_of(spark, 10), tmp_path / "photos")
    assert "not a message store (it holds cat.jpg)" in text.splitlines()[0]
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"body": "if(id = 777, null, 'x')"}, "partition 1, row 277: body is null"),
        ({"topic": "if(id = 3, null, 'x')"}, "partition 0, row 3: topic is null"),
        ({"topic": "if(id = 3, 'a b', 'x')"}, "partition 0, row 3: topic 'a b': character ' ' is not allowed"),
        ({"body": "if(id = 500, repeat('x', 5000000), 'x')"}, "partition 1, row 0: body of 5,000,000 bytes is larger"),
        ({"queueId": "int(id - 999)"}, "partition 0, row 0: queueId -999"),
        ({"topic": "if(id = 3, 'RMQ_SYS_TRANS_HALF_TOPIC', 'x')"}, "row 3: RMQ_SYS_TRANS_HALF_TOPIC is a system topic"),
    ],
)
def test_a_row_that_cannot_be_stored_is_named_and_nothing_is_written(
    spark: SparkSession, store: Path, columns: dict[str, str], words: str
) -> None:
    write(rows_of(spark, 7), store)
    text = failure(rows_of(spark, 1000, columns=columns), store)
    assert "nothing was written" in text.splitlines()[0]
    assert words in text.splitlines()[0]
    assert "Traceback" not in text
    assert len(messages(store)) == 7
    assert list((store / "embermq.staging").iterdir()) == []


def test_a_store_that_a_broker_has(spark: SparkSession, store: Path) -> None:
    with StoreBuilder(store).open() as opened:
        opened.append(Message("orders", b"x"))
        text = failure(rows_of(spark, 10), store, lockTimeout="10ms")
    assert "is already open for writing by process" in text.splitlines()[0]
    write(rows_of(spark, 10), store)
    assert len(messages(store)) == 11


# -- tasks that fail -------------------------------------------------------------------------------------------


def test_a_task_that_fails_leaves_nothing_visible(spark: SparkSession, store: Path) -> None:
    write(rows_of(spark, 5), store)
    broken = rows_of(spark, 20_000, 4, {"body": "if(id = 19999, raise_error('no such luck'), 'x')"})
    assert "no such luck" in failure(broken, store)
    assert len(messages(store)) == 5
    write(rows_of(spark, 5), store)
    assert len(messages(store)) == 10


RETRIES = """
import os, signal, sys
from pyspark import TaskContext
from pyspark.sql import functions as sf
import embermq.spark
from tests.spark.test_write_batch import SETTINGS
from tests.support.jvm import SHORT_LIVED_JVM

spark = embermq.spark.session(
    "retries", "local[2,4]", **{"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": SHORT_LIVED_JVM}
)

@sf.udf("string")
def fragile(number):
    context = TaskContext.get()
    if context.attemptNumber() < 2 and number % 500 == 499:
        os.kill(os.getpid(), signal.SIGKILL) if context.attemptNumber() else sys.exit("first attempt")
    return f"body {number}"

frame = spark.range(0, 2_000, 1, 4).select(fragile("id").alias("body"), sf.lit("orders").alias("topic"))
frame.write.format("rocketmq").mode("append").options(**SETTINGS).save(sys.argv[1])
"""


@pytest.mark.long
def test_tasks_that_fail_and_are_tried_again_write_once(store: Path) -> None:
    """The first attempt at every partition fails near its end, the second is killed there. In the ordinary run a
    worker is killed in tests/crash/test_spark_sink_kills.py."""
    subprocess.run([sys.executable, "-c", RETRIES, str(store)], check=True, cwd=Path(__file__).parents[2], timeout=900)
    assert [one.body for one in messages(store)] == [b"body %d" % n for n in range(2_000)]
    assert list((store / "embermq.staging").iterdir()) == []


def test_the_schema_is_what_spark_hands_over(spark: SparkSession, store: Path) -> None:
    """Columns that are not nullable, aliases, and an order of their own."""
    frame = spark.createDataFrame([Row(topic="a", value="b")], "topic string not null, value string")
    write(frame.select(sf.col("value").alias("BODY"), "topic"), store)
    assert [(one.topic, one.body) for one in messages(store)] == [("a", b"b")]
