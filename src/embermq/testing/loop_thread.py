"""An asyncio loop on a thread of its own, for code that runs beside a test.

The methods may be called from any thread but the loop's own.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
# Nothing that is run here takes this long unless something is wrong.
SECONDS_MAX = 60.0


class LoopThread:
    """A loop that runs until `stop`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._resumed = threading.Event()
        self._resumed.set()
        self._first: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self._end_tasks()
        finally:
            self.loop.close()

    def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        # Transports that were aborted give their sockets back in the next turns of the loop.
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.run_until_complete(self.loop.shutdown_default_executor())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there; what it returns or raises."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(SECONDS_MAX)

    def call(self, work: Callable[[], T]) -> T:
        """Call a function there; what it returns or raises."""

        async def called() -> T:
            return work()

        return self.run(called())

    # -- standing still --------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        return not self._resumed.is_set()

    def pause(self) -> None:
        """Let nothing happen on the loop until `resume`; sockets stay open and are not read."""
        if self.is_paused:
            return
        self._resumed.clear()
        self._first = lambda: None
        stands = threading.Event()

        def stand() -> None:
            stands.set()
            self._resumed.wait()
            self._first()

        self.loop.call_soon_threadsafe(stand)
        stands.wait(SECONDS_MAX)

    def resume(self, first: Callable[[], None] = lambda: None) -> None:
        """Go on, with `first` before anything that came in meanwhile."""
        self._first = first
        self._resumed.set()

    def stop(self) -> None:
        """End the loop and its thread; what still runs there is cancelled."""
        self.resume()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(SECONDS_MAX)
