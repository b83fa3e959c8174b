"""A store and its shipped copy as one table: no gap, no double row, whatever retention takes and whenever."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import embermq.spark
from embermq import Message
from embermq.cli.app import run
from embermq.errors import DataLost, OptionInvalid, StoreReplaced, TopicUnknown
from embermq.inspect.snapshot import Survey
from embermq.spark.jobs.sql import sql
from embermq.spark.planning.stores import find_stores
from embermq.spark.reading.shipped_views import copies_at, find_border
from embermq.spark.reading.slices import read_slice
from embermq.spark.reading.views import messages
from embermq.spark.runtime.error_parsing import our_errors
from embermq.testing.builder import StoreBuilder
from tests.spark.test_job_commands import lend_session
from tests.support.shipping import read_at, rows_of, run_here, ship
from tests.support.spark_reads import reader_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.extended

SEGMENT_BYTES = 64 << 10
__all__ = ["lend_session"]


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    run_here(monkeypatch)


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "broker-a", segment_bytes=SEGMENT_BYTES)


def fill(builder: StoreBuilder, start: int, end: int, topic: str = "orders") -> None:
    with builder.open() as store:
        store.append_many(
            [Message(topic, b"x" * 900, keys=[f"o-{n}"], tags="ab"[n % 2], queue_id=n % 2) for n in range(start, end)]
        )


def lose(builder: StoreBuilder, count: int) -> None:
    """What retention does: the oldest log files go."""
    for file in sorted((builder.root / "commitlog").iterdir())[:count]:
        file.unlink()


def places(frame: "DataFrame") -> list[int]:
    return sorted(row[0] for row in frame.select("physicalOffset").collect())


# -- a part of the log -------------------------------------------------------------------------------------------------


def test_a_part_of_the_log_by_places(builder: StoreBuilder, tmp_path: Path) -> None:
    """In order, through queues and by keys; of a store and of a shipped one; any place, also inside a record."""
    fill(builder, 0, 120)
    fill(builder, 0, 40, "returns")
    ship(builder.root, tmp_path / "far")
    rows = rows_of(read_at(builder.root))
    edges = [0, 1, rows[30]["physicalOffset"], rows[30]["physicalOffset"] + 1, SEGMENT_BYTES, 1 << 40]
    filters: list[tuple[dict[str, str], Callable[[dict[str, object]], bool]]] = [
        ({}, lambda row: True),
        ({"topic": "returns"}, lambda row: row["topic"] == "returns"),
        ({"topic": "orders", "queues": "1"}, lambda row: row["topic"] == "orders" and row["queueId"] == 1),
        ({"keys": "o-25"}, lambda row: row["keys"] == "o-25"),
        ({"includeSystemTopics": "true"}, lambda row: True),
    ]
    for source in (builder.root, tmp_path / "far"):
        for start, end in [(a, b) for a in edges for b in edges if a <= b]:
            for limits, fits in filters:
                found = read_at(source, startingPhysicalOffset=str(start), endingPhysicalOffset=str(end), **limits)
                expected = [row for row in rows if start <= row["physicalOffset"] < end and fits(row)]
                assert rows_of(found) == expected, (start, end, limits)


def test_a_place_that_is_gone(builder: StoreBuilder) -> None:
    fill(builder, 0, 200)
    lose(builder, 1)
    for start in (0, SEGMENT_BYTES - 1):
        with pytest.raises(DataLost, match=rf"the log begins at 65,536, and was to be read from {start:,} on"):
            read_at(builder.root, startingPhysicalOffset=str(start))
        with pytest.raises(DataLost, match="failOnDataLoss=false"):
            read_at(builder.root, startingPhysicalOffset=str(start), topic="orders")
    left = rows_of(read_at(builder.root))
    assert rows_of(read_at(builder.root, startingPhysicalOffset="0", failOnDataLoss="false")) == left
    assert rows_of(read_at(builder.root, startingPhysicalOffset=str(SEGMENT_BYTES))) == left
    with pytest.raises(OptionInvalid, match="option endingPhysicalOffset = 4: lies before startingPhysicalOffset"):
        read_at(builder.root, startingPhysicalOffset="5", endingPhysicalOffset="4")
    with pytest.raises(OptionInvalid, match="a place in the log is expected"):
        read_at(builder.root, startingPhysicalOffset="-5")


def test_a_file_that_goes_between_planning_and_reading(builder: StoreBuilder) -> None:
    fill(builder, 0, 200)
    slices = reader_of(builder.root, startingPhysicalOffset="0").partitions()
    lose(builder, 1)
    with pytest.raises(DataLost, match="their file is missing"):
        [list(read_slice(one)) for one in slices]


# -- store and copy ----------------------------------------------------------------------------------------------------


def test_no_gap_and_no_row_twice(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    """Wherever the log begins by now, and however far it was shipped; also for a table that was made before."""
    store, far = str(builder.root), str(tmp_path / "far")
    fill(builder, 0, 150)
    fill(builder, 0, 10, "early")
    ship(builder.root, far)
    fill(builder, 150, 300)
    fill(builder, 0, 10, "late")
    whole = places(messages(spark, [store]))
    assert len(whole) == 320
    assert places(messages(spark, [store], shipped=far)) == whole
    lose(builder, 1)
    view = messages(spark, [store], shipped=far)
    assert places(view) == whole
    lose(builder, 1)
    # Made before the last file went: an error, and never fewer rows. Made again: the copy has them.
    with pytest.raises(DataLost, match=r"the log begins at .* on; what lies between is gone"), our_errors():
        view.count()
    assert places(messages(spark, [store], shipped=far)) == whole
    lose(builder, 1)
    with pytest.raises(DataLost, match=r"shipped up to .*, and the log begins at"):
        messages(spark, [store], shipped=far)


def test_tables_and_sql(
    spark: "SparkSession", builder: StoreBuilder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Topics that only one side has, keys, filters, other brokers' copies; as a table, by SQL, by the command."""
    store, far = str(builder.root), str(tmp_path / "far")
    fill(builder, 0, 20, "early")
    fill(builder, 0, 150)
    ship(builder.root, far)
    other = StoreBuilder(tmp_path / "broker-b", segment_bytes=SEGMENT_BYTES)
    fill(other, 0, 5, "elsewhere")
    ship(other.root, far)
    fill(builder, 150, 200)
    fill(builder, 0, 7, "late")
    lose(builder, 2)
    assert Survey.open(builder.root).log_min == 2 * SEGMENT_BYTES
    rows = embermq.spark.table(spark, store, ["topic", "keys"], shipped=far).collect()
    assert sorted({(row["topic"], row["keys"]) for row in rows}) == sorted((row["topic"], row["keys"]) for row in rows)
    assert len(rows) == 20 + 200 + 7 + 5
    found = embermq.spark.table(
        spark, store, ["brokerName", "keys"], shipped=far, topic="orders", keys=["o-3", "o-199"]
    )
    assert sorted(map(tuple, found.collect())) == [("broker-a", "o-199"), ("broker-a", "o-3")]
    query = "select topic, count(*) as n from messages group by 1 order by 1"
    expected = [("early", 20), ("elsewhere", 5), ("late", 7), ("orders", 200)]
    assert [tuple(row) for row in sql(spark, query, [store], shipped=far).collect()] == expected
    for topic, count in (expected[0], expected[2]):
        assert sql(spark, f"select * from {topic}", [store], shipped=far).count() == count
    command = ["spark", "sql", query, "--store", store, "--shipped", far, "--output", "json"]
    assert run(command) == 0
    assert [(row["topic"], int(row["n"])) for row in json.loads(capsys.readouterr().out)["rows"]] == expected
    assert sql(spark, "select * from elsewhere", shipped=far).count() == 5, "no store at all"


