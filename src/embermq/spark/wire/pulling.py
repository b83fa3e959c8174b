"""A slice of a read over the wire, in a task: pulls ahead of what is decoded, in the order of each queue.

The ranges of a slice are cut into windows of offsets. A window is pulled by one request after another, as brokers
answer a bounded number of messages each: Apache RocketMQ 32, EmberMQ about a MiB for those who ask for it. Several
windows are under way at once, on the client's loop, while this thread makes Arrow batches of the oldest. Windows are as
long as makes about WINDOW_BYTES, by what the last ones had, so that memory stays bounded whatever messages are like.

Filters run in the broker and again here: a broker compares hashes of tags, and one that does not know SQL92 filters
answers everything. Messages that should be there and are not (retention, a cut queue) are DataLost, or with
failOnDataLoss=false one warning.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from embermq.client import MessageQueue
from embermq.client.calls import SQL92, TAG, PullStatus
from embermq.columns import RecordColumns, Selection
from embermq.errors import CorruptFrame, DataLost, RequestRefused
from embermq.remoting import ResponseCode
from embermq.spark.reading.arrow import BATCH_ROWS_MAX, BatchBuilder
from embermq.spark.reading.slice_rows import Keep, ReadSettings, chooser, meeting
from embermq.spark.wire.cluster import Cluster, ClusterPlace
from embermq.spark.wire.pulled_records import DamagedRecord, RecordReader, is_run_of, within
from embermq.spark.wire.wanted import WireRange
from embermq.sql92 import compile_expression

WINDOW_BYTES = 2 << 20
WINDOWS_AHEAD = 6
_FIRST_WINDOW = 32
_WINDOW_OFFSETS_MAX = 16_384
_SHORT_QUEUE_SECONDS = 10.0
_SHORT_QUEUE_PAUSE_SECONDS = 0.1
_GO_ON = "set failOnDataLoss=false to read what is left"

_log = logging.getLogger(__name__)


@dataclass
class WireSlice(InputPartition):
    """One task's part of a read: ranges of queues of one broker."""

    place: ClusterPlace
    ranges: tuple[WireRange, ...]
    selection: Selection
    reading: ReadSettings


@dataclass(frozen=True, slots=True)
class BrokerFilter:
    """What the broker is to filter by."""

    text: str = "*"
    kind: str = TAG

    @property
    def is_everything(self) -> bool:
        return self.text == "*" and self.kind == TAG


@dataclass(slots=True)
class Answered:
    """What was pulled of one window: records, and offsets that are gone."""

    window: WireRange
    records: bytes
    is_filtered: bool
    lost: list[tuple[int, int]]


def expression_of(selection: Selection, sql_expression: str | None) -> BrokerFilter:
    """The filter for the broker: of tags and a condition it takes one, and the condition says more."""
    if sql_expression is not None:
        return BrokerFilter(sql_expression, SQL92)
    if selection.tags:
        return BrokerFilter(" || ".join(sorted(selection.tags)))
    return BrokerFilter()


