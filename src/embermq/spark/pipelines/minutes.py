"""Statistics by broker, topic, queue, tag and minute, as Parquet: `_stats/<broker>-<start>-<end>.parquet` each batch.

    messages, bytes           how many, and their bytes of log
    delay_sum_ms, delay_max_ms   from born to stored
    first_offset, last_offset    lowest and highest queue offset: a queue whose messages are fewer than these span,
                              added up over tags and minutes, has gaps

Sums of sums are right, so readers add up what they need: `read_minutes` does. A batch that comes again writes the
same file again.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from embermq import kernels
from embermq.format.columns import RecordColumns
from embermq.format.select import Selection
from embermq.spark.arrow import BatchBuilder
from embermq.spark.jobs.work import run
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.names import SUFFIX, stem
from embermq.spark.pipelines.batches import LogBatch, RangeSlice
from embermq.spark.pipelines.sinks import SinkFigures
from embermq.spark.schema import spark_schema
from embermq.store.survey_scan import Damage, scan_segments

FOLDER = "_stats"
KEYS = ["brokerName", "topic", "queueId", "tags", "minute"]
_COLUMNS = ["brokerName", "topic", "queueId", "queueOffset", "tags", "bornTimestamp", "storeTimestamp", "size"]
_SUMS = [("messages", "sum"), ("bytes", "sum"), ("delay_sum_ms", "sum"), ("delay_max_ms", "max"),
         ("first_offset", "min"), ("last_offset", "max")]  # fmt: skip
_MINUTE_US = 60_000_000


@dataclass(frozen=True, slots=True)
class _Counted:
    table: pa.Table
    records: int
    damages: tuple[str, ...]


class MinutesSink:
    """Counts each batch."""

    name = "stats"

    def __init__(self, root: str) -> None:
        self._files = LakeFiles(root)

    def process(self, batch: LogBatch) -> SinkFigures:
        counted = run(batch.spark, count_slice, batch.slices(), "counting", batch.told)
        for one in batch.ranges:
            whole = pa.concat_tables([part.table for part in counted])
            table = _joined(whole.filter(pc.equal(whole["brokerName"], one.broker_name)))
            name = f"{FOLDER}/{stem(one.broker_name, one.start, one.end)}{SUFFIX}"
            self._files.write_with(name, lambda place, table=table: self._put(place, table))  # type: ignore[misc]
        damages = [text for part in counted for text in part.damages]
        return SinkFigures(sum(part.records for part in counted), len(batch.ranges), damages)

    def _put(self, place: str, table: pa.Table) -> None:
        pq.write_table(table, place, filesystem=self._files.arrow, compression="zstd")


def count_slice(piece: RangeSlice) -> _Counted:
    """Counts one slice, in a worker."""
    whole = spark_schema("rocketmq")
    schema = type(whole)([whole[name] for name in _COLUMNS])
    builder = BatchBuilder(schema, mode="rocketmq", broker_name=piece.broker_name, decompress=False)
    select = kernels.load("select").select
    tables, damages, records = [], [], 0
    for item in scan_segments(piece.segments, piece.start, piece.end):
        if isinstance(item, RecordColumns):
            records += len(item)
            tables.append(_counted(builder.build(item, select(item, Selection()))))
        else:
            assert isinstance(item, Damage)
            damages.append(f"{piece.broker_name}: {item.start:,} to {item.end:,}: {item.reason}")
    empty = _counted(pa.RecordBatch.from_pylist([], builder.schema))
    return _Counted(_joined(pa.concat_tables([empty, *tables])), records, tuple(damages))


def _counted(batch: pa.RecordBatch) -> pa.Table:
    """One row for each record, in the shape of the sums."""
    stored = batch.column("storeTimestamp").cast(pa.int64())
    born = batch.column("bornTimestamp").cast(pa.int64())
    delay = pc.divide(pc.subtract(stored, born), 1000).fill_null(0)
    ones = pa.array(np.ones(len(batch), np.int64))
    return pa.table({
        "brokerName": batch.column("brokerName"),
        "topic": batch.column("topic"),
        "queueId": batch.column("queueId"),
        "tags": batch.column("tags").fill_null(""),
        "minute": pc.multiply(pc.divide(stored.fill_null(0), _MINUTE_US), _MINUTE_US).cast(pa.timestamp("us", "UTC")),
        "messages": ones,
        "bytes": batch.column("size").cast(pa.int64()),
        "delay_sum_ms": delay,
        "delay_max_ms": delay,
        "first_offset": batch.column("queueOffset"),
        "last_offset": batch.column("queueOffset"),
    })  # fmt: skip


def _joined(table: pa.Table) -> pa.Table:
    """Rows of the same key added up."""
    grouped = table.group_by(KEYS).aggregate(_SUMS)
    renamed = grouped.rename_columns([*KEYS, *(name for name, _ in _SUMS)])
    return renamed.sort_by([(name, "ascending") for name in KEYS])


def read_minutes(root: str) -> pa.Table | None:
    """All statistics of a lake, added up: one row for each broker, topic, queue, tag and minute.
    None if there are none."""
    files = LakeFiles(root)
    names = [name for name in files.list(FOLDER) if name.endswith(SUFFIX)]
    tables = [pq.read_table(files.full(name), filesystem=files.arrow, partitioning=None) for name in names]
    return _joined(pa.concat_tables(tables)) if tables else None
