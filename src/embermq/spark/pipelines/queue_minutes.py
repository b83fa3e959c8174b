"""Statistics by minute of a running cluster: `_stats/queues-<number>.parquet` each batch, in the columns of
minute_statistics.py.

The metadata of the last file says up to where each queue is counted, over all files: what comes again after a kill, or
for a new checkpoint, is not counted again.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from embermq.columns import compiled_scan
from embermq.errors import OptionInvalid
from embermq.spark.jobs.cluster_tasks import parallelism, run
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.names import SUFFIX
from embermq.spark.lake.queue_ranges import QueueRows, check_ends, fresh_ranges, troubles
from embermq.spark.lake.topic_filter import TopicFilter
from embermq.spark.lake.writer_lock import alone
from embermq.spark.lake.writing import clear_disk_errors
from embermq.spark.pipelines.batches import SLICE_BYTES_MAX, SLICE_BYTES_MIN
from embermq.spark.pipelines.minute_statistics import FOLDER, counted, counted_schema, joined
from embermq.spark.pipelines.queue_batches import QueueBatch
from embermq.spark.pipelines.sinks import SinkFigures
from embermq.spark.planning.offsets import ReadableQueue
from embermq.spark.wire.cluster import Cluster, QueueName
from embermq.spark.wire.pulling import SliceReader, WireSlice
from embermq.spark.wire.stream_offsets import WireOffset

_QUEUES = b"embermq.queues"  # next to count of each queue, as WireOffset has it
_TOPICS = b"embermq.topics"
_NAME = re.compile(rf"queues-(\d{{20}}){re.escape(SUFFIX)}")


@dataclass(frozen=True, slots=True)
class _CountedSlice:
    table: pa.Table
    records: int
    bytes: int
    trouble: str


@dataclass(frozen=True, slots=True)
class _Counted:
    """What the files of the folder say."""

    number: int  # of the last one
    ends: dict[QueueName, int]


class QueueMinutesSink:
    """Counts each batch."""

    name = "stats"

    def __init__(self, root: str, topics: TopicFilter) -> None:
        self._files, self._topics = LakeFiles(root), topics

    def check(self, there: Sequence[ReadableQueue]) -> None:
        """DataLost if a queue is shorter than what was counted of it."""
        check_ends(self._last().ends, there, self._files.full(FOLDER))

    def process(self, batch: QueueBatch) -> SinkFigures:
        with clear_disk_errors(self._files.root), alone(self._files):
            last = self._last()
            fresh = replace(batch.wanted, ranges=fresh_ranges(last.ends, batch.wanted.ranges))
            return self._count(fresh, batch, last) if fresh.ranges else SinkFigures()

    def _count(self, fresh: QueueRows, batch: QueueBatch, last: _Counted) -> SinkFigures:
        count = fresh.slice_count(parallelism(batch.spark), SLICE_BYTES_MIN, SLICE_BYTES_MAX)
        pieces = fresh.cut(count, counted_schema())
        parts = run(batch.spark, count_queue_slice, pieces, "counting", batch.on_progress)
        ends = last.ends | {(one.topic, one.broker_name, one.queue_id): one.end for one in fresh.ranges}
        self._write(joined(pa.concat_tables([part.table for part in parts])), _Counted(last.number + 1, ends))
        found = [part.trouble for part in parts if part.trouble]
        return SinkFigures(sum(part.records for part in parts), 1, found, bytes=sum(part.bytes for part in parts))

    def _last(self) -> _Counted:
        names = [path.rpartition("/")[2] for path in self._files.list(FOLDER)] if self._files.exists(FOLDER) else []
        found = [one for one in map(_NAME.fullmatch, names) if one is not None]
        if names and not found:
            raise OptionInvalid(
                "into", f"{self._files.full(FOLDER)} has statistics of the logs of stores; use another place"
            )
        if not found:
            return _Counted(0, {})
        name = max(one[0] for one in found)  # Numbers have 20 digits.
        noted = pq.read_schema(self._files.full(f"{FOLDER}/{name}"), filesystem=self._files.arrow).metadata
        topics = msgspec.json.decode(noted[_TOPICS], type=TopicFilter)
        if topics != self._topics:
            raise OptionInvalid(
                "topic", f"the statistics at {self._files.root} are of {topics}; choose the same, or another place"
            )
        ends = WireOffset.from_json(msgspec.json.decode(noted[_QUEUES]))
        return _Counted(max(int(one[1]) for one in found), dict(ends.queues))

    def _write(self, table: pa.Table, last: _Counted) -> None:
        notes = {
            _QUEUES: msgspec.json.encode(WireOffset(last.ends).to_json()),
            _TOPICS: msgspec.json.encode(self._topics),
        }
        noted = table.replace_schema_metadata(notes)

        def put(place: str) -> None:
            pq.write_table(noted, place, filesystem=self._files.arrow, compression="zstd")

        self._files.write_with(f"{FOLDER}/queues-{last.number:020d}{SUFFIX}", put)


def count_queue_slice(piece: WireSlice) -> _CountedSlice:
    """Counts one slice, in a worker."""
    compiled_scan()
    reader = SliceReader(piece)
    tables = [counted(pa.RecordBatch.from_pylist([], reader.schema))]
    with Cluster(piece.place) as cluster:
        tables += [joined(counted(batch)) for batch in reader.read(cluster)]
    table = joined(pa.concat_tables(tables))
    records, size = (sum(table.column(name).to_pylist()) for name in ("messages", "bytes"))
    trouble = troubles(reader.lost, reader.damaged, reader.first_trouble) if reader.first_trouble else ""
    return _CountedSlice(table, records, size, trouble)
