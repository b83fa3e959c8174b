"""Deadlines: whoever waits for a sync without a thread is told when that takes too long.

The flusher cannot tell: it may be inside a sync that does not return. So a thread that touches no disk does. All wait
equally long, so the first to come is the first whose time is over. The thread is made when somebody comes, and nobody
wakes it: most are told in time. So one who comes while it sleeps may be told late, by as long as all wait. Any thread.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from embermq.clock import Clock

_IDLE_SECONDS_MIN, _IDLE_SECONDS_MAX = 0.05, 1.0


class Timed(Protocol):
    @property
    def deadline(self) -> float: ...

    @property
    def is_told(self) -> bool: ...


class Deadlines:
    """`expire` is called with each whose time is over and who has not been told anything."""

    def __init__(self, clock: Clock, timeout_seconds: float, expire: Callable[[Timed], None]) -> None:
        self._clock, self._expire = clock, expire
        self._idle_seconds = min(max(timeout_seconds, _IDLE_SECONDS_MIN), _IDLE_SECONDS_MAX)
        self._waiting: deque[Timed] = deque()
        self._lock = threading.Lock()
        self._stop_asked = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, waiter: Timed) -> None:
        with self._lock:
            self._forget_told()
            self._waiting.append(waiter)
            is_running = self._thread is not None and self._thread.is_alive()
            if not is_running and not self._stop_asked.is_set():
                self._thread = threading.Thread(target=self._run, name="embermq-deadlines", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        self._stop_asked.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop_asked.is_set():
            with self._lock:
                self._forget_told()
                first = self._waiting[0] if self._waiting else None
                left = self._idle_seconds if first is None else first.deadline - self._clock.monotonic()
                if first is not None and left <= 0:
                    self._waiting.popleft()
            if first is not None and left <= 0:
                self._expire(first)
            else:
                self._stop_asked.wait(min(left, _IDLE_SECONDS_MAX))

    def _forget_told(self) -> None:
        while self._waiting and self._waiting[0].is_told:
            self._waiting.popleft()
