"""Batch reads over the wire without a Spark session: the reader's own steps, in this process.

Between them the reader and its slices are pickled, as Spark does.
"""

import pickle
import uuid
from typing import Any

from embermq.spark.options.schema import arrow_schema, spark_schema
from embermq.spark.reading.batch_reader import batch_reader
from embermq.spark.wire.pulling import WireSlice

Row = dict[str, Any]


def wire_slices(name_server: str, *, filters: Any = None, **options: str) -> list[WireSlice]:
    """What the tasks of a read would get."""
    options |= {"nameServer": name_server}
    if filters is not None:
        options["pushdown"] = "true"
    reader = batch_reader(_schema(options), options, uuid.uuid4().hex)
    if filters is not None:
        assert list(reader.pushFilters(filters)) == filters, "Spark compares them again"
    pickle.loads(pickle.dumps(reader))
    slices: list[WireSlice] = pickle.loads(pickle.dumps(reader.partitions()))
    return slices


def wire_rows(name_server: str, *, filters: Any = None, **options: str) -> list[Row]:
    """The rows of a read, slice by slice."""
    slices = wire_slices(name_server, filters=filters, **options)
    schema = _schema(options)
    reader = batch_reader(schema, options | {"nameServer": name_server}, "t")
    batches: list[Any] = [batch for one in slices for batch in reader.read(one)]
    assert all(batch.schema.equals(arrow_schema(schema)) for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def _schema(options: dict[str, str]) -> Any:
    return spark_schema("rocketmq", corrupt=options.get("onCorrupt") == "rows", exact=True)
