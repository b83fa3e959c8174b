"""Test doubles, shipped so that users can test with them too: time that stands still, disks that fail.

    clock.py         ManualClock: time that a test moves
    lossy_files.py   LossyFiles: a file system in memory that knows what was synced, and can crash
    unsynced.py      what of a file or directory was synced, and what a crash makes of the rest
    faulty_files.py  FaultyFiles: fails or stops at the n-th operation of another file system
    builder.py       StoreBuilder: an embedded store in a few words
    local_broker.py  broker(): a broker and a name server in this process; LocalBroker, what it gives
    broker_run.py    one run of it, up to a stop or a kill
    broker_clock.py  its time of day
    held_ports.py    its ports; loop_thread.py the loop it runs on
    plugin.py        pytest fixtures

The product itself never imports from here. Names are imported when they are first used: a broker takes the whole store
along.
"""

from typing import TYPE_CHECKING

from embermq.lazy import lazy_names

if TYPE_CHECKING:
    from embermq.testing.clock import ManualClock
    from embermq.testing.faulty_files import FaultyFiles
    from embermq.testing.local_broker import LocalBroker, broker
    from embermq.testing.lossy_files import LossyFiles

_HOMES = {
    "FaultyFiles": "embermq.testing.faulty_files",
    "LocalBroker": "embermq.testing.local_broker",
    "LossyFiles": "embermq.testing.lossy_files",
    "ManualClock": "embermq.testing.clock",
    "broker": "embermq.testing.local_broker",
}

__all__ = ["FaultyFiles", "LocalBroker", "LossyFiles", "ManualClock", "broker"]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
