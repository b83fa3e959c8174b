"""Queue locks: which member of a group reads a queue in order. Memory only; a lock expires a minute after its last
renewal, and is not given back when a connection is lost. The loop's thread only."""

from typing import NamedTuple

EXPIRE_SECONDS = 60.0


class QueueName(NamedTuple):
    """A queue as clients name it."""

    topic: str
    broker_name: str
    queue_id: int


class QueueLocks:
    """Locks by group and queue."""

    def __init__(self, locks_max: int) -> None:
        self._locks_max = locks_max
        self.refused = 0
        self._locks: dict[tuple[str, QueueName], tuple[str, float]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def lock(self, group: str, client_id: str, queues: list[QueueName], now: float) -> list[QueueName]:
        """The queues that the client holds now, of those it asks for."""
        return [queue for queue in queues if self._take((group, queue), client_id, now)]

    def unlock(self, group: str, client_id: str, queues: list[QueueName]) -> None:
        for queue in queues:
            held = self._locks.get((group, queue))
            if held is not None and held[0] == client_id:
                del self._locks[group, queue]

    def expire(self, now: float) -> None:
        """Forget locks that were not renewed."""
        for key in [key for key, (_owner, at) in self._locks.items() if now - at > EXPIRE_SECONDS]:
            del self._locks[key]

    def _take(self, key: tuple[str, QueueName], client_id: str, now: float) -> bool:
        held = self._locks.get(key)
        if held is not None and held[0] != client_id and now - held[1] <= EXPIRE_SECONDS:
            return False
        if held is None and len(self._locks) >= self._locks_max:
            self.refused += 1
            return False
        self._locks[key] = (client_id, now)
        return True
