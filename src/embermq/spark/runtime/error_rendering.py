"""Errors of ours as Spark's users see them: the cause first, without sixty lines of call stack.

Readers and writers are called inside Python processes of Spark, which answer an exception with its traceback; the
JVM puts that text behind a message of its own. For an EmberError the traceback says nothing that the message does
not say better, so we ask for the message alone: pyspark leaves the traceback out when SPARK_HIDE_TRACEBACK is set,
and reads it only after the exception has arrived. The process ends with the exception, so nothing else is affected;
outside of such a process (a user's own call, a test) nothing is touched.
"""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import ParamSpec, TypeVar

from embermq.errors import EmberError

_HIDE = "SPARK_HIDE_TRACEBACK"
P = ParamSpec("P")
R = TypeVar("R")


def clear_errors(function: Callable[P, R]) -> Callable[P, R]:
    """For methods that Spark calls: an EmberError that leaves them arrives at the user as its message."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except EmberError as problem:
            _message_only()
            raise problem.with_traceback(None) from None

    return call


def clear_iterator(function: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """The same for a generator, whose errors come while it is being read."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        try:
            yield from function(*args, **kwargs)
        except EmberError as problem:
            _message_only()
            raise problem.with_traceback(None) from None

    return call


def _message_only() -> None:
    if inside_spark_process():
        os.environ[_HIDE] = "1"


def inside_spark_process() -> bool:
    """Whether a Python process of Spark's called us, which ends when we raise."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name in ("worker_run", "main") and _module(frame).startswith("pyspark."):
            return True
        frame = frame.f_back
    return False


def _module(frame: FrameType) -> str:
    """The module a frame is of, also when that was started as a program."""
    name = str(frame.f_globals.get("__name__", ""))
    spec = frame.f_globals.get("__spec__")
    return str(spec.name) if name == "__main__" and spec is not None else name
