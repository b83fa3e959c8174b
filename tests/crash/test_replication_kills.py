"""A SYNC_MASTER and a slave as processes, both with SYNC_FLUSH: either is killed, paused, or cut off from the other.

Producers note what was acknowledged (SEND_OK) and where. After the last round both are killed, and each store is opened
by itself: every acknowledged message is in the queue of the slave, at its offset; the messages of a producer are in the
order in which it sent them; and both logs are the same, byte for byte, up to where the shorter one ends, which is not
before the last acknowledged message. Answers that say less (SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT, a lost
connection) promise nothing, and nothing is asked of them.
"""

import asyncio
import random
import signal
import socket
import time
from pathlib import Path

import pytest

from embermq import MessageStore
from embermq.errors import RemotingError
from embermq.remoting import Connector
from tests.support.broker_process import BrokerProcess
from tests.support.cut_link import CutLink
from tests.support.replication import file_bytes
from tests.support.replication_processes import as_slave, figure, send_command
from tests.support.waiting import wait_until

PRODUCERS, IN_FLIGHT, SEGMENT = 3, 8, 1 << 20
SYNC = ("--set", "flushDiskType=SYNC_FLUSH")
SIZES = (
    f"mappedFileSizeCommitLog={SEGMENT}",
    "mappedFileSizeConsumeQueue=20000",
    "maxHashSlotNum=1000",
    "maxIndexNum=4000",
    "emberPrefaultBytesMax=0",
)
FAULTS = ("kill slave", "kill master", "pause slave", "pause master", "cut", "stall", "kill both")


class Group:
    """The two processes, the link between them, and what their producers know."""

    def __init__(self, place: Path, link: CutLink, ports: tuple[int, int]) -> None:
        self._place, self._link, (self._port, self._ha_port) = place, link, ports
        for name in ("m", "s"):
            (place / name).mkdir()
        self.acknowledged: dict[tuple[int, int], bytes] = {}  # by queue and offset
        self.acknowledged_end = 0
        self.others = 0
        self._numbers = [0] * PRODUCERS
        self.master = self._start_master()
        self.slave = self._start_slave()

    def _start_master(self) -> BrokerProcess:
        words = ("--set", "brokerRole=SYNC_MASTER", "--set", "brokerName=b", "--set", f"haListenPort={self._ha_port}")
        more = (*SYNC, *words, "--set", "emberFastPort=false")
        return BrokerProcess(self._place / "m", *more, listen=f"127.0.0.1:{self._port}", sizes=SIZES)

    def _start_slave(self) -> BrokerProcess:
        more = (*SYNC, "--set", f"haMasterAddress=127.0.0.1:{self._link.port}")
        return as_slave(self._place / "s", self.master.name_server, *more, sizes=SIZES)

    def wait_until_whole(self) -> None:
        wait_until(lambda: figure(self.master.address, "emberReplicas") == "1", "the slave follows", look_seconds=0.05)

    def stop(self) -> None:
        self.slave.kill()
        self.master.kill()

    # -- a round -----------------------------------------------------------------------------------------------

    def round(self, fault: str, seconds: float) -> None:
        """Send, let the fault happen in the middle, and put right what it broke."""

        async def both() -> None:
            sending = [asyncio.create_task(self._produce(n, time.monotonic() + seconds)) for n in range(PRODUCERS)]
            await asyncio.sleep(seconds * random.uniform(0.2, 0.6))
            await asyncio.to_thread(self._strike, fault, seconds)
            await asyncio.gather(*sending)

        asyncio.run(both())
        if self.master.process.poll() is not None:
            self.master = self._start_master()
        if self.slave.process.poll() is not None:
            self.slave = self._start_slave()
        self.wait_until_whole()

    def _strike(self, fault: str, seconds: float) -> None:
        kind, _, whom = fault.partition(" ")
        hit = {"slave": [self.slave], "master": [self.master], "both": [self.slave, self.master]}.get(whom, [])
        if kind == "cut":
            self._link.cut()
        elif kind == "stall":
            self._link.stall(True)
            time.sleep(seconds / 4)
            self._link.stall(False)
        for broker in hit:
            if kind == "kill":
                broker.kill()
            else:
                broker.process.send_signal(signal.SIGSTOP)
                time.sleep(seconds / 4)
                broker.process.send_signal(signal.SIGCONT)

    async def _produce(self, producer: int, until: float) -> None:
        client, address = Connector(), self.master.address
        try:
            while time.monotonic() < until:
                bodies = [self._next_body(producer) for _ in range(IN_FLIGHT)]
                calls = [client.call(address, send_command(body, producer), 30.0) for body in bodies]
                answers = await asyncio.gather(*calls, return_exceptions=True)
                for body, answer in zip(bodies, answers, strict=True):
                    if isinstance(answer, BaseException):
                        assert isinstance(answer, RemotingError), answer
                        return
                    if answer.code:
                        assert answer.code in (10, 11, 12), answer.remark
                        self.others += 1
                        continue
                    assert answer.ext is not None
                    self.acknowledged[producer, int(answer.ext["queueOffset"])] = body
                    self.acknowledged_end = max(self.acknowledged_end, int(answer.ext["msgId"][-16:], 16))
        finally:
            await client.close()

    def _next_body(self, producer: int) -> bytes:
        self._numbers[producer] += 1
        return b"%d:%d:" % (producer, self._numbers[producer]) + b"x" * 200

    # -- what must hold ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Both are gone."""
        ends = [self._check_store(self._place / name / "store") for name in ("s", "m")]
        assert min(ends) > self.acknowledged_end
        one, other = (file_bytes(self._place / name / "store", 0, min(ends), SEGMENT) for name in ("s", "m"))
        assert one == other

    def _check_store(self, path: Path) -> int:
        with MessageStore.open(path, read_only=True) as store:
            for producer in range(PRODUCERS):
                bodies: list[bytes] = []
                while found := store.fetch("T", producer, len(bodies), 200).messages:
                    bodies += [bytes(message.body) for message in found]
                numbers = [int(body.split(b":")[1]) for body in bodies]
                assert numbers == sorted(numbers)
                for (queue_id, offset), body in self.acknowledged.items():
                    assert queue_id != producer or bodies[offset] == body
            return store.max_physical


def ports() -> tuple[int, int]:

    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


def play(place: Path, faults: list[str], seconds: float) -> Group:
    chosen = ports()
    with CutLink(chosen[1]) as link:
        group = Group(place, link, chosen)
        try:
            group.wait_until_whole()
            for fault in faults:
                group.round(fault, seconds)
        finally:
            group.stop()
    group.check()
    return group


@pytest.mark.slow(seconds=25)
def test_nothing_acknowledged_is_missing_on_the_slave(tmp_path: Path) -> None:
    group = play(tmp_path, ["kill slave", "cut", "pause slave", "kill master"], seconds=1.0)
    assert len(group.acknowledged) > 50


@pytest.mark.long
def test_two_hundred_rounds(tmp_path: Path) -> None:
    rounds = 0
    for number in range(10):
        place = tmp_path / str(number)
        place.mkdir()
        faults = random.choices(FAULTS, k=20)
        group = play(place, faults, seconds=1.5)
        rounds += len(faults)
        assert len(group.acknowledged) > 100, faults
    assert rounds == 200
