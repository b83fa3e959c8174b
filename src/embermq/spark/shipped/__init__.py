"""Shipped stores: logs on a file system far from the broker, and how they are read there.

    places.py      a place on any file system that pyarrow or fsspec knows: read, write, list
    manifests.py   what is there: a head, and numbered manifests of which the newest counts
    summaries.py   what lies where inside an object: queues, times, damage, by stretches of some MiB
    key_lists.py   which keys a part has, and where: hashes in order, looked up by a block
    deletions.py   which topics were deleted, and up to which place of the log
    streams.py     one object read by ranges, a little ahead
    files.py       objects as the log files they were, read-only, for everything that reads logs
    surveys.py     a shipped store as a Survey: planned from manifest and summaries, not from the log

`jobs/ship.py` writes them. Layout: docs/format/shipped.md.
"""

from typing import TYPE_CHECKING

from embermq.lazy import lazy_names

if TYPE_CHECKING:
    from embermq.spark.shipped.places import shown

__all__ = ["shown"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "shown": "embermq.spark.shipped.places",
        },
    )
