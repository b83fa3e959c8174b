"""A loop on its own thread: it runs what it is given, stands still, and ends."""

import asyncio
import threading

import pytest

from embermq.testing.loop_thread import LoopThread


def test_results_and_problems_come_back() -> None:
    loop = LoopThread("loop-of-a-test")
    try:

        async def name() -> str:
            await asyncio.sleep(0)
            return threading.current_thread().name

        assert loop.run(name()) == "loop-of-a-test"
        with pytest.raises(ZeroDivisionError):
            loop.call(lambda: 1 // 0)
    finally:
        loop.stop()
    assert "loop-of-a-test" not in [thread.name for thread in threading.enumerate()]


def test_nothing_happens_while_it_is_paused() -> None:
    loop, done = LoopThread("loop"), list[str]()
    loop.pause()
    assert loop.is_paused
    loop.loop.call_soon_threadsafe(done.append, "waited")
    loop.resume(lambda: done.append("first"))
    loop.call(lambda: done.append("last"))
    loop.stop()
    assert done == ["first", "waited", "last"]


def test_the_end_cancels_what_still_runs() -> None:
    loop, ended = LoopThread("loop"), threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    async def begin() -> "asyncio.Task[None]":
        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        return task

    task = loop.run(begin())
    loop.pause()
    loop.stop()
    assert ended.is_set()
    assert task.cancelled()
