"""Filters: what they say, that no row is lost to them, and that each one leaves bytes unread."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from embermq import Message
from embermq.spark.planning.pushdown import Pushed, Span, understand
from embermq.testing import ManualClock
from embermq.testing.builder import StoreBuilder
from tests.spark.conftest import StoreMaker
from tests.support.spark_reads import Row, read, reader_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000
COUNT = 600


def moment(time_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)


def time_of(number: int) -> int:
    return START_MS + number * HOUR_MS // 20


def messages(start: int = 0, end: int = COUNT) -> Iterator[Message]:
    """A common topic and a rare one; a common tag and a rare one; keys of every message."""
    for n in range(start, end):
        yield Message(
            "rare" if n % 50 == 7 else "common",
            b"x" * 2000,
            queue_id=n % 4,
            tags="odd" if n % 40 == 3 else "even",
            keys=[f"k{n}", "all"],
            properties={"UNIQ_KEY": f"U{n:04d}"},
        )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 messages of 2 KB over 30 hours."""
    clock = ManualClock(START_MS)
    builder = StoreBuilder(tmp_path_factory.mktemp("pushed") / "store", clock=clock, segment_bytes=128 << 10)
    with builder.open() as store:
        for n, message in enumerate(messages()):
            clock.set(time_of(n))
            store.append(message)
    return builder.root


def one(column: str) -> tuple[str]:
    return (column,)


def is_true(filter_: Filter, row: Row) -> bool:
    """What Spark makes of a filter; null is not true."""
    match filter_:
        case Not(inner):
            return not is_true(inner, row)
        case IsNotNull():
            return row[filter_.attribute[0]] is not None
    value: Any = row[filter_.attribute[0]]  # type: ignore[attr-defined]
    wanted: Any = filter_.value  # type: ignore[attr-defined]
    if value is None:
        return False
    compare: dict[type, Callable[[], bool]] = {
        EqualTo: lambda: bool(value == wanted),
        EqualNullSafe: lambda: bool(value == wanted),
        In: lambda: value in wanted,
        LessThan: lambda: bool(value < wanted),
        LessThanOrEqual: lambda: bool(value <= wanted),
        GreaterThan: lambda: bool(value > wanted),
        GreaterThanOrEqual: lambda: bool(value >= wanted),
        StringStartsWith: lambda: bool(value.startswith(wanted)),
    }
    return compare[type(filter_)]()


NARROW: list[tuple[str, list[Filter], float]] = [
    ("topic =", [EqualTo(one("topic"), "rare")], 0.1),
    ("topic in", [In(one("topic"), ("rare", "nowhere"))], 0.1),
    ("topic of none", [EqualTo(one("topic"), "nowhere")], 0.0),
    ("queueId =", [EqualTo(one("queueId"), 2)], 0.3),
    ("queueId and topic", [EqualTo(one("queueId"), 3), EqualTo(one("topic"), "rare")], 0.05),
    ("queueId of none", [EqualTo(one("queueId"), 77)], 0.0),
    ("queueOffset <", [LessThan(one("queueOffset"), 5)], 0.1),
    ("queueOffset between", [GreaterThanOrEqual(one("queueOffset"), 50), LessThanOrEqual(one("queueOffset"), 55)], 0.1),
    ("physicalOffset <", [LessThan(one("physicalOffset"), 100_000)], 0.2),
    ("physicalOffset >", [GreaterThan(one("physicalOffset"), 1_000_000)], 0.3),
    ("physicalOffset =", [EqualTo(one("physicalOffset"), 0)], 0.01),
    # Only rows are compared: a clock that was set back can have put early times anywhere.
    ("storeTimestamp <", [LessThan(one("storeTimestamp"), moment(time_of(60)))], 1.0),
    ("storeTimestamp >=", [GreaterThanOrEqual(one("storeTimestamp"), moment(time_of(540)))], 0.25),
    ("storeTimestamp =", [EqualTo(one("storeTimestamp"), moment(time_of(300)))], 0.65),
    ("tags =", [EqualTo(one("tags"), "odd")], 0.1),
    ("tags in", [In(one("tags"), ("odd", "none"))], 0.1),
    ("keys =", [EqualTo(one("keys"), "k321 all")], 0.01),
    ("uniqKey =", [EqualTo(one("uniqKey"), "U0123")], 0.01),
    ("uniqKey in", [In(one("uniqKey"), ("U0123", "U0124", "U9999"))], 0.02),
    ("two of them", [EqualTo(one("tags"), "odd"), GreaterThan(one("storeTimestamp"), moment(time_of(540)))], 0.02),
    ("never", [LessThan(one("queueOffset"), 3), GreaterThan(one("queueOffset"), 7)], 0.0),
]


