"""Compiled or plain: the one place that decides.

Loading numba and one module of kernels takes about half a second in a new process, and several seconds when the code
has to be compiled first. A little work is done sooner by the plain form. Each module of kernels therefore has a
threshold: from that much work on, loading it pays. A module that is loaded already is used for any amount of work.

Two threads that load numba at once have been seen to fail in CPython's own parser, so modules are loaded one at a time.
Any thread.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

from embermq.settings import KernelUse

Kernels = Literal[
    "scan",
    "derive",
    "queue_table",
    "check",
    "links",
    "pick",
    "stored",
    "screen",
    "select",
    "gather",
    "json_lines",
    "messages",
    "repeats",
    "sends.frames",
]

# From how much work on loading pays, in the unit of the operation: bytes of log, rows, entries or messages.
WORTH_LOADING: dict[Kernels, int] = {
    "scan": 4 << 20,  # bytes: the plain scan walks about 100 records a millisecond
    "check": 4 << 20,  # bytes
    "select": 4 << 20,  # bytes
    "json_lines": 16 << 20,  # bytes
    "derive": 2_000,  # rows
    "queue_table": 2_000,  # rows
    "pick": 2_000,  # records
    "stored": 4_000,  # records
    "screen": 4_000,  # records
    "gather": 4_000,  # rows
    "links": 20_000,  # entries
    "messages": 20_000,  # messages
    "repeats": 128 << 10,  # keys
    "sends.frames": 500,  # frames: a server that gets so many will get more
}

_loading = threading.RLock()
_ahead: int | None = None  # The thread that loads modules ahead of their use.


def is_loaded(module: Kernels) -> bool:
    """Whether using the kernels of this module costs no loading, nor a wait for a thread that loads others ahead."""
    return f"embermq.columns.compiled.{module}" in sys.modules and _ahead in (None, threading.get_ident())


def pays(module: Kernels, work: int, use: KernelUse = KernelUse.AUTO) -> bool:
    """Whether so much work is done sooner by the kernels of this module, loading included."""
    if use is not KernelUse.AUTO:
        return use is KernelUse.ALWAYS
    return is_loaded(module) or work >= WORTH_LOADING[module]


@contextmanager
def loading_ahead() -> Iterator[None]:
    """Around the import of many modules on a thread of their own: other threads do without kernels meanwhile."""
    global _ahead
    with _loading:
        _ahead = threading.get_ident()
        try:
            yield
        finally:
            _ahead = None


def loading() -> AbstractContextManager[object]:
    """Around the import of a compiled module."""
    return _loading
