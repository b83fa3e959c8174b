"""Ranges of queues of a running cluster into a lake: pulled and written by tasks, committed as one.

    add_queues(lake, ends, spark, QueueRows(place, ranges, message_bytes))

Exactly once, as ranges of logs are: a commit names the range of each queue that its files hold, and what a lake has of
a queue is not added again. Files are named after the commit, whose number no other has. Driver side, but for
`write_queue_slice`, which runs in a worker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from embermq.columns import Selection, compiled_scan
from embermq.errors import DataLost
from embermq.inspect import slice_count
from embermq.spark.jobs.cluster_tasks import ProgressReport, parallelism, run
from embermq.spark.lake.commits import LakeFile, LakeQueueRange
from embermq.spark.lake.lakes import SLICE_BYTES_MAX, SLICE_BYTES_MIN, Lake
from embermq.spark.lake.names import queue_stem
from embermq.spark.lake.writing import RowsByDay, memory_given_back
from embermq.spark.options.schema import spark_schema
from embermq.spark.planning.offsets import ReadableQueue
from embermq.spark.reading.slice_rows import ReadSettings
from embermq.spark.wire.cluster import Cluster, ClusterPlace, QueueName
from embermq.spark.wire.pulling import SliceReader, WireSlice
from embermq.spark.wire.wanted import WireRange, cut_ranges


@dataclass(frozen=True, slots=True)
class QueueRows:
    """What is to be pulled, from where."""

    place: ClusterPlace
    ranges: Sequence[WireRange]
    message_bytes: float  # of an average message
    fail_on_data_loss: bool = True

    def cut(self, count: int, schema: StructType) -> list[WireSlice]:
        """About so many slices. Damaged messages are left out, and counted."""
        reading = ReadSettings(schema, on_corrupt="skip", fail_on_data_loss=self.fail_on_data_loss)
        selection = Selection(include_system=True)
        return [WireSlice(self.place, part, selection, reading) for part in cut_ranges(self.ranges, count)]

    def slice_count(self, cores: int, bytes_min: int, bytes_max: int) -> int:
        size = int(sum(one.count for one in self.ranges) * self.message_bytes)
        return slice_count(max(size, 1), cores, bytes_min, bytes_max)


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """What a task gets: ranges of queues, and where their rows go."""

    root: str
    stem: str
    pulled: WireSlice
    as_tables: bool
    schemas: Mapping[str, StructType]
    drop_bodies: bool


@dataclass(frozen=True, slots=True)
class QueueSliceRows:
    """What became of it."""

    rows: int
    bytes: int  # of the records, as their broker has stored them
    lost: int
    damaged: int
    first_trouble: str
    files: tuple[LakeFile, ...]


@dataclass(frozen=True, slots=True)
class AddedQueues:
    """What a commit brought."""

    rows: int
    bytes: int
    files: int
    undecoded: int
    troubles: list[str] = field(default_factory=list)


class QueueEnds:
    """Up to where a lake has each queue; learns what is new with each commit."""

    def __init__(self) -> None:
        self._ends: dict[QueueName, int] = {}
        self._seen = 0

    def refresh(self, lake: Lake) -> None:
        commits = lake.commits
        for commit in commits[self._seen :]:
            for one in commit.queues:
                name = one.topic, one.broker_name, one.queue_id
                self._ends[name] = max(self._ends.get(name, 0), one.end)
        self._seen = len(commits)

    def fresh(self, ranges: Sequence[WireRange]) -> list[WireRange]:
        return fresh_ranges(self._ends, ranges)

    def check(self, there: Sequence[ReadableQueue], place: str) -> None:
        check_ends(self._ends, there, place)


def fresh_ranges(held: Mapping[QueueName, int], ranges: Sequence[WireRange]) -> list[WireRange]:
    """What of the ranges lies behind what is held."""
    begun = [
        replace(one, start=max(one.start, held.get((one.topic, one.broker_name, one.queue_id), 0))) for one in ranges
    ]
    return [one for one in begun if one.start < one.end]


def check_ends(held: Mapping[QueueName, int], there: Sequence[ReadableQueue], place: str) -> None:
    """DataLost if a queue is shorter than what is held of it: it is another one, or was cut."""
    for one in there:
        end = held.get((one.topic, one.broker_name, one.queue_id), 0)
        if end > one.max_offset:
            raise DataLost(
                f"{one}: {place} has it up to {end}, and it ends at {one.max_offset} now; it was deleted, or cut;"
                " begin anew with another lake and checkpoint"
            )


def add_queues(
    lake: Lake, ends: QueueEnds, spark: SparkSession, wanted: QueueRows, on_progress: ProgressReport | None = None
) -> AddedQueues | None:
    """Add what the lake does not have; None if it has all."""
    with lake.turn():
        ends.refresh(lake)
        fresh = replace(wanted, ranges=ends.fresh(wanted.ranges))
        if not fresh.ranges:
            return None
        pieces = _pieces(lake, fresh, parallelism(spark))
        with lake.writing([piece.stem for piece in pieces]):
            results = run(spark, write_queue_slice, pieces, "writing queues", on_progress)
            files = [file for result in results for file in result.files]
            queues = [
                LakeQueueRange(one.topic, one.broker_name, one.queue_id, one.start, one.end) for one in fresh.ranges
            ]
            lake.commit([], files, queues=queues)
    return AddedQueues(
        sum(one.rows for one in results),
        sum(one.bytes for one in results),
        len(files),
        sum(file.undecoded or 0 for file in files),
        [troubles(one.lost, one.damaged, one.first_trouble) for one in results if one.first_trouble],
    )


def troubles(lost: int, damaged: int, first: str) -> str:
    return f"{lost:,} messages lost, {damaged:,} damaged; the first: {first}"


def _pieces(lake: Lake, fresh: QueueRows, cores: int) -> list[QueueSlice]:
    # A slice makes a file of each topic and day: who wants large files gets fewer slices.
    least = min(max(lake.file_bytes or 0, SLICE_BYTES_MIN), SLICE_BYTES_MAX)
    count = fresh.slice_count(cores, least, SLICE_BYTES_MAX)
    as_tables, schemas, number = lake.has_tables, lake.schemas, lake.next_number
    return [
        QueueSlice(
            lake.files.root,
            queue_stem(one.ranges[0].broker_name, number, place),
            one,
            as_tables,
            schemas,
            lake.drop_bodies,
        )
        for place, one in enumerate(fresh.cut(count, spark_schema("rocketmq")))
    ]


@memory_given_back()
def write_queue_slice(piece: QueueSlice) -> QueueSliceRows:
    """Pull a slice and write its files."""
    compiled_scan()  # Loaded before the rest: its threads would wait for one another.
    parts, reader = RowsByDay(), SliceReader(piece.pulled)
    rows = size = 0
    with Cluster(piece.pulled.place) as cluster:
        for batch in reader.read(cluster):
            rows += len(batch)
            size += pc.sum(batch.column("size")).as_py() or 0
            parts.add(batch)
    files = tuple(parts.write(piece))
    return QueueSliceRows(rows, size, reader.lost, reader.damaged, reader.first_trouble, files)
