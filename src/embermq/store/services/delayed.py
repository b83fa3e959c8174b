"""Delayed messages: those parked in the schedule topic are appended again, to their own topic, when due.

Level n waits in queue n - 1 of SCHEDULE_TOPIC_XXXX, in order of its due time, which is the tag code of its
queue entry. Per level one number says what was delivered (the next queue offset to look at). It moves
after the append answered PUT_OK, and goes to config/delayOffset.json only after the log is durable up to
what it counts as delivered: each message is delivered at least once, whatever dies when.

The delivered record keeps the parked one's properties byte for byte, DELAY, REAL_TOPIC, REAL_QID and WAIT
included, as RocketMQ's records do; `append` must therefore be one that does not park again.

`deliver_due` is the whole of it, without threads or sleeps; `start` runs it on a thread of its own, which
is the only one to call it then. The other methods: any thread.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embermq.clock import Clock
from embermq.errors import AppendRefused, MessageRejected, StoreClosed, StoreError
from embermq.files import Bell, WorkThread
from embermq.model.message import Message, Receipt, StoredMessage
from embermq.model.properties import HALF_TOPIC, REAL_QUEUE_ID, REAL_TOPIC, SCHEDULE_TOPIC
from embermq.store.tables import ConfigTable

log = logging.getLogger(__name__)

# The longest pause between two looks while something is parked, and after a failed append.
LOOK_MS = 100
# The longest pause while nothing is parked; shorter if a level's delay is.
IDLE_MS = 1000
FAILURE_PAUSE_MS = 10_000
STOP_WAIT_SECONDS = 5.0
# Messages of one level that are delivered before the other levels get their turn.
TURN_MESSAGES_MAX = 1000
_QUEUE_ID_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Parked:
    """How to look at the schedule topic."""

    queue_ids: Callable[[], Iterable[int]]  # of the schedule topic; asked at each look, so it must be cheap
    bounds: Callable[[int], tuple[int, int] | None]  # queue id -> its min and max offset
    entries: Callable[[int, int], npt.NDArray[np.void]]  # queue id, start -> some ENTRY_DTYPE from there
    message_at: Callable[[int, int], StoredMessage | None]  # physical offset, size


class DelayedMessages:
    """Delivers parked messages when they are due."""

    def __init__(
        self,
        parked: Parked,
        append: Callable[[Message], Receipt],
        flush_log: Callable[[], int],
        saved_progress: ConfigTable[int, int],
        *,
        delay_ms: tuple[int, ...],
        clock: Clock,
        persist_interval_ms: int = 10_000,
    ) -> None:
        self._parked, self._append, self._flush_log = parked, append, flush_log
        self._saved = saved_progress
        self._delay_ms, self._clock = delay_ms, clock
        self._idle_ms = max(LOOK_MS, min(IDLE_MS, *delay_ms))
        self._persist_seconds = persist_interval_ms / 1000
        self._persist_at = clock.monotonic() + self._persist_seconds
        self._delivered_end = 0  # Physical offset after the last delivered record: durable before progress is.
        self._progress: dict[int, int] = {}  # level -> next queue offset to look at
        self._failing: set[int] = set()  # levels whose last append failed, to say so only once
        self.delivered = 0
        self.skipped = 0
        self._stopping = False
        self._wake = Bell()
        self._thread: WorkThread | None = None

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
        progress, delivered_end = dict(self._progress), self._delivered_end
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
        turn_end = min(bounds[1], at + TURN_MESSAGES_MAX)
        while at < turn_end:
            entries = self._parked.entries(level - 1, at).tolist()
            if not entries:
                return now_ms + LOOK_MS
            for physical_offset, size, tag_code in entries[: turn_end - at]:
                look = self._deliver_entry(level, at, (physical_offset, size, tag_code), now_ms)
                if look is not None:
                    return look
                at += 1
                self._progress[level] = at
        return now_ms if at < bounds[1] else None

    def _deliver_entry(self, level: int, at: int, entry: tuple[int, int, int], now_ms: int) -> int | None:
        """None: this entry is done with, go on. Otherwise when to look at it again."""
        if self._stopping:
            return now_ms
        physical_offset, size, due_ms = entry
        if due_ms > 0 and self._due_ms(level, due_ms, now_ms) > now_ms:
            return due_ms  # The common case while waiting costs no read of the log.
        message = self._parked.message_at(physical_offset, size)
        if message is None or not _belongs(message, level, at):
            self._skip(level, at, physical_offset, "the parked record cannot be read")
            return None
        if due_ms <= 0:  # An address in the queue's extension file: the record knows just as well.
            due_ms = message.store_timestamp + self._delay_of(level)
            if self._due_ms(level, due_ms, now_ms) > now_ms:
                return due_ms
        return self._deliver(level, at, message, now_ms)

    def _due_ms(self, level: int, due_ms: int, now_ms: int) -> int:
        """`due_ms`, unless it is further away than the level's delay: then a clock or a level was changed."""
        if level <= len(self._delay_ms) and due_ms > now_ms + self._delay_of(level):
            return now_ms
        return due_ms

    def _delay_of(self, level: int) -> int:
        """A level beyond the settings, left by other settings, counts as one second, as in RocketMQ."""
        return self._delay_ms[level - 1] if level <= len(self._delay_ms) else 1000

    def _deliver(self, level: int, at: int, parked: StoredMessage, now_ms: int) -> int | None:
        message = _delivered(parked)
        if isinstance(message, str):
            self._skip(level, at, parked.physical_offset, message)
            return None
        try:
            receipt = self._append(message)
        except AppendRefused as refusal:
            return self._retry_later(level, at, str(refusal), now_ms)
        except MessageRejected as rejection:
            # It will never be taken (a limit was lowered, say), and must not hold up those behind it.
            self._skip(level, at, parked.physical_offset, str(rejection))
            return None
        if not receipt.ok:
            return self._retry_later(level, at, receipt.status, now_ms)
        self._failing.discard(level)
        self._delivered_end = max(self._delivered_end, receipt.physical_offset + receipt.size)
        self.delivered += 1
        return None

    def _retry_later(self, level: int, at: int, reason: str, now_ms: int) -> int:
        if level not in self._failing:
            self._failing.add(level)
            log.warning("delayed.retry level=%d queue_offset=%d reason=%s", level, at, reason)
        return now_ms + LOOK_MS

    def _skip(self, level: int, at: int, physical_offset: int, reason: str) -> None:
        self.skipped += 1
        log.error(
            "delayed.skipped level=%d queue_offset=%d physical_offset=%d reason=%s",
            level,
            at,
            physical_offset,
            reason,
        )

    # -- the thread ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Deliver from now on, on a thread of its own."""
        assert self._thread is None, "started twice"
        self._stopping = False
        self._thread = WorkThread(self._run, "embermq-delayed")
        self._thread.start()

    def wake(self) -> None:
        """Look now: something was parked. Not needed for punctuality, unless a level is very short."""
        self._wake.ring()

    def stop(self) -> None:
        """End the thread, if it runs, and write the progress down. The store must still take reads."""
        self._stopping = True
        self._wake.ring()
        if self._thread is not None and not self._thread.join(STOP_WAIT_SECONDS):
            log.error("delayed.stop the thread did not end within %.0f s", STOP_WAIT_SECONDS)
        self._thread = None
        self._persist_or_warn()

    def _run(self) -> None:
        while not self._stopping:
            try:
                pause_ms = self._look()
            except StoreClosed:
                return
            except Exception as problem:
                is_mistake = not isinstance(problem, OSError | StoreError)
                log.error("delayed.failed pause_ms=%d error=%s", FAILURE_PAUSE_MS, problem, exc_info=is_mistake)
                pause_ms = FAILURE_PAUSE_MS
            if pause_ms > 0:
                self._wake.wait(pause_ms / 1000)

    def _look(self) -> int:
        """One look; how long to pause after it, in ms."""
        next_look_ms = self.deliver_due(self._clock.now_ms())
        if self._clock.monotonic() >= self._persist_at:
            self._persist_or_warn()
            self._persist_at = self._clock.monotonic() + self._persist_seconds
        if next_look_ms is None:
            return self._idle_ms
        return max(0, min(LOOK_MS, next_look_ms - self._clock.now_ms()))

    def _persist_or_warn(self) -> None:
        """A progress that cannot be written now costs duplicates after a crash, nothing more."""
        try:
            self.persist()
        except (OSError, StoreError) as problem:
            log.warning("delayed.progress not written: %s", problem)


