"""Rows that are not wanted any more: a task of Spark's that has enough (`show`, `limit`, a kill) stops in the middle.

The Python worker notices when it writes on: BrokenPipeError, a traceback on the user's terminal for each such task, and
the end of the worker. The end is right, the traceback says nothing. The signal that goes with a broken pipe, which
Python ignores, ends a process without a word; here it does so again, while rows of ours are being read.
"""

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import ClassVar

from embermq.spark.runtime.error_rendering import inside_spark_process

_WHOLE = 2  # the generation of a search among everything
Handler = Callable[[int, FrameType | None], object] | int | None


@contextmanager
def silent_end() -> Iterator[None]:
    """Inside, a worker of Spark's that is hung up on ends silently. Other processes are left as they are."""
    if not _is_ours_to_decide():
        yield
        return
    borrowed = _Borrowed()
    try:
        yield
    except GeneratorExit:
        raise  # Given up on: the worker finds out why at its last write, and that is to end it.
    except BaseException:
        borrowed.give_back()
        raise
    else:
        borrowed.give_back_after_the_task()


class _Borrowed:
    """The signal, while what it does is ours to say; until it is given back, or another one takes it over."""

    last: ClassVar["_Borrowed | None"] = None

    def __init__(self) -> None:
        former = _Borrowed.last
        self._before: Handler = former._before if former is not None else signal.getsignal(signal.SIGPIPE)
        if former is not None:
            former._forget()
        self._is_task_over = False
        _Borrowed.last = self
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

    def give_back(self) -> None:
        if _Borrowed.last is self:
            signal.signal(signal.SIGPIPE, self._before)
            self._forget()

    def give_back_after_the_task(self) -> None:
        """All rows are read, but Spark may still hang up: while they are written, or on a worker that waits for its
        next task with rows unread. What it does then is outside of our control, and no call announces the start of the
        next task. But a worker searches for garbage between two tasks, and a task that does anything makes Python
        search again: that is when the signal is given back. Earlier or later searches do no harm."""
        gc.callbacks.append(self._at_search)

    def _at_search(self, phase: str, facts: dict[str, int]) -> None:
        if phase != "stop" or not _is_main_thread():
            return
        if self._is_task_over:
            self.give_back()
        elif facts["generation"] == _WHOLE:
            self._is_task_over = True

    def _forget(self) -> None:
        _Borrowed.last = None
        if self._at_search in gc.callbacks:
            gc.callbacks.remove(self._at_search)


def _is_ours_to_decide() -> bool:
    """Windows knows no such signal."""
    return _is_main_thread() and hasattr(signal, "SIGPIPE") and inside_spark_process()


def _is_main_thread() -> bool:
    """The only one that may say what a signal does."""
    return threading.current_thread() is threading.main_thread()
