"""SQL as users write it: queries are answered whatever they begin with, and what would change something is not run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embermq import Message
from embermq.errors import OptionInvalid
from embermq.spark.jobs.sql import sql
from embermq.spark.reading.sql_names import names_in
from embermq.spark.reading.views import register
from tests.spark import sql_connect_child
from tests.spark.conftest import StoreMaker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def some(topic: str, count: int) -> list[Message]:
    return [Message(topic, b"%d" % number, tags="new") for number in range(count)]


@pytest.fixture
def store(make_store: StoreMaker) -> str:
    return str(make_store([*some("orders", 3), *some("Orders", 2), *some("Big-Returns", 1)]))


def writing(place: Path) -> list[str]:
    """Statements that would write there, or change something else."""
    insert = f"insert overwrite directory '{place}' using parquet"
    return [
        f"from orders {insert} select tags",
        f"from orders {insert} select tags {insert} select keys",
        f"with t as (select * from orders) {insert} select tags from t",
        f"/* show tables */ {insert} select tags from orders",
        f"/* /* */ show */ {insert} select tags from orders",
        f"-- \\\nshow\n{insert} select tags from orders",
        f"{insert} select tags from orders",
        f"create table x using parquet location '{place}' as select * from orders",
        f"select transform(tags) using 'touch {place}' from orders",
        f"select * from (select transform(tags) using 'touch {place}' from orders)",
        f'execute immediate "{insert} select tags from orders"',
        f"begin {insert} select tags from orders; end",
        "create temporary view x as select 1",
        "set spark.sql.shuffle.partitions = 77",
        "drop view orders",
    ]


READING = [
    ("-- how many\nselect count(*) from orders", [[3]]),
    ("/* how many */ /* of them */ select count(*) from orders -- all", [[3]]),
    ("  select count(*) from orders ;\n", [[3]]),
    ("(select 1) union all (select 2)", [[1], [2]]),
    ("with t as (select * from orders) select count(*) from t", [[3]]),
    ("from orders |> aggregate count(*)", [[3]]),
    ("values 1, 2", [[1], [2]]),
    ("select count(*) from Orders", [[2]]),
    ("select count(*) from `big-returns`", [[1]]),
    (
        "select topic, count(*) from messages where topic in ('orders', 'Orders') group by 1 order by 1",
        [["Orders", 2], ["orders", 3]],
    ),
    ("select tags from orders where tags = 'insert into x select 1' or tags = '; drop table y'", []),
    ("-- what there is\nshow tables", [["", name, True] for name in ("messages", "Big-Returns", "Orders", "orders")]),
    ("SHOW TABLES LIKE 'big*|x'", [["", "Big-Returns", True]]),
]


def test_what_reads_is_answered(spark: "SparkSession", store: str) -> None:
    for query, rows in READING:
        assert [list(row) for row in sql(spark, query, [store]).collect()] == rows, query
    assert "queueOffset" in {row[0] for row in sql(spark, "describe orders", [store]).collect()}


def test_what_writes_is_refused(spark: "SparkSession", store: str, tmp_path: Path) -> None:
    place = tmp_path / "written"
    before = spark.conf.get("spark.sql.shuffle.partitions")
    for statement in writing(place):
        with pytest.raises(OptionInvalid, match="option sql") as refused:
            sql(spark, statement, [store]).collect()
        assert "\n" not in str(refused.value)
        assert not place.exists(), statement
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    assert not spark.catalog.tableExists("x")
    (plan,) = sql(spark, f"explain {writing(place)[0]}", [store]).collect()
    assert "Insert" in plan[0]
    assert not place.exists()


@pytest.mark.slow(40)
def test_over_spark_connect(store: str, tmp_path: Path) -> None:
    """The same, where nobody can be asked for a parse."""
    place = tmp_path / "written"
    refused = writing(place)
    queries = [*refused, "select nothing from orders", *(query for query, _ in READING)]
    words = [sys.executable, sql_connect_child.__file__, store, *queries]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(words, capture_output=True, text=True, timeout=500, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout.strip().splitlines()[-1])
    for statement, answer in zip(refused, answers, strict=False):
        assert str(answer).startswith("option sql"), statement
    assert not place.exists()
    assert "nothing" in answers[len(refused)]
    assert answers[len(refused) + 1 :] == [rows for _, rows in READING]


def test_topics_that_are_one_name_to_sql(spark: "SparkSession", store: str, make_store: StoreMaker) -> None:
    for query in ("select (select count(*) from orders), (select count(*) from Orders)", "select * from ORDERS"):
        with pytest.raises(OptionInvalid, match="topic orders and Orders have one name in SQL; ask messages with"):
            sql(spark, query, [store])
    with pytest.raises(OptionInvalid, match="one name in SQL; say in mentioned_in"):
        register(spark, [store])
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        query = "select (select count(*) from orders), (select count(*) from Orders)"
        assert tuple(sql(spark, query, [store]).collect()[0]) == (3, 2)
    finally:
        spark.conf.set("spark.sql.caseSensitive", "false")
    named_so = [str(make_store([*some("Messages", 2), *some("orders", 1)], name="named-so"))]
    for query in ("select * from messages", "select * from Messages"):
        with pytest.raises(OptionInvalid, match=r"topic Messages and the table of all topics .* ask all_messages"):
            sql(spark, query, named_so)
    assert sql(spark, "select * from all_messages", named_so).count() == 3
    assert sql(spark, "select * from orders where tags <> 'messages'", named_so).count() == 1


def test_another_store_does_not_answer(spark: "SparkSession", store: str, make_store: StoreMaker) -> None:
    other = [str(make_store(some("payments", 4), name="other"))]
    spark.range(2).createOrReplaceTempView("of_mine")
    assert sql(spark, "select * from Payments", other).count() == 4
    with pytest.raises(OptionInvalid, match=r"payments.*\(tables: messages, Big-Returns"):
        sql(spark, "select * from payments", [store])
    assert sql(spark, "select * from payments", other).count() == 4
    register(spark, other)
    assert sql(spark, "select * from orders cross join of_mine", [store]).count() == 6
    assert spark.sql("select * from payments").count() == 4


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("select a.b from `%RETRY%x` as a", {"select", "a", "b", "from", "%RETRY%x", "as"}),
        ("a -- b\nc /* d */ e /*+ f */", {"a", "c", "e", "f"}),
        (r"'a' 'it\'s b' r'\' c ' d ' 'x''y'", {"c"}),
        ('`a``b` "c d"', {"a`b", "c d"}),
        ("größe `", {"größe"}),
        ("``", set()),
    ],
)
def test_names_in_a_text(text: str, names: set[str]) -> None:
    assert names_in(text) == names
