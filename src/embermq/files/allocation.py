"""The thread that makes the next log files before the writer needs them.

Three things cost a writer dearly when it has to wait for them, so they are done here: creating the next
file (blocks reserved, name durable), faulting in the pages just ahead of the writer, and unmapping files
it has left. How far ahead is a matter of how fast the log grows (`Pace`): an idle store has no spare
file and 4 MiB of faulted pages, a busy one up to two files and 64 MiB.

Files made ahead are on the disk but not in the set of segments; a clean close deletes them, and after
a crash recovery finds them empty. One thread of its own; `take` is for the writer, `seal_soon` and
`close` for any thread.
"""

import errno
import logging
import threading
import time
from contextlib import suppress
from typing import Literal

from embermq.clock import Clock, SystemClock
from embermq.files import memory
from embermq.files.bell import Bell
from embermq.files.pool import TransientPool
from embermq.files.segment import Segment
from embermq.files.segments import Segments
from embermq.files.warming import warm
from embermq.files.work_thread import WorkThread

log = logging.getLogger(__name__)

MIB = 1 << 20

WINDOW_MIN_BYTES = 4 * MIB
WINDOW_MAX_BYTES = 64 * MIB
_POPULATE_STEP_BYTES = 4 * MIB  # between two looks at whether a writer waits for a file
_WINDOW_S = 0.05  # the window holds what the writer stores in this time
_AHEAD_S = 10.0  # there are files for what the writer stores in this time
_FILES_AHEAD_MAX = 2
_POLL_MIN_S = 0.001
_POLL_IDLE_S = 0.05
SLOW_CREATION_S = 0.5  # A file that takes longer to be made, warming aside, is worth a warning.
_RETRY_S = 1.0  # after a file could not be made that no writer waits for yet

# Populating for "write" makes the pages dirty, so that the next sync writes their zeros: when every append
# is followed by a sync, twice the bytes go to the disk. "read" leaves them clean, and saves less.
Populate = Literal["write", "read", "none"]


