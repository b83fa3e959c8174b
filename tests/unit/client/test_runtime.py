"""The loop behind the synchronous faces. Clients of other tests of this process may use the shared one meanwhile, so
each test has its own."""

import asyncio
import os
import threading
import time

import pytest

from embermq.client.runtime import HeldRuntime, SharedRuntime
from embermq.errors import ClientClosed, ClientError


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
    held = HeldRuntime("one")
    assert held.start(give(1)) == 1
    try:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                mine = HeldRuntime("another")
                is_own = mine.start(give(2)) == 2 and mine.current is not held.current
                code = 0 if is_own else 2
            finally:
                os._exit(code)
        deadline = time.monotonic() + 60
        while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert ended == (pid, 0)
    finally:
        held.end(nothing)


async def nothing() -> None:
    pass


async def fail() -> None:
    raise KeyError("k")


def test_a_hold_ends_where_the_beginning_fails() -> None:
    held = HeldRuntime("the client")
    with pytest.raises(KeyError):
        held.start(fail())
    assert not held.is_held
    assert held.start(give(1)) == 1  # It may be tried again.
    assert held.end(nothing)


def test_a_hold_ends_where_the_end_fails() -> None:
    held = HeldRuntime("the client")
    held.start(nothing())
    with pytest.raises(KeyError):
        held.end(fail)
    assert not held.is_held
    assert not held.end(nothing)


def test_calls_before_and_after_name_the_client() -> None:
    held = HeldRuntime("the client of orders")
    for _ in range(2):
        with pytest.raises(ClientClosed, match="the client of orders is not open"):
            held.run(give(1))
        with pytest.raises(ClientClosed, match="the client of orders is not open"):
            held.current  # noqa: B018
        held.start(nothing())
        held.end(nothing)


def test_one_of_two_threads_ends_a_hold() -> None:
    """The other one does not wait for it, and what still runs meanwhile may use the loop."""
    held, entered, go_on = HeldRuntime("the client"), threading.Event(), threading.Event()
    held.start(nothing())

    async def wait() -> None:
        entered.set()
        await asyncio.to_thread(go_on.wait, 60)

    ended: list[bool] = []
    other = threading.Thread(target=lambda: ended.append(held.end(wait)))
    other.start()
    assert entered.wait(60)
    assert not held.end(nothing)
    assert held.run(give(4)) == 4
    go_on.set()
    other.join(60)
    assert ended == [True]
    assert not held.is_held
