"""SQL over a store, to be run with a session in this process and over Connect: the answers have to be the same."""

from pathlib import Path

from pyspark.sql import SparkSession

from embermq import Message
from embermq.errors import OptionInvalid
from embermq.spark.jobs.sql import sql
from embermq.testing.builder import StoreBuilder


def some(topic: str, count: int) -> list[Message]:
    return [Message(topic, b"%d" % number, tags="new") for number in range(count)]


MESSAGES = [*some("orders", 3), *some("Orders", 2), *some("Big-Returns", 1)]


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


def make_store(directory: Path) -> Path:
    with StoreBuilder(directory).open() as opened:
        opened.append_many(MESSAGES)
    return directory


def answers(spark: SparkSession, store: Path, scratch: Path) -> dict[str, object]:
    """Rows of every query, and what is said to those that are refused."""
    queries = [*writing(scratch), "select nothing from orders", *(query for query, _ in READING)]
    return {query: _answer(spark, query, store) for query in queries}


def _answer(spark: SparkSession, query: str, store: Path) -> object:
    try:
        return [list(row) for row in sql(spark, query, [str(store)]).collect()]
    except OptionInvalid as refused:
        return str(refused)
