"""Transactions over kills and power cuts, at every step of the disk.

A broker without sockets prepares, commits and rolls back on a disk in memory. Before every step that changes the disk,
what a kill or a power cut would leave is opened by another broker, and this must hold:

    a message is visible once or never, and one that is visible is not undecided
    a half message that is there, and is neither decided nor visible, is undecided: its producer is asked about it
    what was acknowledged is there: half messages, commits and rollbacks (under a kill, and with SYNC_FLUSH always)
    the undecided ones can be committed, and are visible once then
"""

import asyncio
import threading
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from embermq.broker import Broker
from embermq.broker.members.clients import Member
from embermq.broker.transactions.half_messages import decided_by, final_of, real_place
from embermq.broker.transactions.requests import EndHeader
from embermq.clock import Clock, SystemClock
from embermq.model.hosts import Host, pack_host
from embermq.model.message import Message, StoredMessage
from embermq.model.properties import HALF_TOPIC, OP_TOPIC
from embermq.remoting import Call, Command, FrameReader, Piece, Reply, RequestCode
from embermq.settings import BrokerSettings, FlushDisk, KernelUse
from embermq.store import MessageStore
from embermq.testing import FaultyFiles, LossyFiles
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from embermq.testing.unsynced import Choose, keep_everything, lose_everything
from tests.crash.numbered import TINY
from tests.crash.power import random_choice
from tests.support.end_frames import end_fields
from tests.support.send_frames import json_frame
from tests.support.transactions import stored_of
from tests.support.waiting import wait_until

TOPIC, GROUP = "orders", "pg"
COMMIT, ROLLBACK = 8, 12
PROPERTIES = {"TRAN_MSG": "true", "PGROUP": GROUP}
ROOT = Path("/store")
MINUTE_MS = 60_000


class Nowhere:
    """The other end of a connection that is not there."""

    host = Host("127.0.0.1", 1)
    packed_host = pack_host(host)
    is_open = False

    def tell(self, _request: Command) -> bool:
        return False

    def call(self, _request: Command, _seconds: float, _on_answer: Any) -> None:
        raise AssertionError("not called")

    def close(self, _reason: str) -> None:
        pass


class Asked(Nowhere):
    """A connected producer: what it is asked about, and about nothing else."""

    is_open = True

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def tell(self, request: Command) -> bool:
        self.bodies.append(stored_of(request.body).body)
        return True


class Answered(Nowhere):
    """A connection whose runs of requests are answered: the opaques of those that were stored."""

    def __init__(self) -> None:
        self.stored: set[int] = set()
        self.all_answered = asyncio.Event()
        self._waiting = 0

    def begin_run(self, count: int, oneway: int = 0) -> None:
        self._waiting += count

    def answer_run(self, count: int, frames: bytes) -> None:
        self._waiting -= count
        if not self._waiting:
            self.all_answered.set()
        self.stored |= {answer.opaque for answer in FrameReader().feed(frames) if answer.code == 0}


class Ledger:
    """What a producer knows. Bodies, by what was acknowledged of them."""

    def __init__(self) -> None:
        self.prepared: set[bytes] = set()
        self.committed: set[bytes] = set()
        self.rolled_back: set[bytes] = set()
        self.refused_ever: set[bytes] = set()  # a rollback was asked for


