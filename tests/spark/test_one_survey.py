"""A query parses its options once and looks at each of its stores once. No Spark session: the steps Spark asks for."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from embermq import Message
from embermq.inspect import Survey
from embermq.spark.options import read_options
from embermq.spark.options.schema import spark_schema
from embermq.spark.pipelines.ranges import LogRangesReader
from embermq.spark.pipelines.surveyed_stores import SurveyedStores
from embermq.spark.reading import scans
from embermq.spark.streaming.stream_offsets import StreamOffset
from embermq.spark.streaming.stream_reader import RocketMQStreamReader
from embermq.testing.builder import StoreBuilder
from tests.support.spark_reads import reader_of


@pytest.fixture
def stores(tmp_path: Path) -> list[Path]:
    made = []
    for name in ("broker-a", "broker-b"):
        builder = StoreBuilder(tmp_path / name)
        with builder.open() as store:
            store.append_many([Message("orders", b"%d" % number, keys=f"k{number}") for number in range(20)])
        made.append(builder.root)
    return made


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often options were parsed, and how often each store was looked at."""
    seen: Counter[str] = Counter()
    refresh, parse = Survey.refresh, read_options.parse

    def counted_refresh(survey: Survey) -> None:
        seen[survey.path.name] += 1
        refresh(survey)

    def counted_parse(*arguments: object, **named: object) -> object:
        seen["options"] += 1
        return parse(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Survey, "refresh", counted_refresh)
    monkeypatch.setattr(read_options, "parse", counted_parse)
    monkeypatch.setattr(scans, "parse", counted_parse)
    return seen


ONCE = {"options": 1, "broker-a": 1, "broker-b": 1}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pushdown": "true"},
        {"topic": "orders"},
        {"topic": "orders", "keys": '["k7"]'},
        {"topic": "orders", "startingTimestamp": "1600000000000"},
        {"includeSystemTopics": "true", "minPartitions": "8"},
    ],
)
def test_planning_a_batch_read(stores: list[Path], counted: Counter[str], options: dict[str, str]) -> None:
    assert reader_of(*stores, **options).partitions()
    assert counted == ONCE


def test_planning_a_count(stores: list[Path], counted: Counter[str]) -> None:
    """Spark counts rows of one column."""
    assert reader_of(*stores, schema=["topic"]).partitions()
    assert counted == ONCE


@pytest.mark.parametrize("options", [{}, {"topic": "orders"}])
def test_a_micro_batch(stores: list[Path], counted: Counter[str], options: dict[str, str]) -> None:
    given = {"path": str(stores[0].parent / "*"), "startingOffsets": "earliest", **options}
    reader = RocketMQStreamReader(spark_schema("rocketmq"), given)
    start = reader.initialOffset()
    for number in range(3):
        seen = counted.copy()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert bool(reader.partitions(start, end)) == (number == 0)
        assert counted - seen == {"broker-a": 1, "broker-b": 1}
        start = end
    assert counted["options"] == 1


def test_the_first_micro_batch_after_a_restart(stores: list[Path], counted: Counter[str]) -> None:
    """Spark has the offset from its checkpoint, and asks for the end at once."""
    given = {"path": str(stores[0].parent / "*"), "startingOffsets": "earliest"}
    start = RocketMQStreamReader(spark_schema("rocketmq"), given).initialOffset()
    counted.clear()
    reader = RocketMQStreamReader(spark_schema("rocketmq"), given)
    assert reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert counted == ONCE


def test_what_is_written_after_the_first_offset_is_in_the_first_batch(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "broker-a")
    with builder.open() as store:
        store.append(Message("orders", b"0"))
    reader = RocketMQStreamReader(spark_schema("rocketmq"), {"path": str(builder.root)})
    start = reader.initialOffset()
    with builder.open() as store:
        store.append(Message("orders", b"1"))
        end = store.max_physical
    reached = StreamOffset.from_json(reader.latestOffset(start, ReadAllAvailable()), by_queue=False)
    assert reached.stores["broker-a"].position == end


def test_a_batch_of_a_pipeline(stores: list[Path], counted: Counter[str]) -> None:
    paths = {path.name: str(path) for path in stores}
    reader = LogRangesReader(paths, 1 << 30, True)
    start = reader.initialOffset()
    counted.clear()
    assert len(reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))) == 2
    assert counted == {"broker-a": 1, "broker-b": 1}


def test_the_sinks_of_a_pipeline_share_a_look(stores: list[Path], counted: Counter[str]) -> None:
    surveyed = SurveyedStores({path.name: str(path) for path in stores})
    surveyed.begin_batch()
    first, _ = (surveyed.at(str(path)) for path in stores)
    counted.clear()
    assert surveyed.at(str(stores[0])) is first  # Another sink.
    assert not counted
    assert surveyed.log_end("broker-a") == first.log_end  # Behind the batch: as it is now.
    surveyed.begin_batch()
    assert surveyed.at(str(stores[0])) is first
    assert counted == {"broker-a": 2}
