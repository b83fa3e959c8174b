"""How much of what is there one micro-batch takes, and when it waits for more: of stores and of clusters.

Pure, but for `patience_of`, which takes the machine's clock.
"""

import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from embermq.spark.options.read_options import ReadOptions
from embermq.spark.runtime.newer_spark import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

K = TypeVar("K", bound=Hashable)


def shares(limit: int, lags: Mapping[K, int]) -> dict[K, int]:
    """How much of `limit` each gets: in proportion to how far it is behind, at least one, never more than it has.

    One each is what keeps a small queue beside a large one from waiting for ever; with more queues than `limit` it
    is a little more than was asked for.
    """
    total = sum(lags.values())
    if total <= limit:
        return dict(lags)
    return {key: min(lag, -(-limit * lag // total)) for key, lag in lags.items()}


class Patience:
    """Waits until enough rows are there, or too much time has passed since the last batch. One thread."""

    def __init__(self, rows_min: int, delay_ms_max: int, now_ms: Callable[[], float]) -> None:
        self.rows_min, self._delay_ms_max, self._now_ms = rows_min, delay_ms_max, now_ms
        self._since_ms: float | None = None

    def allows(self, row_count: int) -> bool:
        """May a batch of so many rows begin? If so, the next one waits anew."""
        now = self._now_ms()
        if self._since_ms is None:
            self._since_ms = now
        if row_count == 0:
            return False
        if row_count < self.rows_min and now - self._since_ms < self._delay_ms_max:
            return False
        self._since_ms = now
        return True


def patience_of(options: ReadOptions) -> Patience | None:
    """What minOffsetsPerTrigger and maxTriggerDelay ask for."""
    rows_min = options.min_offsets_per_trigger
    if rows_min is None:
        return None
    return Patience(rows_min, options.max_trigger_delay_ms, lambda: time.monotonic() * 1000)


def default_limit(options: ReadOptions) -> ReadLimit:
    """One of the limits, to say that there is one; readers know them all when they are asked how far a batch goes."""
    if options.max_offsets_per_trigger is not None:
        return ReadMaxRows(options.max_offsets_per_trigger)
    if options.max_bytes_per_trigger is not None:
        return ReadMaxBytes(options.max_bytes_per_trigger)
    if options.min_offsets_per_trigger is not None:
        return ReadMinRows(options.min_offsets_per_trigger)
    return ReadAllAvailable()
