"""The columns a message has in Spark, in both shapes: RocketMQ's own names, and those of Spark's Kafka source.

`COLUMNS` and `KAFKA_COLUMNS` are the one place that says what there is, of which type and with which meaning;
documents are made from them. Everything here is pure and runs on the driver and in workers alike.

A schema given by the user may leave columns out and order them at will: what is left out is never made, which is
the way to read less. Names are compared as Spark does, without regard to case; the user's spelling stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from embermq.errors import OptionInvalid

SchemaMode = Literal["rocketmq", "kafka"]
_LIKENESS = 0.5  # how much a wrong name must resemble a right one to be worth mentioning


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name and type in Spark, what it means, and whether a whole record may lack it."""

    name: str
    type: DataType
    meaning: str
    may_be_null: bool = False


_TEXT, _BYTES, _INT, _LONG, _TIME = StringType(), BinaryType(), IntegerType(), LongType(), TimestampType()
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TIME_RANGE = "null outside the years 1 to 9999, which Spark cannot show"

COLUMNS: tuple[Column, ...] = (
    Column("topic", _TEXT, "Topic of the record; for a delayed or half message, a system topic."),
    Column(
        "brokerName", _TEXT, "Broker of the store: brokerName of its broker.conf, otherwise the name of the directory."
    ),
    Column("queueId", _INT, "Queue within the topic."),
    Column("queueOffset", _LONG, "Number of the message in its queue, from 0."),
    Column("physicalOffset", _LONG, "Position of the record's first byte in the commit log."),
    Column(
        "msgId",
        _TEXT,
        "Offset message id of RocketMQ's tools: store host and physicalOffset in upper-case hexadecimal digits, 32 for"
        " IPv4, 56 for IPv6.",
    ),
    Column("uniqKey", _TEXT, "Message id set by the producer (property UNIQ_KEY); clients call it msgId.", True),
    Column("tags", _TEXT, "Tag of the message (property TAGS).", True),
    Column("keys", _TEXT, "Keys of the message as stored (property KEYS), separated by spaces.", True),
    Column(
        "body",
        _BYTES,
        "Body as sent by the producer. Compressed bodies are decompressed, unless decompress=false is set.",
    ),
    Column(
        "properties",
        MapType(StringType(), StringType()),
        "All properties in stored order, including TAGS, KEYS and UNIQ_KEY. If a name occurs twice, the last value.",
    ),
    Column("flag", _INT, "Flag set by the producer."),
    Column(
        "sysFlag",
        _INT,
        "System flags: 0x1 body compressed, 0xC transaction (0x4 prepared, 0x8 commit, 0xC rollback), 0x10 and 0x20"
        " born and store host are IPv6, 0x700 compression type.",
    ),
    Column("bornTimestamp", _TIME, f"When the producer created the message, by its clock; {_TIME_RANGE}.", True),
    Column("bornHost", _TEXT, "Address of the producer: `ip:port`, or `[ip]:port` for IPv6."),
    Column("storeTimestamp", _TIME, f"When the broker stored the message, by its clock; {_TIME_RANGE}.", True),
    Column("storeHost", _TEXT, "Address of the broker: `ip:port`, or `[ip]:port` for IPv6."),
    Column("reconsumeTimes", _INT, "Number of times that consumers have sent the message back."),
    Column("preparedTransactionOffset", _LONG, "physicalOffset of the half message of a transaction; 0 for others."),
    Column("bodyCrc", _INT, "CRC-32 of the stored body without its top bit, as stored in the record."),
    Column("size", _INT, "Bytes of the whole record in the commit log."),
)

KAFKA_COLUMNS: tuple[Column, ...] = (
    Column("key", _BYTES, "Keys of the message (property KEYS) as one text in UTF-8.", True),
    Column("value", _BYTES, "Body; decompressed unless decompress=false."),
    Column("topic", _TEXT, "Topic."),
    Column("partition", _INT, "Queue within the topic."),
    Column("offset", _LONG, "Number of the message in its queue, from 0."),
    Column("timestamp", _TIME, f"When the broker stored the message; {_TIME_RANGE}.", True),
    Column("timestampType", _INT, "Always 1: log append time."),
)

HEADERS = Column(
    "headers",
    ArrayType(_HEADER),
    "All properties in stored order, values in UTF-8; null when there are none. Only with includeHeaders=true.",
    True,
)

CORRUPT = Column(
    "_corrupt",
    _TEXT,
    "Why a range of the log is corrupt; null for a message. Such a row has brokerName,"
    " physicalOffset and size of the range, and nothing else. Only with onCorrupt=rows.",
    True,
)

# What makes up most of a message.
BODIES = frozenset({"body", "properties", "value", "headers"})