@pytest.mark.parametrize(("filters", "share"), [pytest.param(f, share, id=name) for name, f, share in NARROW])
def test_fewer_bytes_are_read_and_no_row_is_lost(store: Path, filters: list[Filter], share: float) -> None:
    whole = read(store)
    expected = [row for row in whole.rows if all(is_true(one, row) for one in filters)]
    got = read(store, filters=filters)
    assert got.counts.bytes_read <= whole.counts.bytes_read * share
    rows = [row for row in got.rows if all(is_true(one, row) for one in filters)]
    assert sorted(rows, key=lambda row: row["physicalOffset"]) == expected
    assert expected or share == 0.0


@pytest.mark.parametrize(
    ("filters", "share"),
    [
        ([EqualTo(one("topic"), "rare")], 0.1),
        ([EqualTo(one("partition"), 1), LessThan(one("offset"), 5)], 0.1),
        ([GreaterThan(one("timestamp"), moment(time_of(540)))], 0.25),
        ([EqualTo(one("key"), b"k321 all")], 0.01),
        ([EqualTo(one("key"), bytearray(b"k321 all"))], 0.01),
    ],
)
def test_names_of_the_kafka_mode(store: Path, filters: list[Filter], share: float) -> None:
    whole = read(store, schemaMode="kafka")
    expected = [row for row in whole.rows if all(is_true(one, row) for one in filters)]
    got = read(store, filters=filters, schemaMode="kafka")
    assert got.counts.bytes_read <= whole.counts.bytes_read * share
    rows = [row for row in got.rows if all(is_true(one, row) for one in filters)]
    assert sorted(rows, key=lambda row: row["timestamp"]) == expected
    assert expected


values: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["rare", "common", "", "Rare"]),
    "queueId": st.integers(-1, 5),
    "queueOffset": st.integers(-1, 160),
    "physicalOffset": st.integers(-10, 1_500_000),
    "storeTimestamp": st.integers(time_of(-5), time_of(COUNT + 5)).map(moment),
    "tags": st.sampled_from(["odd", "even", "x"]),
    "keys": st.sampled_from(["k5 all", "k6", "all", "", " ", "all k7"]),
    "uniqKey": st.sampled_from(["U0005", "U0599", ""]),
    "body": st.just(b"x" * 2000),
}


@st.composite
def any_filter(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(values)))
    value = draw(values[column])
    kind = draw(
        st.sampled_from(
            [EqualTo, EqualNullSafe, In, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual, IsNotNull, Not]
        )
    )
    if kind is In:
        return In(one(column), tuple(draw(st.lists(values[column], max_size=3))))
    if kind is IsNotNull:
        return IsNotNull(one(column))
    return Not(EqualTo(one(column), value)) if kind is Not else kind(one(column), value)


@pytest.fixture(scope="module")
def whole(store: Path) -> list[Row]:
    return read(store).rows


@given(filters=st.lists(any_filter(), max_size=3), options=st.sampled_from([{}, {"topic": "common"}, {"keys": "all"}]))
def test_no_row_is_ever_lost(store: Path, whole: list[Row], filters: list[Filter], options: dict[str, str]) -> None:
    names = ["physicalOffset"]
    got = set(read(store, filters=filters, schema=names, **options).column("physicalOffset"))
    expected = {
        row["physicalOffset"]
        for row in whole
        if all(is_true(one, row) for one in filters)
        and row["topic"] in (options.get("topic"), "rare", "common")
        and (not options.get("topic") or row["topic"] == "common")
    }
    assert expected <= got


