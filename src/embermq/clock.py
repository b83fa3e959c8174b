"""Time as an argument: what needs the time gets a Clock, so that tests can hold it still."""

import time
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """What the product knows of time."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970 (UTC)."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards, for measuring and waiting."""
        ...

    def local_stamp(self, ms: int) -> str:
        """`ms` in local time as the 17 digits yyyyMMddHHmmssSSS."""
        ...


def stamp_of(ms: int) -> str:
    """17 digits yyyyMMddHHmmssSSS of `ms`, in local time."""
    return datetime.fromtimestamp(ms // 1000).strftime("%Y%m%d%H%M%S") + f"{ms % 1000:03d}"


class SystemClock:
    """The machine's own clock. Any thread."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # The built-in itself: every append asks twice.
    monotonic = staticmethod(time.monotonic)

    def local_stamp(self, ms: int) -> str:
        return stamp_of(ms)
