"""Expired log files of a master stay while a slave needs them, and no longer than the bound says.

The slave is a bare socket: it says where it begins and acknowledges what the test wants.
"""

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from embermq import Message, MessageStore
from embermq.broker import open_store
from embermq.files import DiskUsage, RealFiles
from embermq.replication import Replicas, ReplicationServer
from embermq.testing.clock import ManualClock
from tests.support.replication import settings
from tests.support.waiting import wait_until

FILE, BOUND = 64 << 10, 4 * (64 << 10)
NOW_MS, LATER_MS = 1_800_000_000_000, 73 * 3_600_000
SILENCE_MS = 600_000  # The sender's clock is the real one.


class Disk(RealFiles):
    """As full as a test says."""

    used_percent = 10

    def usage(self, path: Path) -> DiskUsage:
        free = (100 - self.used_percent) << 30
        return DiskUsage(100 << 30, free, free)


class Slave:
    """Connected, and as far as it was told to say."""

    def __init__(self, port: int, replicas: Replicas, begin: int) -> None:
        self._replicas = replicas
        self._connection = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.acknowledge(begin)

    def take(self, end: int) -> None:
        """Read as much as the master has to send up to `end`, and acknowledge it."""
        got = 0
        while got < end:
            offset, length = struct.unpack(">qi", self._exactly(12))
            self._exactly(length)
            got = max(got, offset + length)
        self.acknowledge(end)
        wait_until(lambda: self._replicas.view()[0].acknowledged == end, "it is noted")

    def acknowledge(self, end: int) -> None:
        self._connection.sendall(struct.pack(">q", end))

    def _exactly(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            piece = self._connection.recv(count - len(got))
            assert piece, "the master closed the connection"
            got += piece
        return got

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def slave(port: int, replicas: Replicas, begin: int) -> Iterator[Slave]:
    made = Slave(port, replicas, begin)
    try:
        wait_until(lambda: len(replicas) == 1, "the slave is known")
        yield made
    finally:
        made.close()
    wait_until(lambda: len(replicas) == 0, "the slave is gone")


@contextlib.contextmanager
def master(path: Path, clock: ManualClock, disk: Disk | None = None) -> Iterator[tuple[MessageStore, Replicas, int]]:
    replicas = Replicas(BOUND)
    bounds: dict[str, Any] = {
        "ha_behind_bytes_max": BOUND,
        "ha_housekeeping_interval_ms": SILENCE_MS,
        "delete_segment_pause_ms": 0,
    }
    percents: dict[str, Any] = {"disk_full_percent": 90, "disk_clean_percent": 85}
    store = open_store(path, settings(**bounds, **percents), clock=clock, files=disk or Disk(), replicas=replicas).store
    try:
        server = ReplicationServer(store, replicas, socket.create_server(("127.0.0.1", 0)))
        server.start()
        try:
            yield store, replicas, server.port
        finally:
            server.stop()
    finally:
        store.close()


def fill(store: MessageStore, end: int) -> None:
    while store.max_physical < end:
        store.append(Message("T", b"x" * 1000))
    store.wait_for_dispatch()


def test_a_file_stays_until_the_slave_has_it(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    with master(tmp_path, clock) as (store, replicas, port):
        fill(store, 2 * FILE + 1000)
        clock.advance(ms=LATER_MS)
        with slave(port, replicas, 1) as one:
            cleaned = store.delete_expired()
            assert cleaned.segments == 0
            assert "a slave" in (cleaned.held_by or "")
            one.take(FILE)
            assert store.delete_expired().segments == 1  # It has the first one, and nothing of the second.
            assert store.min_physical == FILE
            one.take(2 * FILE)
            assert store.delete_expired().segments == 1


def test_a_slave_that_went_away_holds_nothing(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    with master(tmp_path, clock) as (store, replicas, port):
        fill(store, 2 * FILE + 1000)
        clock.advance(ms=LATER_MS)
        with slave(port, replicas, 1):
            assert store.delete_expired().segments == 0
        assert store.delete_expired().segments == 2


def test_one_too_far_behind_holds_nothing(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    with master(tmp_path, clock) as (store, replicas, port):
        fill(store, BOUND - 2000)
        clock.advance(ms=LATER_MS)
        with slave(port, replicas, 1):
            assert store.delete_expired().segments == 0  # Just inside the bound.
            fill(store, BOUND + 1)
            assert store.delete_expired().segments == 3  # The fourth got a message just now.
        with slave(port, replicas, BOUND):
            fill(store, BOUND + FILE + 1)
            clock.advance(ms=LATER_MS)
            assert store.delete_expired().segments == 1
            assert store.min_physical == BOUND


def test_a_full_disk_is_not_kept_full_for_a_slave(tmp_path: Path) -> None:
    clock, disk = ManualClock(NOW_MS), Disk()
    with master(tmp_path, clock, disk) as (store, replicas, port):
        fill(store, 2 * FILE + 1000)
        clock.advance(ms=LATER_MS)
        with slave(port, replicas, 1):
            assert store.delete_expired().segments == 0
            disk.used_percent = 88
            assert store.delete_expired().segments == 2
