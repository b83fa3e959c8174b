"""SQL as users write it: queries are answered whatever they begin with, and what would change something is not run.

Over Spark Connect, which has no parser to use, the same is asked in test_cluster.py.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embermq.errors import OptionInvalid
from embermq.spark.jobs.sql import sql
from embermq.spark.reading.sql_names import names_in
from embermq.spark.reading.views import register
from tests.spark.conftest import StoreMaker
from tests.support.same_sql import MESSAGES, READING, some, writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def store(make_store: StoreMaker) -> str:
    return str(make_store(MESSAGES))


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
