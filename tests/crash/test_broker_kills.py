"""A broker is killed under load and started again on its port: what it acknowledged is there, in order, once.

Producers note every acknowledged message; a consumer commits the offset behind what it has read. After the last round
the queues are read from their start: each acknowledged message is found, the messages of a producer are in the order in
which it sent them, and the committed offsets are no further than what the consumer had asked for.

A message that was sent and not acknowledged may be stored or not; one that is sent again after a lost answer may be
stored twice. So producers never send a number again.
"""

import asyncio
import random
from collections import defaultdict
from pathlib import Path

import pytest

from embermq.errors import RemotingError
from embermq.remoting import Command, Connector, RequestCode
from embermq.settings import FlushDisk
from embermq.store import MessageStore
from tests.support.broker_process import BrokerProcess
from tests.support.brokers import pull_fields, send_fields

PRODUCERS, QUEUES = 3, 2
IN_FLIGHT = 16
TOPIC, GROUP = "T", "g"


class Ledger:
    """What clients know: acknowledged messages by their place, and how far the consumer is in each queue."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}  # queue and offset
        self.read: dict[int, int] = defaultdict(int)
        self.asked_to_commit: dict[int, int] = defaultdict(int)
        self.numbers = [0] * PRODUCERS


async def produce(client: Connector, address: str, producer: int, ledger: Ledger) -> None:
    """Send until the broker is gone."""
    queue_id = producer % QUEUES
    while True:
        bodies = []
        for _ in range(IN_FLIGHT):
            ledger.numbers[producer] += 1
            bodies.append(b"%d:%d" % (producer, ledger.numbers[producer]))
        fields = {name: str(value) for name, value in (send_fields(TOPIC) | {"e": queue_id, "d": QUEUES}).items()}
        calls = [
            client.call(address, Command(RequestCode.SEND_MESSAGE_V2, ext=fields, body=body), 30.0) for body in bodies
        ]
        gone = False
        for body, answer in zip(bodies, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(answer, Command):
                assert answer.code == 0, answer.remark
                assert answer.ext is not None
                ledger.acknowledged[queue_id, int(answer.ext["queueOffset"])] = body
            else:
                assert isinstance(answer, RemotingError), answer
                gone = True
        if gone:
            return


async def consume(client: Connector, address: str, queue_id: int, ledger: Ledger) -> None:
    """Read on from the committed offset until the broker is gone."""
    try:
        where = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
        known = await client.call(address, Command(RequestCode.QUERY_CONSUMER_OFFSET, ext=where), 30.0)
        offset = int((known.ext or {})["offset"])
        assert offset <= ledger.asked_to_commit[queue_id]
        while True:
            ledger.asked_to_commit[queue_id] = max(ledger.asked_to_commit[queue_id], offset)
            fields = pull_fields(TOPIC, offset, GROUP, 7) | {"queueId": queue_id, "commitOffset": offset}
            texts = {name: str(value) for name, value in fields.items()}
            answer = await client.call(address, Command(RequestCode.PULL_MESSAGE, ext=texts), 30.0)
            if answer.code == 0:
                offset = int((answer.ext or {})["nextBeginOffset"])
                ledger.read[queue_id] = max(ledger.read[queue_id], offset)
            else:
                await asyncio.sleep(0.01)
    except RemotingError:
        pass


async def load_until_killed(broker: BrokerProcess, ledger: Ledger, seconds: float) -> None:
    clients = [Connector() for _ in range(PRODUCERS + QUEUES)]
    tasks = [
        asyncio.ensure_future(produce(clients[number], broker.address, number, ledger)) for number in range(PRODUCERS)
    ]
    tasks += [
        asyncio.ensure_future(consume(clients[PRODUCERS + queue_id], broker.address, queue_id, ledger))
        for queue_id in range(QUEUES)
    ]
    await asyncio.sleep(seconds)
    broker.process.kill()
    await asyncio.gather(*tasks)
    for client in clients:
        await client.close()


def check(store: Path, ledger: Ledger) -> None:
    """Every acknowledged message is in its place, and the messages of each producer are in order."""
    with MessageStore.open(store, read_only=True) as opened:
        for queue_id in range(QUEUES):
            newest: dict[bytes, int] = defaultdict(int)
            found: dict[int, bytes] = {}
            offset = 0
            while messages := opened.fetch(TOPIC, queue_id, offset).messages:
                for message in messages:
                    assert message.queue_offset == offset
                    offset += 1
                    found[message.queue_offset] = message.body
                    producer, _, number = message.body.partition(b":")
                    assert int(number) > newest[producer], message
                    newest[producer] = int(number)
            wanted = {at: body for (queue, at), body in ledger.acknowledged.items() if queue == queue_id}
            assert {at: found.get(at) for at in wanted} == wanted
            assert ledger.read[queue_id] <= offset


def kill_rounds(tmp_path: Path, flush: FlushDisk, rounds: int, seed: int) -> Ledger:
    ledger, dice = Ledger(), random.Random(seed)
    listen = name_server = "127.0.0.1:0"
    for _ in range(rounds):
        broker = BrokerProcess(
            tmp_path,
            "--set",
            f"flushDiskType={flush}",
            "--set",
            "emberFastPort=false",
            listen=listen,
            name_server=name_server,
        )
        listen, name_server = broker.address, broker.name_server
        try:
            asyncio.run(load_until_killed(broker, ledger, dice.uniform(0.2, 0.8)))
        finally:
            broker.kill()
    check(tmp_path / "store", ledger)
    return ledger


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_nothing_acknowledged_is_lost(tmp_path: Path, flush: FlushDisk) -> None:
    ledger = kill_rounds(tmp_path, flush, 3, seed=1)
    assert len(ledger.acknowledged) > 100
    assert sum(ledger.read.values()) > 0


@pytest.mark.long
@pytest.mark.parametrize("flush", list(FlushDisk))
def test_nothing_acknowledged_is_lost_in_a_hundred_kills(tmp_path: Path, flush: FlushDisk) -> None:
    ledger = kill_rounds(tmp_path, flush, 100, seed=2)
    assert len(ledger.acknowledged) > 10_000
