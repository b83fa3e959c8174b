"""The columns: the same types as Spark makes of them, and user-given schemas checked before anything is read."""

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from embermq.errors import OptionInvalid
from embermq.format.message_json import KEYS
from embermq.spark.options.schema import (
    COLUMNS,
    KAFKA_COLUMNS,
    SchemaMode,
    arrow_schema,
    column_names,
    columns_of,
    spark_schema,
)

EVERY_SHAPE: list[tuple[SchemaMode, bool, bool]] = [
    (mode, corrupt, headers) for mode in ("rocketmq", "kafka") for corrupt in (False, True) for headers in (False, True)
]


def refused(schema: StructType, mode: SchemaMode = "rocketmq", *, corrupt: bool = False, headers: bool = False) -> str:
    with pytest.raises(OptionInvalid) as caught:
        column_names(schema, mode, corrupt=corrupt, headers=headers)
    assert caught.value.option == "schema"
    return caught.value.reason


def one(name: str, type_: object = None, *, nullable: bool = True) -> StructType:
    return StructType([StructField(name, type_ or StringType(), nullable)])  # type: ignore[arg-type]


@pytest.mark.parametrize(("mode", "corrupt", "headers"), EVERY_SHAPE)
def test_the_types_are_those_spark_makes(mode: SchemaMode, corrupt: bool, headers: bool) -> None:
    schema = spark_schema(mode, corrupt=corrupt, headers=headers)
    assert arrow_schema(schema).equals(to_arrow_schema(schema, timezone="UTC"), check_metadata=True)
    assert all(field.nullable for field in schema.fields)
    assert column_names(schema, mode, corrupt=corrupt, headers=headers) == tuple(schema.names)


@pytest.mark.parametrize(("mode", "corrupt", "headers"), EVERY_SHAPE)
def test_an_exact_schema_says_what_can_be_null(mode: SchemaMode, corrupt: bool, headers: bool) -> None:
    schema = spark_schema(mode, corrupt=corrupt, headers=headers, exact=True)
    assert arrow_schema(schema).equals(to_arrow_schema(schema, timezone="UTC"), check_metadata=True)
    columns = columns_of(mode, corrupt=corrupt, headers=headers)
    assert [field.nullable for field in schema.fields] == [corrupt or column.may_be_null for column in columns]
    assert column_names(schema, mode, corrupt=corrupt, headers=headers) == tuple(schema.names)
    if mode == "rocketmq":
        assert schema["properties"].dataType == MapType(StringType(), StringType(), False)


def test_the_columns_in_order() -> None:
    assert [column.name for column in COLUMNS if column.name != "brokerName"] == list(KEYS)
    assert [f"{column.name} {column.type.simpleString()}" for column in COLUMNS] == [
        "topic string",
        "brokerName string",
        "queueId int",
        "queueOffset bigint",
        "physicalOffset bigint",
        "msgId string",
        "uniqKey string",
        "tags string",
        "keys string",
        "body binary",
        "properties map<string,string>",
        "flag int",
        "sysFlag int",
        "bornTimestamp timestamp",
        "bornHost string",
        "storeTimestamp timestamp",
        "storeHost string",
        "reconsumeTimes int",
        "preparedTransactionOffset bigint",
        "bodyCrc int",
        "size int",
    ]
    assert [f"{column.name} {column.type.simpleString()}" for column in columns_of("kafka", headers=True)] == [
        "key binary",
        "value binary",
        "topic string",
        "partition int",
        "offset bigint",
        "timestamp timestamp",
        "timestampType int",
        "headers array<struct<key:string,value:binary>>",
    ]
    assert columns_of("kafka") == KAFKA_COLUMNS
    assert columns_of("rocketmq", headers=True) == COLUMNS
    assert [columns_of(mode, corrupt=True)[-1].name for mode in ("rocketmq", "kafka")] == ["_corrupt", "_corrupt"]


def test_every_column_says_what_it_means() -> None:
    for column in {*columns_of("rocketmq", corrupt=True), *columns_of("kafka", headers=True)}:
        assert column.meaning.endswith(".")
        assert len(column.meaning) > 5


def test_a_subset_in_any_order_and_case() -> None:
    schema = StructType([StructField("SIZE", COLUMNS[-1].type), StructField("Topic", StringType(), False)])
    assert column_names(schema, "rocketmq") == ("size", "topic")
    assert arrow_schema(schema) == pa.schema([("SIZE", pa.int32()), pa.field("Topic", pa.string(), False)])


def test_a_schema_without_columns_is_refused() -> None:
    assert "at least one column" in refused(StructType([]))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("toppic", "topic"),
        ("storetime", "storeTimestamp"),
        ("queue_id", "queueId"),
        ("messageId", "msgId"),
        ("bodyCRC32", "bodyCrc"),
        ("key", "keys"),
        ("tag", "tags"),
        ("broker", "brokerName"),
    ],
)
def test_an_unknown_column_is_named_with_the_nearest(name: str, nearest: str) -> None:
    reason = refused(one(name))
    assert f"no column {name};" in reason
    assert nearest in reason


def test_a_column_like_no_other_is_answered_with_all() -> None:
    assert all(column.name in refused(one("xyzzy")) for column in COLUMNS)


def test_columns_that_need_an_option() -> None:
    assert "includeHeaders=true" in refused(one("headers"), "kafka")
    assert "onCorrupt=rows" in refused(one("_corrupt"))
    assert "onCorrupt=rows" in refused(one("_CORRUPT"), "kafka")
    assert column_names(one("_corrupt"), "kafka", corrupt=True) == ("_corrupt",)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (one("queueId", LongType()), "queueId is int, not bigint"),
        (one("body"), "body is binary, not string"),
        (one("storeTimestamp", LongType()), "storeTimestamp is timestamp, not bigint"),
        (one("storeTimestamp", TimestampNTZType()), "storeTimestamp is timestamp, not timestamp_ntz"),
        (one("properties", MapType(StringType(), LongType())), "is map<string,string>, not map<string,bigint>"),
        (one("properties", ArrayType(StringType())), "properties is map<string,string>, not array<string>"),
    ],
)
def test_a_wrong_type(schema: StructType, expected: str) -> None:
    assert expected in refused(schema)


def test_headers_of_another_form() -> None:
    header = StructType([StructField("name", StringType()), StructField("value", StringType())])
    assert "headers is array<struct<key:string,value:binary>>" in refused(
        one("headers", ArrayType(header)), "kafka", headers=True
    )


def test_nothing_that_may_be_null_is_declared_otherwise() -> None:
    assert "can be null" in refused(one("tags", nullable=False))
    assert "can be null" in refused(one("storeTimestamp", TimestampType(), nullable=False))
    assert "can be null" in refused(one("topic", nullable=False), corrupt=True)
    assert column_names(one("topic", nullable=False), "rocketmq") == ("topic",)


def test_parts_of_a_map_declared_not_null_are_taken_over() -> None:
    schema = one("properties", MapType(StringType(), StringType(), valueContainsNull=False))
    assert column_names(schema, "rocketmq") == ("properties",)
    assert arrow_schema(schema).equals(to_arrow_schema(schema, timezone="UTC"))


def test_a_column_named_twice() -> None:
    schema = StructType([StructField("topic", StringType()), StructField("TOPIC", StringType())])
    assert "twice" in refused(schema)
