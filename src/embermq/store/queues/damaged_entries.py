"""Queue entries that are damaged, or whose records are: what a reader can still be given, at the cost of one search.

A queue file has no checksums. When an entry leads to no record of its own place in the queue, there are two cases:

    the log is damaged there       the record is lost, and so are those of all entries that lead into the same stretch
                                   of the log (bad_stretches.py)
    the entry is damaged           the record lies between those of the neighbouring entries, because entries are in log
                                   order, and is found by a walk (walked_log.py)

Damaged entries come in runs. Of the run that a reader is in it is known where in the log its records can be, and which
of them comes next, so that each entry costs a look at that. Only for entries that are damaged. Any thread.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from embermq.model.flags import has_queue_entry
from embermq.model.message import StoredMessage
from embermq.store.log.bad_stretches import BadStretches
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.records import Record, Records
from embermq.store.log.walked_log import WalkedLog
from embermq.store.queues.consume_queue import ConsumeQueue

log = logging.getLogger(__name__)

# Sound neighbours are rarely further apart; past this much log the entries stay lost until the queue is rebuilt.
SEARCH_BYTES_MAX = 256 << 20
RUNS_MAX = 1024
REPORTED_MAX = 4096


@dataclass(slots=True)
class _Run:
    """Damaged entries of a queue, one after another, and what the log has for them."""

    queue: ConsumeQueue
    start: int  # What is known holds for queue offsets from here on,
    end: int  # and below this one, whose entry is sound; or the queue ended here.
    log_start: int  # Records of these entries can be nowhere else than from here
    log_end: int  # to here.
    next_offset: int = -1  # The record with the lowest queue offset among them; `end` if there is none,
    place: int = -1  # and where it begins.


class DamagedEntries:
    """Finds the records behind damaged entries of one store."""

    def __init__(self, commit_log: CommitLog, records: Records, life_begin: Callable[[str], int]) -> None:
        """`life_begin` says where in the log a topic began again after its last deletion."""
        self._log, self._records, self._life_begin = commit_log, records, life_begin
        self.stretches = BadStretches(commit_log, records)
        self.walked = WalkedLog(commit_log)
        self._lock = threading.Lock()
        self._runs: OrderedDict[tuple[str, int], _Run] = OrderedDict()
        self._reported: set[tuple[str, int, int]] = set()

    def record_of(self, queue: ConsumeQueue, queue_offset: int, physical: int, size: int) -> Record | None:
        """The record of an entry that does not lead to it; None if the log has it no more."""
        if self._is_lost(queue, queue_offset, physical, size):
            return None
        with self._lock:
            run = self._run_of(queue, queue_offset)
            if queue_offset > run.next_offset:
                self._look_for_next(run, queue_offset)
            if queue_offset < run.next_offset or run.place < 0:
                return None
            record = self._records.record_at(run.place)
        return record if record is not None and belongs(record.frame, queue, queue_offset) else None

    def _is_lost(self, queue: ConsumeQueue, queue_offset: int, physical: int, size: int) -> bool:
        """Is the entry in order with its neighbours, and the log damaged where it leads, or deleted? Then the entry is
        right, and its record is gone."""
        if size <= 0 or physical < 0 or physical >= self._log.readable_offset:
            return False
        before, after = queue.entry(queue_offset - 1), queue.entry(queue_offset + 1)
        if (before is not None and before[0] > physical) or (after is not None and after[0] < physical):
            return False
        return physical < self._log.min_offset or self.stretches.around(physical) is not None

    # -- runs ------------------------------------------------------------------------------------------------

    def _run_of(self, queue: ConsumeQueue, queue_offset: int) -> _Run:
        name = queue.topic, queue.queue_id
        run = self._runs.get(name)
        if run is None or run.queue is not queue or not run.start <= queue_offset < run.end:
            run = self._runs[name] = self._new_run(queue, queue_offset)
            if len(self._runs) > RUNS_MAX:
                self._runs.popitem(last=False)
        self._runs.move_to_end(name)
        return run

    def _new_run(self, queue: ConsumeQueue, queue_offset: int) -> _Run:
        low, end = queue.min_offset, queue.max_offset
        before = self._first_sound(queue, _further(queue_offset, low, -1))
        after = self._first_sound(queue, _further(queue_offset, end - 1, 1))
        log_start = max(self._log.min_offset, self._life_begin(queue.topic))
        if before is not None:
            log_start = max(log_start, before.end)
        if after is not None:
            end, log_end = after.queue_offset, after.physical_offset
        else:
            log_end = self._log.readable_offset
        self._report(queue, queue_offset, end)
        return _Run(queue, queue_offset, end, log_start, log_end)

    def _report(self, queue: ConsumeQueue, queue_offset: int, end: int) -> None:
        """Once for entries that lie before the same sound one."""
        run = queue.topic, queue.queue_id, end
        if run not in self._reported:
            if len(self._reported) >= REPORTED_MAX:
                self._reported.clear()
            self._reported.add(run)
            log.warning("queue entry damaged topic=%s queue_id=%d offset=%d", queue.topic, queue.queue_id, queue_offset)

    def _first_sound(self, queue: ConsumeQueue, offsets: Iterable[int]) -> StoredMessage | None:
        """The record of the first of these entries that is sound."""
        for offset in offsets:
            entry = queue.entry(offset)
            message = self._records.at(entry[0], entry[1]) if entry is not None else None
            if message is not None and belongs(message, queue, offset):
                return message
        return None

    def _look_for_next(self, run: _Run, queue_offset: int) -> None:
        """Find the first record of a run from a queue offset on. Behind the last one nothing is looked for again."""
        queue = run.queue
        start = max(run.log_start, run.place)
        end = min(run.log_end, start + SEARCH_BYTES_MAX)
        found = self.walked.next_of(queue.topic, queue.queue_id, range(queue_offset, run.end), start, end)
        run.start = queue_offset
        run.next_offset, run.place = found if found is not None else (run.end, -1)


def _further(start: int, end: int, direction: int) -> Iterable[int]:
    """Queue offsets further and further away from one: 1, 2, 4, 8 ... up to the last one there is."""
    distance = 1
    while (end - start) * direction >= distance:
        yield start + distance * direction
        distance *= 2
    if (end - start) * direction > distance // 2:
        yield end


class InQueue(Protocol):
    """What a record says of its place: a Frame, or a StoredMessage."""

    @property
    def topic(self) -> str: ...

    @property
    def queue_id(self) -> int: ...

    @property
    def queue_offset(self) -> int: ...

    @property
    def sys_flag(self) -> int: ...


def belongs(message: InQueue, queue: ConsumeQueue, queue_offset: int) -> bool:
    """Is this the record of that place in that queue, by its own word?"""
    place = (message.topic, message.queue_id, message.queue_offset)
    return place == (queue.topic, queue.queue_id, queue_offset) and has_queue_entry(message.sys_flag)


def fills_hole(message: InQueue, queue: ConsumeQueue, queue_offset: int) -> bool:
    """Is this the record behind a hole, whose entry stands for all that the log has lost before it?"""
    same_queue = (message.topic, message.queue_id) == (queue.topic, queue.queue_id)
    return same_queue and message.queue_offset > queue_offset
