"""The end of a replay: what becomes of a queue that does not lie in its files as the walk has met it.

    not met     cut to the entries whose records lie before the place where the walk began
    met         cut to what was met; a gap between what is proven before the walk and the first entry met is filled

With damage in the log, entries behind the end stay: records in the middle were lost, and offsets that were given once
must not be given again.

For holders of the disk lock and the change lock (`ConsumeQueues.finish_replay`).
"""

from embermq.store.queues.consume_queue import BLANK, ConsumeQueue, is_valid
from embermq.store.queues.pending_entries import Fill
from embermq.store.queues.queue_state import NOT_SEEN, SharedQueueState


class ReplayEnd:
    """One replay that has come to its end."""

    def __init__(self, books: SharedQueueState, walk_start: int, end_of_unmet: int, keep_below: int) -> None:
        """Queues that were not met end at or before `end_of_unmet`. Entries behind the last one met stay if their
        records lie below `keep_below`."""
        self._books, self._walk_start = books, walk_start
        self._end_of_unmet, self._keep_below = end_of_unmet, keep_below

    def lacks_records(self, queue: ConsumeQueue) -> bool:
        """Did the walk meet a queue further on than its files, which should have all before its start, come to?"""
        books = self._books
        first = int(books.walk_first[queue.slot])
        if first <= 0 or self._walk_start <= books.log_min():
            return False
        return not queue.file_starts or queue.proven_before(first, self._walk_start) < first

    def settle(self, queue: ConsumeQueue) -> bool:
        """Cut and mend a queue; False if it has no entries left."""
        if self._books.walk_next[queue.slot] == NOT_SEEN:
            return queue.truncate_to(self._end_of_unmet)
        first, end = int(self._books.walk_first[queue.slot]), int(self._books.walk_next[queue.slot])
        self._mend_before(queue, first)
        self._cut_behind(queue, end)
        return queue.has_entries()

    def _mend_before(self, queue: ConsumeQueue, first: int) -> None:
        books = self._books
        proven = queue.proven_before(first, self._walk_start)
        begins_here = proven <= queue.low_offset < first  # Nothing before it is known to be right.
        if begins_here and not books.read_only:
            queue.drop_files_before(first - first % books.entries_per_file)
            proven = first - first % books.entries_per_file
        if proven < first:
            entry = queue.peek(first)
            assert entry is not None
            with books.lock:
                books.pending.add_fill(Fill(queue.slot, proven, first, BLANK if begins_here else entry))
        with books.lock:
            if begins_here or first < books.min[queue.slot]:
                books.min[queue.slot] = first

    def _cut_behind(self, queue: ConsumeQueue, end: int) -> None:
        books = self._books
        if queue.max_offset > end:
            if not self._ends_with_lost_records(queue, end):
                queue.cut(end)
        elif self._walk_start <= books.log_min() and not books.read_only and queue.has_bytes_at(end):
            queue.cut(end)  # The files were damaged: nothing behind the end is an entry.

    def _ends_with_lost_records(self, queue: ConsumeQueue, end: int) -> bool:
        """Do the entries from `end` on stand for records behind the newest that was met, which are to stay? Others are
        of an earlier incarnation of the topic, or were never written."""
        met, last = queue.peek(end - 1), queue.peek(queue.max_offset - 1)
        if last is None or not is_valid(last):
            return False
        return (-1 if met is None else met[0]) < last[0] < self._keep_below


def is_of_ended_life(queue: ConsumeQueue, begun: int, walk_start: int) -> bool:
    """Does a queue have entries from before the place where its topic began again? One that has newer entries as well
    goes only if the walk, from `walk_start` on, meets all of these."""
    if not begun or queue.max_physical <= begun:
        return begun > 0
    first = queue.peek(queue.min_offset)
    return walk_start <= begun and first is not None and first != BLANK and first[0] < begun
