"""What a Python worker has loaded is put where the search for garbage does not look.

A worker that is used again searches for garbage after each task, or after each plan it made for the driver, among all
that was ever loaded: with the kernels there are some 170,000 objects, which takes 60 ms and more. To read 128 MiB of
log takes some 0.3 s of a worker's CPU time, and many a piece of a job takes less than that search. Modules and
kernels stay as long as the worker does.

Called at the end of what a worker does.
"""

import gc
import sys

_modules_known = 0


def settle() -> None:
    """Nothing happens in other processes than Spark's workers: they belong to others."""
    global _modules_known
    if len(sys.modules) != _modules_known and _is_worker():
        gc.collect()  # What is garbage now would never be found again.
        gc.freeze()
        _modules_known = len(sys.modules)


def _is_worker() -> bool:
    """Of the kind that searches: one of Spark's daemon, which forks them."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == "pyspark.daemon"
