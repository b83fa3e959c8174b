"""Batch reads: Spark's questions on the driver, answered with slices, and slices read in tasks.

    reader(schema)     driver; options and schema are checked, nothing is looked at yet
    pushFilters        driver; only with the option pushdown, in a session that lets Python sources have filters
    partitions         driver; stores are surveyed and cut into slices; every mistake of the user shows here at last
    read(slice)        a task, in a worker process, once for each slice

The reader is pickled and sent to workers before `partitions` is called, so slices carry all that tasks need.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from embermq.errors import OptionInvalid
from embermq.spark.options import read_options
from embermq.spark.options.read_options import ReadOptions
from embermq.spark.options.schema import BODIES, CORRUPT, column_names
from embermq.spark.planning.plan import (
    SLICE_BYTES,
    SLICE_BYTES_WITHOUT_BODIES,
    Cut,
    LogCut,
    PlacesCut,
    SliceLimits,
    StorePlan,
    plan,
)
from embermq.spark.planning.pushdown import Pushed, understand
from embermq.spark.planning.read_request import StoreWork, find_works
from embermq.spark.planning.shared_filters import widen
from embermq.spark.planning.stores import find_stores
from embermq.spark.reading.slices import ReadSettings, Slice, read_slice
from embermq.spark.runtime.cancelled_tasks import silent_end
from embermq.spark.runtime.error_rendering import clear_errors, clear_iterator
from embermq.spark.runtime.gc_freeze import settle
from embermq.spark.runtime.machine import cores
from embermq.spark.runtime.newer_spark import Filter

if TYPE_CHECKING:
    from embermq.spark.wire.batch_reader import WireBatchReader


class RocketMQBatchReader(DataSourceReader):
    """Reads stores; knows no filters."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.options = options
        self.reading = reading_of(schema, options)
        self._has_bodies = not BODIES.isdisjoint(schema.names)
        self.pushed = Pushed()

    @clear_errors
    def partitions(self) -> list[InputPartition]:
        """In a worker on the driver's side, once for each query."""
        works, plans = plan_read(self.options, self.pushed, has_bodies=self._has_bodies)
        settle()
        return [one for work, chosen in zip(works, plans, strict=True) for one in slices(work, chosen, self.reading)]

    @clear_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task."""
        with silent_end():
            yield from read_slice(partition)


class FilteredReader(Protocol):
    """A reader that can use what filters say."""

    options: ReadOptions
    pushed: Pushed


R = TypeVar("R", bound=FilteredReader)


def with_filters(reader: R, table: str) -> R:
    """The reader, using filters if it gets some; it works in a session that gives none.

    `table` names the table behind a DataFrame: all its queries share a plan (shared_filters.py).

    Spark fails a query whose reader overrides pushFilters while spark.sql.python.filterPushdown.enabled is off, the
    default, and no reader can see that setting. It looks at the function behind `reader.pushFilters`. So the method
    is not overridden: the instance has a callable of that name, whose `__func__` is the base class's. Where the
    setting is off it is not called.
    """
    vars(reader)["pushFilters"] = _Push(reader, table)
    return reader


class _Push:
    """The pushFilters of one reader. All filters are given back: Spark compares rows once more."""

    __func__ = staticmethod(getattr(DataSourceReader, "pushFilters", understand))  # Spark 4.0 never calls it.

    def __init__(self, reader: FilteredReader, table: str) -> None:
        self._reader, self._table = reader, table

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        self._reader.pushed = widen(self._table, understand(filters, self._reader.options.schema_mode))
        return filters


def batch_reader(schema: StructType, options: Mapping[str, str], table: str) -> DataSourceReader:
    """The reader that the options ask for, of files or of a cluster, for a table of this name."""
    parsed = read_options.parse(options, streaming=False)
    reader = _cluster_reader(schema, parsed) if parsed.name_servers else RocketMQBatchReader(schema, parsed)
    return with_filters(reader, table) if parsed.pushdown else reader


def _cluster_reader(schema: StructType, options: ReadOptions) -> "WireBatchReader":
    from embermq.spark.wire.batch_reader import WireBatchReader

    return WireBatchReader(reading_of(schema, options), options)


def reading_of(schema: StructType, options: ReadOptions) -> ReadSettings:
    """What every slice needs to know; OptionInvalid when the schema asks for what is not there."""
    corrupt = options.on_corrupt == "rows"
    names = column_names(schema, options.schema_mode, corrupt=corrupt, headers=options.include_headers)
    if corrupt and CORRUPT.name not in names:
        raise OptionInvalid("onCorrupt", f"rows needs the column {CORRUPT.name} string in the schema")
    return ReadSettings(
        schema,
        options.schema_mode,
        options.on_corrupt,
        options.verify_crc,
        options.decompress,
        options.fail_on_data_loss,
        options.batch_rows,
        options.batch_bytes,
        options.sql_expression,
    )


def plan_read(
    options: ReadOptions, pushed: Pushed, *, has_bodies: bool = True
) -> tuple[list[StoreWork], list[StorePlan]]:
    """Every store of a read with its plan, in the same order."""
    works = find_works(find_stores(options.paths, shipped=True), options, pushed)
    by_name = {work.place.broker_name: work for work in works}
    usual_bytes = SLICE_BYTES if has_bodies else SLICE_BYTES_WITHOUT_BODIES
    limits = SliceLimits(options.min_partitions, options.max_bytes_per_partition or usual_bytes, cores())

    def align(broker_name: str, physical_offset: int) -> int:
        return by_name[broker_name].survey.record_start(physical_offset)

    return works, plan([work.request for work in works], limits, align)


def slices(work: StoreWork, chosen: StorePlan, reading: ReadSettings) -> list[Slice]:
    """The slices of one store, each with the files it needs."""
    place, survey = work.place, work.survey
    found = []
    for cut in chosen.cuts:
        start, end = _range_of(cut)
        segments = tuple(one for one in survey.segments if one.start < end and start < one.end)
        files = survey.files_for(segments, end)
        found.append(Slice(place.path, place.broker_name, segments, cut, work.selection, reading, files))
    return found


def _range_of(cut: Cut) -> tuple[int, int]:
    """Where in the log a slice reads."""
    if isinstance(cut, LogCut):
        return cut.start, cut.end
    if isinstance(cut, PlacesCut):
        return cut.places[0], cut.places[-1] + 1
    return min(part.first_physical for part in cut.parts), max(part.end_physical for part in cut.parts)
