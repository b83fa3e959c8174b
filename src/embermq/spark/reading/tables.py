"""Stores as DataFrames in one call, with only the wanted columns read.

    table(spark, "store", ["topic", "keys"], topic="orders", startingTimestamp=yesterday)
    table(spark, "store", ["keys", "body"], topic="orders", lake="lake")       # archived ranges come from the lake
    table(spark, "store", topic="orders", shipped="s3://bucket/logs")          # what the log has lost, from its copy
    stream(spark, ["broker-a", "broker-b"], ["body"], subscribe=["orders", "returns"])
    stream(spark, columns=["body"], nameServer="127.0.0.1:9876", topic="orders")          # a running cluster

Spark never tells a Python source which columns a query needs, so the user has to: here the list of columns
becomes the schema, and what is not in it is neither copied nor sent. Filters are handed to the source by Spark
only when a setting of the session says so, which `table` makes sure of. What is wrong with options or columns is
said at once, by an OptionInvalid.

Spark plans a table anew only for queries that have a filter; one without gets the plan of the last that had one, rows
missing. So a table comes with a filter that every row passes, on a column that every row has.

Driver side.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from embermq.errors import OptionInvalid, SettingsError
from embermq.spark.options.read_options import ReadOptions, parse
from embermq.spark.options.schema import column_names, spark_schema
from embermq.spark.runtime.sessions import PUSH_DOWN, conf_value

FORMAT = "rocketmq"

StorePath = str | Path


def table(
    spark: SparkSession,
    path: StorePath | Iterable[StorePath] | None = None,
    columns: Iterable[str] | None = None,
    *,
    lake: str | None = None,
    shipped: str | None = None,
    **options: object,
) -> DataFrame:
    """The stores at `path` (a directory, a glob or several) as they are now; only `columns`, if given. Without a path,
    the cluster that the option nameServer names.

    `options` are those of the format. Besides text they may be numbers, booleans, datetimes (with a time zone),
    lists (of names) and dicts (of offsets); None is an option that is not given. With `lake`, what is archived there
    comes from there, and only topics, system topics and data loss can be spoken of: offsets and times are filters then.
    The same with `shipped`, where `ship` put copies of the logs: what a log no longer has comes from its copy; there
    also keys can be spoken of.
    """
    texts = option_texts(options, path)
    parsed = parse(texts, streaming=False)
    if lake is not None or shipped is not None:
        return _with_history(spark, list(parsed.paths), chosen_schema(columns, parsed), lake, shipped, options, parsed)
    schema = chosen_schema(columns, parsed)
    reading = spark.read.format(FORMAT).options(**texts)
    if _is_said(options, "pushdown") or (parsed.schema_mode == "kafka" and parsed.on_corrupt == "rows"):
        with _format_found():
            return reading.schema(schema).load()
    spark.conf.set(PUSH_DOWN, "true")
    place = "offset" if parsed.schema_mode == "kafka" else "physicalOffset"
    has_place = place.lower() in map(str.lower, schema.names)
    wider = schema if has_place else StructType([*schema.fields, StructField(place, LongType())])
    with _format_found():
        rows = reading.option("pushdown", "true").schema(wider).load()
    return rows.where(f"{place} >= 0").select(*schema.names)


@contextmanager
def _format_found() -> Iterator[None]:
    """Inside, a format that Spark does not find is an error that says where Spark looks, without Java's stack."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as problem:
        if "[DATA_SOURCE_NOT_FOUND]" not in str(problem):
            raise
        raise SettingsError(
            f"Spark does not find the format {FORMAT}: it looks for formats with the Python that PYSPARK_PYTHON named"
            " when the session was made, else with `python3` of the PATH, and that one does not have this package; set"
            f" PYSPARK_PYTHON={sys.executable} before the session is made, or make it with embermq.spark.session()"
        ) from None


def _is_said(options: Mapping[str, object], name: str) -> bool:
    return any(one.lower() == name and value is not None for one, value in options.items())


