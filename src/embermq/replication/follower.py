"""A follower: one thread that copies a master's log into a store that is a SLAVE, and says how far it is.

    connect -> report -> compare the end (slave_session.py) -> append_raw -> acknowledge -> ... -> lost: pause, again

What is acknowledged is in the store: in its log file, and under SYNC_FLUSH synced. While one sync runs, bytes gather in
the socket, so the next one covers them all. The pause between tries doubles from PAUSE_SECONDS to PAUSE_SECONDS_MAX. A
master whose log is another one is said once and asked again at the longest pause: nothing is ever overwritten.
"""

import logging
import random
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from embermq.errors import LogsDiffer, RawBytesInvalid, ReplicaMisbehaved, StoreError
from embermq.replication.slave_session import SlaveSession, known_start
from embermq.replication.waker import Waker
from embermq.settings import FlushDisk
from embermq.store import MessageStore

log = logging.getLogger(__name__)

PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.2, 5.0
CONNECT_SECONDS = 3.0
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """How a follower is doing."""

    master: str = ""  # address; empty: none is known yet
    is_connected: bool = False
    is_compared: bool = False  # the master has shown that it has the end of this log
    is_idle: bool = False  # and has nothing more to send now
    master_end: int = 0  # The master's log goes at least so far.
    stored_end: int = 0
    acknowledged: int = 0
    tries: int = 0  # since bytes or signs of life came last
    problem: str = ""  # why it is not connected, or was not before
    differs: bool = False  # the master's log is another one: nothing will be copied

    @property
    def behind_bytes(self) -> int:
        return max(0, self.master_end - self.stored_end)


class MasterFollower:
    """Follows the master at `address()` while it runs. Start and stop by one thread; `now` from any."""

    def __init__(
        self,
        store: MessageStore,
        address: Callable[[], str | None],
        *,
        begin: int | None = None,
        acknowledges: bool = True,
    ) -> None:
        """`address`: HOST:PORT of the replication port, None while it is not known; asked before each try. `begin` and
        `acknowledges` as for a SlaveSession."""
        self._store, self._address = store, address
        self._begin, self._acknowledges = begin, acknowledges
        self._is_sync = store.settings.flush is FlushDisk.SYNC
        self._waker, self._stopping = Waker(), threading.Event()
        self._buffer = bytearray(READ_BYTES)
        self.now = Following(stored_end=store.max_physical)
        self._thread = threading.Thread(target=self._run, name="embermq-follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leave the master, and wait for the thread."""
        self._stopping.set()
        self._waker.ring()
        self._thread.join()
        self._waker.close()

    def hurry(self) -> None:
        """Try now: the master's address has changed."""
        self._waker.ring()

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = PAUSE_SECONDS
        while not self._stopping.is_set():
            address = self._address()
            if address is None:
                self._rest(PAUSE_SECONDS)
                continue
            self.now = replace(self.now, master=address)
            problem, differs = self._follow(address)
            if self._stopping.is_set():
                break
            if self.now.is_compared:  # It went well for a while.
                pause = PAUSE_SECONDS
            self._note(address, problem, differs=differs)
            if differs:
                pause = PAUSE_SECONDS_MAX
            self._rest(pause * random.uniform(0.8, 1.2))
            pause = min(pause * 2, PAUSE_SECONDS_MAX)
        self.now = replace(self.now, is_connected=False, is_compared=False)

    def _note(self, address: str, problem: str, *, differs: bool) -> None:
        before = self.now
        self.now = replace(
            before,
            is_connected=False,
            is_compared=False,
            is_idle=False,
            tries=before.tries + 1,
            problem=problem,
            differs=differs,
        )
        if problem != before.problem or before.is_connected:
            level = logging.ERROR if differs else logging.WARNING
            log.log(level, "event=master_left address=%s stored=%d reason=%r", address, before.stored_end, problem)

    def _rest(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._waker, select.POLLIN)
        if poll.poll(seconds * 1000):
            self._waker.clear()

    def _follow(self, address: str) -> tuple[str, bool]:
        """One connection, until it ends; why, and whether the master's log is another one."""
        try:
            host, _, port = address.rpartition(":")
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS) as connection:
                self._copy(connection)
            return "stopped", False
        except LogsDiffer as problem:
            return str(problem), True
        except RawBytesInvalid as problem:
            return f"the master's bytes cannot be stored: {problem}", False
        except (ReplicaMisbehaved, StoreError) as problem:
            return str(problem), False
        except (OSError, ValueError) as problem:
            return (getattr(problem, "strerror", None) or str(problem)), False
        except Exception:
            log.exception("event=follower_failed address=%s", address)
            return "a failure in this process; its log says more", False

    def _session(self) -> SlaveSession:
        store = self._store
        end = store.drop_unfinished_raw()
        start = known_start(store.min_physical, end, store.settings.segment_bytes)
        if self._is_sync:
            store.flush()  # What is compared is read, and only synced bytes are.
        known = b""
        while start + len(known) < end:
            known += store.read_log(start + len(known), end - start - len(known))
        settings = store.settings
        return SlaveSession(
            end,
            known,
            settings.ha_heartbeat_interval_ms / 1000,
            settings.ha_housekeeping_interval_ms / 1000,
            begin=self._begin,
            acknowledges=self._acknowledges,
        )

    def _copy(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        session = self._session()
        _send(connection, session.first_report(time.monotonic()))
        self.now = replace(self.now, is_connected=True, stored_end=self._store.max_physical)
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        poll.register(self._waker, select.POLLIN)
        while not self._stopping.is_set():
            now = time.monotonic()
            if session.is_silent(now):
                raise ReplicaMisbehaved("the master has been silent for too long (haHousekeepingInterval)")
            ready = dict(poll.poll(session.seconds_to_wait(now) * 1000))
            if self._waker.fileno() in ready:
                self._waker.clear()
                if self._address() != self.now.master:
                    raise ReplicaMisbehaved("another master was announced")
            if connection.fileno() in ready:
                self._receive(connection, session)
            safe = self._make_safe()
            if (report := session.report(safe, time.monotonic())) is not None:
                _send(connection, report)
            self._say(session, safe)

    def _receive(self, connection: socket.socket, session: SlaveSession) -> None:
        try:
            count = connection.recv_into(self._buffer)
        except BlockingIOError:
            return
        if not count:
            raise OSError(0, "the master closed the connection")
        for physical_offset, data in session.receive(memoryview(self._buffer)[:count], time.monotonic()):
            self._store.append_raw(physical_offset, data)

    def _make_safe(self) -> int:
        """How far the log is as safe as the settings promise."""
        store = self._store
        if not self._is_sync:
            return store.max_physical
        if store.flushed_offset < store.max_physical:
            store.flush()
        return store.flushed_offset

    def _say(self, session: SlaveSession, safe: int) -> None:
        stored = self._store.max_physical
        if session.is_compared and not self.now.is_compared:
            log.info("event=master_followed address=%s physical_offset=%d", self.now.master, stored)
        self.now = replace(
            self.now,
            is_compared=session.is_compared,
            is_idle=session.is_idle,
            master_end=max(session.master_end, stored),
            stored_end=stored,
            acknowledged=safe if session.is_compared else self.now.acknowledged,
            tries=0,
            problem="" if session.is_compared else self.now.problem,
            differs=False if session.is_compared else self.now.differs,
        )


def _send(connection: socket.socket, report: bytes) -> None:
    """Eight bytes: a socket that does not take them has been full of such for long."""
    if connection.send(report) != len(report):
        raise ReplicaMisbehaved("the master reads no reports")
