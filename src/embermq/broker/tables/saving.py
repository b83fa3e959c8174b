"""Saving: config tables go to the disk off the loop, soon after they changed, each change at the latest with the next
turn. On the loop; the writing itself on a thread."""

import asyncio
import logging
from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)


_PAUSES, _PAUSE_SECONDS_MAX = 9, 5.0


def pause_after(seconds: float) -> float:
    """How long to leave a piece of work alone that took so long and may come again at once."""
    return min(seconds * _PAUSES, _PAUSE_SECONDS_MAX)


class Saver:
    """Writes tables that changed."""

    def __init__(self, tables: Mapping[str, Callable[[], bool]], loop: asyncio.AbstractEventLoop) -> None:
        """`tables`: a name for the log, and what writes the table if it changed (OSError)."""
        self._tables, self._loop = dict(tables), loop
        self._is_due = asyncio.Event()
        self._failing: set[str] = set()

    def soon(self) -> None:
        """Something changed. Any thread."""
        try:
            self._loop.call_soon_threadsafe(self._is_due.set)
        except RuntimeError:
            pass  # The loop has ended; what changed is saved by the one who closes.

    async def run(self) -> None:
        """Save whenever something changed; for ever. A flood of changes takes a small part of the time."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            began = self._loop.time()
            await asyncio.to_thread(self.save_all)
            await asyncio.sleep(pause_after(self._loop.time() - began))

    def save_all(self) -> None:
        """Write every table that changed. What fails is logged once, and tried again at the next change."""
        for name, save in self._tables.items():
            try:
                save()
            except OSError as problem:
                if name not in self._failing:
                    log.error("event=save_failed table=%s reason=%r", name, str(problem))
                self._failing.add(name)
            else:
                self._failing.discard(name)
