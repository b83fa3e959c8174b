"""The walk: records of the log, in order, as columns. Dispatch and recovery both walk here, so they cannot
disagree on what a record is.

One step reads what one segment has from a position on, up to a number of rows. It uses the numba kernel
where there is enough to do, and its plain twin otherwise: loading numba takes most of a second and tens of
megabytes, which a store with a handful of messages should not pay.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from embermq.columns import RecordColumns, Rows, Scan, compiled_scan, new_rows, pays, scan_rows
from embermq.format.frame import ScanStop, TornReason
from embermq.settings import KernelUse
from embermq.store.log.commit_log import CommitLog, Lent

# Rows and the bytes behind them stay in the cache for those who take them.
ROWS_OF_KERNEL = 4_096
ROWS_OF_TWIN = 512

Take = Callable[[RecordColumns, int], None]


class WalkStep(NamedTuple):
    """Where a step ended, and why: a ScanStop or TornReason code, or None where there is no segment."""

    at: int
    stop: int | None

    @property
    def torn(self) -> TornReason | None:
        return TornReason(self.stop) if self.stop is not None and self.stop >= min(TornReason) else None


class ScannedStep(NamedTuple):
    """What one scan found, where it stopped and why; `rows` is the room the columns are in."""

    columns: RecordColumns
    rows: Rows
    stop_at: int
    stop: int


class Walker:
    """Walks one log. One thread at a time.

    While the rows of one step are being taken, the next step is scanned on a second thread: the kernel
    needs no GIL, and those who take spend much of their time in kernels too.
    """

    def __init__(
        self,
        log: CommitLog,
        delay_ms: tuple[int, ...],
        use: KernelUse,
        *,
        look_ahead: Callable[[RecordColumns], None] | None = None,
        on_second_thread: Callable[[], None] | None = None,
    ) -> None:
        """The second thread calls `on_second_thread` first, and `look_ahead` with what it has scanned."""
        self._log = log
        self._delay_ms = np.array(delay_ms, dtype=np.int64)
        self._use = use
        self._walked_bytes = 0
        self._free_rows = [new_rows(ROWS_OF_TWIN)]
        self._ahead: tuple[tuple[int, int, int, bool], Future[ScannedStep]] | None = None
        self._helper: ThreadPoolExecutor | None = None
        self._on_second_thread, self._look_ahead = on_second_thread, look_ahead

    def step(self, at: int, limit: int, take: Take, *, check_crc: bool) -> WalkStep:
        """Hand the records from `at` on to `take(columns, end)`, at most to `limit` or the segment's end.

        A blank is passed: the step then ends at the start of the next segment with ScanStop.BLANK.
        """
        with self._log.lend(at, limit) as lent:
            if lent is None:
                return WalkStep(at, None)
            found = self._scanned_ahead(lent, check_crc) or self._scan(lent, check_crc)
            self._walked_bytes += found.stop_at - lent.start
            end = lent.base + found.stop_at
            if found.stop == ScanStop.ROWS_FULL and len(found.rows) == ROWS_OF_KERNEL:
                self._scan_ahead(lent._replace(start=found.stop_at), check_crc)
            if len(found.columns):
                take(found.columns, end)
            self._free_rows.append(found.rows)
        if found.stop == ScanStop.BLANK:
            return WalkStep(self._log.next_segment_start(end), found.stop)
        return WalkStep(end, found.stop)

    def close(self) -> None:
        """Let the second thread go."""
        if self._helper is not None:
            self._helper.shutdown()
            self._helper = None

    def _scan(self, lent: Lent, check_crc: bool) -> ScannedStep:
        if self._prefer_kernel(lent.end - lent.start):
            return self._scan_with(compiled_scan(), lent, self._rows(ROWS_OF_KERNEL), check_crc)
        return self._scan_with(scan_rows, lent, self._rows(ROWS_OF_TWIN), check_crc)

    def _scan_with(self, scan: Scan, lent: Lent, rows: Rows, check_crc: bool) -> ScannedStep:
        count, stop_at, stop = scan(lent.data, lent.base, lent.start, lent.end, rows, self._delay_ms, check_crc, True)
        return ScannedStep(RecordColumns(lent.data, lent.base, rows[:count]), rows, stop_at, stop)

    def _scan_on_second_thread(self, lent: Lent, rows: Rows, check_crc: bool) -> ScannedStep:
        found = self._scan_with(compiled_scan(), lent, rows, check_crc)
        if self._look_ahead is not None and len(found.columns):
            self._look_ahead(found.columns)
        return found

    def _rows(self, count: int) -> Rows:
        """Room for at least `count` rows that are not in use now."""
        while self._free_rows:
            rows = self._free_rows.pop()
            if len(rows) >= count:
                return rows
        return new_rows(count)

    def _scan_ahead(self, lent: Lent, check_crc: bool) -> None:
        """Begin to scan what comes after this step."""
        if self._helper is None:
            self._helper = ThreadPoolExecutor(1, "embermq-scan", self._on_second_thread)
        key = (lent.base, lent.start, lent.end, check_crc)
        rows = self._rows(ROWS_OF_KERNEL)
        self._ahead = key, self._helper.submit(self._scan_on_second_thread, lent, rows, check_crc)

    def _scanned_ahead(self, lent: Lent, check_crc: bool) -> ScannedStep | None:
        """The scan that was begun ahead, if it is the one wanted now; a log that has grown since is another."""
        if self._ahead is None:
            return None
        key, future = self._ahead
        self._ahead = None
        found = future.result()
        if key == (lent.base, lent.start, lent.end, check_crc):
            return found
        same_start = key[:2] == (lent.base, lent.start) and key[3] == check_crc
        if same_start and key[2] < lent.end and found.stop == ScanStop.ROWS_FULL:
            return found  # It had enough before it came to what is new.
        self._free_rows.append(found.rows)
        return None

    def _prefer_kernel(self, byte_count: int) -> bool:
        return pays("scan", self._walked_bytes + byte_count, self._use)
