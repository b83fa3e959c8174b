"""What tests ask of queues beside what the store asks."""

from embermq.store.queues.consume_queue import ConsumeQueue, is_valid
from embermq.store.queues.consume_queues import ConsumeQueues


def pending_count(queues: ConsumeQueues) -> int:
    """Entries taken and not yet written."""
    return queues._books.pending.count


def last_physical(queue: ConsumeQueue) -> int:
    """End of the record of the newest entry, read from the entry itself; -1 without entries."""
    entry = queue.entry(queue.max_offset - 1)
    return -1 if entry is None or not is_valid(entry) else entry[0] + entry[1]
