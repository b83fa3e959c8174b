"""What is needed of a store: records of the system, which are in no queue, are found by names alone; names of topics
that are nearly right."""

import json
import os
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, LessThan

from embermq import Message
from embermq.cli.app import run
from embermq.errors import TopicUnknown
from embermq.model.flags import PREPARED, ROLLBACK
from embermq.spark.planning.offsets import nearest_names
from embermq.testing.builder import StoreBuilder
from tests.spark.conftest import StoreMaker
from tests.support.spark_reads import Row, read

NAMES = ("topic", "queueId", "queueOffset", "physicalOffset", "sysFlag")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics of two queues, a system topic; prepared and rolled-back records among the others, and behind them;
    a topic that has nothing else."""
    builder = StoreBuilder(tmp_path_factory.mktemp("needs") / "store")
    with builder.open() as store:
        for n in range(24):
            kind = {3: PREPARED, 5: ROLLBACK}.get(n % 8, 0)
            store.append(Message(("orders", "returns")[n % 2], b"%d" % n, queue_id=n // 2 % 2, sys_flag=kind))
        store.append(Message("SCHEDULE_TOPIC_XXXX", b"parked", queue_id=1))
        store.append(Message("orders", b"half", queue_id=0, sys_flag=PREPARED))
        store.append(Message("halves", b"half", queue_id=1, sys_flag=PREPARED))
    return builder.root


@pytest.fixture(scope="module")
def whole(store: Path) -> list[Row]:
    rows = read(store, includeSystemTopics="true", schema=NAMES).rows
    assert len(rows) == 27
    return rows


def physical(rows: list[Row]) -> list[int]:
    return [row["physicalOffset"] for row in rows]


OPTIONS: dict[str, tuple[dict[str, Any], Callable[[Row], bool]]] = {
    "none": ({}, lambda row: True),
    "topic": ({"topic": "orders"}, lambda row: row["topic"] == "orders"),
    "queues": ({"queues": "1"}, lambda row: row["queueId"] == 1 and row["topic"] != "halves"),
    "by topic": (
        {"queues": json.dumps({"orders": [0], "returns": [1]})},
        lambda row: (row["topic"], row["queueId"]) in {("orders", 0), ("returns", 1)},
    ),
    "by topic, and another": (
        {"topic": "orders,returns", "queues": json.dumps({"orders": [0]})},
        lambda row: row["topic"] == "returns" or (row["topic"] == "orders" and row["queueId"] == 0),
    ),
}
FILTERS: dict[str, list[Filter]] = {
    "none": [],
    "topic": [EqualTo(("topic",), "orders")],
    "topic of halves": [EqualTo(("topic",), "halves")],
    "queue": [EqualTo(("queueId",), 1)],
    "offset": [LessThan(("queueOffset",), 2)],
    "no offset": [GreaterThanOrEqual(("queueOffset",), 2)],
}


def is_true(one: Filter, row: Row) -> bool:
    assert isinstance(one, EqualTo | LessThan | GreaterThanOrEqual)
    value, wanted = row[one.attribute[0]], one.value
    if isinstance(one, EqualTo):
        return bool(value == wanted)
    return bool(value < wanted) if isinstance(one, LessThan) else bool(value >= wanted)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("filters", FILTERS)
def test_names_decide(store: Path, whole: list[Row], options: str, filters: str) -> None:
    given, fits = OPTIONS[options]
    got = read(store, filters=FILTERS[filters], schema=NAMES, includeSystemTopics="true", **given)
    assert physical(got.rows) == [
        row["physicalOffset"] for row in whole if fits(row) and all(is_true(one, row) for one in FILTERS[filters])
    ]


def test_records_behind_the_last_of_their_queue(store: Path, whole: list[Row]) -> None:
    """A part of the log in which a queue has nothing may have prepared records of it."""
    filters: list[Filter] = [GreaterThanOrEqual(("physicalOffset",), whole[-2]["physicalOffset"])]
    for options in ({}, {"topic": "orders"}, {"queues": '{"orders": [0]}'}):
        got = read(store, filters=filters, schema=NAMES, includeSystemTopics="true", **options)
        assert physical(got.rows) == physical(whole[-2:] if not options else whole[-2:-1])


def test_the_same_queues_without_the_system(store: Path, whole: list[Row]) -> None:
    got = read(store, schema=NAMES, queues='{"orders": [0], "returns": [1]}')
    assert {(row["topic"], row["queueId"]) for row in got.rows} == {("orders", 0), ("returns", 1)}
    assert not any(row["sysFlag"] & PREPARED for row in got.rows)


# -- names -----------------------------------------------------------------------------------------------------------


def test_names_that_differ_in_case_only(make_store: StoreMaker) -> None:
    topics = ("Orders", "ORDERS", "orders", "order-items")
    for known in permutations(topics):
        assert nearest_names("order", known) == ["ORDERS", "Orders", "orders"]
        assert nearest_names("order-item", known) == ["order-items", "ORDERS", "Orders"]
    store = make_store([Message(topic, b"x") for topic in topics])
    with pytest.raises(TopicUnknown) as raised:
        read(store, topic="ordres")
    assert raised.value.nearest == ("ORDERS", "Orders", "orders")


def test_queues_that_may_not_be_read_are_named_in_a_line(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tests may run as root, who may read everything: the system's answer is made up."""
    folder, whole = store / "consumequeue", os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder and whole(path, mode))
    assert run(["spark", "explain", str(store), "-o", "topic=t"]) == 2
    assert capsys.readouterr().err == f"embermq: {folder}: no permission to read it; check its owner and mode\n"
