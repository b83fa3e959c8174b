"""Announcements: topics that changed, on their way to the name servers. The loop's thread, but for `changed`.

Changes that come together are announced together; one announcement is under way at a time. A client that has made a
topic, by a first message or by a request, gets its answer when the name servers have theirs: a consumer that starts
right then finds a route. A name server that does not answer delays that answer, and does not fail it.
"""

import asyncio
from contextlib import suppress

from embermq.broker.routing.registration import Registration
from embermq.broker.tables import TopicTable

# Producers wait 3 s for an answer, mqadmin 5 s.
ANNOUNCE_SECONDS = 2.0
# A flood of new topics: between two announcements as much time passes as the last one took, and no more than this.
PAUSE_SECONDS_MAX = 0.1


class Announcements:
    """What is to be announced next, and who waits for it."""

    def __init__(self, topics: TopicTable, loop: asyncio.AbstractEventLoop) -> None:
        self._topics, self._loop = topics, loop
        self._are_due = asyncio.Event()
        self._next: asyncio.Future[None] | None = None
        self._registration: Registration | None = None

    def changed(self) -> None:
        """Topics changed: announce them soon. Any thread."""
        with suppress(RuntimeError):  # The loop has ended.
            self._loop.call_soon_threadsafe(self._are_due.set)

    def of_now(self) -> asyncio.Future[None] | None:
        """Done when every change up to now was announced, or after ANNOUNCE_SECONDS; None if there is no name server
        to announce it to."""
        if self._registration is None or not self._registration.name_servers:
            return None
        if self._next is None:
            self._next = self._loop.create_future()
            self._loop.call_later(ANNOUNCE_SECONDS, _settle, self._next)
        self._are_due.set()
        return self._next

    async def run(self, registration: Registration) -> None:
        """Announce changes, for ever."""
        self._registration = registration
        try:
            while True:
                await self._are_due.wait()
                self._are_due.clear()
                began = self._loop.time()
                await self._announce(registration)
                await asyncio.sleep(min(self._loop.time() - began, PAUSE_SECONDS_MAX))
        finally:
            self._registration = None
            _settle(self._next)

    async def _announce(self, registration: Registration) -> None:
        announced, self._next = self._next, None
        try:
            await registration.register_topics(self._topics.take_unannounced())
        finally:
            _settle(announced)


def _settle(announced: asyncio.Future[None] | None) -> None:
    if announced is not None and not announced.done():
        announced.set_result(None)
