"""The dispatcher: follows the log and feeds everything that is derived from it.

    log  --walk-->  columns of records  -->  sinks: consume queues, index, arrivals, the user's own

It never passes its limit: the readable end, and under SYNC_FLUSH the flushed end, because a consumer
must not see what a crash can take back. A sink ignores what it already has, so replay is harmless.
One thread. A sink that fails is reported and stops being fed: its files are derived, and the next open
derives the rest; the log and the other sinks go on, whatever it was that a sink raised. A full disk is no such failure:
dispatch waits for space, and offers the same records again.
"""

import errno
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NoReturn

from embermq.columns import C_STORE_TIME, RecordColumns
from embermq.files import Bell, WorkThread
from embermq.format.frame import ScanStop
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.tail_mark import TailMark
from embermq.store.log.walk import Walker
from embermq.store.sink import Sink

log = logging.getLogger(__name__)

IDLE_SECONDS = 0.5
# After a small step the dispatcher pauses, unless something waits for it: a reader, a pull that is held.
PAUSE_SECONDS = 0.005
PAUSE_BYTES_MAX = 64 << 10
_BELLS_MAX = 1024  # Those whose bell is dropped look by themselves, after IDLE_SECONDS.
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class _DiskFull(Exception):
    """A sink has no room for a batch, which is to be offered again later."""


