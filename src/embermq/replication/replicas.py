"""The slaves of a master, together: the mark below which one of them has everything, and who is connected. Any thread.

The mark only grows: what a slave has acknowledged it keeps when it goes. It says that one slave has it, not all of
them, as in RocketMQ.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """A connected slave at one moment."""

    address: str
    connected_seconds: float
    sent: int  # Everything below was sent.
    acknowledged: int  # Everything below is in its store; where it began, before it has acknowledged anything.


@dataclass(eq=False, slots=True)
class Replica:
    """A connected slave. Its sender writes, under the lock of `Replicas`."""

    address: str
    since: float = field(default_factory=time.monotonic)
    begin: int | None = None
    sent: int = 0
    acknowledged: int = 0

    @property
    def position(self) -> int:
        return max(self.acknowledged, self.begin or 0)


class Replicas:
    """Who follows a log, and how far."""

    def __init__(self, behind_bytes_max: int) -> None:
        self._behind_bytes_max = behind_bytes_max
        self._lock = threading.Lock()
        self._connected: list[Replica] = []
        self._mark = 0
        self._listeners: tuple[Callable[[int], None], ...] = ()

    # -- what senders say --------------------------------------------------------------------------------------

    def joined(self, address: str) -> Replica:
        replica = Replica(address)
        with self._lock:
            self._connected.append(replica)
        return replica

    def left(self, replica: Replica) -> None:
        with self._lock:
            self._connected.remove(replica)

    def moved(self, replica: Replica, begin: int | None, sent: int, acknowledged: int) -> None:
        """Take down where a slave is; the mark follows what it has acknowledged."""
        with self._lock:
            replica.begin, replica.sent, replica.acknowledged = begin, sent, acknowledged
            grows = acknowledged > self._mark
            if grows:
                self._mark = acknowledged
        if grows:
            for listener in self._listeners:
                listener(acknowledged)

    # -- what is known -----------------------------------------------------------------------------------------

    @property
    def mark(self) -> int:
        """Everything below was acknowledged by a slave since this process began."""
        return self._mark

    def listen(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with the mark whenever it grows, on the thread of a sender."""
        self._listeners = (*self._listeners, listener)

    def __len__(self) -> int:
        """How many have said where they go on."""
        with self._lock:
            return sum(replica.begin is not None for replica in self._connected)

    def can_have(self, end: int) -> bool:
        """Whether a slave is connected that may soon have everything below `end`: it is not too far behind."""
        with self._lock:
            return any(
                replica.begin is not None and end - replica.position < self._behind_bytes_max
                for replica in self._connected
            )

    def needs(self, end: int, log_end: int) -> bool:
        """Whether a connected slave needs some of the log below `end`, and is not too far behind `log_end`."""
        with self._lock:
            return any(
                replica.begin is not None
                and replica.position < end
                and log_end - replica.position < self._behind_bytes_max
                for replica in self._connected
            )

    def view(self) -> list[ReplicaView]:
        """Those that are connected, in the order they came."""
        now = time.monotonic()
        with self._lock:
            return [
                ReplicaView(
                    address=replica.address,
                    connected_seconds=now - replica.since,
                    sent=replica.sent,
                    acknowledged=replica.position,
                )
                for replica in self._connected
                if replica.begin is not None
            ]
