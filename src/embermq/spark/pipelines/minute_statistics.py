"""Statistics by broker, topic, queue, tag and minute, as Parquet: `_stats/<broker>-<start>-<end>.parquet` each batch.

    messages, bytes           how many, and their bytes of log
    delay_sum_ms, delay_max_ms   from born to stored
    first_offset, last_offset    lowest and highest queue offset: a queue whose messages are fewer than these span,
                              added up over tags and minutes, has gaps

Readers add up what they need (`joined`). What the names of files say is there is not counted again, whether a batch
comes again after a kill or all of them do for a new checkpoint.
"""

import re
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from embermq.columns import RecordColumns, Selection, select_for
from embermq.errors import OptionInvalid, StoreReplaced
from embermq.inspect import Survey
from embermq.spark.jobs.cluster_tasks import run
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.names import SUFFIX, plain, stem
from embermq.spark.lake.topic_filter import TopicFilter, rows_of
from embermq.spark.lake.writer_lock import alone
from embermq.spark.lake.writing import clear_disk_errors
from embermq.spark.options.schema import spark_schema
from embermq.spark.pipelines.batches import LogBatch, LogRange, RangeSlice
from embermq.spark.pipelines.sinks import SinkFigures
from embermq.spark.reading.arrow import BatchBuilder
from embermq.store.log import DamagedRange, scan_segments

FOLDER = "_stats"
KEYS = ["brokerName", "topic", "queueId", "tags", "minute"]
_COLUMNS = ["brokerName", "topic", "queueId", "queueOffset", "tags", "bornTimestamp", "storeTimestamp", "size"]
_SUMS = [
    ("messages", "sum"),
    ("bytes", "sum"),
    ("delay_sum_ms", "sum"),
    ("delay_max_ms", "max"),
    ("first_offset", "min"),
    ("last_offset", "max"),
]
_MINUTE_US = 60_000_000
_IDENTITY = b"embermq.identity"  # of the log, as Survey.identity gives it; a file's metadata has it
_TOPICS = b"embermq.topics"  # which were counted; not there if all were


@dataclass(frozen=True, slots=True)
class _CountedSlice:
    table: pa.Table
    records: int
    damages: tuple[str, ...]


class MinutesSink:
    """Counts each batch."""

    name = "stats"

    def __init__(self, root: str, topics: TopicFilter) -> None:
        self._files, self._topics = LakeFiles(root), topics
        self._listed: list[str] = []  # file names, as they were when the folder had the time `_listed_at`
        self._listed_at: int | None = None

    def process(self, batch: LogBatch) -> SinkFigures:
        with clear_disk_errors(self._files.root), alone(self._files):
            return self._count([part for one in batch.ranges for part in self._uncounted(one, batch)], batch)

    def _count(self, ranges: list[LogRange], batch: LogBatch) -> SinkFigures:
        slices = replace(batch, ranges=tuple(ranges)).slices()
        counted = run(batch.spark, partial(count_slice, topics=self._topics), slices, "counting", batch.on_progress)
        for one in ranges:
            mine = [
                part.table
                for piece, part in zip(slices, counted, strict=True)
                if piece.broker_name == one.broker_name and one.start <= piece.start < one.end
            ]
            self._write(one, joined(pa.concat_tables(mine)), batch.survey(one))
        damages = [text for part in counted for text in part.damages]
        return SinkFigures(sum(part.records for part in counted), len(ranges), damages)

    def _uncounted(self, wanted: LogRange, batch: LogBatch) -> list[LogRange]:
        """The parts of a range that no file has, in log order."""
        held = self._held(wanted.broker_name)
        if held:
            self._check_same_log(wanted, batch.survey(wanted), *held[-1])
        parts, start = [], wanted.start
        for low, high in held:
            if low < wanted.end and high > start:
                if low > start:
                    parts.append(replace(wanted, start=start, end=low))
                start = high
        return [*parts, replace(wanted, start=start)] if start < wanted.end else parts

    def _held(self, broker_name: str) -> list[tuple[int, int]]:
        """Which ranges of a log there are files of, in log order."""
        name = re.compile(rf"{re.escape(plain(broker_name))}-(\d{{20}})-(\d{{20}}){re.escape(SUFFIX)}")
        found = (name.fullmatch(path.rpartition("/")[2]) for path in self._names())
        return sorted((int(one[1]), int(one[2])) for one in found if one is not None)

    def _names(self) -> list[str]:
        """Of very many files, most of the time as known: a folder has a new time when its names change."""
        changed_at = self._files.changed_at(FOLDER)
        if changed_at is None or changed_at != self._listed_at:
            self._listed, self._listed_at = self._files.list(FOLDER), changed_at
        return self._listed

    def _check_same_log(self, wanted: LogRange, survey: Survey, start: int, end: int) -> None:
        """StoreReplaced if what was counted before is of another log. Older files do not say."""
        name = self._name(wanted.broker_name, start, end)
        noted = pq.read_schema(self._files.full(name), filesystem=self._files.arrow).metadata or {}
        if _IDENTITY in noted and not survey.same_log_as(noted[_IDENTITY].decode()):
            raise StoreReplaced(
                survey.path,
                f"{self._files.root} has statistics of another log named {wanted.broker_name}; use another place",
            )
        counted = msgspec.json.decode(noted[_TOPICS], type=TopicFilter) if _TOPICS in noted else TopicFilter()
        if counted != self._topics:
            raise OptionInvalid(
                "topic", f"the statistics at {self._files.root} are of {counted}; choose the same, or another place"
            )

    def _name(self, broker_name: str, start: int, end: int) -> str:
        return f"{FOLDER}/{stem(broker_name, start, end)}{SUFFIX}"

    def _write(self, one: LogRange, table: pa.Table, survey: Survey) -> None:
        notes = {_IDENTITY: survey.identity.encode()}
        if not self._topics.is_everything:
            notes[_TOPICS] = msgspec.json.encode(self._topics)
        noted = table.replace_schema_metadata(notes)

        def put(place: str) -> None:
            pq.write_table(noted, place, filesystem=self._files.arrow, compression="zstd")

        name = self._name(one.broker_name, one.start, one.end)
        self._files.write_with(name, put)
        self._listed.append(name)
        self._listed_at = self._files.changed_at(FOLDER)


