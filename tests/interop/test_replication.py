"""Replication between EmberMQ and Apache RocketMQ, each in both roles: the same log, byte for byte, after kills too."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embermq.remoting import ResponseCode
from tests.interop import java_broker, reference
from tests.interop.java_broker import JavaProcess, broker_config, free_port, java_server
from tests.support.broker_process import BrokerProcess
from tests.support.replication import file_bytes
from tests.support.replication_processes import as_slave, ask_all, figure, name_server, pulled, send_command
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

SEGMENT = 1 << 20
NAME = "broker-a"
SIZES = (
    f"mappedFileSizeCommitLog={SEGMENT}",
    "mappedFileSizeConsumeQueue=20000",
    "maxHashSlotNum=1000",
    "maxIndexNum=4000",
    "emberPrefaultBytesMax=0",
)
STARTUP = "broker.BrokerStartup"


@pytest.fixture(scope="module", autouse=True)
def _jars() -> None:
    try:
        java_broker.class_path()
    except reference.ReferenceMissing as why:
        pytest.skip(str(why))


@contextmanager
def java(place: Path, name_server: str, broker_id: int, port: int) -> Iterator[JavaProcess]:
    place.mkdir(parents=True, exist_ok=True)
    config = broker_config(place, name_server, name=NAME, broker_id=broker_id, port=port)
    with java_server(STARTUP, place, config) as process:
        yield process


def fill(address: str, numbers: range) -> None:
    for start in range(numbers.start, numbers.stop, 50):
        left = list(range(start, min(start + 50, numbers.stop)))

        def are_stored(left: list[int] = left) -> bool:
            """A Java broker on a busy machine refuses some of them: those are sent again."""
            answers = ask_all(address, [send_command(b"%d:" % n + b"x" * 1000) for n in left])
            assert {answer.code for answer in answers} <= {0, ResponseCode.SYSTEM_BUSY}, answers
            left[:] = [n for n, answer in zip(left, answers, strict=True) if answer.code]
            return not left

        wait_until(are_stored, f"{address} stores messages", look_seconds=0.2)


def end_of(address: str) -> int:
    return int(figure(address, "commitLogMaxOffset"))


def wait_for_end(address: str, end: int) -> None:
    wait_until(lambda: end_of(address) == end, f"{address} has the log up to {end}", look_seconds=0.2)


def assert_same(one: Path, other: Path, end: int) -> None:
    assert file_bytes(one, 0, end, SEGMENT) == file_bytes(other, 0, end, SEGMENT)


def test_our_slave_follows_apaches_master(directory: Path) -> None:
    upper, lower, port = directory / "java", directory / "ours", free_port()
    master = f"127.0.0.1:{port}"
    lower.mkdir(parents=True)
    reads = ("--set", "slaveReadEnable=true")
    with name_server(directory / "ns") as names, java(upper, names, 0, port) as process:
        with as_slave(lower, names, *reads, name=NAME, sizes=SIZES) as slave:
            wait_until(lambda: figure(slave.address, "emberMaster") != "", "it knows its master")
            fill(master, range(1500))  # Two log files.
            wait_for_end(slave.address, end_of(master))
            assert end_of(master) > SEGMENT
            slave.kill()
        fill(master, range(1500, 2500))
        with as_slave(lower, names, *reads, name=NAME, sizes=SIZES) as slave:
            end = end_of(master)
            wait_for_end(slave.address, end)
            wait_until(lambda: pulled(slave.address) == 2500, "queues and topics are there", look_seconds=0.5)
            process.kill()
            assert pulled(slave.address) == 2500  # The master is gone.
            assert_same(upper / "store", slave.store, end)
            with java(upper, names, 0, port):  # It recovers, and is followed again.
                fill(master, range(2500, 2600))
                end = end_of(master)
                wait_for_end(slave.address, end)
                assert figure(slave.address, "emberMasterProblem") == ""
    assert_same(upper / "store", lower / "store", end)


def test_apaches_slave_follows_our_master(directory: Path) -> None:
    upper, lower, ours, theirs = directory / "ours", directory / "java", free_port(), free_port()
    upper.mkdir(parents=True)
    slave, address = f"127.0.0.1:{theirs}", f"127.0.0.1:{ours}"
    role = ("--set", "brokerRole=SYNC_MASTER", "--set", "slaveTimeout=60000", "--set", f"brokerName={NAME}")
    with name_server(directory / "ns") as names:
        words = (*role, "-n", names)
        master = BrokerProcess(upper, *words, listen=address, sizes=SIZES)
        try:
            with java(lower, names, 1, theirs) as process:
                wait_until(lambda: figure(address, "emberReplicas") == "1", "it is connected", look_seconds=0.2)
                fill(address, range(1500))  # Each of them acknowledged by Apache's slave.
                wait_for_end(slave, end_of(address))
                process.kill()
            with java(lower, names, 1, theirs):
                wait_until(lambda: figure(address, "emberReplicas") == "1", "it is back", look_seconds=0.2)
                fill(address, range(1500, 2000))
                master.kill()
                end = end_of(slave)
                assert_same(upper / "store", lower / "store", end)
                master = BrokerProcess(upper, *words, listen=address, sizes=SIZES)
                wait_until(lambda: figure(address, "emberReplicas") == "1", "it is followed again", look_seconds=0.2)
                fill(address, range(2000, 2100))
                end = end_of(address)
                wait_for_end(slave, end)
        finally:
            master.stop()
    assert_same(upper / "store", lower / "store", end)
