"""Workers: runs of handler calls on threads and tasks."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from embermq.client.consume.handle.handlers import Context, HandlerOutcome, is_async
from embermq.client.consume.handle.workers import HandlerCall, HandlerRun, Workers
from embermq.client.received import ReceivedMessage
from tests.support.brokers import until
from tests.support.received import QUEUE, received


class Bench:
    def __init__(self, threads: int = 4) -> None:
        self.done: list[tuple[int, HandlerOutcome]] = []
        self.ended: list[HandlerRun] = []
        self.workers = Workers(threads, self._done, self.ended.append)
        self.is_stopped = False

    def _done(self, run: HandlerRun, calls: list[HandlerCall]) -> None:
        self.done += [(call.messages[0].queue_offset, call.outcome) for call in calls]

    def submit(self, handler: Any, start: int, end: int, *, is_ordered: bool = False) -> HandlerRun:
        calls = deque(HandlerCall(handler, [received(n)], Context(QUEUE, "g")) for n in range(start, end))
        run = HandlerRun(calls, lambda: self.is_stopped, is_ordered=is_ordered, is_async=is_async(handler))
        self.workers.submit(run)
        return run

    @property
    def offsets(self) -> list[int]:
        return [offset for offset, _outcome in self.done]


def play(scenario: Callable[[Bench], Awaitable[None]], threads: int = 4) -> None:
    async def whole() -> None:
        bench = Bench(threads)
        try:
            async with asyncio.timeout(30):
                await scenario(bench)
        finally:
            bench.workers.close()

    asyncio.run(whole())


def test_quick_calls_of_a_run_are_made_by_one_thread() -> None:
    async def scenario(bench: Bench) -> None:
        threads: set[int] = set()
        bench.submit(lambda _messages, _context: threads.add(threading.get_ident()), 0, 50)
        await until(lambda: len(bench.ended) == 1)
        assert bench.offsets == [*range(50)]
        assert len(threads) == 1
        assert await bench.workers.drain(0)

    play(scenario)


def test_a_run_whose_handler_does_not_return_gets_more_threads() -> None:
    async def scenario(bench: Bench) -> None:
        go_on = threading.Event()

        def handle(messages: list[ReceivedMessage], context: Context) -> None:
            if messages[0].queue_offset == 0:
                go_on.wait(20)

        bench.submit(handle, 0, 10)
        await until(lambda: len(bench.done) == 9)
        assert not bench.ended
        assert [call.messages[0].queue_offset for _run, call in bench.workers.running()] == [0]
        assert not await bench.workers.drain(0)
        go_on.set()
        await until(lambda: len(bench.ended) == 1)
        assert sorted(bench.offsets) == [*range(10)]

    play(scenario)


def test_no_more_handlers_run_at_once_than_there_are_threads() -> None:
    async def scenario(bench: Bench) -> None:
        lock, now, most = threading.Lock(), 0, 0

        def handle(messages: list[ReceivedMessage], context: Context) -> None:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            time.sleep(0.005)
            with lock:
                now -= 1

        for start in range(0, 100, 10):
            bench.submit(handle, start, start + 10)
        await until(lambda: len(bench.ended) == 10)
        assert 1 < most <= 3
        assert sorted(bench.offsets) == [*range(100)]

    play(scenario, threads=3)


@pytest.mark.parametrize("kind", ["thread", "task"])
def test_an_ordered_run_ends_at_the_first_call_that_does_not_consume(kind: str) -> None:
    async def scenario(bench: Bench) -> None:
        def handle(messages: list[ReceivedMessage], context: Context) -> bool:
            return messages[0].queue_offset != 3

        async def handle_later(messages: list[ReceivedMessage], context: Context) -> bool:
            return handle(messages, context)

        run = bench.submit(handle if kind == "thread" else handle_later, 0, 9, is_ordered=True)
        await until(lambda: len(bench.ended) == 1)
        assert bench.offsets == [0, 1, 2, 3]
        assert [outcome.is_consumed for _offset, outcome in bench.done] == [True, True, True, False]
        assert [call.messages[0].queue_offset for call in run.calls] == [4, 5, 6, 7, 8]

    play(scenario)


@pytest.mark.parametrize("problem", [RuntimeError("x"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_handler_raises_is_an_outcome(problem: BaseException) -> None:
    async def scenario(bench: Bench) -> None:
        def handle(messages: list[ReceivedMessage], context: Context) -> None:
            raise problem

        bench.submit(handle, 0, 3)
        await until(lambda: len(bench.ended) == 1)
        assert [outcome.problem for _offset, outcome in bench.done] == [problem] * 3
        bench.submit(lambda _messages, _context: None, 3, 4)  # Its thread lives on.
        await until(lambda: len(bench.ended) == 2)

    play(scenario, threads=1)


@pytest.mark.parametrize("kind", ["thread", "task"])
def test_a_stopped_run_makes_no_further_call(kind: str) -> None:
    async def scenario(bench: Bench) -> None:
        def handle(messages: list[ReceivedMessage], context: Context) -> None:
            bench.is_stopped = messages[0].queue_offset == 1

        async def handle_later(messages: list[ReceivedMessage], context: Context) -> None:
            handle(messages, context)

        run = bench.submit(handle_later if kind == "task" else handle, 0, 5, is_ordered=True)
        await until(lambda: len(bench.ended) == 1)
        assert bench.offsets == [0, 1]
        assert len(run.calls) == 3

    play(scenario)


def test_coroutines_run_side_by_side_within_the_bound() -> None:
    async def scenario(bench: Bench) -> None:
        now, most = 0, 0

        async def handle(messages: list[ReceivedMessage], context: Context) -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.002)
            now -= 1

        bench.submit(handle, 0, 10)
        bench.submit(handle, 10, 20)
        await until(lambda: len(bench.ended) == 2)
        assert most == 3
        assert sorted(bench.offsets) == [*range(20)]

    play(scenario, threads=3)
