"""Orderly consumption without threads or brokers: a test for each row of its table."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from embermq.client.calls import BrokerAddress, WireMessage
from embermq.client.consume.handle import orderly
from embermq.client.consume.handle.by_topic import Handlers
from embermq.client.consume.handle.figures import ConsumerFigures
from embermq.client.consume.handle.handlers import CONSUMED, LATER, HandlerOutcome
from embermq.client.consume.handle.orderly import LaneState, OrderlyConsumption
from embermq.client.consume.handle.workers import HandlerRun
from embermq.client.consume.queues.locks import HeldLocks
from embermq.client.consume.queues.process_queue import CacheLimits, ProcessQueue
from embermq.client.consume.settings import ConsumerSettings
from embermq.client.message_queue import MessageQueue
from embermq.errors import BrokerUnreachable
from tests.support.brokers import until
from tests.support.received import QUEUE, several


class Bench:
    """One queue that is handled in order, with workers and a broker made of lists."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.runs: list[HandlerRun] = []
        self.stored: list[WireMessage] = []
        self.broker_is_down = False
        self.tasks: list[asyncio.Task[None]] = []
        monkeypatch.setattr(orderly, "Workers", lambda *_given: SimpleNamespace(submit=self.runs.append))
        monkeypatch.setattr(orderly, "send", self._send)
        self.settings = ConsumerSettings(group="g", orderly=True, **settings)
        self.locks = HeldLocks()
        self.lock()
        instance = SimpleNamespace(
            settings=SimpleNamespace(namespace="", call_timeout=1.0),
            caller=None,
            routes=SimpleNamespace(broker=lambda name: BrokerAddress(name, "x:1")),
        )
        self.readers = SimpleNamespace(
            instance=instance, settings=self.settings, group="g", locks=self.locks, positions={}, soon=self._soon
        )
        self.consumption = OrderlyConsumption(self.readers, Handlers(), ConsumerFigures())  # type: ignore[arg-type]
        self.process = ProcessQueue(CacheLimits(), is_orderly=True)
        self.reader: Any = Reader(self.process)

    def lock(self) -> None:
        self.locks.answered([QUEUE], {QUEUE}, asyncio.get_running_loop().time())

    async def _send(self, caller: object, to: BrokerAddress, message: WireMessage, seconds: float) -> None:
        if self.broker_is_down:
            raise BrokerUnreachable(to.name, to.address, "SEND_MESSAGE_V2", "down", is_sent=False)
        self.stored.append(message)

    def _soon(self, work: Callable[[], Awaitable[None]]) -> None:
        self.tasks.append(asyncio.ensure_future(work()))

    def arrive(self, start: int, end: int) -> None:
        messages = several(start, end)
        self.process.put(messages)
        self.consumption.arrived(self.reader, messages)

    @property
    def state(self) -> LaneState:
        return self.consumption._lane(self.reader).state

    def play(self, *outcomes: HandlerOutcome) -> None:
        """The newest run: so many calls with these outcomes, then it ends."""
        run = self.runs.pop()
        for outcome in outcomes:
            call = run.calls.popleft()
            call.outcome = outcome
            self.consumption._done(run, [call])
        self.consumption._ended(run)

    def waiting_run(self) -> list[int]:
        return [message.queue_offset for call in self.runs[-1].calls for message in call.messages]


class Reader:
    """As much of a queue reader as consumption needs."""

    def __init__(self, process: ProcessQueue) -> None:
        self.process, self.queue, self.may_commit = process, QUEUE, True

    @property
    def is_dropped(self) -> bool:
        return self.process.is_dropped

    def has_room_again(self) -> None: ...


