"""JSON bodies in the lake: typed beside the body, remembered, and the same in tables made of lake and log."""

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from embermq import Message
from embermq.cli.app import run
from embermq.errors import OptionInvalid, TopicUnknown
from embermq.inspect.snapshot import Survey
from embermq.spark.jobs.archive import archive
from embermq.spark.jobs.sql import sql
from embermq.spark.lake import Lake
from embermq.spark.lake.json_schemas import read_schemas
from embermq.spark.lake.names import SUMMARY
from embermq.spark.lake.plain_schema import common_value
from embermq.spark.pipelines import pipeline
from embermq.testing.builder import StoreBuilder
from tests.spark.test_job_commands import lend_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

__all__ = ["lend_session"]  # a fixture

SMALL = "id string not null, amount decimal(10,2)"
LARGE = "amount decimal(10,2), part struct<n: int>"


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "broker-a")


def put(builder: StoreBuilder, *bodies: Any, topic: str = "orders") -> None:
    with builder.open() as store:
        store.append_many(
            [Message(topic, body if isinstance(body, bytes) else json.dumps(body).encode()) for body in bodies]
        )


def test_from_the_pipeline_to_a_query(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    store, lake = [str(builder.root)], str(tmp_path / "lake")

    def add(**schemas: str) -> Any:
        survey = Survey.open(builder.root)
        return Lake.open(lake, schemas=read_schemas(schemas)).add(spark, survey, "broker-a", survey.log_end)

    put(builder, {"id": "before"})
    assert add().ranges[0].undecoded == 0
    put(builder, {"id": "a", "amount": 1.5}, b"no JSON", {"id": 1}, {"id": "b", "amount": "2.25", "more": []})
    put(builder, {"id": "other"}, topic="returns")
    (done,) = pipeline(spark, store, into=lake, derive=["lake"], json={"orders": SMALL}).once()
    assert (done.records, done.sinks["lake"].undecoded) == (5, 2)
    put(builder, {"id": "c", "part": {"n": 7}})
    assert add().ranges[0].undecoded == 0  # The lake knows the schema.
    put(builder, {"id": "d", "amount": 4, "part": {"n": 8}})
    assert add(orders=LARGE).ranges[0].undecoded == 0

    def values(paths: list[str], **more: Any) -> list[Any]:
        query = "select string(body) as body, value.* from orders order by physicalOffset"
        found = sql(spark, query, paths, lake=lake, **more).collect()
        return [(json.loads(row["body"])["id"] if row["id"] else row["body"], *row[2:]) for row in found]

    wanted = [
        ('{"id": "before"}', None, None),
        ("a", Decimal("1.50"), None),
        ("no JSON", None, None),
        ('{"id": 1}', None, None),
        ("b", Decimal("2.25"), None),
        ("c", None, None),  # Its part was not asked for yet.
        ("d", Decimal("4.00"), (8,)),
    ]
    opened = Lake.open(lake)
    assert opened.compact(spark).files_after == 2  # Files with and without the column, and with fewer fields.
    opened.check(spark)
    assert values([]) == wanted
    (joined,) = [file for file in opened.live_files() if file.topic == "orders"]
    assert joined.undecoded == 2
    put(builder, {"id": "live", "part": {"n": 9}}, b"{")
    assert values(store) == [*wanted, ("live", None, (9,)), ("{", None, None)]
    assert "value" not in sql(spark, "select * from returns", lake=lake).columns
    assert "value" not in sql(spark, "select * from messages", lake=lake).columns
    with pytest.raises(OptionInvalid, match=r"topic orders: field part.n is int in the lake and string here"):
        pipeline(spark, store, into=lake, derive=["lake"], json={"orders": "part struct<n: string>"})
    with pytest.raises(OptionInvalid, match="field amount"):
        sql(spark, "select value from orders", store, lake=lake, json={"orders": "amount string"})


def test_bodies_may_go_where_they_were_decoded(
    spark: "SparkSession", builder: StoreBuilder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a user types it."""
    store, lake = [str(builder.root)], str(tmp_path / "lake")
    put(builder, {"id": "a"}, b"no")
    with pytest.raises(OptionInvalid, match="no topic has a schema"):
        pipeline(spark, store, into=str(tmp_path / "x"), derive=["lake"], drop_bodies=True)
    words = ["--into", lake, "--derive", "lake", "--json", f"orders={SMALL}", "--drop-bodies"]
    assert run(["spark", "pipeline", *store, *words]) == 0
    assert "1 bodies are no JSON that fits" in capsys.readouterr().out
    opened = Lake.open(lake)
    table = pq.read_table(tmp_path / "lake" / opened.live_files()[0].path, partitioning=None)
    found = [(row["body"], row["value"] and row["value"]["id"]) for row in table.to_pylist()]
    assert found == [(None, "a"), (b"no", None)]
    opened.check(spark)


def test_an_archive_and_a_store_alone(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    store, lake = [str(builder.root)], str(tmp_path / "lake")
    put(builder, {"id": "a", "amount": 1}, b"no")
    query = "select sum(value.amount), count(value), count(*) from orders"
    for more in ({"paths": store}, {"paths": store, "lake": None}):
        assert tuple(sql(spark, query, **more, json={"orders": SMALL}).collect()[0]) == (Decimal(1), 1, 2)
    (done,) = archive(spark, store, lake, json={"orders": SMALL})
    assert done.undecoded == 1
    put(builder, {"id": "b", "amount": 2})
    assert tuple(sql(spark, query, store, lake=lake).collect()[0]) == (Decimal(3), 2, 3)
    with pytest.raises(TopicUnknown, match="did you mean orders"):
        sql(spark, query, store, json={"order": SMALL})
    for wrong in ({"json": {"orders": SMALL}}, {"lake_format": "delta"}, {"drop_bodies": True}):
        with pytest.raises(OptionInvalid, match="need the lake"):
            pipeline(spark, store, into=str(tmp_path / "x"), derive=["stats"], **wrong)
    with pytest.raises(OptionInvalid, match="no schema"):
        pipeline(spark, store, into=str(tmp_path / "x"), derive=["lake"], json={"orders": "id strin"})
    assert not (tmp_path / "x").exists()


def plain_values(spark: "SparkSession", lake: str) -> dict[str, Any]:
    """The typed bodies by topic, as a read without options has them."""
    return {row.topic: row.value and row.value.asDict(True) for row in spark.read.parquet(lake).collect()}


@pytest.mark.slow(8)
def test_a_plain_read_has_the_values_of_some_topics(
    spark: "SparkSession", builder: StoreBuilder, tmp_path: Path
) -> None:
    """Spark takes the schema of one file, and most have no such column; the first by name is one of those."""
    lake = str(tmp_path / "lake")
    put(builder, {"id": "x"}, topic="a-topic-without")
    put(builder, {"id": "o-1", "amount": 1.5, "part": {"n": 7}})
    put(builder, {"id": 12, "amount": 2.25, "where": "east"}, topic="returns")
    schemas = {"orders": f"id string, {LARGE}", "returns": "id int, amount decimal(10,2), where string"}
    archive(spark, [str(builder.root)], lake, json=schemas)
    # Two topics have ids of different types: that of a topic is in a read of its folder.
    expected = {
        "a-topic-without": None,
        "orders": {"amount": Decimal("1.50"), "part": {"n": 7}, "where": None},
        "returns": {"amount": Decimal("2.25"), "part": None, "where": "east"},
    }
    assert plain_values(spark, lake) == expected
    (order,) = spark.read.parquet(f"{lake}/topic=orders").collect()
    assert (order.value.id, order.value.part.n) == ("o-1", 7)
    (returned,) = spark.read.parquet(f"{lake}/topic=returns").collect()
    assert returned.value.id == 12
    # Every other column is what the files have.
    one = spark.read.parquet(f"{lake}/topic=a-topic-without")
    assert [field for field in spark.read.parquet(lake).schema if field.name in one.columns] == one.schema.fields

    # Commits that bring no schema leave it, compaction too; other readers ignore it.
    put(builder, {"id": "y"}, topic="a-topic-without")
    archive(spark, [str(builder.root)], lake)
    assert Lake.open(lake).compact(spark) is not None
    assert plain_values(spark, lake) == expected
    assert spark.read.parquet(lake).where("value.amount > 2").count() == 1
    files = pads.dataset(lake, partitioning="hive")
    assert files.count_rows() == 4
    assert not [name for name in files.files if SUMMARY in name]


def test_a_kill_before_the_summary_file_is_made_good(
    spark: "SparkSession", builder: StoreBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    put(builder, {"id": "x"}, topic="a-topic-without")
    put(builder, {"id": "o-1", "amount": 1.5})

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("embermq.spark.lake.lakes.write_plain_schemas", killed)
        with pytest.raises(KeyboardInterrupt):
            archive(spark, [str(builder.root)], str(lake), json={"orders": SMALL})
    assert not (lake / SUMMARY).exists()
    archive(spark, [str(builder.root)], str(lake))
    assert plain_values(spark, str(lake)) == {
        "a-topic-without": None,
        "orders": {"id": "o-1", "amount": Decimal("1.50")},
    }


@pytest.mark.parametrize(
    ("schemas", "names"),
    [
        (["a int, b string", "a int, c string"], ["a", "b", "c"]),
        (["a int", "a bigint", "a int, b int"], ["b"]),
        (["orderId int, a int", "orderid int", "orderId int"], ["a"]),
        (["part struct<n: int>, a int", "part struct<n: string>"], ["a"]),
        (["part struct<n: int>", "part struct<m: int>"], ["part"]),
        (["a array<int>", "a array<struct<n: int>>"], []),
    ],
)
def test_fields_of_all_topics_without_those_that_differ(schemas: list[str], names: list[str]) -> None:
    found = read_schemas({str(number): schema for number, schema in enumerate(schemas)})
    assert common_value(found.values()).names == names
