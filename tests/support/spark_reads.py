"""Batch reads without a Spark session: the reader's own steps, in this process, with what they cost.

What Spark does between them (pickling the reader and its slices, other processes) is done here too, except for the
processes. Tests that need Spark itself use its session; most do not.
"""

import json
import pickle
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from embermq.spark.options.schema import spark_schema
from embermq.spark.reading.batch_reader import RocketMQBatchReader, batch_reader
from embermq.spark.reading.slices import Counts, Slice, read_slice

Row = dict[str, Any]


@dataclass(frozen=True)
class Read:
    """The rows of a read, and how they came."""

    table: pa.Table
    slices: list[Slice]
    counts: Counts

    @property
    def rows(self) -> list[Row]:
        rows: list[Row] = self.table.to_pylist()
        return rows

    @property
    def methods(self) -> set[str]:
        return {type(one.cut).__name__.removesuffix("Cut").lower() for one in self.slices}

    def column(self, name: str) -> list[Any]:
        values: list[Any] = self.table.column(name).to_pylist()
        return values


def read(*paths: Path, filters: Any = None, schema: Any = None, **options: str) -> Read:
    """What `spark.read.format("rocketmq").options(...).load(paths)` would give, filters (a list) given by hand.

    `schema` is a StructType, or names of columns."""
    if filters is not None:
        options.setdefault("pushdown", "true")
    reader = reader_of(*paths, schema=schema, **options)
    if filters is not None:
        assert list(reader.pushFilters(filters)) == filters, "Spark compares them again"
    pickle.loads(pickle.dumps(reader))
    slices: list[Slice] = pickle.loads(pickle.dumps(reader.partitions()))
    counts = Counts()
    arrow = arrow_schema_of(reader)
    batches = [batch for one in slices for batch in read_slice(one, counts)]
    assert all(batch.schema.equals(arrow) for batch in batches)
    table = pa.Table.from_batches(batches, arrow)
    assert table.num_rows == counts.rows
    return Read(table, slices, counts)


def reader_of(*paths: Path, schema: Any = None, **options: str) -> RocketMQBatchReader:
    given = {name.lower(): value for name, value in options.items()}
    given["paths"] = json.dumps([str(path) for path in paths])
    whole = spark_schema(
        "kafka" if given.get("schemamode") == "kafka" else "rocketmq",
        corrupt=given.get("oncorrupt") == "rows",
        headers=given.get("includeheaders") == "true",
        exact=True,
    )
    if schema is None:
        schema = whole
    elif not isinstance(schema, StructType):
        schema = StructType([whole[name] for name in schema])
    reader = batch_reader(schema, given, uuid.uuid4().hex)
    assert isinstance(reader, RocketMQBatchReader)
    return reader


def arrow_schema_of(reader: RocketMQBatchReader) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(reader.reading.schema, timezone="UTC")
