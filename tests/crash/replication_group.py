"""A SYNC_MASTER and a slave as processes, both with SYNC_FLUSH, producers of them, and what must hold after faults.

Producers note what was acknowledged (SEND_OK) and where. After the last round both are killed, and each store is opened
by itself: every acknowledged message is in the queue of the slave, at its offset; the messages of a producer are in the
order in which it sent them; and both logs are the same, byte for byte, up to where the shorter one ends, which is not
before the last acknowledged message. Answers that say less (SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT, a lost
connection) promise nothing, and nothing is asked of them.
"""

import asyncio
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embermq import MessageStore
from embermq.errors import RemotingError
from embermq.remoting import Connector
from tests.support.broker_process import BrokerProcess
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


@dataclass(frozen=True)
class Placement:
    """Where the two run, and what can happen to the link between them."""

    listen: str  # The master's address.
    name_server: str  # Where the name server in its process listens.
    ha_port: int
    ha_address: str  # Where the slave finds the master.
    slave_listen: str = ""
    slave_within: Sequence[str] = ()  # Words before its command.
    settings: Sequence[str] = ()  # Of both.
    link_faults: Mapping[str, Callable[[float], None]] = field(default_factory=dict)  # They take a number of seconds.


class Group:
    """The two processes, and what their producers know."""

    def __init__(self, place: Path, placement: Placement) -> None:
        self._place, self._placement = place, placement
        for name in ("m", "s"):
            (place / name).mkdir()
        self.acknowledged: dict[tuple[int, int], bytes] = {}  # by queue and offset
        self.acknowledged_end = 0
        self.others = 0
        self._numbers = [0] * PRODUCERS
        self.master = self._start_master()
        self.slave = self._start_slave()

    def _start_master(self) -> BrokerProcess:
        place = self._placement
        words = ("--set", "brokerRole=SYNC_MASTER", "--set", "brokerName=b", "--set", f"haListenPort={place.ha_port}")
        more = (*SYNC, *words, "--set", "emberFastPort=false")
        sizes = (*SIZES, *place.settings)
        return BrokerProcess(self._place / "m", *more, listen=place.listen, name_server=place.name_server, sizes=sizes)

    def _start_slave(self) -> BrokerProcess:
        place = self._placement
        more = (*SYNC, "--set", f"haMasterAddress={place.ha_address}")
        return as_slave(
            self._place / "s",
            self.master.name_server,
            *more,
            sizes=(*SIZES, *place.settings),
            listen=place.slave_listen,
            within=place.slave_within,
        )

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
        if fault in self._placement.link_faults:
            self._placement.link_faults[fault](seconds / 4)
            return
        kind, _, whom = fault.partition(" ")
        hit = {"slave": [self.slave], "master": [self.master], "both": [self.slave, self.master]}[whom]
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


def play(place: Path, placement: Placement, faults: Sequence[str], seconds: float) -> Group:
    """One round for each fault; then both are gone, and what must hold is checked."""
    group = Group(place, placement)
    try:
        group.wait_until_whole()
        for fault in faults:
            group.round(fault, seconds)
    finally:
        group.stop()
    group.check()
    return group
