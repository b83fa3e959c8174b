"""Held pulls: consumers that wait for the next message of a queue. The loop's thread, but for what a comment says.

A pull hangs on its queue. The dispatcher announces, once a step, which queues moved; only pulls of those queues are
looked at, so that thousands of them on quiet queues cost nothing. A pull whose filter passes over everything new stays.
"""

import asyncio
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from embermq.remoting import Peer
from embermq.store import MessageFilter, MessageStore, TagFilter
from embermq.store.services import ArrivalStep

QueueKey = tuple[str, int]
LOOK_SECONDS = 1.0
# Every queue is looked at once in so many looks, whatever was announced.
LOOKS_A_ROUND = 5
# With more messages in a step, a pull with a filter on properties runs again instead of being asked about each.
PROPERTIES_MAX = 256


class HeldPull(msgspec.Struct, eq=False):
    """One pull that waits: from which offset on, for what, until when, and what to do then."""

    peer: Peer
    offset: int
    wanted: MessageFilter | None
    deadline: float
    resume: Callable[[], None]


class News(msgspec.Struct, frozen=True):
    """What arrived at a queue: up to which offset; where a filter asks for them, the properties of each message."""

    key: QueueKey
    newest: int
    tag_codes: NDArray[np.int64]
    properties: list[bytes] | None


class HeldPulls:
    """The pulls that wait, by queue."""

    def __init__(self, store: MessageStore, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._store, self._loop, self._most = store, loop, most
        self._by_queue: dict[QueueKey, list[HeldPull]] = {}
        self._keys_of: dict[int, set[QueueKey]] = {}  # by connection: the queues it has waited at
        self._count = self._looks = 0
        self.refused = 0
        self._is_ending = False
        self._stop_listening: Callable[[], None] | None = (
            None  # While pulls wait, arrivals are announced without delay.
        )

    def __len__(self) -> int:
        return self._count

    # -- holding ---------------------------------------------------------------------------------------------

    def hold(self, topic: str, queue_id: int, pull: HeldPull) -> bool:
        """Keep a pull until there is something for it; False if there are too many."""
        if self._is_ending:
            return False
        if self._count >= self._most:
            self.refused += 1
            return False
        key = (topic, queue_id)
        self._by_queue.setdefault(key, []).append(pull)
        self._keys_of.setdefault(id(pull.peer), set()).add(key)
        self._count += 1
        if self._stop_listening is None:
            self._stop_listening = self._listen()
        # What arrived between the read that found nothing and this moment was not announced to it.
        if self._store.max_offset(topic, queue_id, wait=False) > pull.offset:
            self._loop.call_soon(self._look_again, key)
        return True

    def look(self) -> None:
        """Let go of the pulls whose time is over; and of those whose queue has something new, a part of the queues at
        each look."""
        now = self._loop.time()
        self._looks += 1
        for number, key in enumerate(list(self._by_queue)):
            is_turn = number % LOOKS_A_ROUND == self._looks % LOOKS_A_ROUND
            newest = self._store.max_offset(*key, wait=False) if is_turn else -1
            self._release(key, [pull for pull in self._by_queue[key] if pull.deadline <= now or newest > pull.offset])

    def forget(self, peer: Peer) -> None:
        """A connection is closed: its pulls are dropped."""
        for key in self._keys_of.pop(id(peer), ()):
            pulls = self._by_queue.get(key, [])
            gone = [pull for pull in pulls if pull.peer is peer]
            self._count -= len(gone)
            self._keep(key, [pull for pull in pulls if pull.peer is not peer])
            for pull in gone:
                pull.resume()

    def release_all(self) -> None:
        """Answer everything that waits, and hold nothing more: the broker stops."""
        self._is_ending = True
        for key in list(self._by_queue):
            self._release(key, self._by_queue[key])

    def _look_again(self, key: QueueKey) -> None:
        if key in self._by_queue:
            newest = self._store.max_offset(*key, wait=False)
            self._release(key, [pull for pull in self._by_queue[key] if newest > pull.offset])

    def _listen(self) -> Callable[[], None]:
        """Have arrivals announced without delay; the answer ends that. A step costs less while nothing listens."""
        stop_announcing, end_hurry = self._store.on_arrival_step(self._note_step), self._store.hurry_dispatch()

        def stop() -> None:
            stop_announcing()
            end_hurry()

        return stop

    # -- arrivals --------------------------------------------------------------------------------------------

    def _note_step(self, step: ArrivalStep) -> None:
        """On the dispatcher's thread: pass on what moved, if a pull may wait for it."""
        waiting = self._by_queue
        if not waiting:
            return
        moved = step.moved
        news = []
        for n, key in enumerate(moved.queues):
            if key in waiting:
                start, end = int(moved.starts[n]), int(moved.starts[n + 1])
                properties = None
                if end - start <= PROPERTIES_MAX and any(_asks_properties(pull) for pull in waiting.get(key, ())):
                    properties = [step.properties(entry) for entry in range(start, end)]
                news.append(News(key, int(moved.to_offsets[n]), step.tag_codes[start:end], properties))
        if news:
            try:
                self._loop.call_soon_threadsafe(self._arrived, news)
            except RuntimeError:
                pass  # The loop has ended.

    def _arrived(self, news: list[News]) -> None:
        for one in news:
            pulls = self._by_queue.get(one.key, ())
            self._release(one.key, [pull for pull in pulls if pull.offset < one.newest and _wants(pull, one)])

    def _release(self, key: QueueKey, due: list[HeldPull]) -> None:
        if not due:
            return
        self._count -= len(due)
        gone = {id(pull) for pull in due}
        self._keep(key, [pull for pull in self._by_queue[key] if id(pull) not in gone])
        for pull in due:
            pull.resume()

    def _keep(self, key: QueueKey, pulls: list[HeldPull]) -> None:
        if pulls:
            self._by_queue[key] = pulls
        else:
            self._by_queue.pop(key, None)
        if not self._by_queue and self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None


def _asks_properties(pull: HeldPull) -> bool:
    """Whether a tag code says too little about a message."""
    return pull.wanted is not None and not isinstance(pull.wanted, TagFilter)


def _wants(pull: HeldPull, news: News) -> bool:
    """May one of the new messages match? The records themselves are asked when the pull runs again."""
    if pull.wanted is None:
        return True
    may_match = pull.wanted.matches_entry(news.tag_codes, None)
    if news.properties is None or not _asks_properties(pull):
        return bool(may_match.any())
    return any(pull.wanted.matches_record(news.properties[i]) for i in np.flatnonzero(may_match).tolist())
