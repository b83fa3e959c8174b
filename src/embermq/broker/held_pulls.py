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
from embermq.store import MessageFilter, MessageStore
from embermq.store.services import ArrivalStep

QueueKey = tuple[str, int]
LOOK_SECONDS = 1.0
# Every queue is looked at once in so many looks, whatever was announced.
LOOKS_A_ROUND = 5


class HeldPull(msgspec.Struct, eq=False):
    """One pull that waits: from which offset on, for what, until when, and what to do then."""

    peer: Peer
    offset: int
    wanted: MessageFilter | None
    deadline: float
    resume: Callable[[], None]


class HeldPulls:
    """The pulls that wait, by queue."""

    def __init__(self, store: MessageStore, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._store, self._loop, self._most = store, loop, most
        self._by_queue: dict[QueueKey, list[HeldPull]] = {}
        self._keys_of: dict[int, set[QueueKey]] = {}  # by connection: the queues it has waited at
        self._count = self._looks = 0
        self._end_hurry: Callable[[], None] | None = None
        self._stop_listening = store.on_arrival_step(self._note_step)

    def __len__(self) -> int:
        return self._count

    # -- holding ---------------------------------------------------------------------------------------------

    def hold(self, topic: str, queue_id: int, pull: HeldPull) -> bool:
        """Keep a pull until there is something for it; False if there are too many."""
        if self._count >= self._most:
            return False
        key = (topic, queue_id)
        self._by_queue.setdefault(key, []).append(pull)
        self._keys_of.setdefault(id(pull.peer), set()).add(key)
        self._count += 1
        if self._end_hurry is None:
            self._end_hurry = self._store.hurry_dispatch()
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
            left = [pull for pull in pulls if pull.peer is not peer]
            self._count -= len(pulls) - len(left)
            self._keep(key, left)

    def release_all(self) -> None:
        """Answer everything that waits: the broker stops."""
        self._stop_listening()
        for key in list(self._by_queue):
            self._release(key, self._by_queue[key])

    def _look_again(self, key: QueueKey) -> None:
        if key in self._by_queue:
            newest = self._store.max_offset(*key, wait=False)
            self._release(key, [pull for pull in self._by_queue[key] if newest > pull.offset])

    # -- arrivals --------------------------------------------------------------------------------------------

    def _note_step(self, step: ArrivalStep) -> None:
        """On the dispatcher's thread: pass on what moved, if a pull may wait for it."""
        waiting = self._by_queue
        if not waiting:
            return
        moved = step.moved
        news = [
            (key, int(moved.to_offsets[n]), step.tag_codes[int(moved.starts[n]) : int(moved.starts[n + 1])])
            for n, key in enumerate(moved.queues)
            if key in waiting
        ]
        if news:
            try:
                self._loop.call_soon_threadsafe(self._arrived, news)
            except RuntimeError:
                pass  # The loop has ended.

    def _arrived(self, news: list[tuple[QueueKey, int, NDArray[np.int64]]]) -> None:
        for key, newest, tag_codes in news:
            pulls = self._by_queue.get(key, ())
            self._release(key, [pull for pull in pulls if pull.offset < newest and _wants(pull, tag_codes)])

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
        if not self._by_queue and self._end_hurry is not None:
            self._end_hurry()
            self._end_hurry = None


def _wants(pull: HeldPull, tag_codes: NDArray[np.int64]) -> bool:
    """May one of the new messages match? The record itself is asked when the pull runs again."""
    return pull.wanted is None or bool(pull.wanted.matches_entry(tag_codes, None).any())