class Bench:
    """A broker without sockets on a store."""

    def __init__(self, store: MessageStore, files: Any, clock: Clock | None = None) -> None:
        self.store = store
        self.broker = Broker(BrokerSettings(broker_name="b", fast_port=False), store, files=files, clock=clock)
        self.transactions = self.broker.transactions
        self.transactions.open()

    async def prepare(self, body: bytes) -> StoredMessage:
        receipt, end = self.transactions.prepare(Message(TOPIC, body, properties=PROPERTIES))
        await self._durable(end)
        half = self.store.at(receipt.physical_offset)
        assert half is not None
        return half

    async def end(self, half: StoredMessage, decision: int) -> Reply:
        header = EndHeader(GROUP, half.queue_offset, half.physical_offset, decision)
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        request = Command(RequestCode.END_TRANSACTION)
        call = Call(Nowhere(), request, header, lambda _request, reply: done.set_result(reply))
        answer = self.transactions.end(call)
        return answer if answer is not None else await done

    async def end_run(self, decisions: list[tuple[StoredMessage, int]]) -> None:
        """End many at once, by kernels."""
        link: Any = Answered()
        frames = [
            json_frame(end_fields(GROUP, half.queue_offset, half.physical_offset, decision), opaque=n, code=37)
            for n, (half, decision) in enumerate(decisions)
        ]
        piece = Piece(link, b"".join(frames))
        assert self.broker.runs.is_ready(1)
        self.broker.runs.take([piece])
        assert piece.at == len(piece.buffer)
        async with asyncio.timeout(60):
            await link.all_answered.wait()
        assert link.stored == set(range(len(decisions)))

    async def _durable(self, end: int) -> None:
        if end:
            done, loop = asyncio.Event(), asyncio.get_running_loop()

            def release(_failure: object) -> None:
                loop.call_soon_threadsafe(done.set)

            self.store.when_durable(end, release)
            await done.wait()

    async def ask(self) -> list[bytes]:
        """What a round of checks asks a producer about."""
        producer = Asked()
        assert self.broker.clients.register_producer(Member(producer, "p", "JAVA", 409, 0.0, 0), GROUP)
        await self.transactions.check()
        self.broker.clients.forget(producer)
        return producer.bodies

    def save(self) -> None:
        self.transactions.keep_state()
        self.broker.save_tables()


class Cuts:
    """The disk that is cut before its steps."""

    def __init__(self, flush: FlushDisk, stride: int, **more: Any) -> None:
        self.disk, self.ledger = LossyFiles(), Ledger()
        self.files = FaultyFiles(self.disk)
        settings = TINY | {"flush": flush, "segment_bytes": 32768} | more
        self.builder = StoreBuilder(ROOT, files=self.files, **settings)
        self.survives_power = flush is FlushDisk.SYNC
        self.failures: list[str] = []
        self.checked = 0
        self._mutex = threading.Lock()
        for step in range(1, 100_000, stride):
            self.files.before(step=step, call=self.cut)

    def cut(self) -> None:
        """On a thread of its own: the caller may be the thread of a loop."""
        with self._mutex:
            thread = threading.Thread(target=self._cut)
            thread.start()
            thread.join()

    def _cut(self) -> None:
        ledger = self.ledger
        known = Ledger()
        known.prepared, known.committed = set(ledger.prepared), set(ledger.committed)
        known.rolled_back, known.refused_ever = set(ledger.rolled_back), set(ledger.refused_ever)
        seed = len(self.files.steps)
        cuts = {"killed": keep_everything, "all lost": lose_everything, "some lost": random_choice(seed, torn=False)}
        for name, choose in cuts.items():
            self._check(name, choose, known)

    def _check(self, name: str, choose: Choose, known: Ledger) -> None:
        left = self.disk.crash(choose)
        self.checked += 1
        try:
            asyncio.run(check_left(self.builder.on(left), left, known, name == "killed" or self.survives_power))
        except Exception:
            step = self.files.steps[-1] if self.files.steps else ("start", Path())
            where = f"step {len(self.files.steps)}: {step[0]} {step[1].name}, {name}"
            self.failures.append(f"{where}\n{traceback.format_exc()}")


def messages_of(store: MessageStore, topic: str) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    while more := store.fetch(topic, 0, len(found)).messages:
        found += more
    return found


async def check_left(builder: StoreBuilder, files: LossyFiles, known: Ledger, survives: bool) -> None:
    later = ManualClock(SystemClock().now_ms() + MINUTE_MS)
    with builder.open() as store:
        bench = Bench(store, files, later)
        halves = messages_of(store, HALF_TOPIC)
        visible = Counter(one.body for one in messages_of(store, TOPIC))
        decided = {offset for op in messages_of(store, OP_TOPIC) for offset in decided_by(op)}
        undecided = {halves[offset].body for offset in bench.transactions.undecided}
        assert all(count == 1 for count in visible.values()), visible
        assert undecided == {half.body for half in halves if half.queue_offset not in decided}
        assert sorted(await bench.ask()) == sorted(undecided)
        assert not undecided & visible.keys()
        assert not visible.keys() & known.refused_ever
        if survives:
            assert known.prepared <= {half.body for half in halves}
            assert known.committed <= visible.keys()
            assert not known.rolled_back & undecided
        for half in halves:
            if half.body in undecided:
                assert (await bench.end(half, COMMIT)).code == 0
            assert (await bench.end(half, COMMIT)).code == 0
        again = Counter(one.body for one in messages_of(store, TOPIC))
        assert again == visible + Counter(undecided)


