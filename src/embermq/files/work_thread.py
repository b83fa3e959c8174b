"""A thread of the store that is known to run as long as it runs, whatever a signal handler raises in those who ask.

`threading.Thread` of Python 3.11 and 3.12 does not promise that: an exception that comes inside `is_alive` or `join`
(Ctrl-C in a notebook, an alarm) makes it count as stopped while it works on. The writer then made log files itself,
beside the allocator, and each removed what the other had made; a close went on while threads still wrote.

Here the thread holds a lock while it works. To look at it is one call into C, and to wait for it changes nothing.
"""

import sys
import threading
import time
from collections.abc import Callable

from embermq.files.bell import Bell

# One of several threads that wait may have been interrupted with the lock in its hands: the others look this often.
_LOOK_SECONDS = 0.1


class WorkThread:
    """Runs `work` once, as a daemon. `start` from one thread; the rest from any.

    `work` must end soon once it was asked to, also if it was asked before it began: `join` does not wait for a thread
    that has not begun to work, and a start that was interrupted may leave one.
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._work = work
        self._working = threading.Lock()  # Held by the thread, while it works.
        self._began = Bell()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to work; returns when it has begun."""
        self._thread.start()
        self._began.wait()

    @property
    def has_ended(self) -> bool:
        return self._ended

    @property
    def is_running(self) -> bool:
        return self._working.locked() and not self._ended

    def join(self, timeout_seconds: float = threading.TIMEOUT_MAX) -> bool:
        """Wait until it has ended, at most so long; False if it still runs. To be asked to end is up to the caller."""
        if threading.get_ident() == self._thread.ident:
            raise RuntimeError(f"{self._thread.name} cannot wait for its own end")
        deadline = time.monotonic() + timeout_seconds
        while not self._ended:
            left = deadline - time.monotonic()
            if self._working.acquire(timeout=min(max(left, 0.0), _LOOK_SECONDS)):
                self._working.release()
                break
            if left <= 0:
                return False
        if self._ended:
            self._thread.join()  # It is over at once, and gone from the list of threads then.
        return True

    def _run(self) -> None:
        with self._working:
            self._began.ring()
            try:
                self._work()
            except BaseException:  # Reported before it counts as ended.
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), self._thread)))
            finally:
                self._ended = True
