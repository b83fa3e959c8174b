"""Compiled or plain: the one place that decides.

Loading numba and one module of kernels takes about half a second in a new process, and several seconds when the code
has to be compiled first. A little work is done sooner by the plain form. Each module of kernels therefore has a
threshold: from that much work on, loading it pays. A module that is loaded already is used for any amount of work.

Who asks pays for the loading, but for a server: while one answers requests in this process, its kernels are loaded by a
thread of their own (server_kernels.py), and the plain forms serve until they are there.

Two threads that load numba at once have been seen to fail in CPython's own parser, so modules are loaded one at a time.
Any thread.
"""

import sys
import threading
from collections.abc import Callable, Iterator
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
    "parked",
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
    "parked": 8_000,  # messages that wait: each takes some 40 us less
}

# What a server uses while messages come in and go out, in the order of loading: appending runs, dispatch, reads of
# stored bytes, delivery of what is due.
SERVER_KERNELS = (
    "sends.frames",
    "sends.replies",
    "sends.ends",
    "messages",
    "admit",
    "scan",
    "derive",
    "queue_table",
    "stored",
    "screen",
    "parked",
)

_loading = threading.RLock()
_entering = threading.Lock()  # Not `_loading`, which may be held for minutes: a server that stops does not wait for it.
_servers: tuple[Callable[[], None], ...] = ()  # Of each server of this process: begin to load its kernels.
_ahead: int | None = None  # The thread that loads modules ahead of their use.


def is_loaded(module: Kernels) -> bool:
    """Whether using the kernels of this module costs no loading, nor a wait for a thread that loads others ahead."""
    return f"embermq.columns.compiled.{module}" in sys.modules and not _is_loading_elsewhere()


def _is_loading_elsewhere() -> bool:
    return _ahead not in (None, threading.get_ident())


def pays(module: Kernels, work: int, use: KernelUse = KernelUse.AUTO) -> bool:
    """Whether so much work is done sooner by the kernels of this module, loading included."""
    if use is not KernelUse.AUTO:
        return use is KernelUse.ALWAYS
    if is_loaded(module):
        return True
    if work < WORTH_LOADING[module] or _is_loading_elsewhere():
        return False
    servers = _servers
    if not servers or module not in SERVER_KERNELS:
        return True
    servers[-1]()
    return False


def enter_server(load_soon: Callable[[], None]) -> None:
    """From now on a server answers. `load_soon` begins to load what it uses, and returns at once; on any thread."""
    global _servers
    with _entering:
        _servers = (*_servers, load_soon)


def leave_server(load_soon: Callable[[], None]) -> None:
    global _servers
    with _entering:
        _servers = tuple(one for one in _servers if one != load_soon)


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
