"""A sink that counts for the page of a pipeline: volume over time, topics, delay, damaged ranges. Writes nothing.

Each batch is counted by tasks over its slices; what comes back is small, and so is what is kept: times are
counted in coarser steps when there are too many, delays by classes that are a twelfth of their value wide.
"""

import copy
import threading
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from embermq.columns import C_BORN_TIME, C_SIZE, C_STORE_TIME, QueueSlots, RecordColumns
from embermq.spark.jobs.cluster_tasks import run
from embermq.spark.lake.topic_filter import EVERYTHING, TopicFilter, rows_of
from embermq.spark.pipelines.batches import LogBatch, RangeSlice
from embermq.spark.pipelines.sinks import SinkFigures
from embermq.store.log import DamagedRange, scan_segments

STEP_MS = 1000
STEPS_KEPT = 4_000
_COARSER = {1000: 10, 10_000: 6, 60_000: 10, 600_000: 6, 3_600_000: 6, 21_600_000: 4}  # up to days
CLASSES_PER_DOUBLE = 8
_CLASSES = CLASSES_PER_DOUBLE * 46
_TIME_MAX_MS = 1 << 45

Numbers = NDArray[np.int64]


@dataclass(slots=True)
class TopicFigures:
    """One topic: messages, bytes of log, and messages by class of delay."""

    messages: int = 0
    bytes: int = 0
    delays: Numbers = field(default_factory=lambda: np.zeros(_CLASSES, np.int64))
    delay_max_ms: int = 0

    def add(self, more: "TopicFigures") -> None:
        self.messages, self.bytes = self.messages + more.messages, self.bytes + more.bytes
        self.delays = self.delays + more.delays
        self.delay_max_ms = max(self.delay_max_ms, more.delay_max_ms)

    def delay_ms(self, share: float) -> float:
        """The delay that this share of the messages does not exceed, rounded up to the end of its class; never
        more than the longest."""
        reached = np.cumsum(self.delays)
        found = int(np.searchsorted(reached, max(share * int(reached[-1]), 1)))
        edge = round(float(2 ** ((found + 1) / CLASSES_PER_DOUBLE) - 1), 1) if found else 0.0
        return min(edge, float(self.delay_max_ms))


@dataclass(slots=True)
class SliceFigures:
    """What one task counted."""

    records: int = 0
    topics: dict[str, TopicFigures] = field(default_factory=dict)
    volume: dict[int, tuple[int, int]] = field(default_factory=dict)  # second -> messages, bytes
    damages: list[DamagedRange] = field(default_factory=list)


@dataclass(slots=True)
class LogFigures:
    """What of one log was read."""

    start: int
    end: int
    segments: set[int] = field(default_factory=set)
    damages: list[DamagedRange] = field(default_factory=list)


@dataclass(slots=True)
class RunFigures:
    """All batches of a run."""

    topics: dict[str, TopicFigures] = field(default_factory=dict)
    volume: dict[int, tuple[int, int]] = field(default_factory=dict)  # number of the step -> messages, bytes
    step_ms: int = STEP_MS
    logs: dict[str, LogFigures] = field(default_factory=dict)

    def add(self, figures: SliceFigures) -> None:
        for topic, more in figures.topics.items():
            self.topics.setdefault(topic, TopicFigures()).add(more)
        for second, counts in figures.volume.items():
            _count(self.volume, second * STEP_MS // self.step_ms, counts)
        while len(self.volume) > STEPS_KEPT and self.step_ms in _COARSER:
            factor = _COARSER[self.step_ms]
            self.step_ms *= factor
            fine, self.volume = self.volume, {}
            for step, counts in fine.items():
                _count(self.volume, step // factor, counts)


class ReportSink:
    """Adds up what the batches of this run held. `process` is called by Spark's thread, `figures` by any."""

    name = "report"

    def __init__(self, topics: TopicFilter | None = None) -> None:
        self.topics = topics or TopicFilter()
        self._figures = RunFigures()
        self._adding = threading.Lock()

    def process(self, batch: LogBatch) -> SinkFigures:
        slices = batch.slices()
        counted = run(batch.spark, partial(count_slice, topics=self.topics), slices, "counting", batch.on_progress)
        with self._adding:
            for one in batch.ranges:
                log = self._figures.logs.setdefault(one.broker_name, LogFigures(one.start, one.end))
                log.start, log.end = min(log.start, one.start), max(log.end, one.end)
            for piece, figures in zip(slices, counted, strict=True):
                log = self._figures.logs[piece.broker_name]
                log.segments.update(segment.start for segment in piece.segments)
                log.damages += figures.damages
                self._figures.add(figures)
        return SinkFigures(sum(figures.records for figures in counted))

    def figures(self) -> RunFigures:
        """As they are now."""
        with self._adding:
            return copy.deepcopy(self._figures)


def count_slice(piece: RangeSlice, topics: TopicFilter = EVERYTHING) -> SliceFigures:
    """Counts one slice, in a worker."""
    found, routes, chosen = SliceFigures(), QueueSlots(), rows_of(topics)
    for scanned in scan_segments(piece.segments, piece.start, piece.end):
        if isinstance(scanned, DamagedRange):
            found.damages.append(scanned)
            continue
        found.records += len(scanned)
        if not topics.is_everything:
            rows = chosen(scanned, np.arange(len(scanned), dtype=np.int64))
            scanned = RecordColumns(scanned.data, scanned.base, scanned.rows[rows])
        if not len(scanned):
            continue
        numbers = routes.route(scanned).astype(np.int64)
        _count_topics(found, scanned, numbers, routes)
        _count_over_time(found, scanned)
    return found


def _count_topics(found: SliceFigures, batch: RecordColumns, numbers: Numbers, routes: QueueSlots) -> None:
    stored, born = (np.clip(batch.column(column), 0, _TIME_MAX_MS) for column in (C_STORE_TIME, C_BORN_TIME))
    delays = np.maximum(stored - born, 0).astype(np.float64)
    classes = np.minimum((np.log2(delays + 1) * CLASSES_PER_DOUBLE).astype(np.int64), _CLASSES - 1)
    sizes = batch.column(C_SIZE)
    for number in np.unique(numbers).tolist():
        mine = numbers == number
        counts = np.bincount(classes[mine], minlength=_CLASSES)
        topic = routes.names[number][0]
        more = TopicFigures(int(mine.sum()), int(sizes[mine].sum()), counts, int(delays[mine].max()))
        found.topics.setdefault(topic, TopicFigures()).add(more)


def _count_over_time(found: SliceFigures, batch: RecordColumns) -> None:
    seconds = np.clip(batch.column(C_STORE_TIME), 0, _TIME_MAX_MS) // STEP_MS
    starts = np.concatenate([[0], np.flatnonzero(np.diff(seconds)) + 1])
    octets = np.add.reduceat(batch.column(C_SIZE), starts)
    messages = np.diff(starts, append=len(seconds))
    for second, count, size in zip(seconds[starts].tolist(), messages.tolist(), octets.tolist(), strict=True):
        _count(found.volume, second, (count, size))


def _count(volume: dict[int, tuple[int, int]], step: int, counts: tuple[int, int]) -> None:
    before = volume.get(step, (0, 0))
    volume[step] = before[0] + counts[0], before[1] + counts[1]
