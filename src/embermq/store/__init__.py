"""The message store: synchronous, no asyncio, no network. The public object is MessageStore.

    message_store.py   what users call, and which part does it
    calls/             the calls, by kind: appends, reads by queue, reads of the log, upkeep, figures
    starting.py        from a path to a running engine
    engine.py          the parts wired together, their threads started and stopped
    access.py          whether the store is open, readable, writable; running flags
    statistics.py      figures under RocketMQ's names
    tables/            config/*.json: tables with a version and a backup
    layout/            the directory: small files that say what it holds and how far that is proven
    log/               the commit log: walking it, reading single records, damage in it
    append/            from a message to bytes in the log, and when they are durable
    queues/            consume queues, their extension, and fetch
    index/             key index files
    recovery/          from a directory to parts that agree with each other
    compare/           the log against what was derived from it, piece by piece
    services/          threads and jobs of a running store: dispatch, delays, retention, housekeeping, statistics

Other packages import from this face or from the face of a room, never from a module behind it.
"""

from embermq.store.access import RunningFlag
from embermq.store.append import PackedBatch, PackedReceipts
from embermq.store.calls import StatsSnapshot
from embermq.store.message_store import MessageStore, open_for_maintenance
from embermq.store.plugins import StorePlugin
from embermq.store.queues.filters import FilterBits, GroupFilter, MessageFilter, PropertyFilter, TagFilter
from embermq.store.queues.raw_read import RawRead
from embermq.store.sink import Finding, Sink

__all__ = [
    "FilterBits",
    "Finding",
    "GroupFilter",
    "MessageFilter",
    "MessageStore",
    "PackedBatch",
    "PackedReceipts",
    "PropertyFilter",
    "RawRead",
    "RunningFlag",
    "Sink",
    "StatsSnapshot",
    "StorePlugin",
    "TagFilter",
    "open_for_maintenance",
]