class GrowthPace:
    """How fast the log grows, and what follows from it. One thread."""

    __slots__ = ("_last", "_last_at", "bytes_per_s")

    def __init__(self) -> None:
        self.bytes_per_s = 0.0
        self._last = -1
        self._last_at = 0.0

    def observe(self, wrote_offset: int, now: float) -> None:
        """Take note of where the writer is. Rises at once and falls slowly: being late is what costs."""
        elapsed = now - self._last_at
        if self._last < 0 or wrote_offset < self._last:
            self._last, self._last_at = wrote_offset, now
        elif elapsed >= _POLL_MIN_S / 2:
            rate = (wrote_offset - self._last) / elapsed
            if rate < self.bytes_per_s:
                weight = min(1.0, elapsed / 0.5)
                rate = self.bytes_per_s + (rate - self.bytes_per_s) * weight
            self.bytes_per_s = rate
            self._last, self._last_at = wrote_offset, now

    @property
    def window_bytes(self) -> int:
        """How far ahead of the writer pages are to be faulted in."""
        return min(max(int(self.bytes_per_s * _WINDOW_S), WINDOW_MIN_BYTES), WINDOW_MAX_BYTES)

    @property
    def poll_s(self) -> float:
        """When to look again: before the writer has used half the window."""
        if self.bytes_per_s < 1.0:
            return _POLL_IDLE_S
        return min(max(self.window_bytes / 2 / self.bytes_per_s, _POLL_MIN_S), _POLL_IDLE_S)

    def ahead_bytes(self, segment_bytes: int) -> int:
        """How much room there should be in files that exist."""
        return max(segment_bytes // 2, int(self.bytes_per_s * _AHEAD_S))


class SegmentAllocator:
    """Makes the segments that `segments` rolls to."""

    def __init__(
        self,
        segments: Segments,
        *,
        pool: TransientPool | None = None,
        needs_buffer: bool = False,
        synced_often: bool = False,
        populate: Populate | None = None,
        warm_whole_file: bool = False,
        warm_sync_bytes: int = 0,
        lock_in_memory: bool = False,
        wait_s: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        """What the settings say about new files.

        `needs_buffer`: a new segment is refused rather than made without a private buffer.
        `synced_often`: a sync follows every append or nearly so; decides what is done to pages ahead.
        `warm_whole_file`: a file is warmed before its first use; synced after each `warm_sync_bytes`, 0: not.
        """
        self.pace = GrowthPace()
        self._segments = segments
        self._pool, self._needs_buffer = pool, needs_buffer
        self._synced_often = synced_often
        self._populate: Populate = populate or ("read" if synced_often else "write")
        self._advised: Segment | None = None  # the active segment, once its pages have been spoken for
        self._warm_whole_file, self._warm_sync_bytes = warm_whole_file, warm_sync_bytes
        self._lock_in_memory = lock_in_memory
        self._wait_s = wait_s
        self._clock = clock or SystemClock()
        self._mutex = threading.Lock()
        self._called, self._answered = Bell(), Bell()  # By those who want something; by the thread, to the writer.
        self._ready: dict[int, Segment] = {}
        self._wanted: int | None = None
        self._failure: OSError | None = None  # of the file a writer waits for
        self._taken = -1  # start of the last one handed out: it may not be in the set yet
        self._left: list[Segment] = []
        self._retry_at = 0.0
        self._closing = False
        self._thread: WorkThread | None = None

    def start(self) -> None:
        """Begin to work ahead. Before this, and after close, `take` makes files on the caller's thread."""
        assert self._thread is None
        self._thread = WorkThread(self._run, "embermq-allocator")
        self._thread.start()

    @property
    def lacks_buffers(self) -> bool:
        """Whether log files have private buffers, and none is free for the next one."""
        return self._pool is not None and self._pool.available == 0

    @property
    def ready(self) -> list[int]:
        """Start offsets of the files made ahead."""
        with self._mutex:
            return sorted(self._ready)

    # -- for the writer --------------------------------------------------------------------------------

    def take(self, start: int) -> Segment:
        """The segment that starts at `start`, active and empty; OSError if it cannot be made in time."""
        if self._needs_buffer and (self._pool is None or self._pool.available == 0):
            raise OSError(errno.ENOBUFS, "no private buffer is free for the next log file")
        segment = self._take_ready(start)
        if segment is None:
            works_ahead = self._thread is not None and self._thread.is_running  # Then no other thread may make files.
            segment = self._wait_for(start) if works_ahead else self._make(start)
        if self._pool is not None:
            segment.attach_buffer(self._pool)
        return segment

    def _take_ready(self, start: int) -> Segment | None:
        with self._mutex:
            segment = self._ready.pop(start, None)
            if segment is not None:
                self._taken = start
                self._wanted = None  # An interrupted wait may have left it: the same file must not be made twice.
            return segment

    def _wait_for(self, start: int) -> Segment:
        deadline = time.monotonic() + self._wait_s
        with self._mutex:
            self._wanted, self._failure = start, None
        self._called.ring()
        while not self._is_answered(start) and (left := deadline - time.monotonic()) > 0:
            self._answered.wait(left)  # A ring may be about something earlier.
        with self._mutex:
            self._wanted = None
            if self._failure is not None:
                raise self._failure
        segment = self._take_ready(start)
        if segment is None:
            raise TimeoutError(errno.ETIMEDOUT, f"the next log file was not ready after {self._wait_s} s")
        return segment

    def _is_answered(self, start: int) -> bool:
        return start in self._ready or self._failure is not None

    def seal_soon(self, segment: Segment) -> None:
        """Seal a segment the writer has left, once its private buffer is committed."""
        with self._mutex:
            self._left.append(segment)
        self._called.ring()

    def close(self) -> None:
        """Stop, and delete the files made ahead."""
        with self._mutex:
            self._closing = True
            self._failure = OSError(errno.ESHUTDOWN, "the log is being closed")
        self._called.ring()
        self._answered.ring()
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        self._seal_left()
        for start, segment in list(self._ready.items()):
            self._discard(segment)
            del self._ready[start]

    def _discard(self, segment: Segment) -> None:
        """Delete a file made ahead. Never one that is in the log by now, whatever has happened in between."""
        if self._segments.find(segment.start) is None:
            segment.retire()
        else:
            segment.close()

    # -- the thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            try:
                self.step()
            except Exception as problem:  # The thread must go on: the writer waits for it.
                log.error("allocator failed error=%s", problem, exc_info=not isinstance(problem, OSError))
            if self._wanted is None and not self._closing:
                self._called.wait(self.pace.poll_s)

    def step(self) -> None:
        """One round: what a writer waits for first. Called by the thread; tests may call it instead."""
        self.pace.observe(self._segments.wrote_offset, self._clock.monotonic())
        self._make_wanted()
        self._advise_active()
        self._seal_left()
        self._make_ahead()
        self._populate_ahead()

    def _make_wanted(self) -> None:
        with self._mutex:
            start = self._wanted
            if start in self._ready:
                self._wanted = None  # It was made ahead meanwhile, and the writer may be gone.
            if start is None or start in self._ready:
                return
        try:
            segment = self._make(start)
        except OSError as error:
            with self._mutex:
                self._failure = error
                self._wanted = None
            self._answered.ring()
            return
        with self._mutex:
            self._ready[start] = segment
            self._wanted = None
        self._answered.ring()

    def _make(self, start: int) -> Segment:
        began = self._clock.monotonic()
        segment = self._segments.create(start)
        elapsed = self._clock.monotonic() - began
        if elapsed > SLOW_CREATION_S:
            log.warning("slow file creation elapsed_ms=%d path=%s", int(elapsed * 1000), segment.path)
        view = segment.view
        assert view is not None
        if self._synced_often:
            memory.advise_small_pages(view)
        if self._warm_whole_file:
            self._warm(segment)
        if self._lock_in_memory:
            memory.lock_memory(view)
            memory.advise_willneed(view, 0, segment.size)
        return segment

    def _warm(self, segment: Segment) -> None:
        """Warm a new file; one that cannot be synced goes again, and the error is the caller's."""
        try:
            warm(segment, self._warm_sync_bytes, lambda: self._closing)
        except OSError:
            with suppress(OSError):
                segment.retire()
            raise

    def _advise_active(self) -> None:
        """The active segment may be one that was found on the disk, and not made here."""
        last = self._segments.last
        if self._synced_often and last is not None and last is not self._advised and last.view is not None:
            memory.advise_small_pages(last.view)
            self._advised = last

    def _make_ahead(self) -> None:
        """Make the next file, and the one after it, when the writer will want them soon."""
        last = self._segments.last
        if last is None or not last.is_active:
            return
        size = self._segments.segment_bytes
        expected = [last.end + number * size for number in range(_FILES_AHEAD_MAX)]
        if not self._drop_unexpected(expected):
            return  # The writer has rolled meanwhile; look again in the next round.
        room = last.size - last.wrote
        for start in expected:
            if room >= self.pace.ahead_bytes(size) or self._closing:
                return
            if start != self._taken and start not in self._ready and not self._try_to_make(start):
                return
            room += size

    def _try_to_make(self, start: int) -> bool:
        now = self._clock.monotonic()
        if now < self._retry_at:
            return False
        try:
            segment = self._make(start)
        except OSError:
            # No writer waits for it yet. If it still fails when the writer comes, the writer gets the error.
            self._retry_at = now + _RETRY_S
            return False
        with self._mutex:
            self._ready[start] = segment
        self._answered.ring()
        return True

    def _drop_unexpected(self, expected: list[int]) -> bool:
        """Delete files made ahead that will not be wanted: the log was cut back, or jumped. False if it is others that
        are expected by now."""
        with self._mutex:
            if self._segments.last is None or self._segments.last.end != expected[0]:
                return False
            dropped = [self._ready.pop(start) for start in list(self._ready) if start not in expected]
        for segment in dropped:
            self._discard(segment)
        return True

    def _populate_ahead(self) -> None:
        """Fault pages in from where the writer is to the end of the window, over into the next file."""
        last = self._segments.last
        if self._populate == "none" or last is None or last.view is None or last.buffer is not None:
            return
        window = self.pace.window_bytes
        end = last.wrote + window
        self._populate_in(last, end)
        if end > last.size:
            with self._mutex:
                following = self._ready.get(last.end)
            if following is not None:
                self._populate_in(following, end - last.size)

    def _populate_in(self, segment: Segment, end: int) -> None:
        """Fault in up to `end`, in steps, as long as no writer waits for a file."""
        advise = memory.populate if self._populate == "write" else memory.populate_for_reading
        end = min(end, segment.size)
        while self._wanted is None and not self._closing:
            view, start = segment.view, max(segment.populated, segment.wrote)
            stop = min(start + _POPULATE_STEP_BYTES, end)
            if view is None or start >= end:
                return
            if not advise(view, start, stop):
                self._populate = "none"  # an old kernel: the writer takes its own page faults
                return
            segment.populated = stop

    def _seal_left(self) -> None:
        with self._mutex:
            ripe = [segment for segment in self._left if segment.buffer is None]
            self._left = [segment for segment in self._left if segment.buffer is not None]
        for segment in ripe:
            view = segment.view
            if self._lock_in_memory and view is not None:
                memory.unlock_memory(view)
            segment.seal()
