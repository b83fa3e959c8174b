"""A master's store behind a replication port and slaves that follow it, in one process, on loopback."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from embermq import BrokerRole, Message, MessageStore, StoreSettings
from embermq.replication import MasterFollower, Replicas, ReplicationServer
from tests.support.waiting import wait_until

SMALL: dict[str, Any] = {
    "segment_bytes": 64 << 10,
    "queue_file_bytes": 20 * 50,
    "index_slots_max": 100,
    "index_entries_max": 400,
    "prefault_bytes_max": 0,
    "disk_full_percent": 100,
    "disk_clean_percent": 100,
    "delayed_delivery": False,
}


def settings(role: BrokerRole = BrokerRole.ASYNC_MASTER, **more: Any) -> StoreSettings:
    return StoreSettings(**(SMALL | {"role": role} | more))


class Master:
    """A store and the port that it is sent from; the port stays the same when it is opened again."""

    def __init__(self, path: Path, *, port: int = 0, **more: Any) -> None:
        self.path = path
        self.store = MessageStore.open(path, settings(**more), replicated=True)
        self.replicas = Replicas(self.store.settings.ha_behind_bytes_max)
        bound = socket.create_server(("127.0.0.1", port))
        self.server = ReplicationServer(self.store, self.replicas, bound)
        self.port = self.server.port
        self.address = f"127.0.0.1:{self.port}"
        self.server.start()

    def fill(self, count: int, size: int = 100, topic: str = "T") -> None:
        start = self.store.max_offset(topic, 0)
        for number in range(start, start + count):
            self.store.append(Message(topic, b"%d:" % number + b"x" * size, tags="t", keys=[f"k{number}"]))

    def close(self) -> None:
        self.server.stop()
        self.store.close()


@contextlib.contextmanager
def master(path: Path, **more: Any) -> Iterator[Master]:
    made = Master(path, **more)
    try:
        yield made
    finally:
        made.close()


class Slave:
    """A store that follows a master."""

    def __init__(self, path: Path, address: str | None, **more: Any) -> None:
        self.path, self.address = path, address
        self.store = MessageStore.open(path, settings(BrokerRole.SLAVE, **more))
        self.follower = MasterFollower(self.store, lambda: self.address)
        self.follower.start()

    def wait_for(self, end: int) -> None:
        wait_until(lambda: self.store.max_physical >= end, f"the slave has {self.store.max_physical} of {end}")

    def wait_for_problem(self) -> str:
        wait_until(lambda: bool(self.follower.now.problem), "a problem")
        return self.follower.now.problem

    def close(self) -> None:
        self.follower.stop()
        self.store.close()


@contextlib.contextmanager
def slave(path: Path, address: str | None, **more: Any) -> Iterator[Slave]:
    made = Slave(path, address, **more)
    try:
        yield made
    finally:
        made.close()


def log_bytes(store: MessageStore, start: int, end: int) -> bytes:
    """The log between two places."""
    found = b""
    while start + len(found) < end:
        found += store.read_log(start + len(found), end - start - len(found))
    return found


def file_bytes(path: Path, start: int, end: int, segment_bytes: int = SMALL["segment_bytes"]) -> bytes:
    """The log between two places, from the files of a store that nobody has to have open."""
    found = b""
    for file in sorted((path / "commitlog").iterdir()):
        base = int(file.name)
        if base < end and base + segment_bytes > start:
            found += file.read_bytes()[max(0, start - base) : end - base]
    return found
