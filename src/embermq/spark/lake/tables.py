"""Lakes whose topics are tables of Delta or Iceberg: what is asked of such a format, and which there are.

The lake's own commits stay what decides: a commit lists files that are written and read back, and only then they are
published into the tables of their topics, each table by itself. Publishing again what is there does nothing: every
table remembers the number of the last commit it took, changed in the same step in which the files appear. So a kill
anywhere leaves a commit that the next writer publishes to its end. Driver side.
"""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from itertools import groupby
from typing import Protocol

import pyarrow as pa
from pyspark.sql.types import StructType

from embermq.errors import OptionInvalid
from embermq.spark.lake.commits import LakeCommit, LakeFile, LakeFormat, LakeHead
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.json_bodies import VALUE, value_type
from embermq.spark.options.schema import arrow_schema, spark_schema

FORMATS: tuple[LakeFormat, ...] = ("parquet", "delta", "iceberg")
_PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}


class LakeTables(Protocol):
    """The tables of one lake."""

    def publish(self, topic: str, files: list[LakeFile], commit: LakeCommit, schema: pa.Schema) -> None:
        """Let files appear in the table of a topic, unless it has them: the table is made if there is none, and
        columns that are new are added."""

    def paths(self, topic: str) -> list[str]:
        """The files of a table as it is now; none if there is no such table."""

    def rows(self, topic: str) -> int:
        """How many rows a table has."""

    def compact(self, topic: str, file_bytes: int | None) -> tuple[int, int]:
        """Join small files, into such of this size if it is given; how many files there were and are."""


def require_format(format_: str) -> None:
    """OptionInvalid if there is no such format, or what it needs is not installed."""
    if format_ not in FORMATS:
        raise OptionInvalid("lake-format", f"choose from {', '.join(FORMATS)}", value=format_)
    package = _PACKAGES.get(format_)
    if package is not None and find_spec(package) is None:
        raise OptionInvalid(
            "lake-format", f"{package} is not installed: pip install 'embermq[{format_}]'", value=format_
        )


def open_tables(head: LakeHead, files: LakeFiles) -> LakeTables | None:
    """The tables of a lake; None if its files are all there is."""
    require_format(head.format)
    if head.format == "delta":
        from embermq.spark.lake.delta import DeltaTables

        return DeltaTables(files, head)
    if head.format == "iceberg":
        from embermq.spark.lake.iceberg import IcebergTables

        return IcebergTables(files, head)
    return None


def publish(tables: LakeTables, commit: LakeCommit, schemas: Mapping[str, StructType]) -> None:
    """A commit's files into the tables of their topics."""
    for topic, files in groupby(sorted(commit.files, key=lambda file: file.topic), key=lambda file: file.topic):
        tables.publish(topic, list(files), commit, table_schema(schemas.get(topic)))


def table_schema(value: StructType | None) -> pa.Schema:
    """The columns of a topic's files in a lake of tables."""
    schema = arrow_schema(spark_schema("rocketmq"))
    return schema if value is None else schema.append(pa.field(VALUE, value_type(value)))


def stretch_of(commit: LakeCommit) -> str:
    """Which stretches of which logs a commit holds, for people who look at a table's history."""
    return ", ".join(f"{one.broker_name} {one.start} to {one.end}" for one in commit.ranges)


def paths_of(tables: LakeTables, topics: Iterable[str]) -> list[str]:
    return [path for topic in topics for path in tables.paths(topic)]
