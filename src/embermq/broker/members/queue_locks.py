"""Queue locks: which member of a group reads a queue in order. A lock expires a minute after its last renewal, and is
not given back when a connection is lost.

RocketMQ keeps locks in memory only: after a restart another member may get a queue while its owner, who counts on the
lock for half a minute more, still reads it. Here owners are written down (config/emberLocks.json) before a new one is
answered, and after a restart they have a minute to renew. The loop's thread only, but for `save`, which any thread may
call.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from embermq.files import Decoded
from embermq.store.tables import ConfigTable, TableFormat

EXPIRE_SECONDS = 60.0


class QueueName(NamedTuple):
    """A queue as clients name it."""

    topic: str
    broker_name: str
    queue_id: int


class LockName(NamedTuple):
    """A lock: a group at a queue."""

    group: str
    queue: QueueName


def _decode(table: dict[Any, Any]) -> Decoded[dict[LockName, str]]:
    found: Decoded[dict[LockName, str]] = Decoded({})
    for name, owner in table.items():
        queue_id, _, rest = str(name).partition("@")
        parts = rest.rsplit("@", 2)
        if not queue_id.isdecimal() or len(parts) != 3 or not isinstance(owner, str):
            found.faults.append(f"{name} is no queue, broker, topic and group with a client")
            continue
        broker_name, topic, group = parts
        found.value[LockName(group, QueueName(topic, broker_name, int(queue_id)))] = owner
    return found


def _encode(owners: Mapping[LockName, str]) -> dict[Any, Any]:
    return {
        f"{queue.queue_id}@{queue.broker_name}@{queue.topic}@{group}": owner
        for (group, queue), owner in sorted(owners.items())
    }


LOCK_OWNERS: TableFormat[LockName, str] = TableFormat("emberLocks.json", "lockTable", _decode, _encode)


class QueueLocks:
    """Locks by group and queue."""

    def __init__(self, locks_max: int, owners: ConfigTable[LockName, str] | None = None, now: float = 0.0) -> None:
        """`owners`: those of the last run, who keep their locks until they expire, counted from `now` on."""
        self._locks_max, self._owners = locks_max, owners
        self.refused = 0
        known = owners.entries() if owners is not None else {}
        self._locks: dict[LockName, tuple[str, float]] = {name: (owner, now) for name, owner in known.items()}

    def __len__(self) -> int:
        return len(self._locks)

    def lock(self, group: str, client_id: str, queues: list[QueueName], now: float) -> list[QueueName]:
        """The queues that the client holds now, of those it asks for."""
        return [queue for queue in queues if self._take(LockName(group, queue), client_id, now)]

    def unlock(self, group: str, client_id: str, queues: list[QueueName]) -> None:
        for queue in queues:
            held = self._locks.get(LockName(group, queue))
            if held is not None and held[0] == client_id:
                self._forget(LockName(group, queue))

    def expire(self, now: float) -> None:
        """Forget locks that were not renewed."""
        for name in [name for name, (_owner, at) in self._locks.items() if now - at > EXPIRE_SECONDS]:
            self._forget(name)

    @property
    def has_new_owners(self) -> bool:
        """Whether an owner is not written down yet."""
        return self._owners is not None and self._owners.has_unsaved_changes

    def save(self) -> bool:
        """Write the owners down, if they changed; OSError."""
        return self._owners is not None and self._owners.save()

    def _take(self, name: LockName, client_id: str, now: float) -> bool:
        held = self._locks.get(name)
        if held is not None and held[0] != client_id and now - held[1] <= EXPIRE_SECONDS:
            return False
        if held is None and len(self._locks) >= self._locks_max:
            self.refused += 1
            return False
        self._locks[name] = (client_id, now)
        if self._owners is not None and (held is None or held[0] != client_id):
            self._owners.put(name, client_id)
        return True

    def _forget(self, name: LockName) -> None:
        del self._locks[name]
        if self._owners is not None:
            self._owners.remove(name)
