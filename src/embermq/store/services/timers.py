"""Arbitrary delivery times: messages parked in the timer topic are appended again, to their own topic, when due.

Queue 0 of rmq_sys_wheel_timer holds them in order of arrival; timer_plan.py says which are due next. Which entries are
done with is one bit each (done_bits.py), and goes to config/timerOffset.json only after the log is durable up to what
it counts as delivered: each message is delivered at least once, whatever dies when, and once if nothing dies.

A message is cancelled by an entry of queue 1 with the same time, whose record names its unique key: it is then done
with when its time comes, without being delivered.

A log file that is kept for a message due in forty days would keep all the log after it as well. So a message that has
waited for half of the time that log files are kept (fileReservedTime) is stored again at the end of the log, in the
same queue, and its old entry is done with. Until that was done it holds its log file, as any parked message does.

`deliver_due` is the whole of it, without threads or sleeps; `start` runs it on a thread of its own, which is the only
one to call it then. The other methods: any thread.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embermq.clock import Clock
from embermq.columns import N_PLACED_COLUMNS, P_PHYSICAL, P_QUEUE_OFFSET, P_SIZE, Rows
from embermq.errors import StoreError
from embermq.format.frame import parse_due_ms
from embermq.model.message import StoredMessage
from embermq.model.properties import TIMER_CANCEL, TIMER_DUE_MS, TIMER_TOPIC, UNIQ_KEY
from embermq.store.append.timed import CANCELS_QUEUE, MESSAGES_QUEUE
from embermq.store.services.done_bits import DoneBits
from embermq.store.services.look_thread import LOOK_MS, LookThread
from embermq.store.services.redelivery import (
    AppendParked,
    AppendTogether,
    Redelivery,
    stored_again,
)
from embermq.store.services.timer_plan import TAG_HASH_MAX, Planned, TimerPlan
from embermq.store.tables import ConfigTable

log = logging.getLogger(__name__)

# Messages delivered, or stored again, in one look.
TURN_MESSAGES_MAX = 4096
# How often it is asked whether the oldest message must be stored again.
AGE_CHECK_MS = 60_000


@dataclass(frozen=True, slots=True)
class TimerTopic:
    """How to look at the timer topic."""

    bounds: Callable[[int], tuple[int, int] | None]  # queue id -> its min and max offset
    entries: Callable[[int, int], npt.NDArray[np.void]]  # queue id, start -> some ENTRY_DTYPE from there
    message_at: Callable[[int, int], StoredMessage | None]  # physical offset, size


class Timers:
    """Delivers messages at the times they ask for."""

    def __init__(
        self,
        topic: TimerTopic,
        append: AppendTogether,
        flush_log: Callable[[], int],
        saved_progress: ConfigTable[str, int | str],
        *,
        log_file_bytes: int,
        clock: Clock,
        keep_ms: int,
        persist_interval_ms: int = 1000,
        append_parked: AppendParked | None = None,
    ) -> None:
        """Messages older than `keep_ms` are stored again."""
        self._topic, self._append, self._flush_log, self._saved = topic, append, flush_log, saved_progress
        self._keep_ms = keep_ms
        self._redelivery = Redelivery(append, "timers", log_file_bytes, append_parked)
        self._begin(DoneBits())
        self._has_progress = False
        self._check_age_at_ms = 0
        self._is_failing = False
        self.cancelled = 0
        self.stored_again = 0
        self._thread = LookThread(
            self.deliver_due,
            self.persist,
            "timers",
            clock,
            persist_interval_ms=persist_interval_ms,
            idle_ms=LOOK_MS,  # A message may come that is due sooner than any delay level.
        )

    def _begin(self, done: DoneBits) -> None:
        self._done = done
        self._plan = TimerPlan(lambda start: self._topic.entries(MESSAGES_QUEUE, start), self._due_ms_of, done)
        self._cancels: dict[str, int] = {}  # unique key -> due time, of what is due before the horizon
        self._cancels_read_to = 0

    # -- progress --------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Take up the progress of the last run. Once, when the queues are ready."""
        self._saved.load()
        try:
            done = DoneBits.of_entries(self._saved.entries())
        except ValueError as problem:
            log.error("timers.progress is lost, messages may be delivered twice: %s", problem)
            done = DoneBits()
        first, end = self._bounds(MESSAGES_QUEUE)
        done.cut_to(end)  # A log that lost its end after a crash gives these offsets again.
        done.raise_to(first)
        self._begin(done)

    def persist(self) -> None:
        """Write the progress down, if there is any. OSError or StoreError if that cannot be done now."""
        if not self._has_progress:
            return
        entries = self._done.as_entries()
        delivered_end = self._redelivery.delivered_end
        flushed = self._flush_log()
        if flushed < delivered_end:
            raise StoreError(f"delivered messages up to {delivered_end} are durable only up to {flushed}")
        self._saved.assign(entries)
        self._saved.save()
        self._has_progress = False

    def first_parked(self) -> int | None:
        """Where in the log the oldest record lies that still waits; None if none does."""
        first, end = self._bounds(MESSAGES_QUEUE)
        at = max(first, self._done.low)
        if at >= end:
            return None
        entries = self._topic.entries(MESSAGES_QUEUE, at)
        return int(entries["physical_offset"][0]) if len(entries) else 0

    @property
    def delivered(self) -> int:
        return self._redelivery.delivered

    @property
    def skipped(self) -> int:
        return self._redelivery.skipped

    def runtime_info(self) -> dict[str, str]:
        """How far it is; nothing if the timer topic was never used."""
        if self._topic.bounds(MESSAGES_QUEUE) is None:
            return {}
        return {
            "timerMessageOffset": f"{self._done.low},{self._bounds(MESSAGES_QUEUE)[1]}",
            "timerDelivered": str(self.delivered),
            "timerCancelled": str(self.cancelled),
            "timerStoredAgain": str(self.stored_again),
        }

    def _bounds(self, queue_id: int) -> tuple[int, int]:
        return self._topic.bounds(queue_id) or (0, 0)

    # -- delivery --------------------------------------------------------------------------------------------

    def deliver_due(self, now_ms: int) -> int | None:
        """Deliver what is due at `now_ms`; when to look again (now: at once), None if nothing waits."""
        _, cancels_end = self._bounds(CANCELS_QUEUE)  # First: whatever these cancel is then below `end`.
        first, end = self._bounds(MESSAGES_QUEUE)
        if first > self._done.low:
            if (lost := int(np.count_nonzero(self._done.waiting(self._done.low, first - self._done.low)))) > 0:
                log.warning("timers.lost messages=%d from=%d to=%d reason=deleted", lost, self._done.low, first)
            self._done.raise_to(first)
        if self._done.low >= end:
            return None
        self._take_up(end, cancels_end, now_ms)
        self._redelivery.expect(len(self._plan))
        if not self._deliver(self._plan.due(now_ms, TURN_MESSAGES_MAX)):
            return now_ms + LOOK_MS
        if self._thread.is_stopping:
            return now_ms
        if now_ms >= self._check_age_at_ms and self._store_old_ones_again(end, now_ms):
            return now_ms
        if self._done.low >= end:
            return None
        first_due_ms = self._plan.first_due_ms()
        return self._plan.horizon_ms if first_due_ms is None else first_due_ms

    def _take_up(self, end: int, cancels_end: int, now_ms: int) -> None:
        """Know what is due now, and what of it is cancelled."""
        first_due_ms = self._plan.first_due_ms()
        if now_ms >= self._plan.horizon_ms and (first_due_ms is None or first_due_ms > now_ms):
            self._plan.make(end, now_ms)
            self._cancels, self._cancels_read_to = {}, self._bounds(CANCELS_QUEUE)[0]
        elif self._plan.read_to < end:
            self._plan.add_arrivals(end)
        if self._cancels_read_to < cancels_end:
            self._read_cancels(cancels_end, now_ms)

    def _read_cancels(self, end: int, now_ms: int) -> None:
        at, first_due_ms = self._cancels_read_to, self._plan.first_due_ms()
        earliest_ms = now_ms if first_due_ms is None else min(now_ms, first_due_ms)
        while at < end:
            entries = self._topic.entries(CANCELS_QUEUE, at)[: end - at]
            if not len(entries):
                break
            due = entries["tag_code"]
            near = (due < TAG_HASH_MAX) | ((due >= earliest_ms) & (due <= self._plan.horizon_ms))
            for entry in entries[near]:
                self._read_cancel(int(entry["physical_offset"]), int(entry["size"]))
            at += len(entries)
        self._cancels_read_to = at

    def _read_cancel(self, physical_offset: int, size: int) -> None:
        message = self._topic.message_at(physical_offset, size)
        if message is not None and message.topic == TIMER_TOPIC and (key := message.properties.get(TIMER_CANCEL)):
            self._cancels[key] = _due_ms(message)

    def _deliver(self, due: Planned) -> bool:
        """Deliver entries that are due, unless it is stopped; False if the store does not take them now."""
        odd = self._perhaps_cancelled(due)
        at = 0
        while at < len(due) and not self._thread.is_stopping:
            sure = int(odd[np.searchsorted(odd, at)])  # Nothing before this one is cancelled.
            outcome = self._redelivery.deliver_stored(TIMER_TOPIC, MESSAGES_QUEUE, _places(due[at:sure]))
            if outcome.done:
                done, stop = np.arange(at, at + outcome.done), at + outcome.done
            elif outcome.refusal is not None:
                done, stop = np.arange(at, at), at
            else:
                run, messages, stop = self._read_run(due, at)
                outcome = self._redelivery.deliver(messages)
                # Those in front of the refused one are done with; so is everything else of the run if none was.
                done = run[: outcome.done] if outcome.refusal is not None else np.arange(at, stop)
            self._note_refusal(outcome.refusal)
            self._finish(due["queue_offset"][done])
            if outcome.refusal is not None:
                return False
            at = stop
        return True

    def _perhaps_cancelled(self, due: Planned) -> npt.NDArray[np.int64]:
        """The places of entries with a time that a cancellation names, and the end of them all."""
        named = np.array(sorted(set(self._cancels.values())), np.int64)
        return np.append(np.flatnonzero(np.isin(due["due_ms"], named)), len(due))

    def _read_run(self, due: Planned, start: int) -> tuple[npt.NDArray[np.int64], list[StoredMessage], int]:
        """The messages to deliver from due[start] on: their places in `due`, themselves, and where the run ends."""
        places: list[int] = []
        messages: list[StoredMessage] = []
        size = 0
        at = start
        while at < len(due):
            due_ms, queue_offset, physical_offset, record_bytes = due[at].item()
            if not self._redelivery.has_room(len(messages), size, record_bytes):
                break
            message = self._topic.message_at(physical_offset, record_bytes)
            if message is None or not _belongs(message, queue_offset):
                self._redelivery.skip(TIMER_TOPIC, MESSAGES_QUEUE, queue_offset, "the parked record cannot be read")
            elif self._cancels and self._cancels.get(message.properties.get(UNIQ_KEY, "")) == due_ms:
                self.cancelled += 1
            else:
                places.append(at)
                messages.append(message)
                size += record_bytes
            at += 1
        return np.array(places, np.int64), messages, at

    def _finish(self, offsets: npt.NDArray[np.int64]) -> None:
        if len(offsets):
            self._has_progress = True
            self._done.mark(offsets)
            self._plan.drop(offsets)

    def _note_refusal(self, reason: str | None) -> None:
        if reason is not None and not self._is_failing:
            log.warning("timers.retry reason=%s", reason)
        self._is_failing = reason is not None

    # -- messages that wait long -------------------------------------------------------------------------------

    def _store_old_ones_again(self, end: int, now_ms: int) -> bool:
        """Store messages again whose log file would soon be old enough to be deleted; whether there may be more."""
        moved = 0
        while self._done.low < end and moved < TURN_MESSAGES_MAX and not self._thread.is_stopping:
            entries = self._topic.entries(MESSAGES_QUEUE, self._done.low)[:1]
            if not len(entries):
                break
            physical_offset, size, _ = entries[0].item()
            message = self._topic.message_at(physical_offset, size)
            if message is None or not _belongs(message, self._done.low):
                self._redelivery.skip(TIMER_TOPIC, MESSAGES_QUEUE, self._done.low, "the parked record cannot be read")
            elif message.store_timestamp > now_ms - self._keep_ms or _due_ms(message) <= now_ms:
                break
            elif self._is_cancelled(message):
                self.cancelled += 1
            elif not self._store_again(message):
                break
            self._finish(np.array([self._done.low], np.int64))
            moved += 1
        if moved >= TURN_MESSAGES_MAX:
            return True
        self._check_age_at_ms = now_ms + AGE_CHECK_MS
        return False

    def _store_again(self, message: StoredMessage) -> bool:
        try:
            receipts = self._append([stored_again(message, TIMER_TOPIC, MESSAGES_QUEUE)])
        except StoreError as problem:
            self._note_refusal(str(problem))
            return False
        end = receipts[0].physical_offset + receipts[0].size
        self._redelivery.delivered_end = max(self._redelivery.delivered_end, end)
        self.stored_again += 1
        return True

    def _is_cancelled(self, message: StoredMessage) -> bool:
        """Asked of a message that is stored again: the record that cancels it may be deleted before it is due."""
        due_ms, key = _due_ms(message), message.properties.get(UNIQ_KEY, "")
        at, end = self._bounds(CANCELS_QUEUE)
        while at < end:
            entries = self._topic.entries(CANCELS_QUEUE, at)[: end - at]
            if not len(entries):
                return False
            for entry in entries[(entries["tag_code"] == due_ms) | (entries["tag_code"] < TAG_HASH_MAX)]:
                found = self._topic.message_at(int(entry["physical_offset"]), int(entry["size"]))
                if found is not None and found.properties.get(TIMER_CANCEL) == key and _due_ms(found) == due_ms:
                    return True
            at += len(entries)
        return False

    def _due_ms_of(self, physical_offset: int, size: int) -> int:
        message = self._topic.message_at(physical_offset, size)
        return 0 if message is None else _due_ms(message)

    # -- the thread --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Deliver from now on, on a thread of its own."""
        self._thread.start()

    def look_now(self, seconds: float) -> bool:
        """Deliver what is due, if the thread runs, without waiting for its next look; False if that takes longer."""
        return self._thread.look_now(seconds)

    def stop(self) -> None:
        """End the thread, if it runs, and write the progress down. The store must still take reads."""
        self._thread.stop()


def _due_ms(message: StoredMessage) -> int:
    """When a parked record is due; 0, long ago, if it does not say."""
    return parse_due_ms(message.properties.get(TIMER_DUE_MS, "").encode())


def _places(due: Planned) -> Rows:
    """Where the records of entries lie."""
    places = np.empty((len(due), N_PLACED_COLUMNS), np.int64)
    places[:, P_PHYSICAL], places[:, P_SIZE] = due["physical_offset"], due["size"]
    places[:, P_QUEUE_OFFSET] = due["queue_offset"]
    return places


def _belongs(message: StoredMessage, queue_offset: int) -> bool:
    """Whether the record is the one this queue entry stands for (an entry that fills a hole is not)."""
    return message.topic == TIMER_TOPIC and message.queue_id == MESSAGES_QUEUE and message.queue_offset == queue_offset
