"""The port that slaves connect to: a thread that accepts, and a sender for each slave (sender.py).

There is no authentication in RocketMQ's protocol: any host that reaches this port gets the whole log. It listens where
the broker listens, on loopback unless that is changed. Connections past `slaves_max` are closed at once.
"""

import logging
import select
import socket
import threading
import time

from embermq.replication.master_session import SessionLimits
from embermq.replication.replicas import Replicas
from embermq.replication.sender import SlaveSender
from embermq.replication.waker import Waker
from embermq.settings import StoreSettings
from embermq.store import MessageStore

log = logging.getLogger(__name__)

SLAVES_MAX = 32
KEPT_IN_KERNEL_BYTES = 1 << 20
PAUSE_SECONDS = 0.2


def session_limits(settings: StoreSettings) -> SessionLimits:
    return SessionLimits(
        heartbeat_seconds=settings.ha_heartbeat_interval_ms / 1000,
        silence_seconds=settings.ha_housekeeping_interval_ms / 1000,
        transfer_bytes=settings.ha_transfer_bytes,
    )


class ReplicationServer:
    """Sends the log of a store to every slave that connects. Started and stopped by one thread."""

    def __init__(self, store: MessageStore, replicas: Replicas, bound: socket.socket) -> None:
        """`bound`: a socket that has its port, and is closed with this."""
        self._store, self._replicas, self._bound = store, replicas, bound
        self._limits = session_limits(store.settings)
        self._waker = Waker()
        self._lock = threading.Lock()
        self._senders: set[SlaveSender] = set()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._accept_all, name="embermq-replicas", daemon=True)

    @property
    def port(self) -> int:
        return int(self._bound.getsockname()[1])

    def start(self) -> None:
        self._bound.setblocking(False)
        self._bound.listen(SLAVES_MAX)
        self._thread.start()

    def stop(self) -> None:
        """Close the port and every connection, and wait for their threads."""
        self._is_stopping = True
        self._waker.ring()
        self._thread.join()
        with self._lock:
            senders = list(self._senders)
        for sender in senders:
            sender.stop()
        self._bound.close()
        self._waker.close()

    # -- the thread --------------------------------------------------------------------------------------------

    def _accept_all(self) -> None:
        poll = select.poll()
        poll.register(self._bound, select.POLLIN)
        poll.register(self._waker, select.POLLIN)
        while not self._is_stopping:
            poll.poll()
            try:
                connection, peer = self._bound.accept()
            except BlockingIOError:
                continue
            except OSError as problem:  # No descriptors left, for example: trying again at once would not help.
                log.warning("event=replica_not_accepted reason=%r", problem.strerror or str(problem))
                time.sleep(PAUSE_SECONDS)
                continue
            self._serve(connection, f"{peer[0]}:{peer[1]}")

    def _serve(self, connection: socket.socket, address: str) -> None:
        with self._lock:
            if self._is_stopping or len(self._senders) >= SLAVES_MAX:
                log.warning("event=replica_refused address=%s connected=%d", address, len(self._senders))
                connection.close()
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KEPT_IN_KERNEL_BYTES)
            sender = SlaveSender(connection, address, self._store, self._replicas, self._limits, self._forget)
            self._senders.add(sender)
        sender.start()

    def _forget(self, sender: SlaveSender) -> None:
        with self._lock:
            self._senders.discard(sender)
