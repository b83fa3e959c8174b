"""Runtime: one background thread with an asyncio loop, shared by all synchronous clients of the process.

    held = HeldRuntime("producer orders")
    held.start(connect())
    held.run(coroutine)             # from any thread but the loop's own
    held.end(disconnect)            # the last client that ends its hold ends the thread

Any thread. The thread is a daemon, so that a program can end without closing its clients. A
forked child does not have it, and gets its own when it first asks.
"""

import asyncio
import concurrent.futures
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from embermq.errors import ClientClosed, ClientError

T = TypeVar("T")
log = logging.getLogger(__name__)


class Runtime:
    """A loop and its thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="embermq-client", daemon=True)
        self._thread.start()

    @property
    def is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """The result of a coroutine on the loop; it is cancelled when the caller is interrupted or `seconds` pass."""
        if self.is_own_thread:
            coroutine.close()
            raise ClientError(
                "a synchronous call on the thread of the client's own loop would wait for itself: call from another"
                " thread, or use embermq.client.aio"
            )
        future = self.start(coroutine)
        try:
            return future.result(seconds)
        except BaseException:
            future.cancel()  # Nothing, if it has ended; else the caller was interrupted, and no one waits any more.
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Run a coroutine, and do not wait for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def close(self) -> None:
        """End the loop: what still runs on it is cancelled first."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        if not self.is_own_thread:
            self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()


class SharedRuntime:
    """The runtime of this process, and how many use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._runtime: Runtime | None = None

    def acquire(self) -> Runtime:
        with self._lock:
            if self._runtime is None:
                self._runtime = Runtime()
            self._users += 1
            return self._runtime

    def release(self) -> None:
        with self._lock:
            assert self._users > 0, "released more often than acquired"
            self._users -= 1
            ended = self._runtime if not self._users else None
            if ended is not None:
                self._runtime = None
        if ended is not None:
            ended.close()

    def forget(self) -> None:
        """After a fork: the thread stayed in the parent."""
        self._lock, self._users, self._runtime = threading.Lock(), 0, None


_shared = SharedRuntime()
os.register_at_fork(after_in_child=_shared.forget)


class HeldRuntime:
    """The shared loop, held by one client from its start to its end. ClientClosed at any other time."""

    def __init__(self, client: str, advice: str = "is not open: use it with `with`, or call start()") -> None:
        """`client` and `advice` are what the error says."""
        self._client, self._advice = client, advice
        self._runtime: Runtime | None = None
        self._is_ending = False
        self._lock = threading.Lock()

    @property
    def is_held(self) -> bool:
        return self._runtime is not None

    @property
    def current(self) -> Runtime:
        runtime = self._runtime
        if runtime is None:
            raise ClientClosed(self._client, self._advice)
        return runtime

    def start(self, beginning: Coroutine[Any, Any, T]) -> T:
        """Hold the loop, and begin; it is released again if that fails."""
        with self._lock:
            assert self._runtime is None, "a client is started once"
            self._runtime = _shared.acquire()
        try:
            return self._runtime.run(beginning)
        except BaseException:
            self._release()
            raise

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        runtime = self._runtime
        if runtime is None:
            coroutine.close()
            raise ClientClosed(self._client, self._advice)
        return runtime.run(coroutine)

    def end(self, ending: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run the last coroutine, and release the loop. False, and nothing is done, when another thread does it or has
        done it."""
        with self._lock:
            if self._runtime is None or self._is_ending:
                return False
            self._is_ending = True
        try:
            self._runtime.run(ending())
        finally:
            self._release()
        return True

    def _release(self) -> None:
        with self._lock:
            self._runtime, self._is_ending = None, False
        _shared.release()
