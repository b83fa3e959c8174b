"""The put lock: who may append now, for how long it has been held, and what there is against appending.

One thread at a time appends. The lock is only taken by `with`: a signal handler may raise in the middle of an append,
and Python runs handlers after calls and at the ends of loops. `begin` and `finish` stand at both ends of each turn,
which counts the messages stored and failed; `check_busy` comes before it, `wake` after it, both without the lock.

    check_busy  ->  with lock: begin, store, finish  ->  wake
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum

from embermq.clock import Clock
from embermq.errors import DiskFull, PageCacheBusy, StoreError, again
from embermq.store.append.log_end import LogEnd
from embermq.store.statistics import COUNTED_PUT_SECONDS, SLOW_PUT_SECONDS, PutCounters

log = logging.getLogger(__name__)


class Refusal(IntEnum):
    """Why nothing is appended; where several apply, the first is the answer."""

    FOR_GOOD = 0  # closed, a failed sync, another writer
    ROLE = 1  # a slave's log is written by its master
    NOT_WRITABLE = 2  # switched off by the operator
    DISK_FULL = 3


class PutLock:
    """The lock of one store, and its counters. Attributes without an underscore are read by each append."""

    def __init__(
        self,
        end: LogEnd,
        clock: Clock,
        *,
        busy_ms_max: int,
        wake_dispatch: Callable[[], None] | None,
        record_put: Callable[[float, int], None] | None,
    ) -> None:
        self._end, self.monotonic = end, clock.monotonic
        self.lock = threading.Lock()
        self.held_since = 0.0  # 0.0: not held.
        self.refusal: StoreError | None = None  # What there is against appending: the first of `_refusals`.
        self._refusals: dict[Refusal, StoreError] = {}
        self._busy_seconds_max = busy_ms_max / 1000
        self.wake_dispatch = wake_dispatch if wake_dispatch is not None else _nothing
        self._record_put = record_put if record_put is not None else _ignore_put
        self.stored = 0  # Messages; put lock, as is `_failed`.
        self._failed = 0
        self._refused = 0  # Messages that did not come so far as to be written.
        self._refused_lock = threading.Lock()  # Guards that number alone: refusals come with and without the put lock.

    @property
    def counters(self) -> PutCounters:
        """Totals since the store was opened."""
        return PutCounters(self.stored, self._end.stored_bytes, self._failed + self._refused)

    @property
    def held_ms(self) -> int:
        """How long the current append has been going on; 0 when none is."""
        since = self.held_since
        return int((self.monotonic() - since) * 1000) if since and self.lock.locked() else 0

    # -- refusing ----------------------------------------------------------------------------------------------

    def refuse_while(self, cause: Refusal, reason: StoreError | None) -> None:
        """Wait for the append under way, and refuse later ones until this cause is gone: None. Others may stay."""
        with self.lock:
            if reason is None:
                self._refusals.pop(cause, None)
            else:
                self._refusals[cause] = reason
            self.refusal = self._refusals[min(self._refusals)] if self._refusals else None

    def abandon(self, reason: StoreError) -> None:
        """Refuse everything, in a process in which no thread holds the lock any more: it may have been forked."""
        self.lock = threading.Lock()
        self.refuse_while(Refusal.FOR_GOOD, reason)

    def count_refused(self, count: int) -> None:
        with self._refused_lock:
            self._refused += count

    def check_busy(self, count: int = 1) -> None:
        """PageCacheBusy for `count` messages if the lock has been held for too long. Before it is taken."""
        since = self.held_since
        if since and self.lock.locked():
            held = self.monotonic() - since
            if held > self._busy_seconds_max:
                self.count_refused(count)
                raise PageCacheBusy(int(held * 1000))

    def check_turn(self, although_full: bool = False, count: int = 1) -> None:
        """Put right what an interrupted run has left; raise what there is against appending `count` messages. Put lock
        held."""
        self._end.take_back_open_run()
        try:
            if self.refusal is not None and not (although_full and isinstance(self.refusal, DiskFull)):
                raise again(self.refusal)
            self._end.check_fence()
        except StoreError:
            self.count_refused(count)
            raise

    # -- turns -------------------------------------------------------------------------------------------------

    def begin(self, although_full: bool = False, count: int = 1) -> float:
        """The time from which the lock counts as held; raises what there is against appending. Put lock held."""
        if self.refusal is not None or self._end.needs_attention:
            self.check_turn(although_full, count)
        self.held_since = began = self.monotonic()
        return began

    def finish(self, began: float, stored: int, failed: int) -> float:
        """Count, before the lock is given back; for how long it was held."""
        held = self.monotonic() - began
        self.held_since = 0.0
        if failed:
            self._end.clear()
        self.stored += stored
        self._failed += failed
        return held

    def wake(self, held: float, elapsed: float, count: int) -> None:
        """Let the dispatcher know, after the lock was given back."""
        if elapsed >= COUNTED_PUT_SECONDS:
            self.note_time(held, elapsed, count)
        self.wake_dispatch()

    def note_time(self, held: float, elapsed: float, count: int) -> None:
        """A put of so many messages held the lock for `held` of the `elapsed` seconds it took."""
        self._record_put(elapsed, count)
        if held > SLOW_PUT_SECONDS:
            log.warning("slow append held_ms=%d wrote_offset=%d", int(held * 1000), self._end.offset)

    @contextmanager
    def raw_turn(self) -> Iterator[None]:
        """A turn that stores bytes of another log (raw.py); raises what there is against storing anything."""
        with self.lock:
            for cause in (Refusal.FOR_GOOD, Refusal.DISK_FULL):
                if cause in self._refusals:
                    raise again(self._refusals[cause])
            self._end.check_fence()
            yield
        self.wake_dispatch()


def _nothing() -> None:
    """Nothing to wake: without a dispatcher."""


def _ignore_put(seconds: float, messages: int) -> None:
    """Without statistics, or where a put is not over yet."""
