"""Writers of one lake take turns: a lock on the file `_lock`, for the time of one commit. Driver side, any thread.

    with alone(files):
        ...

The lock (`flock`) goes with its process, so a writer that was killed blocks no other; it holds between threads, and
on file systems that several machines share as far as these pass locks on. Object stores have none: there a commit that
another writer made meanwhile is noticed when it is written (lakes.py), and one writer at a time is up to the user.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from embermq.errors import StoreError
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.names import LOCK

WAIT_SECONDS_MAX = 1800.0  # a commit of another writer takes seconds; this one stands still
_LOOK_SECONDS = 0.05


@contextmanager
def alone(files: LakeFiles) -> Iterator[None]:
    """Wait until no other process writes this lake, and keep others waiting. OSError if the place cannot be written."""
    if not files.is_local:
        yield
        return
    os.makedirs(files.path, exist_ok=True)
    handle = os.open(files.full(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _wait(handle, files)
        yield
    finally:
        os.close(handle)  # The lock goes with it.


def _wait(handle: int, files: LakeFiles) -> None:
    until = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise StoreError(
                    f"the lake {files.root} is being written by another process, for longer than a commit takes; end"
                    " that writer, or use another lake"
                ) from None
        time.sleep(_LOOK_SECONDS)
