"""Rows as messages: every column, every way it can be wrong, and the ids they get. Without Spark."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from embermq import StoreSettings
from embermq.errors import MessageRejected, OptionInvalid
from embermq.format.java import string_hash
from embermq.model.hosts import Host
from embermq.model.message import Message
from embermq.model.properties import decode_properties
from embermq.spark.writing.write_rows import (
    STAGED_SCHEMA,
    WRITE_COLUMNS,
    PartitionId,
    RowReader,
    UniqueKeys,
    check_columns,
    sharded,
)
from embermq.store.append.admission import Admission

BORN_MS = 1_700_000_000_000
MAP = pa.map_(pa.string(), pa.string())


def reader(columns: list[str], partition: int = 0, **options: Any) -> RowReader:
    settings = StoreSettings(segment_bytes=1 << 20, message_bytes_max=1000)
    chosen = {"topic": None, "queues": 4, "unique_keys": False, "born_ms": BORN_MS} | options
    return RowReader(
        {name: at for at, name in enumerate(columns)},
        Admission(settings, settings.segment_bytes, Host("127.0.0.1", 10911)),
        PartitionId("w", 3, partition),
        **chosen,
    )


def staged(columns: dict[str, pa.Array], **options: Any) -> list[dict[str, Any]]:
    rows = reader(list(columns), **options)
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    (out,) = rows.staged([batch])
    assert out.schema == STAGED_SCHEMA
    out.validate(full=True)
    listed: list[dict[str, Any]] = out.to_pylist()
    return [row | {"properties": decode_properties(row["properties"])} for row in listed]


def refusal(columns: dict[str, pa.Array], **options: Any) -> str:
    with pytest.raises(MessageRejected) as caught:
        staged(columns, **options)
    return caught.value.reason


# -- columns ---------------------------------------------------------------------------------------------------


TYPES: dict[str, DataType] = {
    one.simpleString(): one
    for one in (
        StringType(),
        BinaryType(),
        IntegerType(),
        LongType(),
        DoubleType(),
        TimestampType(),
        ArrayType(StringType()),
        ArrayType(IntegerType()),
        MapType(StringType(), StringType()),
        MapType(StringType(), IntegerType()),
    )
}


def columns_of(ddl: str, *, has_topic: bool = False) -> dict[str, int]:
    pairs = [column.split(" ") for column in ddl.split(", ")]
    fields = [StructField(name, TYPES[kind]) for name, kind in pairs]
    return check_columns(StructType(fields), has_topic=has_topic)


def test_all_columns_in_any_order_and_case() -> None:
    found = columns_of(
        "KEYS array<string>, Topic string, tags string, properties map<string,string>, delayLevel int,"
        " shardingKey string, body binary"
    )
    assert found == {
        "keys": 0,
        "topic": 1,
        "tags": 2,
        "properties": 3,
        "delayLevel": 4,
        "shardingKey": 5,
        "body": 6,
    }
    assert columns_of("value string, queueId bigint", has_topic=True) == {"body": 0, "queueId": 1}


@pytest.mark.parametrize(
    ("ddl", "words"),
    [
        ("topic string", "no column body (or value); there are topic"),
        ("body string", "give the option, or a column topic"),
        ("body string, value string, topic string", "both body and value"),
        ("body string, topic string, queueId int, shardingKey string", "both queueId and shardingKey"),
        ("body int, topic string", "column body is int; binary or string is expected"),
        ("body string, topic string, keys array<int>", "column keys is array<int>; string or array<string>"),
        ("body string, topic string, properties map<string,int>", "map<string,string> is expected"),
        ("body string, topic string, queueId string", "column queueId is string"),
        ("body string, topic string, shardingKey double", "column shardingKey is double"),
        ("body string, topic string, tag string", "no column 'tag'; did you mean tags?"),
        ("body string, topic string, key string", "did you mean keys?"),
        ("body string, topic string, xyzzy int", "no column 'xyzzy'. What counts: body"),
        ("body string, topic string, queueOffset bigint", "the store gives queueOffset itself"),
        ("body string, topic string, storeTimestamp timestamp", ".drop('storeTimestamp')"),
        ("body string, BODY binary, topic string", "two columns body"),
    ],
)
def test_columns_that_cannot_be_written(ddl: str, words: str) -> None:
    with pytest.raises(OptionInvalid) as caught:
        columns_of(ddl)
    assert words in str(caught.value)


def test_every_column_is_explained() -> None:
    assert [column.name for column in WRITE_COLUMNS][:2] == ["body", "value"]
    assert all(column.meaning and column.types for column in WRITE_COLUMNS)


# -- rows ------------------------------------------------------------------------------------------------------


def test_every_column_of_a_row() -> None:
    rows = staged(
        {
            "body": pa.array([b"\x00\xff", b""]),
            "topic": pa.array(["orders", "returns"]),
            "tags": pa.array(["paid", None]),
            "keys": pa.array([["o-1", "eu"], []]),
            "properties": pa.array([[("a", "1"), ("ä", "ü")], None], MAP),
            "queueId": pa.array([7, None], pa.int64()),
            "delayLevel": pa.array([3, 0], pa.int8()),
        }
    )
    assert rows == [
        {
            "topic": "orders",
            "queueId": 7,
            "body": b"\x00\xff",
            "properties": {"a": "1", "ä": "ü", "TAGS": "paid", "KEYS": "o-1 eu", "DELAY": "3"},
        },
        {"topic": "returns", "queueId": 1, "body": b"", "properties": {}},
    ]


def test_a_string_is_stored_as_utf8() -> None:
    (row,) = staged({"body": pa.array(["ß€😀"])}, topic="t")
    assert row["body"] == "ß€😀".encode()


def test_the_option_topic_wins() -> None:
    (row,) = staged({"body": pa.array([b"x"]), "topic": pa.array(["column"])}, topic="option")
    assert row["topic"] == "option"


def test_retry_and_dead_letter_topics_are_everybodys() -> None:
    topics = ["%RETRY%group", "%DLQ%group"]
    rows = staged({"body": pa.array([b"x"] * 2), "topic": pa.array(topics), "delayLevel": pa.array([0, 3])})
    assert [row["topic"] for row in rows] == topics


def test_rows_are_spread_in_turns_beginning_with_the_partition() -> None:
    rows = reader(["body"], partition=2, topic="t", queues=3)
    batches = [pa.record_batch([pa.array([b"x"] * 4)], names=["body"])] * 2
    assert [out.column("queueId").to_pylist() for out in rows.staged(batches)] == [[2, 0, 1, 2], [0, 1, 2, 0]]
    assert rows.rows == 8


def test_a_sharding_key_chooses_the_queue_a_java_producer_chooses() -> None:
    keys = ["a", "order-17", "", None, "😀", "polygenelubricants"]  # The last hashes to the smallest int.
    rows = staged({"body": pa.array([b"x"] * 6), "shardingKey": pa.array(keys)}, topic="t", queues=4)
    assert string_hash("polygenelubricants") == -(2**31)
    assert [row["queueId"] for row in rows] == [97 % 4, abs(string_hash("order-17")) % 4, 0, 3, sharded("😀", 4), 0]
    numbers = staged({"body": pa.array([b"x"]), "shardingKey": pa.array([123])}, topic="t", queues=4)
    assert numbers[0]["queueId"] == sharded("123", 4)


def test_empty_batches_are_passed_over() -> None:
    rows = reader(["body"], topic="t")
    assert list(rows.staged([pa.record_batch([pa.array([], pa.binary())], names=["body"])])) == []


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"body": [b"x", None]}, "row 1: body is null"),
        ({"body": [b"x"], "topic": [None]}, "row 0: topic is null"),
        ({"body": [b"x"], "topic": ["no spaces"]}, "row 0: topic 'no spaces': character ' ' is not allowed"),
        ({"body": [b"x"], "topic": [""]}, "row 0: topic ''"),
        ({"body": [b"x"] * 2, "topic": ["t", "SCHEDULE_TOPIC_XXXX"]}, "row 1: SCHEDULE_TOPIC_XXXX is a system topic"),
        ({"body": [b"x"], "topic": ["RMQ_SYS_TRANS_HALF_TOPIC"]}, "row 0: RMQ_SYS_TRANS_HALF_TOPIC is a system topic"),
        ({"body": [b"x"], "topic": ["RMQ_SYS_TRANS_OP_HALF_TOPIC"]}, "is a system topic"),
        ({"body": [b"x"], "topic": ["rmq_sys_wheel_timer"]}, "is a system topic"),
        ({"body": [b"x"], "topic": ["t" * 128]}, "at most 127"),
        ({"body": [b"x", b"x" * 1001]}, "row 1: body of 1,001 bytes is larger than maxMessageSize (1,000 bytes)"),
        ({"body": [b"x"], "queueId": [-1]}, "row 0: queueId -1"),
        ({"body": [b"x"], "queueId": [2**31]}, "row 0: queueId 2147483648"),
        ({"body": [b"x"], "delayLevel": [-1]}, "delayLevel -1 is negative"),
        ({"body": [b"x"], "keys": [["a b"]]}, "key 'a b'"),
        ({"body": [b"x"], "keys": [["a", None]]}, "keys holds a null"),
        ({"body": [b"x"], "tags": ["a\x01b"]}, "control character 0x01 or 0x02"),
        ({"body": [b"x"], "keys": ["a\x02b"]}, "control character 0x01 or 0x02"),
        ({"body": [b"x"], "properties": [[("a", None)]]}, "property 'a' is null"),
        ({"body": [b"x"], "properties": [[("a", "")]]}, "property 'a': the value is empty"),
        ({"body": [b"x"], "properties": [[("TAGS", "x")]], "tags": ["y"]}, "property TAGS is given twice"),
        ({"body": [b"x"], "properties": [[("a", "x" * 40_000)]]}, "properties take 40,002 bytes"),
        ({"body": [b"x"], "properties": [[("DELAY", "soon")]]}, "a delay level is a whole number"),
    ],
)
@pytest.mark.parametrize("unique_keys", [False, True])
def test_a_row_that_cannot_be_stored_is_named(columns: dict[str, list[Any]], words: str, unique_keys: bool) -> None:
    arrays = {
        name: pa.array(values, MAP) if name == "properties" else pa.array(values) for name, values in columns.items()
    }
    if "topic" not in arrays:
        arrays["topic"] = pa.array(["t"] * len(columns["body"]))
    reason = refusal(arrays, partition=5, unique_keys=unique_keys)
    assert reason.startswith("partition 5, row ")
    if not (unique_keys and "properties take" in words):
        assert words in reason


def test_row_numbers_go_on_over_batches() -> None:
    rows = reader(["body"], topic="t")
    batches = [pa.record_batch([pa.array(bodies)], names=["body"]) for bodies in ([b"x"] * 3, [b"x", None])]
    with pytest.raises(MessageRejected, match="partition 0, row 4: body is null"):
        list(rows.staged(batches))


# -- unique keys -----------------------------------------------------------------------------------------------


def test_unique_keys_have_rocketmqs_layout_and_are_all_different() -> None:
    keys = UniqueKeys(PartitionId("q", 1, 2), BORN_MS)
    first = list(keys.take(70_000))
    assert len(set(first)) == 70_000
    assert all(len(key) == 32 and key == key.upper() for key in first[::7919])
    assert {key[:12] for key in first} == {first[0][:12]}
    assert first[1][28:] == "0001"
    assert first[65536][12:20] == "00000001"
    assert next(keys.take(1))[28:] == f"{70_000 % 65536:04X}"


def test_the_same_row_gets_the_same_key_and_another_row_another_one() -> None:
    def head(*who: Any) -> str:
        return next(UniqueKeys(PartitionId(*who), BORN_MS).take(1))

    assert head("q", 1, 2) == head("q", 1, 2)
    assert len({head("q", 1, 2), head("q", 2, 1), head("q", 1, 3), head("r", 1, 2), head("q", 12, 0)}) == 5


def test_a_unique_key_of_the_users_own_stays() -> None:
    columns = {"body": pa.array([b"x", b"y"]), "properties": pa.array([[("UNIQ_KEY", "mine")], None], MAP)}
    rows = staged(columns, topic="t", unique_keys=True)
    assert rows[0]["properties"] == {"UNIQ_KEY": "mine"}
    assert len(rows[1]["properties"]["UNIQ_KEY"]) == 32


TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5))
def test_the_short_way_gives_the_bytes_of_the_long_one(pairs: list[tuple[str | None, str | None]]) -> None:
    """Rows without a map of properties are encoded by a short way; messages are not."""
    batch = pa.record_batch(
        [
            pa.array([b"x"] * len(pairs)),
            pa.array([t for t, _ in pairs], pa.string()),
            pa.array([k for _, k in pairs], pa.string()),
        ],
        names=["body", "tags", "keys"],
    )
    unique = list(UniqueKeys(PartitionId("w", 3, 0), BORN_MS).take(len(pairs)))
    try:
        wanted = [
            Message("", tags=t or None, keys=k or (), properties={"UNIQ_KEY": key}).property_bytes()
            for (t, k), key in zip(pairs, unique, strict=True)
        ]
    except MessageRejected:
        with pytest.raises(MessageRejected):
            list(reader(["body", "tags", "keys"], topic="t", unique_keys=True).staged([batch]))
        return
    (out,) = reader(["body", "tags", "keys"], topic="t", unique_keys=True).staged([batch])
    assert out.column("properties").to_pylist() == wanted
