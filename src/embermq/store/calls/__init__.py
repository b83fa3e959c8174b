"""What users ask of a store, one file for each kind of call. `MessageStore` has the public methods and passes on here.

    appends.py       columns, packed batches, futures: everything but the two plain appends
    queue_reads.py   by topic and queue: messages, offsets, times, counts
    log_reads.py     by key, id or place in the log
    upkeep.py        deleting, cleaning, comparing, destroying
    figures.py       statistics

Each group is made of the parts of one engine, and begins every call by asking whether it is allowed (access.py). Any
thread.
"""

from embermq.store.calls.appends import Appends
from embermq.store.calls.figures import StatsSnapshot, StoreFigures
from embermq.store.calls.log_reads import LogReads
from embermq.store.calls.queue_reads import QueueReads
from embermq.store.calls.upkeep import Upkeep

__all__ = ["Appends", "StoreFigures", "LogReads", "QueueReads", "StatsSnapshot", "Upkeep"]