def counted_schema() -> StructType:
    """The columns that are counted."""
    whole = spark_schema("rocketmq")
    return StructType([whole[name] for name in _COLUMNS])


def count_slice(piece: RangeSlice, topics: TopicFilter) -> _CountedSlice:
    """Counts one slice, in a worker."""
    builder = BatchBuilder(counted_schema(), mode="rocketmq", broker_name=piece.broker_name, decompress=False)
    select, chosen = select_for(Selection(), piece.end - piece.start), rows_of(topics)
    tables, damages, records = [], [], 0
    for item in scan_segments(piece.segments, piece.start, piece.end):
        if isinstance(item, RecordColumns):
            records += len(item)
            tables.append(counted(builder.build(item, chosen(item, select(item)))))
        else:
            assert isinstance(item, DamagedRange)
            damages.append(f"{piece.broker_name}: {item.start:,} to {item.end:,}: {item.reason}")
    empty = counted(pa.RecordBatch.from_pylist([], builder.schema))
    return _CountedSlice(joined(pa.concat_tables([empty, *tables])), records, tuple(damages))


def counted(batch: pa.RecordBatch) -> pa.Table:
    """One row for each record, in the shape of the sums."""
    stored = batch.column("storeTimestamp").cast(pa.int64())
    born = batch.column("bornTimestamp").cast(pa.int64())
    delay = pc.divide(pc.subtract(stored, born), 1000).fill_null(0)
    ones = pa.array(np.ones(len(batch), np.int64))
    return pa.table(
        {
            "brokerName": batch.column("brokerName"),
            "topic": batch.column("topic"),
            "queueId": batch.column("queueId"),
            "tags": batch.column("tags").fill_null(""),
            "minute": pc.multiply(pc.divide(stored.fill_null(0), _MINUTE_US), _MINUTE_US).cast(
                pa.timestamp("us", "UTC")
            ),
            "messages": ones,
            "bytes": batch.column("size").cast(pa.int64()),
            "delay_sum_ms": delay,
            "delay_max_ms": delay,
            "first_offset": batch.column("queueOffset"),
            "last_offset": batch.column("queueOffset"),
        }
    )


def joined(table: pa.Table) -> pa.Table:
    """Rows of the same key added up."""
    grouped = table.group_by(KEYS).aggregate(_SUMS)
    renamed = grouped.rename_columns([*KEYS, *(name for name, _ in _SUMS)])
    return renamed.sort_by([(name, "ascending") for name in KEYS])
