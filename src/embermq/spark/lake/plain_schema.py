"""The schema that `spark.read.parquet("lake")` sees, also where only some topics have a typed `value`. Driver side.

Spark takes the schema of a directory from one of its files, and that file need not have the column. Where there is a
summary file, `_common_metadata`, Spark takes the schema of that one. So a lake of Parquet files with schemas of JSON
bodies has such a file at its root, with the fields of all topics, and one in the folder of each of these topics, with
the fields of the topic. Other readers ignore names that begin with `_`.
Why so: docs/decisions/0021-plain-reads-of-a-lake.md.

Written after a commit, and again when a commit is completed after a crash: a file is only replaced by a newer one.
"""

import io
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import DataType, StructField, StructType

from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.json_bodies import VALUE, value_type
from embermq.spark.lake.names import SUMMARY, topic_folder
from embermq.spark.options.schema import arrow_schema, spark_schema


def write_plain_schemas(files: LakeFiles, schemas: Mapping[str, StructType]) -> None:
    """Bring the summary files up to date; a lake without schemas has none."""
    if not schemas:
        return
    _write(files, SUMMARY, common_value(schemas.values()))
    for topic, schema in schemas.items():
        _write(files, f"{topic_folder(topic, as_table=False)}/{SUMMARY}", schema)


def common_value(schemas: Iterable[StructType]) -> StructType:
    """The fields of all these schemas. A field that two of them type differently, or spell differently in upper and
    lower case, is left out: one column cannot be both, and Spark refuses two names that differ only in case."""
    merged = StructType([])
    dropped: set[str] = set()
    for schema in schemas:
        merged = _merged(merged, schema, dropped, "")
    return StructType([field for field in merged.fields if field.name.lower() not in dropped])


def _merged(one: StructType, other: StructType, dropped: set[str], top: str) -> StructType:
    """`dropped` collects names of the first level, in lower case, that are left out; `top` is the one this is in."""
    fields = {field.name.lower(): StructField(field.name, field.dataType) for field in one.fields}
    for field in other.fields:
        key = field.name.lower()
        first = top or key
        known = fields.setdefault(key, StructField(field.name, field.dataType))
        if known.name != field.name:
            dropped.add(first)
        elif isinstance(known.dataType, StructType) and isinstance(field.dataType, StructType):
            fields[key] = StructField(known.name, _merged(known.dataType, field.dataType, dropped, first))
        elif not _is_same(known.dataType, field.dataType):
            dropped.add(first)
    return StructType(list(fields.values()))


def _is_same(one: DataType, other: DataType) -> bool:
    """Are they the same in a file, where everything may be null?"""
    return bool(value_type(one).equals(value_type(other)))


def _write(files: LakeFiles, name: str, value: StructType) -> None:
    # The topic is in the path of a file, and not among its columns.
    fields = [field for field in arrow_schema(spark_schema("rocketmq")) if field.name != "topic"]
    if value.fields:
        fields.append(pa.field(VALUE, value_type(value)))
    content = io.BytesIO()
    pq.write_metadata(pa.schema(fields), content)
    data = content.getvalue()
    if not files.exists(name) or files.read(name) != data:
        files.write(name, data)
