"""Threads that take turns, on one processor: the setting `waiters_share_core`.

Under SYNC_FLUSH with many appending threads each message is a turn: a thread is woken, appends, wakes the next, waits
again. Only one of them can run Python at a time, but the system spreads them over all processors, and then every turn
is a message from one processor to another, and mostly a second one because the interpreter's lock is still taken. On
one processor it is a plain switch, and the store takes twice as many messages (docs/decisions/0016-one-core.md).

Threads belong to their maker, so this is off unless asked for. A thread is brought here when it first waits for
a sync, and given back when the store is closed. Any thread.
"""

import os
import threading
from pathlib import Path


class CpuPinning:
    """One processor out of those this process may use. Does nothing where threads cannot be kept on one."""

    def __init__(self) -> None:
        self._here = threading.local()
        self._lock = threading.Lock()
        self._before: dict[int, set[int]] = {}  # native thread id -> where it could run
        allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        # Processes that do the same should not all meet on the first.
        self._core = allowed[os.getpid() % len(allowed)] if len(allowed) > 1 else None

    def join(self) -> None:
        """Keep the calling thread here from now on."""
        if self._core is None or hasattr(self._here, "joined"):
            return
        self._here.joined = True
        with self._lock:
            self._before[threading.get_native_id()] = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self._core})

    def leave(self) -> None:
        """Let the calling thread run anywhere again: threads begin where the one that makes them is kept."""
        with self._lock:
            everywhere = set().union(*self._before.values())
        if everywhere:
            os.sched_setaffinity(0, everywhere)

    def close(self) -> None:
        """Give all threads back that still live."""
        with self._lock:
            before, self._before = self._before, {}
        for thread, cores in before.items():
            if Path(f"/proc/self/task/{thread}").exists():  # Its number may be another thread's by now.
                try:
                    os.sched_setaffinity(thread, cores)
                except ProcessLookupError:
                    continue  # It has just ended.
