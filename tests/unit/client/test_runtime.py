"""The loop behind the synchronous faces. Clients of other tests of this process may use the shared one meanwhile, so
each test has its own."""

import asyncio
import os
import threading
import time

import pytest

from embermq.client.runtime import SharedRuntime, acquire, release
from embermq.errors import ClientError


async def give(value: int) -> int:
    await asyncio.sleep(0)
    return value


@pytest.fixture
def runtime() -> SharedRuntime:
    return SharedRuntime()


def client_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "embermq-client"}


def test_one_thread_serves_all_and_ends_with_the_last(runtime: SharedRuntime) -> None:
    others = client_threads()
    first, second = runtime.acquire(), runtime.acquire()
    try:
        assert first is second
        assert first.run(give(3)) == 3
        (mine,) = client_threads() - others
    finally:
        runtime.release()
        assert mine.is_alive()
        runtime.release()
    assert not mine.is_alive()


def test_errors_come_to_the_caller_and_time_is_bounded(runtime: SharedRuntime) -> None:
    async def fail() -> None:
        raise KeyError("k")

    one = runtime.acquire()
    try:
        with pytest.raises(KeyError):
            one.run(fail())
        with pytest.raises(TimeoutError):
            one.run(asyncio.sleep(60), seconds=0.01)
    finally:
        runtime.release()


def test_what_still_runs_is_cancelled_at_the_end(runtime: SharedRuntime) -> None:
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            ended.append("cancelled")

    one = runtime.acquire()
    future = one.start(forever())
    one.run(give(1))
    runtime.release()
    assert future.cancelled()
    assert ended == ["cancelled"]


def test_a_call_that_would_wait_for_itself_is_refused(runtime: SharedRuntime) -> None:
    one = runtime.acquire()

    async def call_inside() -> None:
        with pytest.raises(ClientError, match="would wait for itself"):
            one.run(give(1))

    try:
        one.run(call_inside())
    finally:
        runtime.release()


def test_a_forked_child_gets_its_own() -> None:
    one = acquire()
    try:
        assert one.run(give(1)) == 1
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                mine = acquire()
                code = 0 if mine is not one and mine.run(give(2), seconds=10) == 2 else 2
            finally:
                os._exit(code)
        deadline = time.monotonic() + 30
        while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert ended == (pid, 0)
    finally:
        release()