def test_filters_do_not_loosen_options(store: Path) -> None:
    """What options ask for is exact, whatever filters say."""
    got = read(store, filters=[EqualTo(one("topic"), "rare")], topic="common")
    assert got.rows == []
    got = read(store, filters=[In(one("tags"), ("odd", "even"))], subExpression="odd")
    assert set(got.column("tags")) == {"odd"}
    got = read(store, filters=[EqualTo(one("uniqKey"), "U0005")], keys="k5,k6")
    assert set(got.column("keys")) <= {"k5 all", "k6 all"}


def test_a_clock_that_was_set_back_costs_no_row(tmp_path: Path) -> None:
    """Within the slack times need not ascend."""
    clock = ManualClock(START_MS)
    builder = StoreBuilder(tmp_path / "store", clock=clock, segment_bytes=16 << 10)
    with builder.open() as store:
        for n in range(200):
            clock.set(START_MS + n * 60_000 - (1_800_000 if 90 <= n < 110 else 0))
            store.append(Message("orders", b"x" * 500))
    everything = read(builder.root).rows
    for minutes in range(0, 200, 7):
        edge = moment(START_MS + minutes * 60_000)
        for filter_ in (LessThan(one("storeTimestamp"), edge), GreaterThanOrEqual(one("storeTimestamp"), edge)):
            got = read(builder.root, filters=[filter_]).column("physicalOffset")
            assert got == [row["physicalOffset"] for row in everything if is_true(filter_, row)]


@pytest.mark.parametrize("options", [{}, {"topic": "orders"}])
@pytest.mark.parametrize("hours", [3, -3])
def test_a_clock_that_was_wrong_for_hours_costs_no_row(tmp_path: Path, hours: int, options: dict[str, str]) -> None:
    """Ahead or behind for longer than any slack, and set right again; over several log files."""
    clock = ManualClock(START_MS)
    builder = StoreBuilder(tmp_path / "store", clock=clock, segment_bytes=16 << 10)
    with builder.open() as store:
        for n in range(400):
            clock.set(START_MS + n * 60_000 + (hours * HOUR_MS if 90 <= n < 200 else 0))
            store.append(Message("orders", b"x" * 500))
    everything = read(builder.root).rows
    for minutes in range(-200, 600, 31):
        edge = moment(START_MS + minutes * 60_000)
        for filter_ in (LessThan(one("storeTimestamp"), edge), GreaterThanOrEqual(one("storeTimestamp"), edge)):
            got = read(builder.root, filters=[filter_], **options).column("physicalOffset")
            assert got == [row["physicalOffset"] for row in everything if is_true(filter_, row)], minutes


def test_early_times_behind_late_ones_in_one_file(tmp_path: Path) -> None:
    clock = ManualClock(START_MS)
    builder = StoreBuilder(tmp_path / "store", clock=clock)
    with builder.open() as store:
        for n in range(30):
            clock.set(START_MS + n * 60_000 + (3 * HOUR_MS if 10 <= n < 20 else 0))
            store.append(Message("orders", b"%d" % n, queue_id=0))
    early = LessThan(one("storeTimestamp"), moment(START_MS + 28 * 60_000))
    for options in ({}, {"topic": "orders"}):
        got = read(builder.root, filters=[early], **options).column("body")
        assert got == [b"%d" % n for n in (*range(10), *range(20, 28))]


