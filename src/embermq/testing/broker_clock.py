"""The clock of a broker in a test: the time of day stands still until the test moves it, waiting goes on as ever.

Delays, retries and checks of transactions go by the time of day. Timeouts, heartbeats and pauses between flushes go by
the monotonic clock, which is the machine's: a test that moves the time by an hour keeps its connections.
"""

import time
from collections.abc import Callable

from embermq.clock import stamp_of
from embermq.testing.clock import ManualClock


class BrokerClock:
    """The time of day of a broker. Any thread."""

    def __init__(self, now_ms: int | None = None) -> None:
        """Begins at the machine's time of day, unless another is given."""
        self._wall = ManualClock(time.time_ns() // 1_000_000 if now_ms is None else now_ms)
        self.moved: Callable[[], None] = lambda: None  # called after each move

    def now_ms(self) -> int:
        return self._wall.now_ms()

    monotonic = staticmethod(time.monotonic)

    def local_stamp(self, ms: int) -> str:
        return stamp_of(ms)

    def advance(self, *, ms: int = 0, s: float = 0.0) -> None:
        """Let time pass. What became due is delivered, and due checks are made, before this returns."""
        self._wall.advance(ms=ms, s=s)
        self.moved()
