"""Locks of queues that are consumed in order, as the member that holds them sees them. Pure; the loop's thread only.

A broker grants a lock for a minute after its last renewal. The member renews every 20 s and stops after 30 s without,
so that it has stopped long before the broker gives the queue to another:

    asked and granted              held for 30 s from when it was asked
    renewed                        held for 30 s more
    asked and not granted          lost at once: another member has it
    given back, then renewed       given back: the renewal was asked for before
    no answer for 30 s             lost: the broker may think so soon

A lock counts from the moment of asking, not of the answer, which may have taken long.
"""

from collections.abc import Collection, Iterable

from embermq.client.message_queue import MessageQueue

RENEW_SECONDS = 20.0
HOLD_SECONDS = 30.0


class HeldLocks:
    """Which queues are locked for this member."""

    def __init__(self) -> None:
        self._asked_at: dict[MessageQueue, float] = {}

    def __len__(self) -> int:
        return len(self._asked_at)

    def answered(
        self, asked: Iterable[MessageQueue], granted: Collection[MessageQueue], asked_at: float
    ) -> list[MessageQueue]:
        """Note what a broker answered; the queues that were held before and are lost now."""
        lost = []
        for queue in asked:
            if queue in granted:
                self._asked_at[queue] = max(asked_at, self._asked_at.get(queue, asked_at))
            elif self._asked_at.pop(queue, None) is not None:
                lost.append(queue)
        return lost

    def renewed(
        self, asked: Iterable[MessageQueue], granted: Collection[MessageQueue], asked_at: float
    ) -> list[MessageQueue]:
        """`answered`, of a renewal. A queue that was given back while it was under way stays given back: held again, it
        would be renewed for ever and read by no member."""
        return self.answered([queue for queue in asked if queue in self._asked_at], granted, asked_at)

    def is_held(self, queue: MessageQueue, now: float) -> bool:
        at = self._asked_at.get(queue)
        return at is not None and now - at < HOLD_SECONDS

    def held_at(self, queue: MessageQueue) -> float | None:
        """When it was last asked for and granted."""
        return self._asked_at.get(queue)

    def expired(self, now: float) -> list[MessageQueue]:
        """Forget the locks that were not renewed in time; which they were."""
        late = [queue for queue, at in self._asked_at.items() if now - at >= HOLD_SECONDS]
        for queue in late:
            del self._asked_at[queue]
        return late

    def release(self, queue: MessageQueue) -> bool:
        """Forget a lock; whether it was held, and is to be given back."""
        return self._asked_at.pop(queue, None) is not None

    def queues(self) -> list[MessageQueue]:
        return list(self._asked_at)

    def by_broker(self) -> dict[str, list[MessageQueue]]:
        """What to renew, by the broker to ask."""
        found: dict[str, list[MessageQueue]] = {}
        for queue in sorted(self._asked_at):
            found.setdefault(queue.broker, []).append(queue)
        return found
