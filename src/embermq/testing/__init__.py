"""Test doubles, shipped so that users can test with them too: time that stands still, disks that fail.

    clock.py         ManualClock: time that a test moves
    lossy_files.py   LossyFiles: a file system in memory that knows what was synced, and can crash
    unsynced.py      what of a file or directory was synced, and what a crash makes of the rest
    faulty_files.py  FaultyFiles: fails or stops at the n-th operation of another file system
    builder.py       StoreBuilder: an embedded store in a few words
    plugin.py        pytest fixtures

The product itself never imports from here.
"""

from embermq.testing.clock import ManualClock
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles

__all__ = ["FaultyFiles", "LossyFiles", "ManualClock"]
