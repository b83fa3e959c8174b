"""Stores as DataFrames in one call, with only the wanted columns read.

    table(spark, "store", ["topic", "keys"], topic="orders", startingTimestamp=yesterday)
    stream(spark, ["broker-a", "broker-b"], ["body"], subscribe=["orders", "returns"])

Spark never tells a Python source which columns a query needs, so somebody has to: here the list of columns
becomes the schema, and what is not in it is neither copied nor sent. Filters are handed to the source by Spark
only when a setting of the session says so, which `table` makes sure of.

Driver side.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from embermq.errors import OptionInvalid
from embermq.spark import schema
from embermq.spark.sessions import PUSH_DOWN, conf_value

FORMAT = "rocketmq"

StorePath = str | Path


def table(
    spark: SparkSession,
    path: StorePath | Iterable[StorePath],
    columns: Iterable[str] | None = None,
    **options: Any,
) -> DataFrame:
    """The stores at `path` (a directory, a glob or several) as they are now; only `columns`, if given.

    `options` are those of the format. Besides text they may be numbers, booleans, datetimes (with a time zone),
    lists (of names) and dicts (of offsets).
    """
    spark.conf.set(PUSH_DOWN, "true")
    texts = {"pushdown": "true"} | option_texts(options)
    reader = spark.read.format(FORMAT).options(**texts)
    if columns is not None:
        reader = reader.schema(_chosen(columns, texts))
    if isinstance(path, str | Path):
        return reader.load(str(path))
    return reader.load([str(one) for one in path])


def stream(
    spark: SparkSession,
    path: StorePath | Iterable[StorePath],
    columns: Iterable[str] | None = None,
    **options: Any,
) -> DataFrame:
    """The same as a stream, which goes on with what is written later."""
    texts = option_texts(options)
    reader = spark.readStream.format(FORMAT).options(**texts)
    if columns is not None:
        reader = reader.schema(_chosen(columns, texts))
    if isinstance(path, str | Path):
        return reader.load(str(path))
    return reader.option("paths", json.dumps([str(one) for one in path])).load()


def option_texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as Spark hands them on: text. None is an option that was not given."""
    return {name: _text(name, value) for name, value in options.items() if value is not None}


def _text(name: str, value: Any) -> str:
    match value:
        case str() | bool() | int() | float():
            return conf_value(value)
        case Path():
            return str(value)
        case datetime():
            if value.tzinfo is None:
                raise OptionInvalid(name, "a datetime needs a time zone, for example tzinfo=UTC", value=value)
            return str(round(value.timestamp() * 1000))
        case Mapping():
            return json.dumps(value)
        case Iterable():
            return ",".join(str(one) for one in value)
    raise OptionInvalid(name, f"a {type(value).__name__} cannot be an option", value=value)


def _chosen(columns: Iterable[str], options: Mapping[str, str]) -> StructType:
    """The schema of exactly these columns, in this order."""
    lower = {name.lower(): value.lower() for name, value in options.items()}
    kafka = lower.get("schemamode") == "kafka"
    whole = schema.spark_schema(
        "kafka" if kafka else "rocketmq",
        corrupt=lower.get("oncorrupt") == "rows",
        headers=lower.get("includeheaders") == "true",
    )
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names:
        raise OptionInvalid("columns", f"at least one is needed, of {', '.join(whole.names)}")
    unknown = [name for name in names if name not in whole.names]
    if unknown:
        raise OptionInvalid("columns", f"there is no column {unknown[0]!r}; there are {', '.join(whole.names)}")
    return StructType([whole[name] for name in names])
