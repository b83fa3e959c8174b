"""Queries that share a DataFrame share a plan in Spark: none may lose rows to another one's filter."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import embermq.spark
from embermq import MessageStore
from embermq.spark.planning.pushdown import Pushed, Span
from embermq.spark.planning.shared_filters import FILTERS_MAX, join, widen
from embermq.testing.builder import StoreBuilder
from tests.support.orders import orders

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAID, SENT = Pushed(tags=frozenset({"paid"})), Pushed(tags=frozenset({"sent"}))


# -- what filters have in common ------------------------------------------------------------------------------


def test_the_first_filter_is_used_as_it_is(tmp_path: Path) -> None:
    assert widen("a1", PAID, tmp_path) == PAID
    assert widen("a1", PAID, tmp_path) == PAID


def test_each_further_one_widens(tmp_path: Path) -> None:
    widen("a1", PAID, tmp_path)
    assert widen("a1", SENT, tmp_path) == Pushed(tags=frozenset({"paid", "sent"}))
    early = Pushed(times_ms=Span(0, 10), topics=frozenset({"orders"}))
    assert widen("a1", early, tmp_path) == Pushed()
    assert widen("a1", PAID, tmp_path) == Pushed(), "also the first one again"
    assert widen("b2", SENT, tmp_path) == SENT, "another table"


def test_spans_are_joined_to_one(tmp_path: Path) -> None:
    widen("a1", Pushed(physical=Span(5, 10)), tmp_path)
    assert widen("a1", Pushed(physical=Span(20, 30)), tmp_path) == Pushed(physical=Span(5, 30))


def test_a_filter_that_nothing_passes_does_not_widen(tmp_path: Path) -> None:
    never = Pushed(queue_offsets=Span(7, 3))
    assert widen("a1", never, tmp_path) == never
    assert widen("a1", PAID, tmp_path) == PAID
    assert widen("a1", never, tmp_path) == PAID


def test_too_many_filters_read_everything(tmp_path: Path) -> None:
    for number in range(FILTERS_MAX):
        assert widen("a1", Pushed(tags=frozenset({str(number)})), tmp_path) != Pushed()
    assert widen("a1", Pushed(tags=frozenset({"one more"})), tmp_path) == Pushed()
    assert widen("a1", Pushed(tags=frozenset({"0"})), tmp_path) == Pushed()


@pytest.mark.parametrize("content", [b"{}\n", b"no json\n", b"\xff\n", b'{"topics": 3}\n', b"[]\n"])
def test_a_file_that_makes_no_sense_leaves_nothing_out(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a1").write_bytes(content)
    assert widen("a1", PAID, tmp_path) == Pushed()


def test_no_place_for_the_file_leaves_nothing_out(tmp_path: Path) -> None:
    assert widen("a1", PAID, tmp_path / "missing") == Pushed()


def test_files_of_long_ago_go(tmp_path: Path) -> None:
    widen("old", PAID, tmp_path)
    os.utime(tmp_path / "old", (1, 1))
    widen("new", PAID, tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["new"]


def texts() -> "st.SearchStrategy[frozenset[str] | None]":
    return st.none() | st.frozensets(st.sampled_from("abc"), max_size=2)


def spans() -> "st.SearchStrategy[Span]":
    return st.just(Span()) | st.builds(Span, st.integers(0, 9), st.integers(0, 9))


def filters() -> "st.SearchStrategy[Pushed]":
    return st.builds(Pushed, topics=texts(), tags=texts(), physical=spans(), queue_offsets=spans())


@given(filters(), filters(), st.sampled_from("abc"), st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 9))
def test_whoever_passes_one_passes_both(
    one: Pushed, other: Pushed, topic: str, tag: str, place: int, offset: int
) -> None:
    def passes(pushed: Pushed) -> bool:
        return (
            (pushed.topics is None or topic in pushed.topics)
            and (pushed.tags is None or tag in pushed.tags)
            and pushed.physical.start <= place < pushed.physical.end
            and pushed.queue_offsets.start <= offset < pushed.queue_offsets.end
        )

    if passes(one) or passes(other):
        assert passes(join(one, other))


# -- through Spark --------------------------------------------------------------------------------------------


@pytest.fixture
def store(make_store: Callable[..., Path]) -> Path:
    return make_store([*orders(90), *orders(30, "returns")])


def check(frame: "DataFrame") -> None:
    """Queries of one DataFrame, in an order that was once wrong: each has all its rows."""
    assert frame.where("tags = 'paid'").count() == 40
    assert frame.count() == 120, "without a filter, after one"
    assert frame.where("topic = 'returns'").count() == 30
    paid, sent = frame.where("tags = 'paid'"), frame.where("tags = 'sent'")
    assert paid.unionAll(sent).count() == 80, "two filters in one query"
    assert frame.where("topic = 'returns'").unionAll(frame).count() == 150, "a filter and none"
    joined = frame.where("topic = 'orders'").alias("o").join(frame.where("topic = 'returns'").alias("r"), "keys")
    assert joined.count() == 30, "a table with itself"
    assert frame.groupBy("topic").count().count() == 2


def test_a_table_that_is_used_again(spark: "SparkSession", store: Path) -> None:
    table = embermq.spark.table(spark, store, ["topic", "tags", "keys"])
    assert table.columns == ["topic", "tags", "keys"]
    check(table)


def test_a_plain_load_that_is_used_again(spark: "SparkSession", store: Path) -> None:
    check(spark.read.format("rocketmq").load(str(store)))


def test_a_table_sees_what_came_since(spark: "SparkSession", store: Path) -> None:
    table = embermq.spark.table(spark, store, ["topic"], schemaMode="kafka")
    assert table.count() == 120
    with MessageStore.open(store, StoreBuilder(store).settings) as opened:
        opened.append_many(orders(7))
    assert table.count() == 127
