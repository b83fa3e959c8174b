"""Mistakes of users, through Spark: a short message with the cause first, on the driver, before any task starts."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException

from embermq import Message
from tests.spark.conftest import StoreMaker
from tests.spark.test_stream_kill import STARTS_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def store(make_store: StoreMaker) -> Path:
    def messages() -> Iterator[Message]:
        for n in range(40):
            yield Message("orders", b"x" * 500, queue_id=n % 2, tags="t", keys=[f"k{n}"])

    return make_store(messages(), segment_bytes=8 << 10)


def jobs_of(spark: "SparkSession") -> int:
    """How many Spark jobs were started so far."""
    tracker = spark.sparkContext.statusTracker()
    return len(tracker.getJobIdsForGroup(None))


def refusal(spark: "SparkSession", path: object, options: dict[str, str], schema: str | None = None) -> str:
    """What the user sees; no job may have been started for it."""
    before = jobs_of(spark)
    reader = spark.read.format("rocketmq").options(**options)
    if schema is not None:
        reader = reader.schema(schema)
    with pytest.raises(AnalysisException) as raised:
        reader.load(str(path)).count()
    assert jobs_of(spark) == before
    return str(raised.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topic": "order"}, "TopicUnknown: topic 'order' is not in {store}; did you mean orders?"),
        ({"topik": "orders"}, "OptionInvalid: option topik: no such option; did you mean topic?"),
        ({"topic": "a", "subscribe": "b"}, "OptionInvalid: option topic: contradicts subscribe"),
        ({"startingOffsets": '{"orders"'}, "OptionInvalid: option startingOffsets: no JSON"),
        ({"startingOffsets": '{"orders": {"0": 99}}'}, "orders queue 0 on {broker}: offset 99 is out of range"),
        (
            {"startingTimestamp": "1700000000"},
            "option startingTimestamp = 1700000000: this is 2023-11-14 22:13:20 UTC in seconds; milliseconds are"
            " expected: 1700000000000",
        ),
        ({"maxOffsetsPerTrigger": "5"}, "option maxOffsetsPerTrigger: only a stream (spark.readStream) has this"),
        ({"onCorrupt": "ignore"}, "option onCorrupt = 'ignore': fail, skip or rows is expected"),
    ],
)
def test_options(spark: "SparkSession", store: Path, options: dict[str, str], expected: str) -> None:
    text = refusal(spark, store, options)
    assert expected.format(store=store, broker=store.parent.name) in text
    assert_short(text)


def assert_short(text: str) -> None:
    """Spark's own words, then ours; no stack."""
    first, *rest = [line for line in text.splitlines() if line.strip()]
    assert "embermq.errors." in first
    assert len(rest) <= 1, text
    assert "Traceback" not in text
    assert "File " not in text
    assert len(text) < 700


