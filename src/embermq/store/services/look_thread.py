"""A thread that looks at something again and again: what parked messages are delivered by.

A look says when the next one is wanted. One that fails is reported and tried again after ten seconds; a closed store
ends the thread. Now and then, after a look, and when the thread is stopped, progress is written down; a progress that
cannot be written costs duplicates after a crash, and is tried again. `start` and `stop` from one thread at a time;
`wake` and `look_now` from any.
"""

import logging
import threading
import time
from collections.abc import Callable

from embermq.clock import Clock
from embermq.errors import StoreClosed, StoreError
from embermq.files import Bell, WorkThread

log = logging.getLogger(__name__)

# The longest pause between two looks while something is parked, and after a failed append.
LOOK_MS = 100
# The longest pause while nothing is parked.
IDLE_MS = 1000
FAILURE_PAUSE_MS = 10_000
STOP_WAIT_SECONDS = 5.0
_ALIVE_SECONDS = 0.1


class LookThread:
    """Looks until it is stopped; `name` is for its log lines and, after `embermq-`, the thread's name."""

    def __init__(
        self,
        look: Callable[[int], int | None],
        persist: Callable[[], None],
        name: str,
        clock: Clock,
        *,
        persist_interval_ms: int,
        idle_ms: int,
    ) -> None:
        """`look` gets the time, and answers when to look again (that time or before: at once), None if nothing is
        parked: then after `idle_ms`. `persist` raises OSError or StoreError if it cannot be done now."""
        self._look, self._persist, self._name, self._clock = look, persist, name, clock
        self._persist_seconds = persist_interval_ms / 1000
        self._persist_at = clock.monotonic() + self._persist_seconds
        self._idle_ms = idle_ms
        self.is_stopping = False
        self._wake = Bell()
        self._begun = self._settled = 0  # looks; the last one that left nothing to be done at once
        self._has_settled = threading.Condition()
        self._thread: WorkThread | None = None

    def start(self) -> None:
        assert self._thread is None, "started twice"
        self.is_stopping = False
        self._thread = WorkThread(self._run, f"embermq-{self._name}")
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def wake(self) -> None:
        """Look now."""
        self._wake.ring()

    def look_now(self, seconds: float) -> bool:
        """Wait until a look that began after this call has left nothing to be done at once; False if none did in that
        time. Where no thread looks there is nothing to wait for."""
        thread, wanted, deadline = self._thread, self._begun + 1, time.monotonic() + seconds
        if thread is None:
            return True
        self._wake.ring()
        with self._has_settled:
            while self._settled < wanted:
                left = deadline - time.monotonic()
                if left <= 0 or thread.has_ended:
                    return False
                self._has_settled.wait(min(left, _ALIVE_SECONDS))
        return True

    def stop(self) -> None:
        """End the thread, if it runs, and write the progress down."""
        self.is_stopping = True
        self._wake.ring()
        if self._thread is not None and not self._thread.join(STOP_WAIT_SECONDS):
            log.error("%s.stop the thread did not end within %.0f s", self._name, STOP_WAIT_SECONDS)
        self._thread = None
        self._persist_or_warn()

    def _look_once(self) -> int:
        """One look; how long to pause after it, in ms."""
        next_look_ms = self._look(self._clock.now_ms())
        if self._clock.monotonic() >= self._persist_at:
            self._persist_or_warn()
            self._persist_at = self._clock.monotonic() + self._persist_seconds
        if next_look_ms is None:
            return self._idle_ms
        return max(0, min(LOOK_MS, next_look_ms - self._clock.now_ms()))

    def _persist_or_warn(self) -> None:
        try:
            self._persist()
        except (OSError, StoreError) as problem:
            log.warning("%s.progress not written: %s", self._name, problem)

    def _run(self) -> None:
        while not self.is_stopping:
            self._begun += 1
            try:
                pause_ms = self._look_once()
            except StoreClosed:
                return
            except Exception as problem:
                is_mistake = not isinstance(problem, OSError | StoreError)
                log.error("%s.failed pause_ms=%d error=%s", self._name, FAILURE_PAUSE_MS, problem, exc_info=is_mistake)
                pause_ms = FAILURE_PAUSE_MS
            if pause_ms > 0:
                with self._has_settled:
                    self._settled = self._begun
                    self._has_settled.notify_all()
                self._wake.wait(pause_ms / 1000)
