"""Compiles every kernel that is not in the cache yet, on all cores.

    .venv/bin/python tools/compile_kernels.py

numba compiles a kernel when its module is imported, and keeps the code in the user's cache directory. Processes that
meet a missing one at the same time each compile it; this is done once, before they start.
"""

import importlib
import multiprocessing
import pkgutil
import time

import embermq.columns.compiled


def load(name: str) -> None:
    """In a process of the pool; what it imports stays there."""
    importlib.import_module(name)


def main() -> None:
    package = embermq.columns.compiled
    names = [module.name for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool() as pool:
        # One by one: what another module has compiled meanwhile is found in the cache.
        for _ in pool.imap_unordered(load, names):
            pass
    print(f"{len(names)} modules of kernels are there, {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
