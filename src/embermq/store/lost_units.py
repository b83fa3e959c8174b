"""Lost units: a queue entry that is damaged, and whose record is still in the log.

A queue file has no sums. When an entry points at nothing, or at a record of another queue or offset, the
record it should point at lies between those of its neighbours, because entries are in log order. Looking
there costs a walk over a few records, and only where something is wrong. Any thread.
"""

import logging

from embermq.model.message import StoredMessage
from embermq.store.commit_log import CommitLog
from embermq.store.consume_queue import ConsumeQueue
from embermq.store.records import Records

log = logging.getLogger(__name__)

# The two neighbours are rarely further apart; past this much log the entry stays lost until a rebuild.
SEARCH_BYTES_MAX = 64 << 20


def find_lost_record(
    commit_log: CommitLog, records: Records, queue: ConsumeQueue, queue_offset: int
) -> StoredMessage | None:
    """The record that should stand in this queue at this offset, found by walking between its neighbours."""
    at = _end_of_neighbour(records, queue, queue_offset - 1)
    if at is None:
        at = commit_log.min_offset
    after = queue.unit(queue_offset + 1)
    end = min(commit_log.readable_offset, at + SEARCH_BYTES_MAX)
    if after is not None and records.frame_at(after[0], after[1]) is not None:
        end = min(end, after[0])
    while at < end:
        message = records.at(at)
        if message is None:
            at = commit_log.next_segment_start(at)
        elif belongs(message, queue, queue_offset):
            log.warning("queue entry damaged topic=%s queue_id=%d offset=%d", queue.topic, queue.queue_id, queue_offset)
            return message
        else:
            at = message.end
    return None


def belongs(message: StoredMessage, queue: ConsumeQueue, queue_offset: int) -> bool:
    """Is this the record of that place in that queue, by its own word?"""
    place = (message.topic, message.queue_id, message.queue_offset)
    return place == (queue.topic, queue.queue_id, queue_offset)


def _end_of_neighbour(records: Records, queue: ConsumeQueue, queue_offset: int) -> int | None:
    unit = queue.unit(queue_offset) if queue_offset >= queue.min_offset else None
    message = records.at(unit[0], unit[1]) if unit is not None else None
    return message.end if message is not None and belongs(message, queue, queue_offset) else None
