"""A slice of a read, and what all ways of reading one share: choosing rows, making batches, meeting troubles.

A Slice is a picklable InputPartition that names everything its reading needs: no directory is surveyed on a worker.
What is in the way: bytes that are no record (onCorrupt decides), and log files that retention took since the read
was planned (failOnDataLoss decides). Both are values until Troubles says what becomes of them.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from embermq.columns import C_SIZE, RecordColumns, Selection, select_for
from embermq.errors import CorruptFrame, DataLost
from embermq.files import Files, RealFiles
from embermq.spark.options.read_options import OnCorrupt, SchemaMode
from embermq.spark.planning.plan import Cut
from embermq.spark.planning.topic_incarnations import SelectionOfIncarnations
from embermq.spark.reading.arrow import BatchBuilder
from embermq.sql92 import Expression, compile_expression
from embermq.store.log import MISSING, ROWS_MAX, DamagedRange, LogSegment, scan_segments

_log = logging.getLogger(__name__)

# A window becomes a batch. Of a small one, making the columns costs more than filling them; one of 8 MiB no longer fits
# any cache. With 2 MiB a task takes a sixth less CPU time for whole rows of 1 KiB than with the 1 MiB that scan best.
_WINDOW_BYTES = 2 << 20

Keep = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """What holds for every slice of one read."""

    schema: StructType
    mode: SchemaMode = "rocketmq"
    on_corrupt: OnCorrupt = "fail"
    verify_crc: bool = True
    decompress: bool = True
    fail_on_data_loss: bool = True
    batch_rows: int = 16384
    batch_bytes: int = 8 << 20
    sql_expression: str | None = None


@dataclass
class Slice(InputPartition):
    """One task's part of one store: `cut` says which, `selection` what of it is wanted."""

    store: Path
    broker_name: str
    segments: tuple[LogSegment, ...]
    cut: Cut
    selection: Selection
    reading: ReadSettings
    files: Files = field(default_factory=RealFiles, compare=False)  # what the log files are read with


@dataclass(slots=True)
class Counts:
    """What reading took; adds up over slices."""

    bytes_read: int = 0
    records: int = 0
    rows: int = 0
    damaged_bytes: int = 0
    damaged: list[DamagedRange] = field(default_factory=list)


class SliceReader:
    """What one reading of one slice works with."""

    def __init__(self, slice_: Slice, counts: Counts) -> None:
        self.slice, self.counts = slice_, counts
        reading = slice_.reading
        self.rows_max = min(reading.batch_rows, ROWS_MAX)
        self.builder = BatchBuilder(
            reading.schema,
            mode=reading.mode,
            broker_name=slice_.broker_name,
            decompress=reading.decompress,
            rows_max=reading.batch_rows,
            bytes_max=reading.batch_bytes,
        )
        self.troubles = Troubles(slice_, counts, self.builder)
        text = reading.sql_expression
        self._condition = None if text is None else compile_expression(text)

    def scan(self, start: int, end: int) -> Iterator[RecordColumns | DamagedRange]:
        """The log as it lies there, counted."""
        verify = self.slice.reading.verify_crc
        segments, files = self.slice.segments, self.slice.files
        for scanned in scan_segments(
            segments, start, end, check_crc=verify, rows_max=self.rows_max, files=files, window_bytes=_WINDOW_BYTES
        ):
            if not isinstance(scanned, DamagedRange):
                self.count(scanned)
            yield scanned

    def count(self, records: RecordColumns) -> None:
        self.counts.records += len(records)
        self.counts.bytes_read += int(records.column(C_SIZE).sum())

    def batches(self, records: RecordColumns, keep: Keep | None) -> Iterator[pa.RecordBatch]:
        """Chosen records as batches within the limits; damage met on the way (bodies that cannot be decompressed)."""
        if self._condition is not None:
            keep = meeting(self._condition, records, keep)
        found: list[DamagedRange] = []
        for batch in self.builder.batches(
            records, keep, lambda start, end, reason: found.append(DamagedRange(start, end, reason))
        ):
            self.counts.rows += batch.num_rows
            yield batch
        for damage in found:
            yield from self.troubles.meet(damage)


def meeting(condition: Expression, records: RecordColumns, keep: Keep | None) -> Keep:
    """Those of the chosen records whose properties meet a condition."""
    rows = range(len(records)) if keep is None else keep.tolist()
    return np.array([i for i in rows if condition.matches(records.properties(i))], np.int64)


def chooser(selection: Selection, byte_count: int) -> Callable[[RecordColumns], Keep | None]:
    """records -> numbers of the wanted rows, or None for all of them."""
    choose = _chooser(selection, byte_count)
    if isinstance(selection, SelectionOfIncarnations):
        return lambda records: selection.without_old(records, choose(records))
    return choose


def _chooser(selection: Selection, byte_count: int) -> Callable[[RecordColumns], Keep | None]:
    if selection.is_everything:
        return lambda records: None
    return select_for(selection, byte_count)


class Troubles:
    """Damage and loss met by one slice, and what becomes of them."""

    def __init__(self, slice_: Slice, counts: Counts, builder: BatchBuilder) -> None:
        self._slice, self._counts, self._builder = slice_, counts, builder
        self._met: list[DamagedRange] = []

    def meet(self, damage: DamagedRange) -> Iterator[pa.RecordBatch]:
        """Raise, count, or a row, as the options have it."""
        reading = self._slice.reading
        if damage.reason == MISSING:
            if reading.fail_on_data_loss:
                raise DataLost(
                    f"{self._slice.store}: bytes {damage.start} to {damage.end} of the log are gone, their file is"
                    " missing (retention?); set failOnDataLoss=false to read what is left"
                )
        elif reading.on_corrupt == "fail":
            raise CorruptFrame(damage.start, f"{damage.reason} {self._where(damage)}")
        self._met.append(damage)
        self._counts.damaged.append(damage)
        self._counts.damaged_bytes += damage.end - damage.start
        if reading.on_corrupt == "rows":
            batch = self._builder.damaged([damage])
            self._counts.rows += batch.num_rows
            yield batch

    def _where(self, damage: DamagedRange) -> str:
        files = [one.path for one in self._slice.segments if one.start <= damage.start < one.end]
        file = files[0] if files else self._slice.store
        return (
            f"(up to offset {damage.end}, in {file}); set onCorrupt=skip to leave such bytes out, or onCorrupt=rows"
            " to see them in the column _corrupt"
        )

    def report(self) -> None:
        """One warning for all that was left out, once the slice is read. Rows speak for themselves."""
        if self._met and self._slice.reading.on_corrupt != "rows":
            size = sum(damage.end - damage.start for damage in self._met)
            first = self._met[0]
            _log.warning(
                "ranges of the log left out store=%s ranges=%d bytes=%d first=%d reason=%s",
                self._slice.store,
                len(self._met),
                size,
                first.start,
                first.reason,
            )
