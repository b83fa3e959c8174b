"""Lost units: a queue entry that is damaged, and whose record is still in the log.

A queue file has no sums. When an entry points at nothing, or at a record of another queue or offset, the
record it should point at lies between those of its neighbours, because entries are in log order. Looking
there costs a walk over a few records, and only where something is wrong. Any thread.
"""

import logging

from embermq.model.flags import has_queue_entry
from embermq.model.message import StoredMessage
from embermq.store.commit_log import CommitLog
from embermq.store.consume_queue import ConsumeQueue
from embermq.store.records import Records

log = logging.getLogger(__name__)

# The two neighbours are rarely further apart; past this much log the entry stays lost until a rebuild.
SEARCH_BYTES_MAX = 64 << 20
# So many entries before a damaged one are looked at for one that is sound.
NEIGHBOURS_MAX = 256


def find_lost_record(
    commit_log: CommitLog, records: Records, queue: ConsumeQueue, queue_offset: int, start: int
) -> StoredMessage | None:
    """The record that should stand in this queue at this offset, found by walking between its neighbours; the topic
    has none before `start`."""
    at = _end_of_neighbour(records, queue, queue_offset, start)
    if at is None:
        return None
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
    return place == (queue.topic, queue.queue_id, queue_offset) and has_queue_entry(message.sys_flag)


def fills_hole(message: StoredMessage, queue: ConsumeQueue, queue_offset: int) -> bool:
    """Is this the record behind a hole, whose entry stands for all that the log has lost before it?"""
    same_queue = (message.topic, message.queue_id) == (queue.topic, queue.queue_id)
    return same_queue and message.queue_offset > queue_offset


def _end_of_neighbour(records: Records, queue: ConsumeQueue, queue_offset: int, start: int) -> int | None:
    """Where the nearest record before this one ends, of an entry that is sound; `start` if this is the first. None if
    too many entries are damaged: then only a rebuild finds it."""
    first = max(queue.min_offset, queue_offset - NEIGHBOURS_MAX)
    for before in range(queue_offset - 1, first - 1, -1):
        unit = queue.unit(before)
        message = records.at(unit[0], unit[1]) if unit is not None else None
        if message is not None and belongs(message, queue, before):
            return max(message.end, start)
    return start if first == queue.min_offset else None
