"""A store directory seen from outside: no lock is taken, nothing is written, the store may be running.

    snapshot.py       the whole: log, queues, keys; looks again on demand
    log_view.py, queue_view.py, queue_files.py, key_view.py   its parts
    log_identity.py, lost_end.py   which log it is; how far it once went
    lookup.py, lineage.py, dump.py, overview.py, rates.py, retention_preview.py, store_shape.py,
    changes.py        what commands show
    even_slices.py    a log, or anything counted, cut into even parts for workers

Other packages import from this face, not from the modules behind it.
"""

from embermq.inspect.changes import Watched, is_about_missing_file
from embermq.inspect.dump import Dump, DumpFilter
from embermq.inspect.even_slices import even_edges, record_starts, slice_bytes, slice_count
from embermq.inspect.lineage import Lineage, LineageStep, lineages_of, seeds_by_key
from embermq.inspect.log_identity import Identity, LogMatch
from embermq.inspect.log_view import LogView
from embermq.inspect.lookup import find_messages, message_at, message_by_id, require_topic
from embermq.inspect.lost_end import newest_end, proven_end
from embermq.inspect.overview import (
    IndexFact,
    QueueFact,
    SegmentFact,
    StartPlan,
    checkpoint_of,
    index_facts,
    plan_start,
    quarantine_reports,
    queue_facts,
    segment_facts,
    spaces,
    writer_process,
)
from embermq.inspect.queue_files import queue_entries_of
from embermq.inspect.queue_view import Queue, QueueSpan, QueueView
from embermq.inspect.rates import Glance, Rates, Watch, rates_between
from embermq.inspect.retention_preview import Preview, preview
from embermq.inspect.snapshot import Survey
from embermq.inspect.store_shape import IndexShape, StoreShape, found_shape

__all__ = [
    "Dump",
    "Glance",
    "Identity",
    "IndexFact",
    "IndexShape",
    "Lineage",
    "LineageStep",
    "LogMatch",
    "LogView",
    "Preview",
    "Queue",
    "QueueFact",
    "QueueSpan",
    "QueueView",
    "Rates",
    "SegmentFact",
    "StartPlan",
    "StoreShape",
    "Survey",
    "DumpFilter",
    "Watch",
    "Watched",
    "checkpoint_of",
    "even_edges",
    "find_messages",
    "found_shape",
    "index_facts",
    "is_about_missing_file",
    "lineages_of",
    "message_at",
    "message_by_id",
    "newest_end",
    "plan_start",
    "preview",
    "quarantine_reports",
    "queue_entries_of",
    "queue_facts",
    "rates_between",
    "record_starts",
    "require_topic",
    "seeds_by_key",
    "segment_facts",
    "slice_bytes",
    "slice_count",
    "spaces",
    "proven_end",
    "writer_process",
]
