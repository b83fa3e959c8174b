"""Schemas for JSON bodies: as users write them, and against what a lake knows."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import DecimalType, LongType, StringType, StructField, StructType

from embermq.errors import OptionInvalid
from embermq.spark.lake.json_schemas import merged, read_schemas, schemas_in_words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = StructType([StructField("id", StringType(), False), StructField("amount", DecimalType(10, 2))])


def test_all_forms_mean_the_same(spark: "SparkSession", tmp_path: Path) -> None:
    ddl, file, other = "id string not null, amount decimal(10,2)", tmp_path / "s.json", tmp_path / "with space.ddl"
    file.write_text(ORDERS.json())
    other.write_text(f"\n{ddl}\n")
    words = (f"a={ddl}", f"b={file}", f"c={other}", f"d={ORDERS.json()}")
    assert read_schemas({**schemas_in_words(words), "e": ORDERS}) == dict.fromkeys("abcde", ORDERS)
    assert read_schemas(None) == {}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("orders", "TOPIC=FILE"),
        ("=id string", "TOPIC=FILE"),
        ("orders=", "TOPIC=FILE"),
        ("orders=nowhere.json", "topic orders: there is no file nowhere.json"),
        ("orders=/", "there is no file"),
    ],
)
def test_words_that_are_no_schema(word: str, said: str) -> None:
    with pytest.raises(OptionInvalid, match=said):
        schemas_in_words((word,))
    with pytest.raises(OptionInvalid, match="named twice"):
        schemas_in_words(("a=x int", "a=x int"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id strin", "no schema"),
        ("{", "no schema"),
        ("{}", "no schema"),
        ('{"type": "struct", "fields": []}', "at least one field"),
        ("id smallint", "field id is smallint; bodies can have string"),
        ("a struct<b: array<tinyint>>", r"field a.b\[\] is tinyint"),
        ("a map<int, int>", "field a is map<int,int>"),
        ("id string, ID string", "field ID is there twice"),
        ("v variant", "field v is variant"),
    ],
)
def test_schemas_that_bodies_cannot_have(spark: "SparkSession", text: str, said: str) -> None:
    with pytest.raises(OptionInvalid, match=said) as refused:
        read_schemas({"orders": text})
    assert "topic orders" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_additions_are_fine(spark: "SparkSession") -> None:
    known, given, both = read_schemas(
        {
            "known": "id string not null, part struct<a: int>, all array<struct<x: int>>,"
            " by map<string, struct<x: int>>",
            "given": "by map<string, struct<y: int>>, all array<struct<y: int>>, id string, part struct<b: date>,"
            " new double",
            "both": "id string, part struct<a: int, b: date>, all array<struct<x: int, y: int>>,"
            " by map<string, struct<x: int, y: int>>, new double",
        }
    ).values()
    assert merged("t", known, given) == both
    assert merged("t", known, known) == known


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("id int", "topic orders: field id is string in the lake and int here"),
        ("amount decimal(12,2)", r"field amount is decimal\(10,2\) in the lake and decimal\(12,2\) here"),
        ("part struct<a: string>", "field part.a is bigint in the lake and string here"),
        ("part array<int>", "field part is struct<a:bigint> in the lake and array<int> here"),
        ("Id string", r"field Id \(string\) is spelled id \(string\) in the lake"),
    ],
)
def test_contradictions_are_not(spark: "SparkSession", given: str, said: str) -> None:
    part = StructType([StructField("a", LongType())])
    known = StructType([*ORDERS.fields, StructField("part", part)])
    with pytest.raises(OptionInvalid, match=said):
        merged("orders", known, read_schemas({"orders": given})["orders"])
