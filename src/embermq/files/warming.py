"""Warming a new log file: every page of it in memory, and under SYNC_FLUSH on the disk, before its first record.

The first store to a page of a new file costs a page fault, and the first sync of it turns reserved blocks into written
ones. Warming pays for both beforehand:

    populate a portion -> sync it (SYNC_FLUSH) -> the next portion ... -> the file may be used

In portions, because one sync of a whole dirty file would occupy the disk for seconds, while syncs of other files wait
behind it. A page is made present by the kernel (MADV_POPULATE_WRITE) or, on a kernel that cannot do that, by storing a
zero in it, which is safe only because nothing was written to the file yet. The thread that makes files.
"""

from collections.abc import Callable

from embermq.files import memory
from embermq.files.segment import Segment

STEP_BYTES = 4 << 20  # Between two looks at whether warming is to stop.


def warm(segment: Segment, sync_bytes: int, is_stopping: Callable[[], bool]) -> None:
    """Make the pages of a new and empty segment present; after each `sync_bytes` of them, and at the end, sync them.

    0: no syncs. An OSError of a sync is for the caller: the file must not be used then. Ends early when the answer of
    `is_stopping` says that no one will use the file.
    """
    view, file = segment.view, segment.file
    assert view is not None
    assert file is not None
    assert segment.wrote == 0
    portion_bytes = sync_bytes or segment.size
    for portion in range(0, segment.size, portion_bytes):
        portion_end = min(portion + portion_bytes, segment.size)
        for at in range(portion, portion_end, STEP_BYTES):
            if is_stopping():
                return
            end = min(at + STEP_BYTES, portion_end)
            if not memory.populate(view, at, end):
                memory.touch(view, at, end)
            segment.populated = end
        if sync_bytes:
            file.sync()
