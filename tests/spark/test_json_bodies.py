"""JSON bodies become typed values, exactly, or none at all."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from embermq.spark.lake.json_bodies import BodyDecoder, conform, value_type


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in fields.items()])


def decoded(schema: StructType, *bodies: bytes | None) -> tuple[list[Any], int]:
    values, undecoded = BodyDecoder(schema).decode(pa.array(bodies, pa.binary()))
    values.validate(full=True)
    assert values.type == value_type(schema)
    return values.to_pylist(), undecoded


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (StringType(), b'"\xc3\xbc\\u00fc\\ud83d\\ude00"', "üü😀"),
        (IntegerType(), b"-2147483648", -(1 << 31)),
        (LongType(), b"9223372036854775807", (1 << 63) - 1),
        (DoubleType(), b"1", 1.0),
        (DoubleType(), b"-2.5e-3", -0.0025),
        (FloatType(), b"1.5", 1.5),
        (BooleanType(), b"true", True),
        (DecimalType(10, 2), b"12345678.91", Decimal("12345678.91")),
        (DecimalType(10, 2), b'"1.500"', Decimal("1.50")),
        (DecimalType(38, 0), b"1" * 38, Decimal("1" * 38)),
        (DateType(), b'"2026-11-16"', date(2026, 11, 16)),
        (TimestampType(), b'"2026-11-16T01:02:03.000004+02:00"', datetime(2026, 11, 15, 23, 2, 3, 4, UTC)),
        (TimestampType(), b'"2026-11-16 01:02:03"', datetime(2026, 11, 16, 1, 2, 3, 0, UTC)),
        (BinaryType(), b'"AAH/"', b"\x00\x01\xff"),
        (ArrayType(IntegerType()), b"[1, null, 3]", [1, None, 3]),
        (ArrayType(IntegerType()), b"[]", []),
        (MapType(StringType(), DecimalType(4, 1)), b'{"a": 1, "b": null}', [("a", Decimal("1.0")), ("b", None)]),
        (ArrayType(struct(y=LongType())), b'[{"y": 1}, null, {}]', [{"y": 1}, None, {"y": None}]),
        (StringType(), b"null", None),
    ],
)
def test_what_fits(type_: DataType, text: bytes, value: Any) -> None:
    assert decoded(struct(field=type_), b' {"other": [{}], "field": %s}\n' % text) == ([{"field": value}], 0)


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (StringType(), b"1"),
        (StringType(), b'"\xff"'),
        (StringType(), b'"\\ud800"'),
        (IntegerType(), b"2147483648"),
        (IntegerType(), b"1.5"),
        (IntegerType(), b'"1"'),
        (LongType(), b"9223372036854775808"),
        (FloatType(), b"1e300"),
        (DoubleType(), b"1e999"),
        (DoubleType(), b"NaN"),
        (BooleanType(), b"1"),
        (DecimalType(10, 2), b"1.234"),
        (DecimalType(10, 2), b"123456789"),
        (DecimalType(10, 2), b"1e400"),
        (DecimalType(10, 2), b'"NaN"'),
        (DecimalType(10, 2), b'"x"'),
        (DateType(), b'"16.11.2026"'),
        (TimestampType(), b"1794828573"),
        (TimestampType(), b'"2026-11-16T25:00:00Z"'),
        (BinaryType(), b'"?"'),
        (ArrayType(IntegerType(), containsNull=False), b"[null]"),
        (ArrayType(DecimalType(3, 1)), b"[1.5, 1.55]"),
        (MapType(StringType(), FloatType()), b'{"a": 1e300}'),
        (struct(y=LongType()), b"[]"),
    ],
)
def test_what_does_not_fit_gives_no_value_and_spoils_no_other(type_: DataType, text: bytes) -> None:
    schema = struct(id=IntegerType(), field=type_)
    bodies = [b'{"id": 1}', b'{"id": 2, "field": %s}' % text, b'{"id": 3}']
    values, undecoded = decoded(schema, *bodies)
    assert [None if value is None else value["id"] for value in values] == [1, None, 3]
    assert undecoded == 1


def test_what_is_no_object() -> None:
    bodies = [b"", b"null", b"[1]", b"1", b"{", b'{"a": 1} x', b"\xef\xbb\xbf{}", b"[" * 100_000, b"\x00", b"{'a': 1}"]
    assert decoded(struct(a=LongType()), *bodies) == ([None] * len(bodies), len(bodies))
    assert decoded(struct(a=LongType()), None, b"{}") == ([None, {"a": None}], 0)  # No body is no failure.
    assert decoded(struct(a=LongType())) == ([], 0)


def test_a_field_that_must_be_there() -> None:
    schema = StructType([StructField("id", StringType(), False), StructField("n", LongType())])
    bodies = [b'{"id": "a"}', b'{"n": 1}', b'{"id": null}']
    assert decoded(schema, *bodies) == ([{"id": "a", "n": None}, None, None], 2)


def test_field_names_that_are_no_names() -> None:
    names = ["a b", "1", "class", "", "ü", "f0"]
    schema = StructType([StructField(name, LongType()) for name in names])
    body = json.dumps({name: number for number, name in enumerate(names)}).encode()
    assert decoded(schema, body) == ([{name: number for number, name in enumerate(names)}], 0)


WHOLE = struct(
    s=StringType(),
    n=LongType(),
    x=DoubleType(),
    b=BooleanType(),
    list=ArrayType(struct(k=StringType())),
    map=MapType(StringType(), ArrayType(LongType())),
)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)


@given(
    st.lists(
        st.none()
        | st.fixed_dictionaries(
            {
                "s": st.none() | TEXTS,
                "n": st.none() | LONGS,
                "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
                "b": st.none() | st.booleans(),
                "list": st.none() | st.lists(st.none() | st.fixed_dictionaries({"k": st.none() | TEXTS}), max_size=3),
                "map": st.none()
                | st.dictionaries(TEXTS, st.none() | st.lists(st.none() | LONGS, max_size=2), max_size=2),
            }
        ),
        max_size=5,
    )
)
def test_values_come_back(rows: list[dict[str, Any] | None]) -> None:
    """What json.dumps writes is what is read, whatever lies beside it."""
    values, undecoded = decoded(WHOLE, *(json.dumps(row).encode() for row in rows))
    wanted = [None if row is None else row | {"map": row["map"] and list(row["map"].items())} for row in rows]
    for row in wanted:
        if row is not None and row["map"] == {}:
            row["map"] = []
    assert values == wanted
    assert undecoded == sum(row is None for row in rows)


def test_a_schema_that_grew() -> None:
    old = struct(
        id=StringType(),
        inner=struct(a=LongType()),
        rows=ArrayType(struct(a=LongType())),
        named=MapType(StringType(), struct(a=LongType())),
    )
    more = struct(a=LongType(), b=DecimalType(5, 2))
    new = struct(first=DateType(), id=StringType(), inner=more, rows=ArrayType(more), named=MapType(StringType(), more))
    bodies = [
        b'{"id": "x", "inner": {"a": 1}, "rows": [{"a": 2}, null, {}], "named": {"k": {"a": 3}, "l": null}}',
        b"no",
        b'{"id": "y"}',
    ]
    values, _ = BodyDecoder(old).decode(pa.array(bodies, pa.binary()))
    grown = conform(pa.chunked_array([values.slice(0, 1), values.slice(1)]), value_type(new))
    grown.validate(full=True)
    assert grown.to_pylist() == [
        {
            "first": None,
            "id": "x",
            "inner": {"a": 1, "b": None},
            "rows": [{"a": 2, "b": None}, None, {"a": None, "b": None}],
            "named": [("k", {"a": 3, "b": None}), ("l", None)],
        },
        None,
        {"first": None, "id": "y", "inner": None, "rows": None, "named": None},
    ]
    assert conform(grown, value_type(new)) is grown