async def run_transactions(cuts: Cuts) -> None:
    ledger = cuts.ledger
    with cuts.builder.open() as store:
        bench = Bench(store, cuts.files)
        waiting: list[StoredMessage] = []
        for number in range(12):
            body = b"%d" % number
            half = await bench.prepare(body)
            ledger.prepared.add(body)
            if number % 4 == 0:
                waiting.append(half)
            elif number % 4 == 1:
                ledger.refused_ever.add(body)
                assert (await bench.end(half, ROLLBACK)).code == 0
                ledger.rolled_back.add(body)
            else:
                assert (await bench.end(half, COMMIT)).code == 0
                ledger.committed.add(body)
            if number % 3 == 2:
                await asyncio.to_thread(bench.save)
        for half in waiting[:-1]:
            assert (await bench.end(half, COMMIT)).code == 0
            ledger.committed.add(half.body)
            await asyncio.to_thread(bench.save)


async def run_runs(cuts: Cuts) -> None:
    """Transactions that are ended many at once."""
    ledger = cuts.ledger
    with cuts.builder.open() as store:
        bench = Bench(store, cuts.files)
        for start in range(0, 40, 10):
            halves = []
            for number in range(start, start + 10):
                halves.append(await bench.prepare(b"%d" % number))
                ledger.prepared.add(halves[-1].body)
            decisions = [(half, ROLLBACK if n % 4 == 1 else COMMIT) for n, half in enumerate(halves[:-1])]
            ledger.refused_ever |= {half.body for half, decision in decisions if decision == ROLLBACK}
            await bench.end_run(decisions)
            for half, decision in decisions:
                (ledger.committed if decision == COMMIT else ledger.rolled_back).add(half.body)
            await asyncio.to_thread(bench.save)


def play(flush: FlushDisk, stride: int, *, by_runs: bool = False) -> Cuts:
    cuts = Cuts(flush, stride, **({"kernels": KernelUse.ALWAYS} if by_runs else {}))
    asyncio.run(run_runs(cuts) if by_runs else run_transactions(cuts))
    assert cuts.checked > 10
    assert not cuts.failures, f"{len(cuts.failures)} of {cuts.checked} failed:\n{cuts.failures[0]}"
    return cuts


@pytest.mark.slow(seconds=8)
@pytest.mark.parametrize("flush", [FlushDisk.SYNC, FlushDisk.ASYNC])
def test_some_steps(flush: FlushDisk) -> None:
    play(flush, 17)


@pytest.mark.slow(seconds=8)
@pytest.mark.parametrize("flush", [FlushDisk.SYNC, FlushDisk.ASYNC])
def test_some_steps_of_runs(flush: FlushDisk) -> None:
    play(flush, 17, by_runs=True)


@pytest.mark.long
@pytest.mark.parametrize("flush", [FlushDisk.SYNC, FlushDisk.ASYNC])
@pytest.mark.parametrize("by_runs", [False, True])
def test_every_step(flush: FlushDisk, by_runs: bool) -> None:
    play(flush, 1, by_runs=by_runs)


@pytest.mark.parametrize("flush", [FlushDisk.SYNC, FlushDisk.ASYNC])
def test_a_commit_of_which_only_the_message_was_stored(flush: FlushDisk) -> None:
    """What a kill between the two records of a commit leaves: the message is visible, and stays so once."""
    disk = LossyFiles()
    builder = StoreBuilder(ROOT, files=disk, **(TINY | {"flush": flush, "segment_bytes": 32768}))

    async def scenario() -> None:
        with builder.open() as store:
            bench = Bench(store, disk)
            other, half = await bench.prepare(b"other"), await bench.prepare(b"half")
            place = real_place(half)
            assert place is not None
            store.internal.append(final_of(half, place))
            wait_until(lambda: store.flushed_offset == store.max_physical or flush is FlushDisk.ASYNC)
            killed = disk.crash(keep_everything)
        with builder.on(killed).open() as store:
            bench = Bench(store, killed)
            assert list(bench.transactions.undecided) == [other.queue_offset]
            assert [op.body for op in messages_of(store, OP_TOPIC)] == [b"1"]
            again = await bench.end(half, COMMIT)
            assert (again.code, "decided before" in (again.remark or "")) == (0, True)
            assert [one.body for one in messages_of(store, TOPIC)] == [b"half"]

    asyncio.run(scenario())
