"""Schemas that users give for the JSON bodies of topics: read, checked, and joined with what a lake recorded.

    read_schemas({"orders": "id string, amount decimal(10,2)", "returns": StructType([...])})

A schema is a DDL text as Spark reads it, the JSON that `df.schema.json()` writes, or a StructType. A lake remembers
the schema of a topic; a later one may add fields, at any depth, and may not contradict. `not null` means that a body
without the field does not fit. Driver side: DDL is read by Spark.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from pyspark.errors import PySparkException
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

from embermq.errors import OptionInvalid

JsonSchemas = Mapping[str, str | StructType]
_PLAIN = (
    StringType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DecimalType,
    DateType,
    TimestampType,
)
_TAKEN = "string, binary, boolean, int, bigint, float, double, decimal, date, timestamp, array, struct, map<string, …>"


def read_schemas(given: JsonSchemas | None) -> dict[str, StructType]:
    """What the user gave, as types; OptionInvalid for what is none, or has a type that JSON bodies cannot have."""
    return {topic: _read(topic, schema) for topic, schema in (given or {}).items()}


def schemas_in_words(words: tuple[str, ...]) -> dict[str, str]:
    """`orders=schema.json` and `orders=id string, …` of a command line; a file may hold either form."""
    found: dict[str, str] = {}
    for word in words:
        topic, equals, schema = word.partition("=")
        topic, schema = topic.strip(), schema.strip()
        if not equals or not topic or not schema:
            raise OptionInvalid("json", "write TOPIC=FILE or TOPIC='field type, …'", value=word)
        if topic in found:
            raise OptionInvalid("json", f"topic {topic} is named twice")
        found[topic] = _text_of(topic, schema)
    return found


def _text_of(topic: str, schema: str) -> str:
    path = Path(schema).expanduser()
    try:
        if path.is_file():
            return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is no text"
        raise OptionInvalid("json", f"topic {topic}: the file {schema} cannot be read: {reason}") from None
    if not any(sign in schema for sign in " \t:{"):  # A schema has at least a name and a type.
        raise OptionInvalid("json", f"topic {topic}: there is no file {schema}, and it is no schema either")
    return schema


def _read(topic: str, given: str | StructType) -> StructType:
    try:
        schema = _parse(given) if isinstance(given, str) else given
    except (PySparkException, ValueError, KeyError, TypeError) as problem:
        reason = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise OptionInvalid("json", f"topic {topic}: this is no schema: {reason}") from None
    if not isinstance(schema, StructType) or not schema.fields:
        raise OptionInvalid("json", f"topic {topic}: name at least one field and its type")
    _check(topic, "", schema)
    return schema


def _parse(text: str) -> DataType:
    return StructType.fromJson(json.loads(text)) if text.lstrip().startswith("{") else StructType.fromDDL(text)


def _check(topic: str, path: str, type_: DataType) -> None:
    match type_:
        case StructType():
            seen: set[str] = set()
            for field in type_.fields:
                place = f"{path}.{field.name}" if path else field.name
                if field.name.lower() in seen:
                    raise OptionInvalid("json", f"topic {topic}: field {place} is there twice (upper or lower case)")
                seen.add(field.name.lower())
                _check(topic, place, field.dataType)
        case ArrayType():
            _check(topic, f"{path}[]", type_.elementType)
        case MapType() if isinstance(type_.keyType, StringType):
            _check(topic, f"{path}{{}}", type_.valueType)
        case _ if type(type_) not in _PLAIN:
            raise OptionInvalid(
                "json", f"topic {topic}: field {path} is {type_.simpleString()}; bodies can have {_TAKEN}"
            )


def merged(topic: str, known: StructType, given: StructType) -> StructType:
    """All fields of both, the known ones first; OptionInvalid if the two contradict each other."""
    joined = _merged(topic, "", known, given)
    assert isinstance(joined, StructType)
    return joined


def _merged(topic: str, path: str, known: DataType, given: DataType) -> DataType:
    match known, given:
        case StructType(), StructType():
            return _merged_fields(topic, path, known, given)
        case ArrayType(), ArrayType():
            inner = _merged(topic, f"{path}[]", known.elementType, given.elementType)
            return ArrayType(inner, known.containsNull or given.containsNull)
        case MapType(), MapType():
            inner = _merged(topic, f"{path}{{}}", known.valueType, given.valueType)
            return MapType(StringType(), inner, known.valueContainsNull or given.valueContainsNull)
    if known != given:
        raise OptionInvalid(
            "json",
            f"topic {topic}: field {path} is {known.simpleString()} in the lake and {given.simpleString()} here;"
            " give it the same type, or a new name",
        )
    return known


def _merged_fields(topic: str, path: str, known: StructType, given: StructType) -> StructType:
    fields = {field.name: field for field in known.fields}
    spelled = {name.lower(): name for name in fields}
    for field in given.fields:
        place = f"{path}.{field.name}" if path else field.name
        before = spelled.get(field.name.lower(), field.name)
        if before != field.name:
            raise OptionInvalid(
                "json",
                f"topic {topic}: field {place} ({field.dataType.simpleString()}) is spelled {before}"
                f" ({fields[before].dataType.simpleString()}) in the lake; tables cannot tell the two apart",
            )
        old = fields.get(field.name)
        if old is None:
            fields[field.name] = StructField(field.name, field.dataType, field.nullable)
        else:
            type_ = _merged(topic, place, old.dataType, field.dataType)
            fields[field.name] = StructField(field.name, type_, old.nullable or field.nullable)
    return StructType(list(fields.values()))
