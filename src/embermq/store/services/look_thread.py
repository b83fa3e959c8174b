"""A thread that looks at something again and again: what parked messages are delivered by.

A look says how long to pause after it. One that fails is reported and tried again after ten seconds; a closed store
ends the thread. `start` and `stop` from one thread at a time; `wake` from any.
"""

import logging
from collections.abc import Callable

from embermq.errors import StoreClosed, StoreError
from embermq.files import Bell, WorkThread

log = logging.getLogger(__name__)

# The longest pause between two looks while something is parked, and after a failed append.
LOOK_MS = 100
# The longest pause while nothing is parked.
IDLE_MS = 1000
FAILURE_PAUSE_MS = 10_000
STOP_WAIT_SECONDS = 5.0


class LookThread:
    """Calls `look` until it is stopped; `name` is for its log lines and, after `embermq-`, the thread's name."""

    def __init__(self, look: Callable[[], int], name: str) -> None:
        self._look, self._name = look, name
        self.is_stopping = False
        self._wake = Bell()
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

    def stop(self) -> None:
        """End the thread, if it runs."""
        self.is_stopping = True
        self._wake.ring()
        if self._thread is not None and not self._thread.join(STOP_WAIT_SECONDS):
            log.error("%s.stop the thread did not end within %.0f s", self._name, STOP_WAIT_SECONDS)
        self._thread = None

    def _run(self) -> None:
        while not self.is_stopping:
            try:
                pause_ms = self._look()
            except StoreClosed:
                return
            except Exception as problem:
                is_mistake = not isinstance(problem, OSError | StoreError)
                log.error("%s.failed pause_ms=%d error=%s", self._name, FAILURE_PAUSE_MS, problem, exc_info=is_mistake)
                pause_ms = FAILURE_PAUSE_MS
            if pause_ms > 0:
                self._wake.wait(pause_ms / 1000)
