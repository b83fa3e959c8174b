"""Settling futures that callers wait for, from a thread of the store that must not be held up.

A signal handler that raises inside `Future.result()` (Ctrl-C in a notebook) can leave the future's own lock taken for
ever. A thread that then settles this future waits for ever, and with it every other message. So the lock is tried for
a short time; a future whose lock stays taken is settled by a thread of its own, which alone waits. Any thread.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

LOCK_SECONDS = 0.1


def settle(future: "Future[Any]", set_outcome: Callable[[], None]) -> None:
    """Call `set_outcome`, which sets the result or the exception of this future."""
    condition = getattr(future, "_condition", None)  # Of the standard library; without it there is nothing to try.
    if condition is None:
        set_outcome()
    elif condition.acquire(timeout=LOCK_SECONDS):
        try:
            set_outcome()
        finally:
            condition.release()
    else:
        threading.Thread(target=set_outcome, name="embermq-late-future", daemon=True).start()
