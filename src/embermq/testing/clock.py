"""A clock that moves only when a test moves it."""

from embermq.clock import stamp_of

# 2024-01-01 00:00:00 UTC: a time with 13 digits, as real ones have.
START_MS = 1_704_067_200_000


class ManualClock:
    """Stands still until moved. Any thread."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def local_stamp(self, ms: int) -> str:
        return stamp_of(ms)

    def advance(self, *, ms: int = 0, s: float = 0.0) -> None:
        """Let time pass, on both clocks."""
        passed_ms = ms + round(s * 1000)
        assert passed_ms >= 0, "time passes forwards; use jump for a wall clock that is set back"
        self._now_ms += passed_ms
        self._monotonic += passed_ms / 1000

    def jump(self, *, ms: int) -> None:
        """Set the wall clock forwards or back, as an administrator does; monotonic time does not notice."""
        self._now_ms += ms

    def set(self, now_ms: int) -> None:
        """Put the wall clock to `now_ms`; monotonic time follows if that is later."""
        self._monotonic += max(0, now_ms - self._now_ms) / 1000
        self._now_ms = now_ms