def test_mistakes(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    store, far = str(builder.root), str(tmp_path / "far")
    fill(builder, 0, 10)
    ship(builder.root, far)
    with pytest.raises(OptionInvalid, match="option minPartitions = 3: not together with a shipped copy; use a fil"):
        embermq.spark.table(spark, store, shipped=far, minPartitions=3)
    with pytest.raises(OptionInvalid, match="not together with a lake"):
        embermq.spark.table(spark, store, shipped=far, lake=str(tmp_path / "lake"))
    with pytest.raises(OptionInvalid, match="option keys: only together with a shipped copy"):
        messages(spark, [store], keys=["o-1"])
    with pytest.raises(TopicUnknown, match="did you mean orders"):
        embermq.spark.table(spark, store, shipped=far, topic="order")
    with pytest.raises(OptionInvalid, match=r"option shipped = .*: this is a store and no shipped copy"):
        messages(spark, [store], shipped=store)
    with pytest.raises(OptionInvalid, match=r"option shipped = .*: the other side must be a store directory"):
        messages(spark, [far], shipped=far)
    other = StoreBuilder(tmp_path / "broker-b", segment_bytes=SEGMENT_BYTES)
    fill(other, 0, 5)
    with pytest.raises(OptionInvalid, match=r"there is no copy of broker-b .* there, but of broker-a"):
        messages(spark, [str(other.root)], shipped=far)


# -- the border --------------------------------------------------------------------------------------------------------


def border(builder: StoreBuilder, far: Path, **options: bool) -> int:
    (place,) = find_stores([str(builder.root)])
    return find_border(place, copies_at(str(far))["broker-a"], fail_on_data_loss=options.get("fail", True))


def test_both_must_be_of_one_store(builder: StoreBuilder, tmp_path: Path) -> None:
    far = tmp_path / "far"
    fill(builder, 0, 200)
    ship(builder.root, far)
    assert border(builder, far) == 0
    lose(builder, 1)
    assert border(builder, far) == SEGMENT_BYTES
    shutil.rmtree(builder.root)
    fill(builder, 500, 510)
    with pytest.raises(StoreReplaced, match="is of another store; name its own copy"):
        border(builder, far)
    shutil.rmtree(builder.root / "commitlog")
    (builder.root / "commitlog").mkdir()
    with pytest.raises(StoreReplaced, match="is of another store"):
        border(builder, far)


def test_an_end_lost_after_it_was_shipped_comes_from_the_store(builder: StoreBuilder, tmp_path: Path) -> None:
    """The copy's end is not the log's any more; what is read of it lies before."""
    far = tmp_path / "far"
    fill(builder, 0, 200)
    shutil.copytree(builder.root, tmp_path / "earlier")
    fill(builder, 200, 210)
    ship(builder.root, far)
    shutil.rmtree(builder.root)
    (tmp_path / "earlier").rename(builder.root)
    fill(builder, 300, 330)
    lose(builder, 1)
    assert border(builder, far) == SEGMENT_BYTES


def test_a_gap_is_said(builder: StoreBuilder, tmp_path: Path) -> None:
    far = tmp_path / "far"
    fill(builder, 0, 10)
    ship(builder.root, far)
    fill(builder, 10, 300)
    lose(builder, 2)
    with pytest.raises(DataLost, match=r"shipped up to .*, and the log begins at 131,072; what lies between is gone"):
        border(builder, far)
    assert border(builder, far, fail=False) == 2 * SEGMENT_BYTES
