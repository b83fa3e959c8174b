"""Acknowledgements: answers that wait until the log is durable up to a place. The loop's thread only.

A place in the log is a number that only grows, so answers wait in log order in one queue, and one call of the flusher
releases everything below a mark. However many messages one turn of the loop stores, it asks the flusher once.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from embermq.errors import AppendRefused
from embermq.model.status import PutStatus
from embermq.store import MessageStore

# What a put ended with: its status, and the reason where it is refused.
Release = Callable[[PutStatus, str | None], None]


class Acknowledgements:
    """The answers that wait for the disk."""

    def __init__(self, store: MessageStore, loop: asyncio.AbstractEventLoop) -> None:
        self._store, self._loop = store, loop
        self._waiting: deque[tuple[int, Release]] = deque()
        self._newest = 0
        self._is_asking = False

    def __len__(self) -> int:
        return len(self._waiting)

    def when_durable(self, end: int, release: Release) -> None:
        """Call `release` when the log is durable up to `end`, or when that will not be."""
        self._waiting.append((end, release))
        self._newest = max(self._newest, end)
        if not self._is_asking:
            self._is_asking = True
            self._loop.call_soon(self._ask)

    def _ask(self) -> None:
        self._is_asking = False
        end = self._newest
        try:
            self._store.when_durable(end, lambda failure: self._tell(end, failure))
        except Exception as problem:  # The store is closed: nothing more will be durable.
            self._settle(end, PutStatus.SERVICE_NOT_AVAILABLE, str(problem))

    def _tell(self, end: int, failure: AppendRefused | TimeoutError | None) -> None:
        """On the flusher's thread."""
        if failure is None:
            outcome: tuple[PutStatus, str | None] = (PutStatus.PUT_OK, None)
        elif isinstance(failure, TimeoutError):
            outcome = (PutStatus.FLUSH_DISK_TIMEOUT, None)
        else:
            outcome = (PutStatus.SERVICE_NOT_AVAILABLE, str(failure))
        try:
            self._loop.call_soon_threadsafe(self._settle, end, *outcome)
        except RuntimeError:
            pass  # The loop has ended, and with it every connection.

    def _settle(self, end: int, status: PutStatus, reason: str | None) -> None:
        while self._waiting and self._waiting[0][0] <= end:
            self._waiting.popleft()[1](status, reason)
