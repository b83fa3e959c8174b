"""Acknowledgements: answers that wait until the log is safe up to a place. The loop's thread only.

A place in the log is a number that only grows, so answers wait in log order, and one call releases everything below a
mark. There are two marks, and an answer waits for those that the settings ask for:

    durable       SYNC_FLUSH: the flusher has synced the log so far. Asked once for all that one turn of the loop stores
    replicated    SYNC_MASTER: a slave has acknowledged the log so far (embermq.replication.Replicas)

A slave that does not answer within slaveTimeout makes FLUSH_SLAVE_TIMEOUT: the oldest answer growing too old. Without a
slave that may have it soon, SLAVE_NOT_AVAILABLE, at once. Either way the message stays in the log. What a slave did
wins over a late disk, as in RocketMQ; a disk that failed wins over everything.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from embermq.errors import AppendRefused
from embermq.model.status import PutStatus
from embermq.replication import Replicas
from embermq.settings import FlushDisk
from embermq.store import MessageStore

# What a put ended with: its status, and the reason where it is refused.
Release = Callable[[PutStatus, str | None], None]


@dataclass(eq=False, slots=True)
class _Answer:
    """An answer that waits; what a mark has said of it, None while it has not."""

    end: int
    release: Release
    disk: PutStatus | None
    slave: PutStatus | None
    reason: str | None = None
    slave_deadline: float = 0.0

    def settle(self) -> None:
        """Answer, once both marks have been heard."""
        if self.disk is None or self.slave is None:
            return
        failed = self.disk is PutStatus.SERVICE_NOT_AVAILABLE
        self.release(self.disk if failed or self.slave is PutStatus.PUT_OK else self.slave, self.reason)


class Acknowledgements:
    """The answers that wait for the disk, or for a slave."""

    def __init__(self, store: MessageStore, loop: asyncio.AbstractEventLoop, replicas: Replicas | None = None) -> None:
        """`replicas`: the slaves that are waited for while the store promises one; None: there never are any."""
        self._store, self._loop, self._replicas = store, loop, replicas
        self._is_sync = store.settings.flush is FlushDisk.SYNC
        self._slave_seconds = store.settings.slave_timeout_ms / 1000
        self._for_disk: deque[_Answer] = deque()
        self._for_slave: deque[_Answer] = deque()
        self._newest = 0
        self._is_asking = self._is_timing = False
        if replicas is not None:
            replicas.listen(self._tell_replicated)

    def __len__(self) -> int:
        return max(len(self._for_disk), len(self._for_slave))

    @property
    def waits_for_slave(self) -> bool:
        """Whether messages have to be on a slave before they are answered."""
        return self._replicas is not None and self._store.promises_replica

    def when_durable(self, end: int, release: Release) -> None:
        """Call `release` when the log is as safe up to `end` as the settings promise, or when that will not be."""
        is_ok = PutStatus.PUT_OK
        answer = _Answer(end, release, None if self._is_sync else is_ok, is_ok)
        if self._replicas is not None and self._store.promises_replica:
            self._wait_for_slave(answer, self._replicas)
        if not self._is_sync:
            if answer.slave is not None:
                self._loop.call_soon(answer.settle)
            return
        self._for_disk.append(answer)
        self._newest = max(self._newest, end)
        if not self._is_asking:
            self._is_asking = True
            self._loop.call_soon(self._ask)

    # -- the disk ----------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        self._is_asking = False
        end = self._newest
        try:
            self._store.when_durable(end, lambda failure: self._tell(end, failure))
        except Exception as problem:  # The store is closed: nothing more will be durable.
            self._settle_disk(end, PutStatus.SERVICE_NOT_AVAILABLE, str(problem))

    def _tell(self, end: int, failure: AppendRefused | TimeoutError | None) -> None:
        """On the flusher's thread."""
        if failure is None:
            outcome: tuple[PutStatus, str | None] = (PutStatus.PUT_OK, None)
        elif isinstance(failure, TimeoutError):
            outcome = (PutStatus.FLUSH_DISK_TIMEOUT, None)
        else:
            outcome = (PutStatus.SERVICE_NOT_AVAILABLE, str(failure))
        try:
            self._loop.call_soon_threadsafe(self._settle_disk, end, *outcome)
        except RuntimeError:
            pass  # The loop has ended, and with it every connection.

    def _settle_disk(self, end: int, status: PutStatus, reason: str | None) -> None:
        while self._for_disk and self._for_disk[0].end <= end:
            answer = self._for_disk.popleft()
            answer.disk, answer.reason = status, reason
            answer.settle()

    # -- slaves ------------------------------------------------------------------------------------------------

    def _wait_for_slave(self, answer: _Answer, replicas: Replicas) -> None:
        if replicas.mark >= answer.end:
            return
        if not replicas.can_have(answer.end):
            answer.slave = PutStatus.SLAVE_NOT_AVAILABLE
            return
        answer.slave, answer.slave_deadline = None, self._loop.time() + self._slave_seconds
        self._for_slave.append(answer)
        if not self._is_timing:
            self._is_timing = True
            self._loop.call_at(answer.slave_deadline, self._time_out)

    def _tell_replicated(self, mark: int) -> None:
        """On the thread of a sender."""
        try:
            self._loop.call_soon_threadsafe(self._settle_replicated, mark)
        except RuntimeError:
            pass

    def _settle_replicated(self, mark: int) -> None:
        while self._for_slave and self._for_slave[0].end <= mark:
            answer = self._for_slave.popleft()
            answer.slave = PutStatus.PUT_OK
            answer.settle()

    def _time_out(self) -> None:
        now = self._loop.time()
        while self._for_slave and self._for_slave[0].slave_deadline <= now:
            answer = self._for_slave.popleft()
            answer.slave = PutStatus.FLUSH_SLAVE_TIMEOUT
            answer.settle()
        self._is_timing = bool(self._for_slave)
        if self._for_slave:
            self._loop.call_at(self._for_slave[0].slave_deadline, self._time_out)