def test_paths(spark: "SparkSession", store: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for path, expected in [
        (tmp_path / "nowhere", f"StorePathInvalid: {tmp_path / 'nowhere'}: there is no such directory"),
        (tmp_path / "empty", "not a store: there is no commitlog/ in it (it is empty)"),
        (tmp_path / "file", "this is a file; a store is a directory"),
        (store / "commitlog", f"this is the log inside a store; give its directory, {store}"),
        ("gopher://host/store", "this is no place for files"),
    ]:
        text = refusal(spark, path, {})
        assert expected in text
        assert_short(text)


def test_schemas(spark: "SparkSession", store: Path) -> None:
    for schema, expected in [
        ("topics string", "there is no column topics; did you mean topic"),
        ("queueId bigint", "column queueId is int, not bigint"),
    ]:
        text = refusal(spark, store, {}, schema)
        assert expected in text
        assert_short(text)


def test_files_that_are_missing_or_cannot_be_read(spark: "SparkSession", store: Path) -> None:
    """Seen while planning, whatever the reason."""
    files = sorted((store / "commitlog").iterdir())
    content = files[1].read_bytes()
    files[1].unlink()
    text = refusal(spark, store, {})
    assert f"DataLost: {store}: bytes" in text
    assert "failOnDataLoss=false" in text
    assert_short(text)
    files[1].mkdir()  # A directory in the place of a file; the mode of a file does not stop everybody.
    text = refusal(spark, store, {})
    assert "embermq.errors." in text
    assert_short(text)
    files[1].rmdir()
    files[1].write_bytes(content)
    assert spark.read.format("rocketmq").load(str(store)).count() == 40


def test_damage_met_in_a_task(spark: "SparkSession", store: Path) -> None:
    """Only a task can find it; the message says where and what to do, before Spark's own stack."""
    file = sorted((store / "commitlog").iterdir())[0]
    data = bytearray(file.read_bytes())
    data[100] ^= 0xFF
    file.write_bytes(data)
    frame = spark.read.format("rocketmq").load(str(store))
    with pytest.raises(PythonException) as raised:
        frame.collect()
    text = str(raised.value)
    place = text.index("CorruptFrame: the record at physical offset 0 is damaged: bad crc")
    assert place < 400
    assert "onCorrupt=skip" in text
    assert "Traceback (most recent call last)" not in text
    skipped = spark.read.format("rocketmq").option("onCorrupt", "skip").load(str(store))
    assert skipped.count() == 39


# Each starts Python processes of Spark's own. What is refused is shown without Spark in test_options.py; here, that a
# refusal arrives: of an option, of a schema, and of what is looked at later.
@pytest.mark.parametrize(
    ("options", "schema", "expected"),
    [
        ({"endingOffsets": "latest"}, None, "option endingOffsets: only a batch (spark.read) has this"),
        ({}, "nope string", "option schema: there is no column nope"),
        ({"groupId": "sp@ ark"}, "topic string", "option groupId = 'sp@ ark': the name of a group is expected"),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                ({"endingTimestamp": "1700000000000"}, None, "option endingTimestamp: only a batch"),
                ({"pushdown": "true"}, None, "option pushdown: only a batch"),
                ({"startingPhysicalOffset": "0"}, None, "option startingPhysicalOffset: only a batch"),
                ({}, "queueId bigint", "option schema: column queueId is int, not bigint"),
                ({"onCorrupt": "rows"}, "topic string", "option onCorrupt: rows needs the column _corrupt"),
                ({"topik": "x"}, "topic string", "option topik: no such option; did you mean topic?"),
            )
        ),
    ],
)
def test_streams_that_cannot_be(
    spark: "SparkSession", store: Path, tmp_path: Path, options: dict[str, str], schema: str | None, expected: str
) -> None:
    text = stream_refusal(spark, store, tmp_path / "checkpoint", {"availableNow": True}, options, schema)
    assert text.partition("embermq.errors.OptionInvalid: ")[2].startswith(expected)


def test_a_stream_that_cannot_be_whatever_spark_asks_first(spark: "SparkSession", store: Path, tmp_path: Path) -> None:
    """Without a checkpoint, with one, and with one that has a batch to be done again."""
    checkpoint, trigger = tmp_path / "checkpoint", {"processingTime": "1 second"}
    bad, said = {"endingOffsets": "latest"}, "embermq.errors.OptionInvalid: option endingOffsets: "
    assert said in stream_refusal(spark, store, tmp_path / "new", trigger, bad)
    good = spark.readStream.format("rocketmq").option("startingOffsets", "earliest").load(str(store))
    writer = good.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert said in stream_refusal(spark, store, checkpoint, trigger, bad)
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink()
    assert said in stream_refusal(spark, store, checkpoint, trigger, bad)


def stream_refusal(
    spark: "SparkSession",
    store: Path,
    checkpoint: Path,
    trigger: dict[str, Any],
    options: dict[str, str],
    schema: str | None = None,
) -> str:
    """What the user of a stream sees."""
    reader = spark.readStream.format("rocketmq").options(**options)
    frame = (reader if schema is None else reader.schema(schema)).load(str(store))
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(**trigger)
    text = ""
    for _ in range(STARTS_MAX):
        with pytest.raises(StreamingQueryException) as raised:
            writer.start().awaitTermination(120)
        text = str(raised.value)
        # Spark gives a stream's Python process ten seconds to start, and a busy machine may take longer.
        if "failed to connect back" not in text:
            break
    assert "UnboundLocalError" not in text
    assert "Traceback" not in text
    return text


def test_a_store_deleted_between_load_and_action(spark: "SparkSession", store: Path) -> None:
    frame = spark.read.format("rocketmq").load(str(store))
    shutil.rmtree(store)
    with pytest.raises(AnalysisException) as raised:
        frame.count()
    assert "there is no such directory" in str(raised.value)
    assert_short(str(raised.value))