def _belongs(message: StoredMessage, level: int, at: int) -> bool:
    """Whether the record is the one this queue entry stands for (an entry that fills a hole is not)."""
    return message.topic == SCHEDULE_TOPIC and message.queue_id == level - 1 and message.queue_offset == at


def _delivered(parked: StoredMessage) -> Message | str:
    """The message a parked one becomes, or why it becomes none."""
    topic = parked.properties.get(REAL_TOPIC)
    queue_id = parked.properties.get(REAL_QUEUE_ID, "")
    if not topic:
        return f"the parked record has no property {REAL_TOPIC}"
    if not (queue_id.isascii() and queue_id.isdigit() and int(queue_id) <= _QUEUE_ID_MAX):
        return f"the property {REAL_QUEUE_ID} is {queue_id!r}, not a queue id"
    if topic == HALF_TOPIC:
        return f"the real topic is {HALF_TOPIC}: half messages are not delivered"
    return Message(
        topic=topic,
        body=parked.body,
        queue_id=int(queue_id),
        flag=parked.flag,
        sys_flag=parked.sys_flag,
        born_timestamp=parked.born_timestamp,
        born_host=parked.born_host,
        store_host=parked.store_host,
        reconsume_times=parked.reconsume_times,
        wait_for_store=False,
        encoded_properties=parked.property_bytes,
    )
