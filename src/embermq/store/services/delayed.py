"""Delayed messages: those parked in the schedule topic are appended again, to their own topic, when due.

Level n waits in queue n - 1 of SCHEDULE_TOPIC_XXXX, in order of its due time, which is the tag code of its
queue entry. Per level one number says what was delivered (the next queue offset to look at). It moves
after the append answered PUT_OK, and goes to config/delayOffset.json only after the log is durable up to
what it counts as delivered: each message is delivered at least once, whatever dies when.

`deliver_due` is the whole of it, without threads or sleeps; `start` runs it on a thread of its own, which
is the only one to call it then. The other methods: any thread.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embermq.clock import Clock
from embermq.columns import N_PLACED_COLUMNS, P_PHYSICAL, P_QUEUE_OFFSET, P_SIZE, Rows
from embermq.errors import StoreError
from embermq.model.message import StoredMessage
from embermq.model.properties import SCHEDULE_TOPIC
from embermq.store.services.look_thread import IDLE_MS, LOOK_MS, LookThread
from embermq.store.services.redelivery import RUN_MESSAGES_MAX, AppendParked, AppendTogether, Redelivery
from embermq.store.tables import ConfigTable

log = logging.getLogger(__name__)

# Messages of one level that are delivered before the other levels get their turn.
TURN_MESSAGES_MAX = 4096
# The same without kernels, where a message costs several times as much.
PLAIN_TURN_MESSAGES_MAX = 256

Entries = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Parked:
    """How to look at the schedule topic."""

    queue_ids: Callable[[], Iterable[int]]  # of the schedule topic; asked at each look, so it must be cheap
    bounds: Callable[[int], tuple[int, int] | None]  # queue id -> its min and max offset
    entries: Callable[[int, int], Entries]  # queue id, start -> some ENTRY_DTYPE from there
    message_at: Callable[[int, int], StoredMessage | None]  # physical offset, size


class DelayedMessages:
    """Delivers parked messages when they are due."""

    def __init__(
        self,
        parked: Parked,
        append: AppendTogether,
        flush_log: Callable[[], int],
        saved_progress: ConfigTable[int, int],
        *,
        delay_ms: tuple[int, ...],
        log_file_bytes: int,
        clock: Clock,
        persist_interval_ms: int = 10_000,
        append_parked: AppendParked | None = None,
    ) -> None:
        self._parked, self._flush_log = parked, flush_log
        self._redelivery = Redelivery(append, "delayed", log_file_bytes, append_parked)
        self._saved = saved_progress
        self._delay_ms = delay_ms
        self._progress: dict[int, int] = {}  # level -> next queue offset to look at
        self._failing: set[int] = set()  # levels whose last append failed, to say so only once
        self._plain_left = 0  # messages that this turn may still deliver without kernels
        self._thread = LookThread(
            self.deliver_due,
            self.persist,
            "delayed",
            clock,
            persist_interval_ms=persist_interval_ms,
            idle_ms=max(LOOK_MS, min(IDLE_MS, *delay_ms)),  # Shorter if a level's delay is.
        )

    @property
    def delivered(self) -> int:
        return self._redelivery.delivered

    @property
    def skipped(self) -> int:
        return self._redelivery.skipped

    # -- progress --------------------------------------------------------------------------------------

    def load(self) -> None:
        """Take up the progress of the last run. Once, when the queues are ready."""
        self._saved.load()
        for level, offset in self._saved.entries().items():
            first, end = self._parked.bounds(level - 1) or (0, 0)
            self._progress[level] = max(first, min(offset, end))

    def persist(self) -> None:
        """Write the progress down, if it changed. OSError or StoreError if that cannot be done now.

        `flush_log` makes the log durable and answers up to where.
        """
        progress, delivered_end = dict(self._progress), self._redelivery.delivered_end
        if self._saved.entries() == progress and not self._saved.has_unsaved_changes:
            return
        flushed = self._flush_log()
        if flushed < delivered_end:
            raise StoreError(f"delivered messages up to {delivered_end} are durable only up to {flushed}")
        self._saved.assign(progress)
        self._saved.save()

    def progress(self) -> dict[int, int]:
        """By level: the next offset of its queue to be delivered. Levels that never delivered are absent."""
        return dict(self._progress)

    def first_parked(self) -> int | None:
        """Where in the log the oldest record lies that was not delivered yet; None if nothing is parked."""
        places: list[int] = []
        for queue_id in self._parked.queue_ids():
            first, end = self._parked.bounds(queue_id) or (0, 0)
            at = max(first, min(self._progress.get(queue_id + 1, 0), end))
            if at < end:
                entries = self._parked.entries(queue_id, at)
                places.append(int(entries["physical_offset"][0]) if len(entries) else 0)
        return min(places, default=None)

    def runtime_info(self) -> dict[str, str]:
        """`scheduleMessageOffset_<level>` = `<delivered>,<queue max>`, as RocketMQ shows it."""
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{(self._parked.bounds(level - 1) or (0, 0))[1]}"
            for level, offset in sorted(self.progress().items())
        }

    # -- delivery --------------------------------------------------------------------------------------

    def deliver_due(self, now_ms: int) -> int | None:
        """Deliver what is due at `now_ms`; when to look again (now: at once), None if nothing is parked."""
        levels = sorted(queue_id + 1 for queue_id in self._parked.queue_ids())
        looks = [self._deliver_level(level, now_ms) for level in levels]
        return min((look for look in looks if look is not None), default=None)

    def _deliver_level(self, level: int, now_ms: int) -> int | None:
        bounds = self._parked.bounds(level - 1)
        if bounds is None:
            return None
        start = self._progress.get(level, 0)
        at = max(bounds[0], min(start, bounds[1]))
        if at > start and level in self._progress:
            log.warning("delayed.lost level=%d from=%d to=%d reason=deleted", level, start, at)
        self._redelivery.expect(bounds[1] - at)
        turn_end, self._plain_left = min(bounds[1], at + TURN_MESSAGES_MAX), PLAIN_TURN_MESSAGES_MAX
        while at < turn_end:
            entries = self._parked.entries(level - 1, at)[: turn_end - at]
            if not len(entries):
                return now_ms + LOOK_MS
            at, look = self._deliver_entries(level, at, entries, now_ms)
            if look is not None:
                return look
        return now_ms if at < bounds[1] else None

    def _deliver_entries(self, level: int, at: int, entries: Entries, now_ms: int) -> tuple[int, int | None]:
        """Deliver entries from the front; where it came to, and, unless all are done with, when to look again."""
        while len(entries):
            if self._thread.is_stopping or self._plain_left <= 0:
                return at, now_ms
            done, refusal, look = self._deliver_run(level, at, entries, now_ms)
            if done:
                at += done
                self._progress[level] = at
            if refusal is not None:
                return at, self._retry_later(level, at, refusal, now_ms)
            if done:
                self._failing.discard(level)
            if look is not None:
                return at, look
            entries = entries[done:]
        return at, None

    def _deliver_run(self, level: int, at: int, entries: Entries, now_ms: int) -> tuple[int, str | None, int | None]:
        """Deliver some entries from the front: how many are done with, why no more if the store refuses, and when to
        look at the next one if it is not due."""
        places = _places(at, entries[: self._count_due(level, entries, now_ms)])
        outcome = self._redelivery.deliver_stored(SCHEDULE_TOPIC, level - 1, places)
        if outcome.done or outcome.refusal is not None:
            return outcome.done, outcome.refusal, None
        run, look = self._read_run(level, at, entries[: min(RUN_MESSAGES_MAX, self._plain_left)].tolist(), now_ms)
        self._plain_left -= len(run)
        outcome = self._redelivery.deliver([message for message in run if message is not None])
        if outcome.refusal is not None:
            return _entries_done(run, outcome.done), outcome.refusal, None
        return len(run), None, look

    def _count_due(self, level: int, entries: Entries, now_ms: int) -> int:
        """How many entries from the front are due by what they say themselves."""
        due_ms = entries["tag_code"]
        is_due = due_ms <= now_ms
        if level <= len(self._delay_ms):
            is_due |= due_ms > now_ms + self._delay_of(level)
        waiting = np.flatnonzero(~is_due | (due_ms <= 0))
        return int(waiting[0]) if len(waiting) else len(entries)

    def _read_run(
        self, level: int, at: int, entries: list[tuple[int, int, int]], now_ms: int
    ) -> tuple[list[StoredMessage | None], int | None]:
        """The messages of the entries that are due, None for one that cannot be read; when to look at the next one, if
        it is not due."""
        run: list[StoredMessage | None] = []
        size = 0
        for queue_offset, (physical_offset, record_bytes, due_ms) in enumerate(entries, at):
            if due_ms > 0 and self._due_ms(level, due_ms, now_ms) > now_ms:
                return run, due_ms  # The common case while waiting costs no read of the log.
            if not self._redelivery.has_room(len(run), size, record_bytes):
                break
            message = self._parked.message_at(physical_offset, record_bytes)
            if message is None or not _belongs(message, level, queue_offset):
                self._redelivery.skip(SCHEDULE_TOPIC, level - 1, queue_offset, "the parked record cannot be read")
                message = None
            elif due_ms <= 0:  # An address in the queue's extension file: the record knows just as well.
                due_ms = message.store_timestamp + self._delay_of(level)
                if self._due_ms(level, due_ms, now_ms) > now_ms:
                    return run, due_ms
            run.append(message)
            size += record_bytes
        return run, None

    def _due_ms(self, level: int, due_ms: int, now_ms: int) -> int:
        """`due_ms`, unless it is further away than the level's delay: then a clock or a level was changed."""
        if level <= len(self._delay_ms) and due_ms > now_ms + self._delay_of(level):
            return now_ms
        return due_ms

    def _delay_of(self, level: int) -> int:
        """A level beyond the settings, left by other settings, counts as one second, as in RocketMQ."""
        return self._delay_ms[level - 1] if level <= len(self._delay_ms) else 1000

    def _retry_later(self, level: int, at: int, reason: str, now_ms: int) -> int:
        if level not in self._failing:
            self._failing.add(level)
            log.warning("delayed.retry level=%d queue_offset=%d reason=%s", level, at, reason)
        return now_ms + LOOK_MS

    # -- the thread ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Deliver from now on, on a thread of its own."""
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_running

    def wake(self) -> None:
        """Look now: something was parked. Not needed for punctuality, unless a level is very short."""
        self._thread.wake()

    def look_now(self, seconds: float) -> bool:
        """Deliver what is due, if the thread runs, without waiting for its next look; False if that takes longer."""
        return self._thread.look_now(seconds)

    def stop(self) -> None:
        """End the thread, if it runs, and write the progress down. The store must still take reads."""
        self._thread.stop()


def _belongs(message: StoredMessage, level: int, at: int) -> bool:
    """Whether the record is the one this queue entry stands for (an entry that fills a hole is not)."""
    return message.topic == SCHEDULE_TOPIC and message.queue_id == level - 1 and message.queue_offset == at


def _places(at: int, entries: Entries) -> Rows:
    """Where the records of entries lie that stand from offset `at` on in their queue."""
    places = np.empty((len(entries), N_PLACED_COLUMNS), np.int64)
    places[:, P_PHYSICAL], places[:, P_SIZE] = entries["physical_offset"], entries["size"]
    places[:, P_QUEUE_OFFSET] = np.arange(at, at + len(entries))
    return places


def _entries_done(run: list[StoredMessage | None], delivered: int) -> int:
    """How many entries of a run are done with when so many of its messages were delivered, and the next one was not."""
    places = [at for at, message in enumerate(run) if message is not None]
    return places[delivered]
