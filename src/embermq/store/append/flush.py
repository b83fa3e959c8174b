"""The flusher: the one thread that makes the log durable, and tells those who wait for it.

SYNC_FLUSH is group commit: while one fdatasync runs, appends queue up behind it, and the next one serves
them all. ASYNC_FLUSH flushes by the clock, or, with flushCommitLogTimed=false, as soon as enough pages are dirty. With
private buffers, committing comes first: by the clock, as soon as enough pages wait, or at once after a pause.

Appends that cause a flush or a commit do not wake this thread one by one: it says up to which end of the log it may
sleep (`_wake_at`), and the append that reaches that place wakes it. Until then an append pays for one comparison.

    group A  --- fdatasync --->  first wakes second wakes third ...
    group B   (comes together)   --- fdatasync --->  ...

Of a group that was served the flusher wakes one, which wakes the next, and so on. All at once would meet
at the interpreter's lock and be put to sleep again (docs/decisions/0012-waking-one-another.md).

Before a sync counts, `confirm` is asked whether this process is still the one that writes the store (fence.py); if
it is not, that is a failure as well.

A failed fdatasync is never tried again: the kernel may have dropped the dirty pages, and a second call
would succeed without them. Everyone who waits gets the error, nothing is acknowledged, and the store takes no
more messages until it is reopened.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

from embermq.clock import Clock
from embermq.errors import AppendRefused, FlushFailed, WriterFenced, again
from embermq.files import Bell, WorkThread
from embermq.settings import FlushDisk, StoreSettings
from embermq.store.append.cpu_pinning import CpuPinning
from embermq.store.append.deadlines import Deadlines
from embermq.store.log.commit_log import CommitLog

log = logging.getLogger(__name__)

PAGE_BYTES = 4096
_NEVER = 1 << 63  # Past the end of every log.
# While something waits the thread does not sleep; when nothing does, it still looks up this often.
IDLE_SECONDS = 0.5
# A thread that waits for a sync looks by itself this often: the one before it may have been interrupted by a signal
# handler that raised, and then does not wake it.
LOOK_SECONDS = 0.1
SLOW_SECONDS = 0.5  # A flush or commit that takes longer is worth a warning.


class Group:
    """Threads that one sync will serve."""

    __slots__ = ("done", "joined")

    def __init__(self) -> None:
        self.joined = False
        self.done = threading.Lock()  # Released after the sync; each who waits for it gets it, and passes it on.
        self.done.acquire()


class Waiter:
    """A callback that waits until `end` is durable; called with this, `failure` set if that cannot be."""

    __slots__ = ("_callbacks", "deadline", "end", "failure")

    def __init__(self, end: int, deadline: float, callback: Callable[["Waiter"], None]) -> None:
        self.end, self.deadline = end, deadline
        self._callbacks = [callback]
        self.failure: AppendRefused | TimeoutError | None = None

    @property
    def is_told(self) -> bool:
        return not self._callbacks

    def finish(self, failure: AppendRefused | TimeoutError | None) -> None:
        """Call back, once; what the callback raises is logged. Any thread."""
        try:
            callback = self._callbacks.pop()  # Only one gets it.
        except IndexError:
            return
        self.failure = failure
        try:
            callback(self)
        except Exception:
            log.exception("callback of an append failed")


class Flusher:
    """Flushes one log. `wait` and `when_durable` from any thread."""

    def __init__(
        self,
        commit_log: CommitLog,
        settings: StoreSettings,
        clock: Clock,
        *,
        pooled: bool,
        on_progress: Callable[[int], None],
        on_failure: Callable[[AppendRefused], None],
        confirm: Callable[[], None] | None = None,
        pinning: CpuPinning | None = None,
    ) -> None:
        """`on_progress` hears the flushed offset when more is durable or readable; both on the flusher's thread.

        `confirm` raises WriterFenced if nothing may be written, and nothing acknowledged, any more.
        """
        self._log, self._settings, self._clock = commit_log, settings, clock
        self._on_progress, self._on_failure, self._confirm = on_progress, on_failure, confirm
        self._pooled = pooled
        self._sync = settings.flush is FlushDisk.SYNC
        self._timeout_seconds = settings.sync_flush_timeout_ms / 1000
        self._group = Group()  # The one to join. Replaced by the flusher before it syncs.
        self._waiters: list[Waiter] = []
        self._lock = threading.Lock()  # Guards the list and `failure`; held for an append or a swap.
        self._deadlines = Deadlines(clock, self._timeout_seconds, _expire)
        self._wake = Bell()
        self._wake_at = _NEVER  # The append that makes the log this long wakes the thread.
        self._stopping = self._ended = False
        self.failure: AppendRefused | None = None
        self._pinning = pinning
        self._thread = WorkThread(self._run, "embermq-flush")
        now = clock.monotonic()
        self._thorough_at = now + settings.flush_thorough_interval_ms / 1000
        self._flush_at = now + settings.flush_interval_ms / 1000
        self._thorough_commit_at = now

    def start(self) -> None:
        self._thread.start()

    # -- for those who wait ------------------------------------------------------------------------------

    def wait(self, end: int) -> bool:
        """Block until everything below `end` is durable; False if that takes too long, AppendRefused if it fails."""
        commit_log, wake = self._log, self._wake
        if self._pinning is not None:
            self._pinning.join()
        deadline = self._clock.monotonic() + self._timeout_seconds
        while commit_log.flushed_offset < end:
            if self.failure is not None:
                raise again(self.failure)
            left = deadline - self._clock.monotonic()
            group = self._group
            group.joined = True
            wake.ring()
            if left < 0:
                return commit_log.flushed_offset >= end
            if group.done.acquire(timeout=min(left, LOOK_SECONDS)):
                group.done.release()
            elif self._thread.has_ended:
                return commit_log.flushed_offset >= end  # It was killed: no sync comes any more.
        return True

    def when_durable(self, end: int, callback: Callable[[Waiter], None]) -> None:
        """Call back, on the flusher's thread, once `end` is durable or can no longer be."""
        waiter = Waiter(end, self._clock.monotonic() + self._timeout_seconds, callback)
        with self._lock:
            failure, ended = self.failure, self._ended
            if failure is None and not ended:
                self._waiters.append(waiter)
        if failure is not None:
            waiter.finish(failure)
            return
        if ended:
            self._settle([waiter])
            return
        self._deadlines.add(waiter)
        self._wake.ring()

    def nudge(self) -> None:
        """Under SYNC_FLUSH: something was appended whose sender does not wait."""
        self._wake.ring()

    def after_append(self, then: Callable[[], None]) -> Callable[[], None]:
        """What to call after each append: `then`, and before it, where appends cause flushes or commits under
        ASYNC_FLUSH, a look whether the log has grown enough for one."""
        if self._sync or (self._settings.flush_timed and not self._pooled):
            return then  # The clock alone does it, or those who wait.
        commit_log, ring = self._log, self._wake.ring

        def look() -> None:
            if commit_log.wrote_offset >= self._wake_at:
                ring()
            then()

        return look

    # -- the thread --------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Flush everything once more and end the thread."""
        self._stopping = True
        self._wake.ring()
        self._thread.join()
        with self._lock:
            self._ended = True  # Those who come now are answered at once.
        try:
            while self.failure is None and self._commit():
                pass
        finally:
            self.flush_now()
            self._deadlines.stop()
            if self._pinning is not None:
                self._pinning.close()

    def _run(self) -> None:
        if self._pinning is not None:
            self._pinning.join()
        while not self._stopping:
            self._wake.wait(self._pause_seconds())
            self.turn()

    @property
    def _has_waiters(self) -> bool:
        return bool(self._waiters) or self._group.joined

    def _pause_seconds(self) -> float:
        if self._has_waiters:
            return 0.0
        now = self._clock.monotonic()
        pause = IDLE_SECONDS if self._sync else min(IDLE_SECONDS, self._flush_at - now)
        if self._pooled:
            pause = min(pause, self._settings.commit_interval_ms / 1000)
            if now < self._thorough_commit_at:
                pause = min(pause, self._thorough_commit_at - now)
        self._wake_at = self._next_wake_at(now)
        if self._log.wrote_offset >= self._wake_at:
            return 0.0  # By an append that came before `_wake_at` was set, and has not seen it.
        return max(pause, 0.0)

    def _next_wake_at(self, now: float) -> int:
        """How long the log must be for the thread to have something to do."""
        if self._sync or self.failure is not None:
            return _NEVER
        if self._pooled:
            pages_min = 0 if now >= self._thorough_commit_at else self._settings.commit_pages_min
            return _enough_at(self._log.readable_offset, pages_min)
        if self._settings.flush_timed:
            return _NEVER
        return _enough_at(self._log.flushed_offset, self._settings.flush_pages_min)

    def turn(self) -> None:
        """One look: commit and flush what is due, tell those who waited for it."""
        if self._pooled and self.failure is None:
            self._commit_due()
        if self._sync or self._has_waiters or self._due():
            self.flush_now()

    def flush_now(self) -> int:
        """Flush everything readable; the flushed offset. Not to be called while the thread runs, but by it."""
        with self._lock:
            waiters, self._waiters = self._waiters, []
        group, self._group = self._group, Group()
        try:
            if self.failure is None:
                self._flush_log()
        finally:
            group.done.release()
        self._settle(waiters)
        return self._log.flushed_offset

    def _flush_log(self) -> None:
        before, began = self._log.flushed_offset, self._clock.monotonic()
        try:
            flushed = self._log.flush(self._confirm)
        except OSError as problem:
            self._fail(problem)
            return
        finally:
            self._warn_if_slow("flush", began)
        if flushed != before:
            self._on_progress(flushed)

    def _settle(self, waiters: list[Waiter]) -> None:
        """Tell callbacks what they wait for; those for whom it is too early wait on."""
        flushed, late = self._log.flushed_offset, []
        for waiter in waiters:
            if waiter.end <= flushed:
                waiter.finish(None)
            elif self.failure is not None:
                waiter.finish(self.failure)
            elif self._ended or self._clock.monotonic() > waiter.deadline:
                _expire(waiter)
            else:
                late.append(waiter)
        if late:
            with self._lock:
                self._waiters[:0] = late

    def _commit(self) -> bool:
        """Move private buffers to the files. An OSError is noted, and raised."""
        began = self._clock.monotonic()
        try:
            if self._confirm is not None:
                self._confirm()
            return self._log.commit()
        except OSError as problem:
            self._fail(problem)
            raise
        finally:
            self._warn_if_slow("commit", began)

    def _warn_if_slow(self, what: str, began: float) -> None:
        elapsed = self._clock.monotonic() - began
        if elapsed > SLOW_SECONDS:
            log.warning("slow %s elapsed_ms=%d flushed_offset=%d", what, int(elapsed * 1000), self._log.flushed_offset)

    def _fail(self, problem: OSError) -> None:
        failure: AppendRefused = FlushFailed(problem.strerror or str(problem))
        if isinstance(problem, WriterFenced):
            failure = again(problem)
        with self._lock:
            self.failure = failure
        log.error("flush failed error=%s flushed_offset=%d", problem, self._log.flushed_offset)
        self._on_failure(failure)

    def _due(self) -> bool:
        """Under ASYNC_FLUSH: is it time, and is enough dirty?"""
        now = self._clock.monotonic()
        if now < self._flush_at and self._settings.flush_timed:
            return False
        self._flush_at = now + self._settings.flush_interval_ms / 1000
        if now >= self._thorough_at:
            self._thorough_at = now + self._settings.flush_thorough_interval_ms / 1000
            return True
        return _is_enough(self._log.flushed_offset, self._log.readable_offset, self._settings.flush_pages_min)

    def _commit_due(self) -> None:
        now = self._clock.monotonic()
        thorough = now >= self._thorough_commit_at
        waited_for = self._has_waiters
        enough = _is_enough(self._log.readable_offset, self._log.wrote_offset, self._settings.commit_pages_min)
        if not (thorough or waited_for or enough):
            return
        try:
            moved = more = self._commit()
            while waited_for and more:
                more = self._commit()
        except OSError:
            return
        if moved:
            self._thorough_commit_at = now + self._settings.commit_thorough_interval_ms / 1000
            self._on_progress(self._log.flushed_offset)  # More can be read now.


def _is_enough(start: int, end: int, pages_min: int) -> bool:
    """Does [start, end) have so many pages? With 0, a byte is enough."""
    return end >= _enough_at(start, pages_min)


def _enough_at(start: int, pages_min: int) -> int:
    """The smallest end with so many pages between `start` and it."""
    return start + 1 if pages_min == 0 else (start // PAGE_BYTES + pages_min) * PAGE_BYTES


def _expire(waiter: Any) -> None:
    waiter.finish(TimeoutError("the disk did not confirm in time"))