# -- what filters say ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filter_", "pushed"),
    [
        (EqualTo(one("topic"), "a"), Pushed(topics=frozenset("a"))),
        (EqualNullSafe(one("topic"), "a"), Pushed(topics=frozenset("a"))),
        (EqualNullSafe(one("topic"), None), Pushed()),
        (EqualTo(one("topic"), None), Pushed(topics=frozenset())),
        (In(one("topic"), ["a", None, "b"]), Pushed(topics=frozenset("ab"))),  # type: ignore[arg-type]
        (EqualTo(one("QUEUEID"), 3), Pushed(queue_ids=frozenset({3}))),
        (GreaterThan(one("queueOffset"), 3), Pushed(queue_offsets=Span(start=4))),
        (LessThanOrEqual(one("queueOffset"), 3), Pushed(queue_offsets=Span(end=4))),
        (In(one("physicalOffset"), (9, 3)), Pushed(physical=Span(3, 10))),
        (In(one("physicalOffset"), ()), Pushed(physical=Span(0, 0))),
        (EqualTo(one("keys"), "  b c"), Pushed(keys=frozenset("b"))),
        (EqualTo(one("keys"), ""), Pushed()),
        (EqualTo(one("keys"), "\ufffd"), Pushed()),
        (EqualTo(one("uniqKey"), "b"), Pushed(keys=frozenset("b"))),
        (EqualTo(one("uniqKey"), "b c"), Pushed()),
        (EqualTo(one("uniqKey"), " b"), Pushed()),
        (EqualTo(one("uniqKey"), ""), Pushed()),
        (EqualTo(one("uniqKey"), "\ufffd"), Pushed()),
        (In(one("uniqKey"), ("b", "c")), Pushed(keys=frozenset("bc"))),
        (In(one("uniqKey"), ("b", "c d")), Pushed()),
        (StringStartsWith(one("topic"), "a"), Pushed()),
        (Not(EqualTo(one("topic"), "a")), Pushed()),
        (EqualTo(("topic", "x"), "a"), Pushed()),
        (EqualTo(one("msgId"), "a"), Pushed()),
        (EqualTo(one("queueOffset"), 1.5), Pushed()),
        (LessThan(one("storeTimestamp"), datetime(2024, 1, 1)), Pushed()),
    ],
)
def test_what_a_filter_says(filter_: Filter, pushed: Pushed) -> None:
    assert understand([filter_], "rocketmq") == pushed


@given(st.integers(-(1 << 50), 1 << 50))
def test_microseconds_are_rounded_to_the_safe_side(micros: int) -> None:
    value = datetime(1970, 1, 1, tzinfo=timezone(timedelta(hours=5))) + timedelta(microseconds=micros)
    exact = (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    column = one("storeTimestamp")
    start = understand([GreaterThanOrEqual(column, value)], "rocketmq").times_ms.start
    assert (start - 1) * 1000 < exact <= start * 1000
    after = understand([GreaterThan(column, value)], "rocketmq").times_ms.start
    assert (after - 1) * 1000 <= exact < after * 1000
    assert understand([LessThan(column, value)], "rocketmq").times_ms.end == start
    assert understand([LessThanOrEqual(column, value)], "rocketmq").times_ms.end == after


# -- how the reader gets to see them -------------------------------------------------------------------------------


def test_a_reader_is_willing_without_overriding(make_store: StoreMaker) -> None:
    """Spark's own test, by which a reader fails the query where filters are off: in no way may we look like one."""
    store = make_store(messages(0, 3))

    def overrides(reader: DataSourceReader) -> bool:
        return getattr(reader.pushFilters, "__func__", None) is not DataSourceReader.pushFilters

    for option in ("true", "false"):
        assert not overrides(reader_of(store, pushdown=option))
        assert type(reader_of(store, pushdown=option)).pushFilters is DataSourceReader.pushFilters


@pytest.mark.parametrize(("option", "used"), [("true", True), ("false", False)])
def test_the_option(store: Path, option: str, used: bool) -> None:
    filters: list[Filter] = [EqualTo(one("topic"), "rare")]
    assert (len(read(store, filters=filters, pushdown=option).rows) < COUNT) == used


def test_through_spark(spark: "SparkSession", store: Path) -> None:
    """Values as Spark really hands them over, and a session that hands none over."""
    frame = spark.read.format("rocketmq").option("pushdown", "true").load(str(store))
    before = spark.conf.get("spark.sql.python.filterPushdown.enabled")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    condition = (
        "topic in ('rare', 'x') and queueId = 3 and queueOffset > 1 and physicalOffset < 1300000"
        f" and storeTimestamp >= timestamp '{moment(time_of(100)).isoformat()}' and tags = 'even'"
        " and keys like 'k%' and uniqKey is not null"
    )
    try:
        answers = {}
        for enabled in ("true", "false"):
            spark.conf.set("spark.sql.python.filterPushdown.enabled", enabled)
            answers[enabled] = sorted(row.keys for row in frame.where(condition).select("keys").collect())
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", str(before))
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    expected = sorted(
        row["keys"]
        for row in read(store).rows
        if row["topic"] == "rare"
        and row["queueId"] == 3
        and row["queueOffset"] > 1
        and row["physicalOffset"] < 1_300_000
        and row["tags"] == "even"
        and row["storeTimestamp"] >= moment(time_of(100))
    )
    assert answers["true"] == answers["false"] == expected
    assert expected