_WITH_LAKE = {"storeconfig", "commitlogpath", "topic", "subscribe", "includesystemtopics", "failondataloss"}


def _with_history(
    spark: SparkSession,
    paths: list[str],
    schema: StructType,
    lake: str | None,
    shipped: str | None,
    options: Mapping[str, object],
    parsed: ReadOptions,
) -> DataFrame:
    from embermq.spark.reading.views import messages  # It is made of tables.

    known, other = (_WITH_LAKE, "a lake") if lake is not None else (_WITH_LAKE | {"keys"}, "a shipped copy")
    for name, value in options.items():
        if value is not None and name.lower() not in known:
            raise OptionInvalid(name, f"not together with {other}; use a filter on the table instead", value=value)
    rows = messages(
        spark,
        paths,
        lake=lake,
        topics=parsed.topics,
        include_system=parsed.include_system_topics,
        fail_on_data_loss=parsed.fail_on_data_loss,
        shipped=shipped,
        keys=parsed.keys,
    )
    return rows.select(*schema.names)


def stream(
    spark: SparkSession,
    path: StorePath | Iterable[StorePath] | None = None,
    columns: Iterable[str] | None = None,
    **options: object,
) -> DataFrame:
    """The same as a stream, which goes on with what is written later."""
    texts = option_texts(options, path)
    parsed = parse(texts, streaming=True)
    reading = spark.readStream.format(FORMAT).options(**texts).schema(chosen_schema(columns, parsed))
    with _format_found():
        return reading.load()


def option_texts(options: Mapping[str, object], path: StorePath | Iterable[StorePath] | None) -> dict[str, str]:
    """Options as Spark hands them on: text. Without a path one of them has to be nameServer."""
    texts = {name: _text(name, value) for name, value in options.items() if value is not None}
    return texts if path is None else texts | {"paths": json.dumps(path_texts(path))}


def path_texts(path: StorePath | Iterable[StorePath] | None) -> list[str]:
    """The paths that one or several are; OptionInvalid for what is none."""
    paths: list[object] = [path] if isinstance(path, str | Path) or not isinstance(path, Iterable) else list(path)
    for one in paths:
        if not isinstance(one, str | Path):
            raise OptionInvalid(
                "path",
                "must be a store directory, a glob or an address, as text or a Path, or several of them",
                value=one,
            )
    return [str(one) for one in paths]


def _text(name: str, value: object) -> str:
    match value:
        case str() | bool() | int() | float():
            return conf_value(value)
        case datetime():
            if value.tzinfo is None:
                raise OptionInvalid(name, "a datetime needs a time zone, for example tzinfo=UTC", value=str(value))
            return str(round(value.timestamp() * 1000))
        case Mapping():
            return json.dumps(value)
        case Iterable():
            # A key may hold any character; topics and queue numbers have no commas.
            texts = [str(one) for one in value]
            return json.dumps(texts) if name.lower() in ("keys", "storeconfig") else ",".join(texts)
    raise OptionInvalid(name, f"a {type(value).__name__} cannot be an option")


def chosen_schema(columns: Iterable[str] | None, options: ReadOptions) -> StructType:
    """The schema of exactly these columns, in this order; OptionInvalid for a column there is not."""
    corrupt, headers = options.on_corrupt == "rows", options.include_headers
    whole = spark_schema(options.schema_mode, corrupt=corrupt, headers=headers, exact=True)
    if columns is None:
        return whole
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names:
        raise OptionInvalid("columns", f"at least one is needed, of {', '.join(whole.names)}")
    known = {field.name.lower(): field for field in whole.fields}
    schema = StructType()
    for name in names:
        field = known.get(name.lower(), StructField(name, StringType()))
        schema.add(name, field.dataType, field.nullable)
    column_names(schema, options.schema_mode, corrupt=corrupt, headers=headers)
    return schema
