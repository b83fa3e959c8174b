"""Stores and a lake as one table: no gap, no double row, wherever the border between them lies."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from embermq import Message
from embermq.errors import DataLost, OptionInvalid, StoreReplaced
from embermq.inspect.snapshot import Survey
from embermq.spark.jobs.archive import archive, archive_guard
from embermq.spark.jobs.sql import sql
from embermq.spark.lake import Lake, LakeRange
from embermq.spark.reading.views import TopicPlaces, first_outside, messages
from embermq.spark.runtime.error_parsing import our_errors
from embermq.store.services.retention import OldSegment
from embermq.testing.builder import StoreBuilder
from tests.crash import numbered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "broker-a", **numbered.TINY)


def fill(builder: StoreBuilder, start: int, end: int) -> Survey:
    with builder.open() as store:
        numbered.append_until(store, start, end)
    return Survey.open(builder.root)


def places(frame: "DataFrame") -> list[int]:
    return sorted(row[0] for row in frame.select("physicalOffset").collect())


def test_the_border_may_lie_anywhere(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    store, lake = str(builder.root), str(tmp_path / "lake")
    survey = fill(builder, 0, 60)
    whole = places(messages(spark, [store], include_system=True))
    seen = places(messages(spark, [store]))
    assert len(whole) > len(seen) > 20
    opened = Lake.open(lake, include_system=True)
    for end in (survey.record_start(9000), survey.record_start(20000), survey.log_end):
        opened.add(spark, survey, "broker-a", end)
        assert places(messages(spark, [store], lake=lake, include_system=True)) == whole
        assert places(messages(spark, [store], lake=lake)) == seen
    assert places(messages(spark, lake=lake)) == seen
    assert places(messages(spark, [store], lake=lake, topics=["Topic0"])) == places(
        messages(spark, [store], topics=["Topic0"])
    )


def test_what_retention_took_comes_from_the_lake(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    store, lake = str(builder.root), str(tmp_path / "lake")
    fill(builder, 0, 60)
    archive(spark, [store], lake)
    fill(builder, 60, 120)
    whole = places(messages(spark, [store], include_system=True))
    for old in sorted((builder.root / "commitlog").iterdir())[:2]:
        old.unlink()
    assert places(messages(spark, [store], lake=lake, include_system=True)) == whole
    assert len(places(messages(spark, [store], include_system=True))) < len(whole)


def test_a_gap_between_lake_and_log_is_said(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    store, lake = str(builder.root), str(tmp_path / "lake")
    fill(builder, 0, 16)
    archive(spark, [store], lake)
    fill(builder, 16, 160)
    for old in sorted((builder.root / "commitlog").iterdir())[:3]:
        old.unlink()
    with pytest.raises(DataLost, match="begins at 24,576"):
        messages(spark, [store], lake=lake)
    assert len(places(messages(spark, [store], lake=lake, fail_on_data_loss=False))) > 20


def test_what_goes_after_a_view_was_made(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    """What the lake has may go. Anything else is an error of the query, and never a row less."""
    store, lake = str(builder.root), str(tmp_path / "lake")
    fill(builder, 0, 40)
    archive(spark, [store], lake, sealed_only=True)
    fill(builder, 40, 160)
    whole = places(messages(spark, [store], include_system=True))
    files = sorted((builder.root / "commitlog").iterdir())
    border = Lake.open(lake, make=False).end_of("broker-a")
    assert border is not None
    held = border // 8192
    assert 0 < held < len(files) - 2
    view = messages(spark, [store], lake=lake, include_system=True)
    for old in files[:held]:
        old.unlink()
    assert places(view) == whole
    another = messages(spark, [store], lake=lake, include_system=True)
    files[held].unlink()
    with pytest.raises(DataLost, match=f"was to be read from {border:,} on"), our_errors():
        another.count()
    left = messages(spark, [store], lake=lake, include_system=True, fail_on_data_loss=False)
    assert set(whole) - set(places(left)) == {at for at in whole if border <= at < border + 8192}


@pytest.mark.parametrize(
    ("ranges", "place", "first"),
    [
        ([], 0, 0),
        ([(0, 100)], 0, 100),
        ([(0, 100)], 99, 100),
        ([(0, 100)], 100, 100),
        ([(50, 100)], 0, 0),
        ([(0, 100), (200, 300)], 60, 100),
        ([(0, 100), (200, 300)], 150, 150),
        ([(0, 100), (200, 300)], 250, 300),
    ],
)
def test_the_first_place_the_lake_does_not_have(ranges: list[tuple[int, int]], place: int, first: int) -> None:
    held = [LakeRange("a", "", start, end, 0, 0) for start, end in ranges]
    assert first_outside(held, place) == first


def test_archiving_again_goes_on(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    store, lake = str(builder.root), str(tmp_path / "lake")
    survey = fill(builder, 0, 60)
    (first,) = archive(spark, [store], lake, sealed_only=True)
    assert (first.start, first.end) == (0, survey.log_end // 8192 * 8192)
    (second,) = archive(spark, [store], lake)
    assert (second.start, second.end) == (first.end, survey.log_end)
    (third,) = archive(spark, [store], lake)
    assert third.start == third.end == survey.log_end
    assert third.files == 0
    assert first.records + second.records == len(places(messages(spark, lake=lake, include_system=True)))


def test_retention_waits_for_the_archive(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    store, lake = str(builder.root), str(tmp_path / "lake")
    fill(builder, 0, 60)
    Lake.open(lake, include_system=True)
    guard = archive_guard(lake, "broker-a")
    first = OldSegment(builder.root, builder.root / "commitlog" / f"{0:020d}", 0, 8192, 0, True)
    assert not guard(first)
    archive(spark, [store], lake)
    assert guard(first)
    assert not archive_guard(lake, "broker-b")(first)
    assert not guard(OldSegment(first.store, first.path, 1 << 30, (1 << 30) + 8192, 0, True))


def test_another_store_under_the_same_name(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    fill(builder, 0, 20)
    archive(spark, [str(builder.root)], str(tmp_path / "lake"))
    other = StoreBuilder(tmp_path / "elsewhere" / "broker-a", **numbered.TINY)
    fill(other, 0, 60)
    with pytest.raises(StoreReplaced):
        archive(spark, [str(other.root)], str(tmp_path / "lake"))
    with pytest.raises(StoreReplaced):
        messages(spark, [str(other.root)], lake=str(tmp_path / "lake"))


def test_topics_are_tables(spark: "SparkSession", tmp_path: Path) -> None:
    one, other, lake = StoreBuilder(tmp_path / "a"), StoreBuilder(tmp_path / "b"), str(tmp_path / "lake")
    with one.open() as store:
        store.append_many([Message("orders", b"1", tags="paid"), Message("orders", b"2", tags="sent")])
        store.append_many([Message("%RETRY%group", b"r")])
    with other.open() as store:
        store.append_many([Message("orders", b"3", tags="paid"), Message("returns", b"4")])
    paths = [str(one.root), str(other.root)]
    archive(spark, paths[:1], lake)
    with one.open() as store:
        store.append(Message("orders", b"5", tags="paid"))
    query = "select tags, count(*) from orders group by 1 order by 1"
    assert [tuple(row) for row in sql(spark, query, paths, lake=lake).collect()] == [("paid", 3), ("sent", 1)]
    by_broker = sql(spark, "select brokerName, count(*) from messages group by 1 order by 1", paths, lake=lake)
    assert [tuple(row) for row in by_broker.collect()] == [("a", 4), ("b", 2)]
    assert sql(spark, "select * from `%RETRY%group`", paths, lake=lake).count() == 1
    assert sql(spark, "select * from returns", paths).count() == 1
    assert TopicPlaces.find(paths, lake).names == ["%RETRY%group", "orders", "returns"]


def test_a_table_has_what_consumers_see(spark: "SparkSession", tmp_path: Path) -> None:
    builder, lake = StoreBuilder(tmp_path / "a"), str(tmp_path / "lake")
    with builder.open() as store:
        store.append_many([Message("used-again", b"old"), Message("gone", b"old")])
        store.delete_topic("used-again")
        store.delete_topic("gone")
        store.append_many([Message("used-again", b"new"), Message("later", b"l", delay_level=18)])
        for sys_flag in (0x0, 0x4, 0x8, 0xC):
            store.append(Message("half", b"%d" % sys_flag, sys_flag=sys_flag))
    paths = [str(builder.root)]

    def counted(topic: str, **more: Any) -> int:
        rows = sql(spark, f"select * from `{topic}`", paths, **more).count()
        assert rows == sql(spark, f"select * from messages where topic = '{topic}'", paths, **more).count()
        return rows

    assert (counted("used-again"), counted("half")) == (1, 2)
    with pytest.raises(OptionInvalid, match=r"\(tables: messages, half, used-again\)"):
        sql(spark, "select * from gone", paths)
    with pytest.raises(OptionInvalid, match="SCHEDULE_TOPIC_XXXX is a system topic"):
        sql(spark, "select * from SCHEDULE_TOPIC_XXXX", paths)
    assert (counted("half", include_system=True), counted("SCHEDULE_TOPIC_XXXX", include_system=True)) == (4, 1)
    archive(spark, paths, lake)
    assert (counted("half", lake=lake), counted("half", lake=lake, include_system=True)) == (2, 4)
    assert counted("used-again", lake=lake) == 2  # An archive forgets nothing.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("drop table x", "only queries"),
        ("select nothing from orders", "nothing"),
        ("select * from order", "tables: messages, orders"),
        ("select from where", "sql"),
    ],
)
def test_a_query_that_cannot_be_answered(spark: "SparkSession", tmp_path: Path, text: str, said: str) -> None:
    builder = StoreBuilder(tmp_path / "a")
    with builder.open() as store:
        store.append(Message("orders", b"1"))
    with pytest.raises(OptionInvalid, match=said) as refused:
        sql(spark, text, [str(builder.root)])
    assert "\n" not in str(refused.value)


def test_nothing_to_ask(spark: "SparkSession") -> None:
    with pytest.raises(OptionInvalid, match="at least one store"):
        sql(spark, "select 1")
