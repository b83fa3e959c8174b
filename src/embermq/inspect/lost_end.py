"""How far the log of a store once went, by proofs and queue entries: what is missing at its end shows nowhere else.

    the state page          the log was durable up to there
    closed by one of ours   the inventory says where the log ended
    closed by others        the newest entry of a queue: its record was written before the close

Of a store that was not closed, entries count for nothing: a power cut may leave them and take the records, and the next
start cuts them. One thread. Reads only.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from embermq.files import Files
from embermq.format.frame import FIXED_BYTES
from embermq.store.layout import checkpoint_times, load_inventory, load_state_page, was_closed_cleanly
from embermq.store.queues import ConsumeQueue

_RECORD_BYTES_MAX = 1 << 30


def proven_end(files: Files, root: Path, entry_end: Callable[[], int]) -> int:
    """Where the log ended at least; 0 if unknown. `entry_end`: where the newest record ends that queues know."""
    page = load_state_page(files, root, writable=False)
    ends = [] if page is None else [page.flushed]
    if was_closed_cleanly(files, root):
        closed_at = _closed_at(files, root)
        ends.append(entry_end() if closed_at is None else closed_at)
    return max(ends, default=0)


def _closed_at(files: Files, root: Path) -> int | None:
    """Where the log ended when one of ours closed it, if no other program has had it since."""
    inventory = load_inventory(files, root)
    if inventory is None:
        return None
    return inventory.log_max if checkpoint_times(files, root) == inventory.checkpoint else None


def newest_end(queues: Iterable[ConsumeQueue]) -> int:
    """Where the newest record ends that queues know, whether the log has it or not; 0 if they know none."""
    newest = (queue.peek(queue.max_offset - 1) for queue in queues)
    likely = (entry for entry in newest if entry is not None and FIXED_BYTES <= entry[1] <= _RECORD_BYTES_MAX)
    return max((entry[0] + entry[1] for entry in likely), default=0)