def played(scenario: Callable[[pytest.MonkeyPatch], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(scenario(monkeypatch))  # type: ignore[arg-type]


def test_idle_messages_and_locked_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(patch: pytest.MonkeyPatch) -> None:
        bench = Bench(patch)
        bench.arrive(0, 3)
        assert bench.state is LaneState.RUNNING
        assert bench.waiting_run() == [0, 1, 2]
        assert bench.runs[0].is_ordered
        bench.arrive(3, 5)  # One run at a time.
        assert len(bench.runs) == 1

    played(scenario, monkeypatch)


def test_idle_messages_and_not_locked_stay_until_the_lock_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(patch: pytest.MonkeyPatch) -> None:
        bench = Bench(patch)
        bench.locks.release(QUEUE)
        bench.arrive(0, 3)
        assert (bench.state, bench.runs) == (LaneState.IDLE, [])
        bench.lock()
        bench.consumption.woken(bench.reader)
        assert bench.waiting_run() == [0, 1, 2]

    played(scenario, monkeypatch)


def test_consumed_calls_are_finished_and_the_next_run_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(patch: pytest.MonkeyPatch) -> None:
        bench = Bench(patch)
        bench.arrive(0, 40)
        assert bench.waiting_run() == [*range(32)]
        bench.play(*[CONSUMED] * 32)
        assert bench.readers.positions == {QUEUE: 32}
        assert bench.waiting_run() == [*range(32, 40)]
        bench.play(*[CONSUMED] * 8)
        assert (bench.state, bench.readers.positions) == (LaneState.IDLE, {QUEUE: 40})

    played(scenario, monkeypatch)


def test_not_consumed_with_tries_left_waits_and_comes_first_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(patch: pytest.MonkeyPatch) -> None:
        bench = Bench(patch)
        bench.arrive(0, 4)
        bench.runs[0].calls[1].context.suspend = 0.2
        bench.play(CONSUMED, LATER)
        assert (bench.state, bench.readers.positions, bench.runs) == (LaneState.WAITING, {QUEUE: 1}, [])
        bench.arrive(4, 5)  # Nothing passes it.
        assert bench.runs == []
        await until(lambda: bench.state is LaneState.RUNNING)
        assert bench.waiting_run() == [1, 2, 3, 4]
        assert [call.messages[0].reconsume_times for call in bench.runs[0].calls] == [1, 0, 0, 0]

    played(scenario, monkeypatch)


def test_not_consumed_without_tries_is_stored_and_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(patch: pytest.MonkeyPatch) -> None:
        bench = Bench(patch, retries_max=0)
        bench.arrive(0, 2)
        bench.play(LATER)
        assert bench.state is LaneState.STORING
        await asyncio.gather(*bench.tasks)
        (stored,) = bench.stored
        assert (stored.topic, stored.reconsume_times, stored.max_reconsume_times) == ("%RETRY%g", 0, 0)
        assert bench.readers.positions == {QUEUE: 1}
        assert bench.waiting_run() == [1]

    played(scenario, monkeypatch)


def test_not_stored_waits_as_if_tries_were_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(patch: pytest.MonkeyPatch) -> None:
        bench = Bench(patch, retries_max=0)
        bench.broker_is_down = True
        bench.arrive(0, 2)
        bench.runs[0].calls[0].context.suspend = 0.2
        bench.play(LATER)
        await asyncio.gather(*bench.tasks)
        assert (bench.state, bench.readers.positions) == (LaneState.WAITING, {})
        await until(lambda: bench.state is LaneState.RUNNING)
        assert bench.waiting_run() == [0, 1]

    played(scenario, monkeypatch)


def test_broadcasting_without_tries_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(patch: pytest.MonkeyPatch) -> None:
        bench = Bench(patch, retries_max=0, broadcasting=True)
        bench.arrive(0, 1)
        bench.play(LATER)
        await asyncio.gather(*bench.tasks)
        assert (bench.stored, bench.readers.positions, bench.state) == ([], {QUEUE: 1}, LaneState.IDLE)

    played(scenario, monkeypatch)


def test_a_run_that_was_stopped_gives_the_rest_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(patch: pytest.MonkeyPatch) -> None:
        bench = Bench(patch)
        bench.arrive(0, 3)
        bench.locks.release(QUEUE)
        assert bench.runs[0].is_stopped()
        bench.play(CONSUMED)
        assert (bench.state, bench.runs, bench.readers.positions) == (LaneState.IDLE, [], {QUEUE: 1})
        bench.lock()
        bench.consumption.woken(bench.reader)
        assert bench.waiting_run() == [1, 2]

    played(scenario, monkeypatch)


def test_a_dropped_queue_is_quiet_when_its_last_call_returns_and_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(patch: pytest.MonkeyPatch) -> None:
        bench = Bench(patch)
        bench.arrive(0, 3)
        ended = asyncio.ensure_future(bench.consumption.ended(bench.reader))
        bench.process.drop()
        await asyncio.sleep(0)
        assert not ended.done()
        assert bench.runs[0].is_stopped()
        bench.play(CONSUMED)
        await ended
        assert bench.readers.positions == {QUEUE: 1}

    played(scenario, monkeypatch)


def test_a_robbed_queue_commits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(patch: pytest.MonkeyPatch) -> None:
        bench = Bench(patch)
        bench.arrive(0, 3)
        bench.reader.may_commit = False
        bench.play(CONSUMED)
        assert bench.readers.positions == {}

    played(scenario, monkeypatch)


def test_queues_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(patch: pytest.MonkeyPatch) -> None:
        bench = Bench(patch)
        bench.arrive(0, 1)
        other: Any = Reader(ProcessQueue(CacheLimits(), is_orderly=True))
        other.queue = MessageQueue("orders", "a", 1)
        bench.locks.answered([other.queue], {other.queue}, asyncio.get_running_loop().time())
        other.process.put(several(0, 1))
        bench.consumption.arrived(other, [])
        assert len(bench.runs) == 2

    played(scenario, monkeypatch)
