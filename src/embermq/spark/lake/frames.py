"""A lake's rows as a DataFrame: from its own files, or from those that its tables have now; and JSON bodies of any rows
as a column, decoded as the lake does it. Driver side.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, reduce
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from embermq.errors import StoreError
from embermq.spark.lake.commits import LakeQueueRange, LakeRange
from embermq.spark.lake.json_bodies import VALUE, BodyDecoder
from embermq.spark.lake.spark_paths import literal
from embermq.spark.options.schema import spark_schema
from embermq.spark.runtime.newer_spark import JSON_VALUES, require

_DAY = "date_format(to_utc_timestamp(storeTimestamp, current_timezone()), 'yyyy-MM-dd')"
_HELD = "topic string, brokerName string, queueId int, start bigint, end bigint"


def file_frame(spark: SparkSession, root: str, paths: Sequence[str], value: StructType | None) -> DataFrame:
    """Rows of files by topic and day. The schema is ours, so a column or field that an older file lacks is null."""
    fields = _fields(value)
    stored = StructType([*(one for one in fields if one.name != "topic"), StructField("topic", StringType())])
    stored = stored.add(StructField("date", StringType()))
    names = [*(one.name for one in fields), "date"]
    if not paths:
        return spark.createDataFrame([], stored).select(*names)
    with _naming_missing_files():
        read = spark.read.schema(stored).option("basePath", root).parquet(*literal(paths))
    return read.select(*names)


def table_frame(
    spark: SparkSession, paths: Sequence[str], ranges: Mapping[str, Sequence[LakeRange]], value: StructType | None
) -> DataFrame:
    """Rows of tables, which may already have more than the commits that were read: only what those say."""
    frame = _table_rows(spark, paths if ranges else (), value)
    if paths and ranges:
        frame = frame.where(reduce(lambda one, other: one | other, (_held(*item) for item in ranges.items())))
    return frame.withColumn("date", F.expr(_DAY))


def queue_table_frame(
    spark: SparkSession, paths: Sequence[str], queues: Sequence[LakeQueueRange], value: StructType | None
) -> DataFrame:
    """The same of a lake whose commits name ranges of queues."""
    frame = _table_rows(spark, paths if queues else (), value)
    if paths and queues:
        rows = [(one.topic, one.broker_name, one.queue_id, one.start, one.end) for one in queues]
        held = F.broadcast(spark.createDataFrame(rows, _HELD)).alias("held")
        same = [F.col(f"row.{name}") == F.col(f"held.{name}") for name in ("topic", "brokerName", "queueId")]
        at = F.col("row.queueOffset")
        inside = [*same, at >= F.col("held.start"), at < F.col("held.end")]
        frame = frame.alias("row").join(held, reduce(lambda one, other: one & other, inside), "left_semi")
    return frame.withColumn("date", F.expr(_DAY))


def _table_rows(spark: SparkSession, paths: Sequence[str], value: StructType | None) -> DataFrame:
    stored = StructType(_fields(value))
    if not paths:
        return spark.createDataFrame([], stored)
    # Without a look at the folders: each topic has its own, and `date` is in their names.
    with _naming_missing_files():
        return spark.read.schema(stored).option("recursiveFileLookup", "true").parquet(*literal(paths))


@contextmanager
def _naming_missing_files() -> Iterator[None]:
    try:
        yield
    except AnalysisException as problem:
        if problem.getCondition() != "PATH_NOT_FOUND":
            raise
        place = (problem.getMessageParameters() or {}).get("path", "")
        raise StoreError(f"{place}: this file of the lake is missing; restore it") from None


def _fields(value: StructType | None) -> list[StructField]:
    more = [] if value is None else [StructField(VALUE, _relaxed(value))]
    return [*spark_schema("rocketmq").fields, *more]


def _held(broker_name: str, ranges: Sequence[LakeRange]) -> Column:
    at = F.col("physicalOffset")
    inside = reduce(lambda one, other: one | other, ((at >= one.start) & (at < one.end) for one in ranges))
    return (F.col("brokerName") == broker_name) & inside


def with_values(frame: DataFrame, schema: StructType) -> DataFrame:
    """The rows with their bodies decoded, in a last column. Costs nothing where that column is not asked for."""
    require(JSON_VALUES)
    from pyspark.sql.pandas.functions import arrow_udf

    text = schema.json()

    def decode(bodies: pa.Array) -> pa.Array:
        return _decoder(text).decode(bodies)[0]

    made: Any = arrow_udf  # Its types leave out structs, which it takes.
    return frame.withColumn(VALUE, made(decode, _relaxed(schema))("body"))


@lru_cache(maxsize=64)
def _decoder(text: str) -> BodyDecoder:
    """In a worker: made once for many batches."""
    return BodyDecoder(StructType.fromJson(json.loads(text)))


def _relaxed(type_: DataType) -> DataType:
    """The type with everything nullable: a body that lacks what it must have gives no value at all."""
    match type_:
        case StructType():
            return StructType([StructField(one.name, _relaxed(one.dataType)) for one in type_.fields])
        case ArrayType():
            return ArrayType(_relaxed(type_.elementType))
        case MapType():
            return MapType(type_.keyType, _relaxed(type_.valueType))
    return type_
