"""Workers: threads that run handlers, or tasks for handlers that are coroutines.

Calls come in runs: those of one pull. A run is taken by one thread, which makes its calls one after another; waking a
thread for each message would cost more than a quick handler does. A run is widened, one more thread for each call that
waits, as soon as handlers turn out to be slow: by their mean time when it is submitted, or by a look every 50 ms at
calls that have not returned. An ordered run is never widened, and ends at the first call that does not consume.

    submit(run)  ->  on_done(run, calls) with calls that were made, each with its outcome, once or several times; then
                     on_end(run) once: what is left in run.calls was not called, because the run was stopped, or is
                     ordered and a call did not consume

The loop's thread, except for what is marked. What the threads come to is brought back to the loop for some calls
together: after 5 ms, a call that did not consume, or the end of the run. For one call alone it would cost more than all
the rest.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import cast

from embermq.client.consume.handle.handlers import LATER, AnyHandler, AsyncHandler, Context, HandlerOutcome, outcome_of
from embermq.client.received import ReceivedMessage

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.05
REPORT_SECONDS = 0.005
# A handler that takes longer than this on average gets a thread for each call.
QUICK_SECONDS = 0.0005
_MEAN_WEIGHT = 0.05


@dataclass(slots=True, eq=False)
class HandlerCall:
    """Messages of one queue and topic for one call of a handler."""

    handler: AnyHandler
    messages: list[ReceivedMessage]
    context: Context
    started_at: float | None = None
    is_given_up: bool = False  # its outcome is of no interest any more
    seconds: float = 0.0  # that it took
    outcome: HandlerOutcome = LATER


@dataclass(slots=True, eq=False)
class HandlerRun:
    """Calls that may be made one after another. `owner` is of use to the one who submitted it."""

    calls: deque[HandlerCall]
    is_stopped: Callable[[], bool]  # nothing more of it is to be called; any thread
    owner: object = None
    is_ordered: bool = False
    is_async: bool = False  # all handlers are coroutine functions; else none is
    running: set[HandlerCall] = field(default_factory=set)
    threads: int = 0


OnDone = Callable[[HandlerRun, list[HandlerCall]], None]
OnEnd = Callable[[HandlerRun], None]


class Workers:
    """A bounded number of handlers at once."""

    def __init__(self, threads: int, on_done: OnDone, on_end: OnEnd) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads_max, self._on_done, self._on_end = threads, on_done, on_end
        self._queue: SimpleQueue[HandlerRun | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._lock = threading.Lock()
        self._done: deque[tuple[HandlerRun, list[HandlerCall] | None]] = deque()  # None: the run has ended
        self._is_posted = False
        self._runs: set[HandlerRun] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(threads)
        self._mean_seconds = 0.0
        self._look: asyncio.TimerHandle | None = None
        self._nothing_runs = asyncio.Event()
        self._nothing_runs.set()

    def submit(self, run: HandlerRun) -> None:
        assert run.calls
        self._runs.add(run)
        self._nothing_runs.clear()
        if run.is_async:
            self._start_tasks(run)
            return
        self._hand_out(run, 1 if run.is_ordered or self._mean_seconds < QUICK_SECONDS else len(run.calls))
        if self._look is None:
            self._look = self._loop.call_later(LOOK_SECONDS, self._widen)

    def running(self) -> list[tuple[HandlerRun, HandlerCall]]:
        """Calls that are being made now."""
        return [(run, call) for run in self._runs for call in tuple(run.running)]

    async def drain(self, seconds: float) -> bool:
        """Wait until no handler runs; False if some still do after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._nothing_runs.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Threads end when their handler returns; tasks are cancelled."""
        for _ in self._threads:
            self._queue.put(None)
        for task in self._tasks:
            task.cancel()
        if self._look is not None:
            self._look.cancel()

    def _widen(self) -> None:
        """Give runs more threads if their handlers do not return, or turned out to be slow."""
        self._look = None
        late = time.monotonic() - LOOK_SECONDS
        is_slow = self._mean_seconds >= QUICK_SECONDS
        slow_runs = [
            run for run in self._runs if is_slow or any((one.started_at or late) < late for one in tuple(run.running))
        ]
        for run in slow_runs:
            if run.calls and not run.is_ordered:
                self._hand_out(run, len(run.calls))
        if slow_runs:
            self._add_threads()
        if self._runs:
            self._look = self._loop.call_later(LOOK_SECONDS, self._widen)

    def _hand_out(self, run: HandlerRun, wide: int) -> None:
        with self._lock:
            wide = min(wide, self._threads_max - run.threads)
            run.threads += wide
        for _ in range(wide):
            self._queue.put(run)
        if not self._threads or self._mean_seconds >= QUICK_SECONDS:
            self._add_threads()

    def _add_threads(self) -> None:
        """One for each run that waits. Quick handlers need none: threads that take turns cost more than they bring."""
        for _ in range(min(self._queue.qsize() - self._idle, self._threads_max - len(self._threads))):
            name = f"embermq-consume-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
            self._threads[-1].start()

    def _start_tasks(self, run: HandlerRun) -> None:
        run.threads = 1 if run.is_ordered else min(len(run.calls), self._threads_max)
        for _ in range(run.threads):
            task = self._loop.create_task(self._await_calls(run))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _await_calls(self, run: HandlerRun) -> None:
        async with self._slots:
            while (call := self._next(run)) is not None:
                try:
                    outcome = outcome_of(await cast(AsyncHandler, call.handler)(call.messages, call.context))
                except asyncio.CancelledError:
                    raise
                except Exception as problem:
                    outcome = HandlerOutcome(False, problem)
                self._done.append((run, [call]))
                goes_on = self._finish(run, call, outcome)
                self._deliver()
                if not goes_on:
                    break
        self._leave(run)
        self._deliver()

    def _deliver(self) -> None:
        """Take up what was done."""
        self._is_posted = False
        while self._done:
            run, calls = self._done.popleft()
            try:
                if calls is not None:
                    self._on_done(run, calls)
                else:
                    self._runs.discard(run)
                    self._on_end(run)
            except Exception:
                log.exception("event=consume_result_failed")
        if not self._runs:
            self._nothing_runs.set()

    # -- the threads' side ---------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            run = self._queue.get()
            with self._lock:
                self._idle -= 1
            if run is None:
                return
            self._make_calls(run)
            self._leave(run)
            self._post()

    def _make_calls(self, run: HandlerRun) -> None:
        made: list[HandlerCall] = []
        report_at = 0.0
        while (call := self._next(run)) is not None:
            began = call.started_at or 0.0
            if not made:
                report_at = began + REPORT_SECONDS
            made.append(call)
            try:
                outcome = outcome_of(call.handler(call.messages, call.context))
            except BaseException as problem:  # Also of sys.exit() in a handler: the thread is not the handler's.
                outcome = HandlerOutcome(False, problem)
            goes_on = self._finish(run, call, outcome)
            if not outcome.is_consumed or began + call.seconds > report_at:
                self._done.append((run, made))
                made = []
                self._post()
            if not goes_on:
                return
        if made:
            self._done.append((run, made))

    def _next(self, run: HandlerRun) -> HandlerCall | None:
        """The call to be made now. Any thread."""
        if run.is_stopped():
            return None
        try:
            call = run.calls.popleft()
        except IndexError:
            return None
        call.started_at = time.monotonic()
        run.running.add(call)
        return call

    def _finish(self, run: HandlerRun, call: HandlerCall, outcome: HandlerOutcome) -> bool:
        """Note what a call came to; whether the run goes on. Any thread."""
        call.seconds = time.monotonic() - (call.started_at or 0.0)
        self._mean_seconds += (call.seconds - self._mean_seconds) * _MEAN_WEIGHT
        call.outcome = outcome
        run.running.discard(call)
        return outcome.is_consumed or not run.is_ordered

    def _leave(self, run: HandlerRun) -> None:
        """One less works at a run; after the last one it has ended. Any thread."""
        with self._lock:
            run.threads -= 1
            if not run.threads:
                self._done.append((run, None))

    def _post(self) -> None:
        """Have the loop take up what was done. Any thread."""
        if not self._is_posted:
            self._is_posted = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                log.debug("event=consume_result_dropped reason='the loop is closed'")
