"""What a Python worker has loaded is put where the search for garbage does not look.

A worker that is used again searches for garbage after each task, among all that was ever loaded: with the kernels
there are some 170,000 objects, which takes 60 ms and more. Reading 128 MiB of log takes half a second of a worker's
CPU time, and many a piece of a job less than that search. Modules and kernels stay as long as the worker does.

Called at the end of a task, on the worker.
"""

import gc
import sys

from pyspark import TaskContext

_modules_known = 0


def settle() -> None:
    """Nothing happens outside of tasks: other processes belong to others."""
    global _modules_known
    if len(sys.modules) != _modules_known and TaskContext.get() is not None:
        gc.collect()  # What is garbage now would never be found again.
        gc.freeze()
        _modules_known = len(sys.modules)
