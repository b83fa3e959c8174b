"""What lies where inside a shipped part: for each stretch of some MiB its times, its damage, and what it has of each
queue. Made in the task that ships the part, kept beside it as Parquet; who plans a read asks these and not the log.

A row is a queue in a stretch: offsets [first_offset, end_offset) of records in [first_physical, end_physical). `anew`
says that the queue's offsets began anew there (its topic was deleted and made again): what came before is in no queue.
A stretch without a record of any queue has one row without a topic.
"""

import io
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from embermq.columns import (
    C_PHYSICAL,
    C_QUEUE_OFFSET,
    C_SIZE,
    C_STORE_TIME,
    C_SYS_FLAG,
    QueueName,
    QueueSlots,
    RecordColumns,
    Rows,
)
from embermq.inspect import Queue
from embermq.model.flags import PREPARED
from embermq.store.log import DamagedRange, Scanned

STRETCH_BYTES = 8 << 20

SCHEMA = pa.schema(
    [
        ("start", pa.int64()),
        ("end", pa.int64()),  # of the stretch; a record begins at its start
        ("begin_ms", pa.int64()),
        ("end_ms", pa.int64()),  # store times of all its records, half-open
        ("damaged_bytes", pa.int64()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("first_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("first_physical", pa.int64()),
        ("end_physical", pa.int64()),
        ("records", pa.int64()),
        ("anew", pa.bool_()),
    ]
)

OffsetRange = tuple[int, int]


@dataclass(slots=True)
class _Seen:
    """One queue in the stretch that is being read."""

    first_offset: int
    end_offset: int
    first_physical: int
    end_physical: int
    records: int
    anew: bool


@dataclass(slots=True)
class _Stretch:
    start: int
    begin_ms: int = 0
    end_ms: int = 0
    damaged_bytes: int = 0
    queues: dict[int, _Seen] = field(default_factory=dict)  # by the number of the queue


class SummaryMaker:
    """Takes a part as it is scanned."""

    def __init__(self, start: int, end: int, stretch_bytes: int = STRETCH_BYTES) -> None:
        self._end, self._stretch_bytes = end, stretch_bytes
        self._stretches = [_Stretch(start)]
        self._routes = QueueSlots()
        self.records = self.damaged_bytes = 0

    @property
    def times_ms(self) -> tuple[int, int]:
        """Of all records, half-open; zeros if there are none."""
        timed = [one for one in self._stretches if one.begin_ms < one.end_ms]
        return (min(one.begin_ms for one in timed), max(one.end_ms for one in timed)) if timed else (0, 0)

    def take(self, scanned: Scanned) -> None:
        if isinstance(scanned, DamagedRange):
            self._stretches[-1].damaged_bytes += scanned.end - scanned.start
            self.damaged_bytes += scanned.end - scanned.start
            return
        start = int(scanned.rows[0, C_PHYSICAL])
        if start - self._stretches[-1].start >= self._stretch_bytes:
            self._stretches.append(_Stretch(start))
        self.records += len(scanned)
        self._take_times(scanned)
        self._take_queues(scanned)

    def _take_times(self, batch: RecordColumns) -> None:
        stretch, times = self._stretches[-1], batch.column(C_STORE_TIME)
        first, last = int(times.min()), int(times.max()) + 1
        if stretch.begin_ms < stretch.end_ms:
            first, last = min(first, stretch.begin_ms), max(last, stretch.end_ms)
        stretch.begin_ms, stretch.end_ms = first, last

    def _take_queues(self, batch: RecordColumns) -> None:
        numbers = self._routes.route(batch)
        rows = np.flatnonzero((batch.column(C_SYS_FLAG) & PREPARED) == 0)
        rows = rows[np.argsort(numbers[rows], kind="stable")]
        if len(rows):
            for part in np.split(rows, np.flatnonzero(np.diff(numbers[rows])) + 1):
                self._extend(int(numbers[part[0]]), batch.rows[part])

    def _extend(self, number: int, rows: Rows) -> None:
        """Records of one queue that follow one another in the log."""
        queues = self._stretches[-1].queues
        restarts = np.flatnonzero(np.diff(rows[:, C_QUEUE_OFFSET]) <= 0)
        if len(restarts):
            rows = rows[int(restarts[-1]) + 1 :]
        first, physical = int(rows[0, C_QUEUE_OFFSET]), int(rows[0, C_PHYSICAL])
        end, end_physical = int(rows[-1, C_QUEUE_OFFSET]) + 1, int(rows[-1, C_PHYSICAL] + rows[-1, C_SIZE])
        seen = queues.get(number)
        if seen is None or len(restarts) or first < seen.end_offset:
            anew = len(restarts) > 0 or seen is not None
            queues[number] = _Seen(first, end, physical, end_physical, len(rows), anew)
            return
        seen.end_offset, seen.end_physical, seen.records = end, end_physical, seen.records + len(rows)

    def table(self) -> pa.Table:
        """The summary of all that was taken."""
        columns: dict[str, list[object]] = {name: [] for name in SCHEMA.names}
        ends = [one.start for one in self._stretches[1:]] + [self._end]
        for stretch, end in zip(self._stretches, ends, strict=True):
            head = (stretch.start, end, stretch.begin_ms, stretch.end_ms, stretch.damaged_bytes)
            for number, seen in stretch.queues.items():
                row = (
                    *head,
                    *self._routes.names[number],
                    seen.first_offset,
                    seen.end_offset,
                    seen.first_physical,
                    seen.end_physical,
                    seen.records,
                    seen.anew,
                )
                _add(columns, row)
            if not stretch.queues:
                _add(columns, (*head, None, None, 0, 0, 0, 0, 0, False))
        return pa.table(columns, schema=SCHEMA)


def _add(columns: Mapping[str, list[object]], row: Sequence[object]) -> None:
    for column, value in zip(columns.values(), row, strict=True):
        column.append(value)


def to_bytes(table: pa.Table) -> bytes:
    """The same table gives the same bytes."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def from_bytes(data: bytes) -> pa.Table:
    """pa.ArrowException if these are no summary."""
    return pq.read_table(io.BytesIO(data), schema=SCHEMA)


class Summary:
    """Summaries of all parts of a log, in its order."""

    def __init__(self, tables: Sequence[pa.Table]) -> None:
        table = pa.concat_tables([SCHEMA.empty_table(), *tables]).combine_chunks()
        names = [name for name in SCHEMA.names if name != "topic"]
        self._columns: dict[str, NDArray[np.int64]] = {
            name: table[name].cast(pa.int64()).fill_null(0).to_numpy() for name in names
        }
        topics = table["topic"].combine_chunks().dictionary_encode()
        topic_of = topics.indices.fill_null(-1).to_numpy().astype(np.int64)
        # Number the queues: topic and queue id as one number each.
        keys, numbers = np.unique(np.stack([topic_of, self._columns["queue_id"]]), axis=1, return_inverse=True)
        texts = topics.dictionary.to_pylist()
        self._names: list[QueueName | None] = [
            (texts[topic], queue_id) if topic >= 0 else None for topic, queue_id in keys.T.tolist()
        ]
        self._numbers = numbers.reshape(-1)

    def __len__(self) -> int:
        return len(self._numbers)

    def queues(self) -> dict[QueueName, Queue]:
        """Every queue, as a walk over the log finds it, with a mark for each stretch."""
        order = np.argsort(self._numbers, kind="stable")
        edges = np.flatnonzero(np.diff(self._numbers[order])) + 1
        found = {}
        for rows in np.split(order, edges) if len(order) else []:
            name = self._names[int(self._numbers[rows[0]])]
            if name is not None:
                found[name] = self._queue(name, rows)
        return found

    def _queue(self, name: QueueName, rows: NDArray[np.int64]) -> Queue:
        column = {key: values[rows] for key, values in self._columns.items()}
        first, end = column["first_offset"], column["end_offset"]
        begun = column["anew"] > 0
        begun[1:] |= first[1:] < end[:-1]
        begun[0] = True
        since = int(np.flatnonzero(begun)[-1])
        places = column["first_physical"]
        queue = Queue(*name)
        queue.begin_at(int(first[since]), int(places[since]))
        queue.next, queue.end_physical = int(end[-1]), int(column["end_physical"][-1])
        queue.mark_offsets, queue.mark_physicals = _array(first[since:]), _array(places[since:])
        return queue

    def extents(
        self,
        queues: Mapping[QueueName, OffsetRange] | None,
        begin_ms: int | None,
        end_ms: int | None,
        places: Iterable[tuple[int, int]] | None = None,
    ) -> list[tuple[int, int]]:
        """Parts of the log in which records of these offsets and times can lie, and those with damage; in order,
        neighbours joined, each begun where a record begins. `queues` None: any. With `places`, only what has something
        of these ranges in it."""
        column = self._columns
        wanted = np.ones(len(self), np.bool_)
        if queues is not None:
            low, high = self._wanted_offsets(queues)
            wanted &= (column["first_offset"] < high[self._numbers]) & (low[self._numbers] < column["end_offset"])
        if begin_ms is not None:
            wanted &= column["end_ms"] > begin_ms
        if end_ms is not None:
            wanted &= column["begin_ms"] < end_ms
        if places is not None:
            wanted &= _touched(column["start"], column["end"], places)
        wanted |= column["damaged_bytes"] > 0
        stretches = set(zip(column["start"][wanted].tolist(), column["end"][wanted].tolist(), strict=True))
        return joined(stretches)

    def _wanted_offsets(self, queues: Mapping[QueueName, OffsetRange]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """By number of queue: from where to where; nothing of those that are not wanted."""
        ranges = [(0, 0) if name is None else queues.get(name, (0, 0)) for name in self._names]
        low = np.array([start for start, _ in ranges], np.int64)
        return low, np.array([end for _, end in ranges], np.int64)


def _touched(
    starts: NDArray[np.int64], ends: NDArray[np.int64], ranges: Iterable[tuple[int, int]]
) -> NDArray[np.bool_]:
    """Which of some stretches meet one of the ranges, that do not overlap."""
    ordered = np.array(sorted(ranges), np.int64).reshape(-1, 2)
    first_behind = np.searchsorted(ordered[:, 0], ends, "left")  # The ranges before these begin before the end.
    ended = np.searchsorted(ordered[:, 1], starts, "right")  # So many end before the start.
    touched: NDArray[np.bool_] = ended < first_behind
    return touched


def _array(values: NDArray[np.int64]) -> "array[int]":
    made = array("q")
    made.frombytes(np.ascontiguousarray(values).tobytes())
    return made


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, those that touch made one."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found
