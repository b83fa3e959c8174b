"""Consume queues: the places of a topic's messages in the log, by queue offset; and fetching by them.

    consume_queues.py, consume_queue.py   all of them (the sink), and one of them
    queue_state.py, queue_table.py        what they share; topic and queue id to slot
    entry_intake.py, pending_entries.py, entry_files.py   from records to entries in files
    loading.py, file_reader.py            which files on the disk can be used; entries as they lie there
    replay_check.py, replay_end.py        after a replay: queues that are as they should be, and the others
    extension.py                          extension entries with filter bits
    multi_dispatch.py                     one record in several queues
    moves.py                              which queues a dispatch step moved, as arrays
    next_offsets.py                       queue offsets from the log alone
    fetch.py, damaged_entries.py          messages of a queue; the record behind a damaged entry
    raw_read.py                           the same as stored bytes in one buffer
    filters.py, entry_matches.py          which messages a reader wants, in two stages
    property_screen.py                    records passed over by their properties, many at once
    checksums_file.py                     checksums of full queue files

Other packages import from this face, not from the modules behind it.
"""

from embermq.store.queues.consume_queue import BLANK, ConsumeQueue, is_valid
from embermq.store.queues.consume_queues import ConsumeQueues, settle_deleted_topics
from embermq.store.queues.entry_intake import RECORD_BYTES_MIN, is_possible, is_too_far
from embermq.store.queues.extension import EXTENSION_FAMILY
from embermq.store.queues.fetch import FetchOutcome
from embermq.store.queues.file_reader import QueueFileReader
from embermq.store.queues.filters import FilterBits, GroupFilter, MessageFilter, PropertyFilter, TagFilter
from embermq.store.queues.loading import QUEUE_FAMILY, QueueState
from embermq.store.queues.moves import NO_MOVES, QueueMoves
from embermq.store.queues.multi_dispatch import LIGHT_PREFIX
from embermq.store.queues.queue_state import NOT_SEEN, Jump
from embermq.store.queues.queue_table import is_directory_name
from embermq.store.queues.raw_read import RawRead

__all__ = [
    "BLANK",
    "ConsumeQueue",
    "ConsumeQueues",
    "EXTENSION_FAMILY",
    "FetchOutcome",
    "FilterBits",
    "GroupFilter",
    "Jump",
    "LIGHT_PREFIX",
    "MessageFilter",
    "NOT_SEEN",
    "NO_MOVES",
    "QUEUE_FAMILY",
    "QueueFileReader",
    "QueueMoves",
    "QueueState",
    "RECORD_BYTES_MIN",
    "RawRead",
    "PropertyFilter",
    "TagFilter",
    "is_directory_name",
    "is_possible",
    "is_too_far",
    "is_valid",
    "settle_deleted_topics",
]
