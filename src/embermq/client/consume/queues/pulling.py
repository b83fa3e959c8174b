"""The pulls of one queue as a state machine: events in, commands out. Pure; the loop's thread only.

    state      event                        state      what follows
    READY      next, dropped                ENDED      Stop
    READY      next, paused                 READY      Wait: until resumed
    READY      next, orderly, not locked    READY      Wait: until locked
    READY      next, the cache is full      READY      Wait: until half of it is free
    READY      next                         PULLING    Ask: a pull from the next offset
    PULLING    Found                        READY      messages into the cache, next offset
    PULLING    Nothing                      READY      next offset; it may be committed if the cache is empty
    PULLING    Moved forwards               READY      next offset: the messages between were deleted by the broker
    PULLING    Moved backwards              ENDED      the queue is shorter than it was: it is dropped, and taken up
                                                       again from the offset that the broker names
    PULLING    Failed                       READY      Wait: a second (a broker under load: 20 ms)
    any        sought                       READY      next offset; the answer to an older pull is ignored
    any        renewed                      READY      the same offset again: what is wanted of it has changed
    any        dropped                      ENDED      Stop

A pull belongs to an epoch; an answer of an older epoch changes nothing. A pull goes to the broker id that the last
answer suggested. A queue whose pulls were silent for two minutes is given up and taken up again.
"""

from dataclasses import dataclass
from enum import Enum, auto

from embermq.client.consume.queues.process_queue import ProcessQueue
from embermq.client.received import ReceivedMessage

RETRY_SECONDS = 1.0
BUSY_SECONDS = 0.02
SILENT_SECONDS = 120.0
MASTER = 0


class PullState(Enum):
    READY = auto()
    PULLING = auto()
    ENDED = auto()


class Waiting(Enum):
    """What a wait is for."""

    RESUME = "it is paused"
    LOCK = "its lock is not held"
    ROOM = "too much of it is waiting to be consumed"
    RETRY = "the last pull failed"


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask for messages from `offset` on; `commit_offset` may be committed on the way."""

    offset: int
    commit_offset: int | None
    broker_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class PullWait:
    """Ask again when this has passed, or when its reason is gone."""

    reason: Waiting
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PullStop:
    """Nothing more of this queue."""


@dataclass(frozen=True, slots=True)
class PullFound:
    """Messages that match, ascending."""

    messages: list[ReceivedMessage]
    next_offset: int
    broker_id: int = MASTER


@dataclass(frozen=True, slots=True)
class PullEmpty:
    """No new message, or none that matched."""

    next_offset: int
    broker_id: int = MASTER


@dataclass(frozen=True, slots=True)
class PullMoved:
    """The offset lies outside of the queue; `next_offset` is inside."""

    next_offset: int


@dataclass(frozen=True, slots=True)
class PullFailed:
    """No answer, or an error."""

    is_busy: bool = False


Answer = PullFound | PullEmpty | PullMoved | PullFailed


class QueuePulls:
    """Where the pulls of a queue are."""

    def __init__(self, process: ProcessQueue, offset: int, now: float, *, is_orderly: bool = False) -> None:
        assert offset >= 0, offset
        self._process, self._is_orderly = process, is_orderly
        self._retry: float | None = None
        self._epoch = 0
        self._is_full = False
        self._broker_id = MASTER
        self.state = PullState.READY
        self.next_offset = offset
        self.moved_to: int | None = None
        self.answered_at = now

    def next(self, *, is_paused: bool, is_locked: bool, commit_offset: int | None = None) -> Ask | PullWait | PullStop:
        """What to do now. In PULLING, nothing may be asked: one pull at a time."""
        assert self.state is not PullState.PULLING, "a pull is under way"
        if self._process.is_dropped or self.state is PullState.ENDED:
            self.state = PullState.ENDED
            return PullStop()
        if is_paused:
            return PullWait(Waiting.RESUME)
        if self._is_orderly and not is_locked:
            return PullWait(Waiting.LOCK)
        if self._retry is not None:
            seconds, self._retry = self._retry, None
            return PullWait(Waiting.RETRY, seconds)
        self._is_full = self._process.full_because() is not None or (self._is_full and not self._process.has_room())
        if self._is_full:
            return PullWait(Waiting.ROOM)
        self.state = PullState.PULLING
        commits = commit_offset is not None and commit_offset > 0 and self._broker_id == MASTER
        return Ask(self.next_offset, commit_offset if commits else None, self._broker_id, self._epoch)

    def answered(self, epoch: int, answer: Answer, now: float) -> bool:
        """Take the answer to a pull; False if it is one of an older epoch and means nothing."""
        if epoch != self._epoch or self.state is not PullState.PULLING:
            return False
        self.state = PullState.READY
        self.answered_at = now
        if isinstance(answer, PullFailed):
            self._retry = BUSY_SECONDS if answer.is_busy else RETRY_SECONDS
            self._broker_id = MASTER
            return True
        if isinstance(answer, PullMoved) and answer.next_offset < self.next_offset:
            self.state, self.moved_to = PullState.ENDED, answer.next_offset
            self._process.drop()
            return True
        self._broker_id = MASTER if isinstance(answer, PullMoved) else answer.broker_id
        self.next_offset = answer.next_offset
        if not self._process.is_dropped:
            if isinstance(answer, PullFound):
                self._process.put(answer.messages)
            self._process.passed(answer.next_offset)
        return True

    def seek(self, offset: int) -> None:
        """Go on from here; what was asked before is of no interest any more."""
        self._epoch += 1
        self._retry = None
        self._is_full = False
        self._process.restart(offset)
        self.next_offset = offset
        self.moved_to = None
        self.state = PullState.ENDED if self._process.is_dropped else PullState.READY

    def renew(self) -> None:
        """Ask again from the same offset: the subscription has changed, and an answer to the old one means nothing."""
        self._epoch += 1
        self._retry = None
        if self.state is PullState.PULLING:
            self.state = PullState.READY

    def drop(self) -> None:
        self._epoch += 1
        self._process.drop()
        self.state = PullState.ENDED

    def is_silent(self, now: float) -> bool:
        """A pull should have been answered long ago."""
        return self.state is PullState.PULLING and now - self.answered_at > SILENT_SECONDS