def read_wire_slice(slice_: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a slice. What is no WireSlice is the partition Spark makes up where there are none."""
    if not isinstance(slice_, WireSlice):
        return
    with Cluster(slice_.place) as cluster:
        reader = SliceReader(slice_)
        yield from reader.read(cluster)
        reader.report()


def answers(cluster: Cluster, slice_: WireSlice) -> Iterator[Answered]:
    """Windows of the slice in order, pulled ahead."""
    puller = Puller(cluster, expression_of(slice_.selection, slice_.reading.sql_expression))
    sizes = WindowSizes()
    ahead: deque[Future[Answered]] = deque()
    try:
        for window in iter_windows(slice_.ranges, sizes):
            ahead.append(cluster.start(puller.pull_window(window)))
            while len(ahead) >= sizes.ahead:
                answered = ahead.popleft().result()
                sizes.note(answered.window.count, len(answered.records))
                yield answered
        while ahead:
            yield ahead.popleft().result()
    finally:
        for one in ahead:
            one.cancel()


class WindowSizes:
    """How many offsets a window has, by what windows before it had in them."""

    def __init__(self) -> None:
        self.offsets, self.ahead = _FIRST_WINDOW, 1

    def note(self, offsets: int, size: int) -> None:
        fitting = WINDOW_BYTES * offsets // max(1, size)
        self.offsets = min(max(1, fitting, _FIRST_WINDOW if size <= WINDOW_BYTES else 1), _WINDOW_OFFSETS_MAX)
        self.ahead = WINDOWS_AHEAD


def iter_windows(ranges: tuple[WireRange, ...], sizes: WindowSizes) -> Iterator[WireRange]:
    """The ranges in windows, each as long as `sizes` says when it is asked for."""
    for one in ranges:
        at = one.start
        while at < one.end:
            end = min(one.end, at + sizes.offsets)
            yield WireRange(one.topic, one.broker_name, one.queue_id, at, end)
            at = end


class Puller:
    """Pulls windows. The loop's thread only."""

    def __init__(self, cluster: Cluster, expression: BrokerFilter) -> None:
        self._cluster, self._expression = cluster, expression

    async def pull_window(self, window: WireRange) -> Answered:
        """All of a window, however many requests that takes."""
        queue = MessageQueue(window.topic, window.broker_name, window.queue_id)
        found: list[bytes] = []
        lost: list[tuple[int, int]] = []
        at, deadline = window.start, 0.0
        while at < window.end:
            expression = self._expression
            try:
                pulled = await self._cluster.pull(
                    queue, at, window.end - at, expression.text, expression.kind, WINDOW_BYTES
                )
            except RequestRefused as problem:
                if expression.kind != SQL92 or problem.code != ResponseCode.SYSTEM_ERROR:
                    raise
                self._expression = BrokerFilter()  # It does not filter by properties: they are compared here.
                continue
            if pulled.status is PullStatus.FOUND:
                found.append(pulled.records)
            elif pulled.next_offset > at and not (
                pulled.status is PullStatus.NO_MATCH and not expression.is_everything
            ):
                lost.append((at, min(pulled.next_offset, window.end)))
            elif pulled.max_offset <= at or pulled.next_offset <= at:
                # The queue ends before what was seen of it: a broker that was started again has not read all of its log
                # yet, or has lost the end of it.
                now = time.monotonic()
                deadline = deadline or now + _SHORT_QUEUE_SECONDS
                if now >= deadline:
                    lost.append((at, window.end))
                    break
                await asyncio.sleep(_SHORT_QUEUE_PAUSE_SECONDS)
                continue
            at = max(at + 1, pulled.next_offset)
        return Answered(window, b"".join(found), not self._expression.is_everything, lost)


class SliceReader:
    """Answers to Arrow batches, for one slice. `lost` and `damaged` messages are not among them."""

    def __init__(self, slice_: WireSlice) -> None:
        reading = slice_.reading
        self._slice, self._reading = slice_, reading
        self._records = RecordReader(rows_max=min(reading.batch_rows, BATCH_ROWS_MAX), verify_crc=reading.verify_crc)
        name = slice_.ranges[0].broker_name if slice_.ranges else ""
        self._builder = BatchBuilder(
            reading.schema,
            mode=reading.mode,
            broker_name=name,
            decompress=reading.decompress,
            rows_max=reading.batch_rows,
            bytes_max=reading.batch_bytes,
        )
        self._choose = chooser(slice_.selection, sum(one.count for one in slice_.ranges) * 1024)
        text = reading.sql_expression
        self._condition = None if text is None else compile_expression(text)
        self.lost = self.damaged = 0
        self.first_trouble = ""

    @property
    def schema(self) -> pa.Schema:
        return self._builder.schema

    def read(self, cluster: Cluster) -> Iterator[pa.RecordBatch]:
        """All rows of the slice."""
        for answered in answers(cluster, self._slice):
            yield from self.batches(answered)

    def batches(self, answered: Answered) -> Iterator[pa.RecordBatch]:
        window, at, has_damage = answered.window, answered.window.start, False
        self._builder.topic = window.topic
        for start, end in answered.lost:
            self._lose(window, start, end)
        is_whole = not answered.is_filtered and not answered.lost
        for found in self._records.read(answered.records):
            if isinstance(found, DamagedRecord):
                has_damage = True
                yield from self._meet(window, found)
                continue
            if is_whole and not has_damage:
                if not is_run_of(found, window.queue_id, at):
                    self._lose(window, at, window.end)
                    is_whole = False
                at += len(found)
            yield from self._rows(window, found)

    def _rows(self, window: WireRange, found: RecordColumns) -> Iterator[pa.RecordBatch]:
        keep = _both(self._choose(found), within(found, window.end))
        if self._condition is not None:
            keep = meeting(self._condition, found, keep)
        damaged: list[DamagedRecord] = []
        yield from self._builder.batches(
            found, keep, lambda start, end, reason: damaged.append(DamagedRecord(start, end, reason))
        )
        for one in damaged:
            yield from self._meet(window, one)

    def _lose(self, window: WireRange, start: int, end: int) -> None:
        what = f"{window}: offsets {start} to {end} are gone: retention took them, or the end of the queue was lost"
        if self._reading.fail_on_data_loss:
            raise DataLost(f"{what}; {_GO_ON}")
        self.lost += end - start
        self.first_trouble = self.first_trouble or what

    def _meet(self, window: WireRange, damage: DamagedRecord) -> Iterator[pa.RecordBatch]:
        """Raise, count, or a row, as onCorrupt has it."""
        if self._reading.on_corrupt == "fail":
            raise CorruptFrame(
                damage.start,
                f"{damage.reason} ({window}); set onCorrupt=skip to leave it out, or onCorrupt=rows to see it in the"
                " column _corrupt",
            )
        self.damaged += 1
        self.first_trouble = self.first_trouble or f"{window}: {damage.reason} at {damage.start}"
        if self._reading.on_corrupt == "rows":
            yield self._builder.damaged([damage])

    def report(self) -> None:
        if self.first_trouble:
            _log.warning("messages left out lost=%d damaged=%d first=%s", self.lost, self.damaged, self.first_trouble)


def _both(one: Keep | None, other: Keep | None) -> Keep | None:
    if one is None or other is None:
        return other if one is None else one
    return np.intersect1d(one, other, assume_unique=True)
