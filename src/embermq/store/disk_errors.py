"""Errors of the disk at the edge of the store: what users call raises one of our errors, never a bare OSError.

Inside, an OSError is handled where that can be done, or passed on as it is. What reaches a user names the file, and
says by its class whether the same call may work later (PlaceUnavailable: no descriptor or no memory was free).
"""

import errno
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from embermq.errors import PlaceUnavailable, StoreError, StorePathInvalid

P = ParamSpec("P")
R = TypeVar("R")

_FOR_NOW = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT}


class HasPath(Protocol):
    @property
    def path(self) -> Path: ...


Self = TypeVar("Self", bound=HasPath)


def store_error(problem: OSError, root: Path) -> StoreError:
    """The same as an error of ours."""
    kind = PlaceUnavailable if problem.errno in _FOR_NOW else StorePathInvalid
    return kind(Path(str(problem.filename or root)), problem.strerror or str(problem))


def raises_store_errors(method: Callable[Concatenate[Self, P], R]) -> Callable[Concatenate[Self, P], R]:
    """Of a method of something that has a path."""

    @functools.wraps(method)
    def call(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except StoreError:  # One of ours, even if it is an OSError as well (WriterFenced).
            raise
        except OSError as problem:
            raise store_error(problem, self.path) from problem

    return call
