"""Statistics of a store: how much, how fast, how slow; in the text forms of RocketMQ.

Counting must cost the append path nothing, so it is done elsewhere: the writer keeps plain totals and
hands them out on demand (`counters`), and a put is reported here only when it took a millisecond or more;
all others count as 0 ms. A put takes from the call to its answer: checks, encoding, the wait for the put lock, the
store, and under SYNC_FLUSH the wait for the disk. Each message of a batch took as long as the batch. Rates come from a
sample of the totals about once a second (`sample`, called by the store's housekeeping), over the last 10, 60 and 600
seconds.

Positions and disk figures do not live here: the store adds them to `runtime_info`. Any thread.
"""

import logging
import math
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from embermq.clock import Clock

log = logging.getLogger(__name__)

COUNTED_PUT_SECONDS = 0.001  # Below, a put counts as 0 ms.
SLOW_PUT_SECONDS = 0.5
SAMPLES_MAX = 601
WINDOWS_SECONDS = (10, 60, 600)
ROTATION_SECONDS = 60.0

# (name, exclusive upper end in ms) of the latency classes people read; the last has no upper end.
_CLASSES: tuple[tuple[str, float], ...] = (
    ("<=0ms", 1),
    ("0~10ms", 10),
    ("10~50ms", 50),
    ("50~100ms", 100),
    ("100~200ms", 200),
    ("200~500ms", 500),
    ("500ms~1s", 1000),
    ("1~2s", 2000),
    ("2~3s", 3000),
    ("3~4s", 4000),
    ("4~5s", 5000),
    ("5~10s", 10_000),
    ("10s~", math.inf),
)
_CLASS_ENDS = [end for _, end in _CLASSES]
# (width in ms, how many) of the finer buckets percentiles are read from; one more takes the rest.
_STEPS = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
_BUCKET_ENDS = list(accumulate(width for width, count in _STEPS for _ in range(count)))


@dataclass(frozen=True, slots=True)
class PutCounters:
    """Totals since the store was opened."""

    count: int  # messages stored
    bytes: int
    failed: int  # messages that were not: rejected, refused, or interrupted by an error


class _Sample(NamedTuple):
    at: float
    puts: int
    found: int
    missed: int
    transferred: int


class _SlowPuts:
    """Puts of one minute that took a millisecond or more, by class and by finer bucket."""

    __slots__ = ("buckets", "classes", "count")

    def __init__(self) -> None:
        self.count = 0
        self.classes = [0] * len(_CLASSES)
        self.buckets = [0] * (len(_BUCKET_ENDS) + 1)

    def add(self, ms: int, count: int = 1) -> None:
        self.count += count
        self.classes[bisect_right(_CLASS_ENDS, ms)] += count
        self.buckets[bisect_right(_BUCKET_ENDS, ms)] += count


