"""A sender: one thread that gives one slave the log and takes its acknowledgements.

At most one piece of the log (PIECE_BYTES) is on its way to the socket: a slave that reads slowly holds up itself and
nothing else. One that says nothing for haHousekeepingInterval is dropped. Without SYNC_MASTER no send waits for the
slave, so small pieces are gathered for a moment: fewer, larger transfers, and fewer turns taken from the broker.
"""

import logging
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from embermq.errors import ReplicaMisbehaved, StoreError
from embermq.replication.master_session import MasterSession, SessionLimits
from embermq.replication.replicas import Replica, Replicas
from embermq.replication.waker import Waker
from embermq.settings import FlushDisk
from embermq.store import MessageStore

log = logging.getLogger(__name__)

PIECE_BYTES = 1 << 20
SMALL_BYTES = 512 << 10
GATHER_SECONDS = 0.004
IDLE_SECONDS_MAX = 0.1  # Log files with private buffers (transientStorePoolEnable) grow without a sign.
BUFFERS_MAX = 64  # in one call of sendmsg


class SlaveSender:
    """Serves one connection until it ends."""

    def __init__(
        self,
        connection: socket.socket,
        address: str,
        store: MessageStore,
        replicas: Replicas,
        limits: SessionLimits,
        ended: Callable[["SlaveSender"], None],
    ) -> None:
        """`ended` is called on the sender's thread, last."""
        self._connection, self.address, self._store, self._replicas = connection, address, store, replicas
        self._ended = ended
        self._session = MasterSession(limits, store.settings.segment_bytes, time.monotonic())
        self._waker = Waker()
        self._unsent: deque[bytes | memoryview] = deque()
        self._is_stopping = False
        self._gathers_until = 0.0
        self._thread = threading.Thread(target=self._run, name=f"embermq-replica-{address}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the connection and wait for the thread. Any other thread."""
        self._is_stopping = True
        self._waker.ring()
        self._thread.join()

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        reason = "stopped"
        replica = self._replicas.joined(self.address)
        end_growth: Callable[[], None] | None = None
        try:
            self._connection.setblocking(False)
            end_growth = self._store.on_growth(self._waker.ring)
            self._serve(replica)
        except (ReplicaMisbehaved, StoreError) as problem:
            reason = str(problem)
        except OSError as problem:
            reason = problem.strerror or str(problem)
        except Exception:
            log.exception("event=replica_failed address=%s", self.address)
            reason = "a failure in this process"
        finally:
            if end_growth is not None:
                end_growth()
            self._replicas.left(replica)
            self._connection.close()
            self._waker.close()
            session = self._session
            log.warning(
                "event=replica_left address=%s sent=%d acknowledged=%d reason=%r",
                self.address,
                session.sent,
                session.acknowledged,
                reason,
            )
            self._ended(self)

    def _serve(self, replica: Replica) -> None:
        session, poll = self._session, select.poll()
        while not self._is_stopping:
            now = time.monotonic()
            if session.is_silent(now):
                raise ReplicaMisbehaved("it has been silent for too long (haHousekeepingInterval)")
            is_filled = self._fill(now)
            self._replicas.moved(replica, session.begin, session.sent, session.acknowledged)
            readable = self._wait(poll, now, is_filled)
            self._write()
            if readable:
                self._read()
                self._replicas.moved(replica, session.begin, session.sent, session.acknowledged)

    def _wait(self, poll: "select.poll", now: float, is_filled: bool) -> bool:
        """Wait for the socket or for more of the log, whichever is of use now; whether the slave has sent something."""
        gathers = self._gathers_until - now
        waits_for_log = not self._unsent and gathers <= 0
        timeout = min(self._session.seconds_to_wait(now), IDLE_SECONDS_MAX)
        if is_filled:
            timeout = 0.0
        elif gathers > 0:
            timeout = min(timeout, gathers)
        poll.register(self._connection, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        if waits_for_log:
            poll.register(self._waker, select.POLLIN)
        ready = dict(poll.poll(timeout * 1000))
        if waits_for_log:
            poll.unregister(self._waker)
            if self._waker.fileno() in ready:
                self._waker.clear()
        return ready.get(self._connection.fileno(), select.POLLOUT) != select.POLLOUT

    def _fill(self, now: float) -> bool:
        """Read on in the log once the last piece is with the socket; whether there is something new to be written."""
        session = self._session
        if self._unsent or session.begin is None or now < self._gathers_until:
            return False
        data = self._store.read_log(session.sent, PIECE_BYTES)
        if data:
            self._unsent.extend(session.transfers(data, now))
            if len(data) < SMALL_BYTES and not self._store.promises_replica:
                self._gathers_until = now + GATHER_SECONDS
        elif (heartbeat := session.heartbeat(now)) is not None:
            self._unsent.append(heartbeat)
        return bool(self._unsent)

    def _write(self) -> None:
        while self._unsent:
            some = [self._unsent[n] for n in range(min(BUFFERS_MAX, len(self._unsent)))]
            try:
                sent = self._connection.sendmsg(some)
            except BlockingIOError:
                return
            while sent:
                first = self._unsent.popleft()
                if sent < len(first):
                    self._unsent.appendleft(memoryview(first)[sent:])
                    return
                sent -= len(first)

    def _read(self) -> None:
        try:
            data = self._connection.recv(1 << 16)
        except BlockingIOError:
            return
        if not data:
            raise OSError(0, "it closed the connection")
        began = self._session.begin is not None
        self._session.receive(data, time.monotonic(), self._store.min_physical, self._log_end())
        if not began and self._session.begin is not None:
            log.info("event=replica_joined address=%s physical_offset=%d", self.address, self._session.begin)

    def _log_end(self) -> int:
        """Where `read_log` ends now."""
        store = self._store
        return store.flushed_offset if store.settings.flush is FlushDisk.SYNC else store.max_physical
