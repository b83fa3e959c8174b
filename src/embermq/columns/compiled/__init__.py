"""Loops over raw bytes, compiled by numba: many records per call, columns of int64 out.

The only place that knows numba. Importing a module of this package compiles its kernels, or loads them from
the cache: 6 s once, then 0.2 s, numba itself another 0.2-0.4 s and some 80 MB. So callers import lazily, when
there is enough work to pay for it.
Every kernel does what a plain function of `format` does, and says so; tests run both on the same bytes.
No kernel raises or trusts a length: each answers with counts and a code. Any thread may call; the GIL is
released inside.
"""

import sys
import threading
from importlib import import_module
from typing import Any

_loading = threading.Lock()


def load(name: str) -> Any:
    """The kernel module `name`, loaded by one thread at a time.

    Compilers do not like company: two threads that load numba at once have been seen to fail in CPython's own
    parser, which both use.
    """
    full = f"{__name__}.{name}"
    with _loading:
        return import_module(full)


def is_loaded(name: str) -> bool:
    """Using the module costs no loading (or somebody is loading it already)."""
    return f"{__name__}.{name}" in sys.modules
