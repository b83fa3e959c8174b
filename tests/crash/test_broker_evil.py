"""Evil clients against a broker process: its memory stays bounded, and a good client is served all the while.

The good client sends one message after another and measures each; its 99th percentile under an attack is compared with
that before it, in the same run. On a machine with more work than cores a single wait says nothing: shorter ones than
FLOOR_SECONDS count as that, and what an attack does to the good client it does in each of several windows.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.evil_child import ATTACKS, send
from tests.support.broker_process import BrokerProcess

RATIO = 3.0
FLOOR_SECONDS = 0.1
WINDOWS = 12
WAIT_SECONDS = 120.0
SETTINGS = ("emberFastPort=false", "emberKernels=never", "emberMaxNames=5000", "emberMaxClients=5000")
SHORT = {
    "idle": 200,
    "slow_loris": 50,
    "half_open": 40,
    "never_reading": 10,
    "connect_and_die": 2,
    "flood": 2,
    "flood_oneway": 1,
    "pull_storm": 2000,
    "crowd": 2,
}
LONG = {
    "idle": 5000,
    "slow_loris": 1000,
    "half_open": 800,
    "never_reading": 200,
    "connect_and_die": 8,
    "flood": 16,
    "flood_oneway": 2,
    "pull_storm": 20_000,
    "crowd": 4,
}
# What an attack may take beside what a broker has: answers that wait (4 MiB for each connection that does not read, 512
# MiB in all), frames that are not whole (256 MiB in all), names.
SHORT_MEBIBYTES, LONG_MEBIBYTES = 150, 1000


def anonymous_mebibytes(pid: int) -> int:
    """Memory that is the process's own: mapped files do not count."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) // 1024
    raise AssertionError("RssAnon is missing")


def p99_of_sends(address: str, count: int) -> float:
    """Seconds from a send to its answer."""
    host, _, port = address.rpartition(":")
    request, times = send("good", b"x" * 100), []
    with socket.create_connection((host, int(port)), WAIT_SECONDS) as end, end.makefile("rb") as answers:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            began = time.perf_counter()
            end.sendall(request)
            answer = answers.read(int.from_bytes(answers.read(4)))
            times.append(time.perf_counter() - began)
            assert b"msgId" in answer
    return sorted(times)[int(count * 0.99)]


@contextmanager
def under_attack(name: str, address: str, size: int) -> Iterator[None]:
    host, _, port = address.rpartition(":")
    command = [sys.executable, "-m", "tests.crash.evil_child", name, host, port, str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            yield
        finally:
            child.kill()


def attack(broker: BrokerProcess, name: str, size: int, sends: int, mebibytes: int) -> None:
    pid = broker.process.pid
    before, memory = p99_of_sends(broker.address, sends), anonymous_mebibytes(pid)
    with under_attack(name, broker.address, size):
        during = float("inf")
        for _ in range(WINDOWS):
            during = min(during, p99_of_sends(broker.address, sends))
            if during < RATIO * max(before, FLOOR_SECONDS):
                break
        grown = anonymous_mebibytes(pid) - memory
    print(f"{name} x {size}: p99 {before * 1e3:.1f} -> {during * 1e3:.1f} ms, memory {memory} + {grown} MiB")
    assert grown < mebibytes, (name, grown)
    assert during < RATIO * max(before, FLOOR_SECONDS), (name, before, during)


def end(broker: BrokerProcess) -> None:
    """Whatever was done to it, it stops as it should, and none of it was a mistake of its own."""
    assert p99_of_sends(broker.address, 20) < WAIT_SECONDS
    assert broker.stop() == 0
    assert "Traceback" not in broker.log
    assert "level=ERROR" not in broker.log


def broker_for(place: Path, settings: tuple[str, ...] = SETTINGS) -> BrokerProcess:
    return BrokerProcess(place, *(word for one in settings for word in ("--set", one)))


@pytest.mark.slow(seconds=20)
def test_one_attack_after_another(tmp_path: Path) -> None:
    with broker_for(tmp_path) as broker:
        p99_of_sends(broker.address, 50)
        for name in ATTACKS:
            attack(broker, name, SHORT[name], 100, SHORT_MEBIBYTES)
        end(broker)


@pytest.mark.long
@pytest.mark.parametrize("name", ATTACKS)
def test_a_large_attack(tmp_path: Path, name: str) -> None:
    with broker_for(tmp_path, SETTINGS[:2]) as broker:
        p99_of_sends(broker.address, 200)
        attack(broker, name, LONG[name], 1000, LONG_MEBIBYTES)
        end(broker)