def columns_of(mode: SchemaMode, *, corrupt: bool = False, headers: bool = False) -> tuple[Column, ...]:
    """The columns there are, in order."""
    chosen = COLUMNS if mode == "rocketmq" else KAFKA_COLUMNS
    if mode == "kafka" and headers:
        chosen += (HEADERS,)
    return (*chosen, CORRUPT) if corrupt else chosen


def spark_schema(mode: SchemaMode, *, corrupt: bool = False, headers: bool = False, exact: bool = False) -> StructType:
    """All columns, nullable; with `exact` only those that can be null.

    Reads are exact: Spark looks for no null where there is none, and makes a row with less work. What outlives a read,
    as the files of a lake, does not say that much, so that it can be joined with what others wrote.
    """
    fields = []
    for column in columns_of(mode, corrupt=corrupt, headers=headers):
        if not exact:
            fields.append(StructField(column.name, column.type))
        else:
            fields.append(StructField(column.name, _without_null_values(column.type), column.may_be_null or corrupt))
    return StructType(fields)


def _without_null_values(type_: DataType) -> DataType:
    """A property always has a value."""
    return MapType(type_.keyType, type_.valueType, False) if isinstance(type_, MapType) else type_


def column_names(
    schema: StructType, mode: SchemaMode, *, corrupt: bool = False, headers: bool = False
) -> tuple[str, ...]:
    """Which of our columns each field of `schema` is, in the order of the fields; OptionInvalid when one is none."""
    known = {column.name.lower(): column for column in columns_of(mode, corrupt=corrupt, headers=headers)}
    names: list[str] = []
    if not schema.fields:  # Spark would count no rows at all: it loses those that have no columns.
        raise OptionInvalid("schema", "name at least one column; to count messages, queueId costs least")
    for field in schema.fields:
        column = known.get(field.name.lower())
        if column is None:
            raise OptionInvalid("schema", _unknown(field.name, mode, [column.name for column in known.values()]))
        if not _is_type(field.dataType, column.type):
            expected, given = column.type.simpleString(), field.dataType.simpleString()
            raise OptionInvalid("schema", f"column {field.name} is {expected}, not {given}")
        if not field.nullable and (column.may_be_null or corrupt):
            raise OptionInvalid("schema", f"column {field.name} can be null: do not declare it NOT NULL")
        if column.name in names:
            raise OptionInvalid("schema", f"column {field.name} is named twice")
        names.append(column.name)
    return tuple(names)


def _unknown(name: str, mode: SchemaMode, known: Sequence[str]) -> str:
    by_lower = {one.lower(): one for one in known}
    near = [by_lower[one] for one in get_close_matches(name.lower(), by_lower, n=3, cutoff=_LIKENESS)]
    if near:
        return f"there is no column {name}; did you mean {' or '.join(near)}?"
    if name.lower() == HEADERS.name and mode == "kafka":
        return f"column {name} needs includeHeaders=true"
    if name.lower() == CORRUPT.name:
        return f"column {name} needs onCorrupt=rows"
    return f"there is no column {name}; there are {', '.join(known)}"


def _is_type(given: DataType, expected: DataType) -> bool:
    """The same type; whether parts of it may be null does not matter, as they never are."""
    match given, expected:
        case MapType(), MapType():
            return _is_type(given.keyType, expected.keyType) and _is_type(given.valueType, expected.valueType)
        case ArrayType(), ArrayType():
            return _is_type(given.elementType, expected.elementType)
        case StructType(), StructType():
            return given.names == expected.names and all(
                _is_type(one.dataType, other.dataType) for one, other in zip(given.fields, expected.fields, strict=True)
            )
    return given == expected


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types Spark accepts for `schema`, exactly: names, order, nullability, plain (not large) types."""
    return pa.schema([_arrow_field(field.name, field.dataType, field.nullable) for field in schema.fields])


def _arrow_field(name: str, type_: DataType, nullable: bool) -> pa.Field:
    return pa.field(name, _arrow_type(type_), nullable)


def _arrow_type(type_: DataType) -> pa.DataType:
    match type_:
        case StringType():
            return pa.string()
        case BinaryType():
            return pa.binary()
        case IntegerType():
            return pa.int32()
        case LongType():
            return pa.int64()
        case TimestampType():
            return pa.timestamp("us", "UTC")
        case MapType():
            key = _arrow_field("key", type_.keyType, False)
            return pa.map_(key, _arrow_field("value", type_.valueType, type_.valueContainsNull))
        case ArrayType():
            return pa.list_(_arrow_field("element", type_.elementType, type_.containsNull))
        case StructType():
            return pa.struct([_arrow_field(field.name, field.dataType, field.nullable) for field in type_.fields])
    raise AssertionError(type_)
