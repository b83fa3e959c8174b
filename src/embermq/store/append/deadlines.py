"""Deadlines: what waits for a sync without a thread is called when that takes too long.

The flusher cannot tell: it may be inside a sync that does not return. So a thread that touches no disk does. All wait
equally long, so the first to come is the first whose time is over. The thread is made when the first one comes, and is
not woken: most are done in time. So one who comes while it sleeps may be called late, by as long as all wait. Any
thread.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from embermq.clock import Clock
from embermq.files import Bell, WorkThread

_IDLE_SECONDS_MIN, _IDLE_SECONDS_MAX = 0.05, 1.0


class Timed(Protocol):
    @property
    def deadline(self) -> float: ...

    @property
    def is_told(self) -> bool: ...


class Deadlines:
    """`expire` is called with each whose time is over and who has not been called yet."""

    def __init__(self, clock: Clock, timeout_seconds: float, expire: Callable[[Timed], None]) -> None:
        self._clock, self._expire = clock, expire
        self._idle_seconds = min(max(timeout_seconds, _IDLE_SECONDS_MIN), _IDLE_SECONDS_MAX)
        self._waiting: deque[Timed] = deque()
        self._lock = threading.Lock()
        self._stopping, self._wake = False, Bell()
        self._thread: WorkThread | None = None

    def add(self, waiter: Timed) -> None:
        with self._lock:
            self._forget_told()
            self._waiting.append(waiter)
            is_running = self._thread is not None and self._thread.is_running
            if not is_running and not self._stopping:
                self._thread = WorkThread(self._run, "embermq-deadlines")
                self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._wake.ring()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            with self._lock:
                self._forget_told()
                first = self._waiting[0] if self._waiting else None
                left = self._idle_seconds if first is None else first.deadline - self._clock.monotonic()
                if first is not None and left <= 0:
                    self._waiting.popleft()
            if first is not None and left <= 0:
                self._expire(first)
            else:
                self._wake.wait(min(left, _IDLE_SECONDS_MAX))

    def _forget_told(self) -> None:
        while self._waiting and self._waiting[0].is_told:
            self._waiting.popleft()