class Dispatcher:
    """Feeds sinks from `position` on."""

    def __init__(
        self,
        commit_log: CommitLog,
        walker: Walker,
        sinks: Sequence[Sink],
        taken: tuple[int, int],
        tail_mark: TailMark,
        limit: Callable[[], int],
        *,
        on_start: Callable[[], None] | None = None,
    ) -> None:
        """`on_start` is called on the dispatcher's thread."""
        self._log, self._walker, self._limit, self.tail_mark = commit_log, walker, limit, tail_mark
        self.sinks = list(sinks)
        self.failed_sinks: dict[str, str] = {}
        self.taken = taken  # Position and store time of the newest record all sinks have taken.
        self.position = taken[0]
        self._idle = False
        self._wake = Bell()
        # Of those who wait for the position; taken off by the dispatcher alone.
        self._waiting: deque[Bell] = deque(maxlen=_BELLS_MAX)
        self._hurried_by: set[object] = set()
        self._hurry = Bell()
        self._stopping = False
        self._lacks_space = False
        self._trouble = ""  # What the last try to dispatch ended with.
        self._cuts: deque[tuple[int, Callable[[], None]]] = deque()  # Ascending; added to with the put lock held.
        self._on_start = on_start
        self._thread = WorkThread(self._run, "embermq-dispatch")

    def start(self) -> None:
        self._thread.start()

    @property
    def behind_bytes(self) -> int:
        """How much of the log has not been dispatched yet."""
        return max(0, self._log.wrote_offset - self.position)

    def wake(self) -> None:
        """There may be more to do. Any thread; costs next to nothing while the dispatcher is busy."""
        if self._idle:
            self._idle = False
            self._wake.ring()

    def wait_for(self, physical_offset: int, timeout_seconds: float) -> bool:
        """Block until everything below `physical_offset` was dispatched; False if that takes too long."""
        deadline = time.monotonic() + timeout_seconds
        advanced, was_rung = Bell(), True
        while self.position < physical_offset:
            if was_rung:
                self._waiting.append(advanced)
            self._hurry.ring()
            self.wake()
            left = deadline - time.monotonic()
            if left <= 0 or not self._thread.is_running or self.position >= physical_offset:
                return self.position >= physical_offset
            was_rung = advanced.wait(min(left, IDLE_SECONDS))
        return True

    def hurry(self) -> Callable[[], None]:
        """Make no pauses, because something waits for what comes next; the answer ends that. Any thread."""
        request = object()
        self._hurried_by.add(request)
        self._hurry.ring()
        return lambda: self._hurried_by.discard(request)

    def at(self, position: int, call: Callable[[], None]) -> None:
        """Call once everything below `position` was given to the sinks, and nothing from there on. For the holder
        of the put lock, while the log ends there."""
        self._cuts.append((position, call))
        self.wake()

    def stop(self) -> None:
        """Dispatch what the limit allows and end the thread."""
        self._stopping = True
        self._hurry.ring()
        self._wake.ring()
        self._thread.join()
        self.drain()

    def _run(self) -> None:
        if self._on_start is not None:
            self._on_start()
        while not self._stopping:
            self._idle = True
            if self.position >= self._limit():
                self._wake.wait(IDLE_SECONDS)
            self._idle = False
            before = self.position
            if not self._drained() or self._lacks_space:
                self._wake.wait(IDLE_SECONDS)
            elif self.position - before < PAUSE_BYTES_MAX and not self._is_hurried:
                # Let some more come together: a step costs the same for one record as for a hundred.
                self._hurry.wait(PAUSE_SECONDS)

    @property
    def _is_hurried(self) -> bool:
        return bool(self._waiting or self._hurried_by or self._stopping)

    def _drained(self) -> bool:
        """Dispatch up to the limit; False if that went wrong, perhaps for a moment: no descriptor was free."""
        try:
            self.drain()
        except Exception as problem:
            if str(problem) != self._trouble:  # Once, and not every time.
                is_mistake = not isinstance(problem, OSError)
                log.error("dispatch failed position=%d error=%s", self.position, problem, exc_info=is_mistake)
            self._trouble = str(problem)
            return False
        self._trouble = ""
        return True

    def drain(self) -> None:
        """Dispatch up to the limit. The dispatcher's thread, or the one that has stopped it."""
        while self.position < (limit := self._next_stop()):
            start = max(self.position, self._log.min_offset)
            try:
                step = self._walker.step(start, limit, self._take, check_crc=False)
            except _DiskFull:
                return
            if step.at <= self.position:
                self._pass_obstacle(step.at, step.stop, limit)
                if self.position <= step.at:
                    return
            self._move_to(max(step.at, self.position))

    def _next_stop(self) -> int:
        """How far to go now; calls those who wanted to be called here."""
        limit = self._limit()
        while self._cuts and self._cuts[0][0] <= self.position:
            _, call = self._cuts.popleft()
            try:
                call()
            except OSError as problem:
                log.error("not done between records position=%d error=%s", self.position, problem)
        return min(limit, self._cuts[0][0]) if self._cuts else limit

    def _take(self, batch: RecordColumns, end: int) -> None:
        for sink in list(self.sinks):
            if self._lacks_space and sink.position >= end:
                continue  # It had room for this batch before.
            try:
                sink.take(batch, end)
            except OSError as problem:
                if problem.errno in _NO_SPACE and not self._stopping:
                    self._wait_for_space(sink, problem)
                self._drop(sink, problem)
            except Exception as problem:
                self._drop(sink, problem)
        self._lacks_space = False
        self.taken = (end, int(batch.rows[-1, C_STORE_TIME]))
        self.tail_mark.note(end)

    def _wait_for_space(self, sink: Sink, problem: OSError) -> NoReturn:
        """Give up this step: what other sinks have taken of it they will ignore when it comes again."""
        if not self._lacks_space:
            log.error("sink waits for space name=%s position=%d error=%s", sink.name, sink.position, problem)
        self._lacks_space = True
        raise _DiskFull from problem

    def _drop(self, sink: Sink, problem: Exception) -> None:
        is_mistake = not isinstance(problem, OSError)  # Its author wants to know where.
        log.error("sink failed name=%s position=%d error=%s", sink.name, sink.position, problem, exc_info=is_mistake)
        self.failed_sinks[sink.name] = str(problem)
        self.sinks.remove(sink)

    def _move_to(self, position: int) -> None:
        self.position = position
        for _ in range(len(self._waiting)):
            self._waiting.popleft().ring()

    def _pass_obstacle(self, at: int, stop: int | None, limit: int) -> None:
        """Nothing could be walked where a record should be: damage that appeared while running.

        It is passed over up to the next good record; recovery will look at it with more care. The end of what was
        committed of a private buffer is no damage.
        """
        unfinished = self._log.segments.find(at)
        if unfinished is not None and stop == ScanStop.BUFFER_END and unfinished.readable < unfinished.wrote:
            return
        log.error("record unreadable physical_offset=%d stop=%s", at, stop)
        good = self._log.next_record(at + 1, limit)
        if good is not None:
            self._move_to(good)
        elif unfinished is not None and unfinished.end <= limit:
            self._move_to(unfinished.end)
