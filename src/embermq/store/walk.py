"""The walk: records of the log, in order, as columns. Dispatch, recovery and scans all walk here, so they
cannot disagree on what a record is.

One step reads what one segment has from a position on, up to a number of rows. It uses the numba kernel
where there is enough to do, and its plain twin otherwise: loading numba takes most of a second and tens of
megabytes, which a store with a handful of messages should not pay.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from embermq import kernels
from embermq.format.columns import RecordColumns, new_rows
from embermq.format.frame import ScanStop, TornReason, scan_rows
from embermq.settings import KernelUse
from embermq.store.commit_log import CommitLog

ROWS_OF_KERNEL = 16_384
ROWS_OF_TWIN = 512
# The twin walks about 100 records a millisecond; past this many bytes loading the kernel pays.
TWIN_BYTES_MAX = 4 << 20

Take = Callable[[RecordColumns, int], None]
Scan = Callable[..., tuple[int, int, int]]


class Step(NamedTuple):
    """Where a step ended, and why: a ScanStop or TornReason code, or None where there is no segment."""

    at: int
    stop: int | None

    @property
    def torn(self) -> TornReason | None:
        return TornReason(self.stop) if self.stop is not None and self.stop >= min(TornReason) else None


class Walker:
    """Walks one log. One thread at a time."""

    def __init__(self, log: CommitLog, delay_ms: tuple[int, ...], use: KernelUse) -> None:
        self._log = log
        self._delay_ms = np.array(delay_ms, dtype=np.int64)
        self._use = use
        self._walked_bytes = 0
        self._rows = new_rows(ROWS_OF_TWIN)

    def step(self, at: int, limit: int, take: Take, *, check_crc: bool) -> Step:
        """Hand the records from `at` on to `take(columns, end)`, at most to `limit` or the segment's end.

        A blank is passed: the step then ends at the start of the next segment with ScanStop.BLANK.
        """
        with self._log.lend(at, limit) as lent:
            if lent is None:
                return Step(at, None)
            use_kernel = self._prefer_kernel(lent.end - lent.start)
            if use_kernel and len(self._rows) < ROWS_OF_KERNEL:
                self._rows = new_rows(ROWS_OF_KERNEL)
            scan = _kernel_scan() if use_kernel else scan_rows
            count, stop_at, stop = scan(
                lent.data, lent.base, lent.start, lent.end, self._rows, self._delay_ms, check_crc, True
            )
            self._walked_bytes += stop_at - lent.start
            end = lent.base + stop_at
            if count:
                take(RecordColumns(lent.data, lent.base, self._rows[:count]), end)
        if stop == ScanStop.BLANK:
            return Step(self._log.next_segment_start(end), stop)
        return Step(end, stop)

    def _prefer_kernel(self, byte_count: int) -> bool:
        if self._use is not KernelUse.AUTO:
            return self._use is KernelUse.ALWAYS
        if kernels.is_loaded("scan"):
            return True
        return self._walked_bytes + byte_count > TWIN_BYTES_MAX


def _kernel_scan() -> Scan:
    scan: Scan = kernels.load("scan").scan
    return scan