class StoreStats:
    """Statistics of one open store."""

    def __init__(self, clock: Clock, counters: Callable[[], PutCounters]) -> None:
        self._clock, self._counters = clock, counters
        self._lock = threading.Lock()
        self._booted_ms = clock.now_ms()
        self._booted = clock.monotonic()
        self._found = self._missed = self._transferred = 0
        self._slowest_put_ms = 0
        self._slowest_fetch_seconds = 0.0
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES_MAX)
        self._minute_began = self._booted
        self._puts_before_minute = 0
        self._slow = _SlowPuts()
        self._last_minute: _SlowPuts | None = None

    # -- counting --------------------------------------------------------------------------------------

    def record_put(self, seconds: float, messages: int = 1) -> None:
        """A put of so many messages took so long, from the call to its answer. Not needed for one that took less than
        COUNTED_PUT_SECONDS."""
        ms = int(seconds * 1000)
        if ms == 0:
            return
        with self._lock:
            self._slow.add(ms, messages)
            if ms > self._slowest_put_ms:
                self._slowest_put_ms = ms
        if seconds > SLOW_PUT_SECONDS:
            log.warning("slow put elapsed_ms=%d messages=%d", ms, messages)

    def record_fetch(self, messages: int, seconds: float) -> None:
        """A fetch answered `messages` messages; none is a miss."""
        with self._lock:
            if messages:
                self._found += 1
                self._transferred += messages
            else:
                self._missed += 1
            if seconds > self._slowest_fetch_seconds:
                self._slowest_fetch_seconds = seconds

    def sample(self) -> None:
        """Note the totals; to be called about once a second. Once a minute the latencies start anew."""
        now = self._clock.monotonic()
        puts = self._counters().count
        with self._lock:
            self._samples.append(_Sample(now, puts, self._found, self._missed, self._transferred))
            if now - self._minute_began >= ROTATION_SECONDS:
                self._slow.add(0, max(0, puts - self._puts_before_minute - self._slow.count))
                self._last_minute, self._slow = self._slow, _SlowPuts()
                self._minute_began, self._puts_before_minute = now, puts

    # -- answers ---------------------------------------------------------------------------------------

    def runtime_info(self) -> dict[str, str]:
        """The statistics under RocketMQ's names and in its text forms."""
        put = self._counters()
        with self._lock:
            samples = list(self._samples)
            last_minute = self._last_minute
            slowest_put_ms, slowest_fetch_seconds = self._slowest_put_ms, self._slowest_fetch_seconds
        shown_count = put.count or 1  # RocketMQ shows 1 for 0, to divide by it.
        return {
            "bootTimestamp": str(self._booted_ms),
            "runtime": _runtime_text(self._clock.monotonic() - self._booted),
            "putMessageEntireTimeMax": str(slowest_put_ms),
            "getMessageEntireTimeMax": str(int(slowest_fetch_seconds * 1000)),
            "putMessageTimesTotal": str(shown_count),
            "putMessageFailedTimes": str(put.failed),
            "putMessageSizeTotal": str(put.bytes),
            "putMessageAverageSize": _double_text(put.bytes / shown_count),
            "putMessageDistributeTime": _classes_text(last_minute),
            "dispatchMaxBuffer": "0",
            "putTps": _rates_text(samples, lambda sample: sample.puts),
            "getFoundTps": _rates_text(samples, lambda sample: sample.found),
            "getMissTps": _rates_text(samples, lambda sample: sample.missed),
            "getTotalTps": _rates_text(samples, lambda sample: sample.found + sample.missed, unknown="0.0"),
            "getTransferedTps": _rates_text(samples, lambda sample: sample.transferred),
            "putLatency99": f"{_percentile_ms(last_minute, 0.99):.2f}",
            "putLatency999": f"{_percentile_ms(last_minute, 0.999):.2f}",
        }


def _runtime_text(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"[ {days} days, {hour} hours, {minute} minutes, {second} seconds ]"


def _double_text(value: float) -> str:
    """A double as Java prints it: plain from 0.001 up to ten million, otherwise with an exponent."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    # The fewest digits that read back as the same number; 17 always do.
    shortest = next(text for n in range(17) if float(text := f"{value:.{n}e}") == value)
    digits, _, exponent = shortest.partition("e")
    return f"{digits}{'' if '.' in digits else '.0'}E{int(exponent)}"


_Total = Callable[[_Sample], int]


def _rates_text(samples: Sequence[_Sample], total: _Total, unknown: str = "") -> str:
    """Per-second rates over the three windows; `unknown` for a window longer than what was sampled."""
    return " ".join(_rate_text(samples, total, seconds, unknown) for seconds in WINDOWS_SECONDS)


def _rate_text(samples: Sequence[_Sample], total: _Total, seconds: int, unknown: str) -> str:
    if len(samples) <= seconds:
        return unknown
    first, last = samples[-1 - seconds], samples[-1]
    passed = last.at - first.at
    return _double_text((total(last) - total(first)) / passed if passed > 0 else 0.0)


def _classes_text(minute: _SlowPuts | None) -> str:
    if minute is None:
        return "null"
    return " ".join(f"[{name}]:{count}" for (name, _), count in zip(_CLASSES, minute.classes, strict=True))


def _percentile_ms(minute: _SlowPuts | None, share: float) -> float:
    """The latency that `share` of the minute's puts did not exceed, spread evenly within a bucket."""
    if minute is None or minute.count == 0:
        return 0.0
    wanted = math.ceil(minute.count * share)
    before = 0
    for bucket, count in enumerate(minute.buckets):
        if count and wanted <= before + count:
            start = _BUCKET_ENDS[bucket - 1] if bucket else 0
            end = _BUCKET_ENDS[bucket] if bucket < len(_BUCKET_ENDS) else start
            return start + (end - start) * (wanted - before) / count
        before += count
    raise AssertionError("a percentile lies in some bucket")
