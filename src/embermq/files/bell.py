"""A bell: wakes one thread that waits, and never keeps a lock when a signal handler raises in the one that rings.

`threading.Event` and `Condition` take their lock in Python code. A signal handler that raises right there (Ctrl-C in a
notebook, an alarm) leaves it taken, and every other thread that wants to wait or to wake stands still for ever. Here
ringing is one call into C: it was done, or it was not. A ring that nothing waits for is kept; several are one.
"""

import threading


class Bell:
    """`ring` from any thread; `wait` from one thread at a time."""

    __slots__ = ("_silence",)

    def __init__(self) -> None:
        self._silence = threading.Lock()  # Held until the bell is rung.
        self._silence.acquire()

    def ring(self) -> None:
        if self._silence.locked():
            try:
                self._silence.release()
            except RuntimeError:
                pass  # Another thread was faster.

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for a ring, at most so long, and take it; False if there was none."""
        return self._silence.acquire(timeout=-1 if timeout_seconds is None else max(timeout_seconds, 0.0))
