"""The flusher over a log that is only numbers: who syncs, who is served by it, and what everybody hears."""

import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from embermq import FlushDisk, StoreSettings
from embermq.clock import SystemClock
from embermq.errors import AppendRefused, FlushFailed
from embermq.store.append.flush import Flusher, Waiter
from embermq.store.futures import settle
from embermq.testing import ManualClock
from tests.support.waiting import wait_until

LONG = 120.0  # Seconds nothing here should ever take.


class NumberLog:
    """A log of `wrote_offset` bytes. Each flush takes a step of `script`, if there is one left."""

    def __init__(self) -> None:
        self.wrote_offset = self.flushed_offset = 0
        self.committed = 0
        self.pooled = False
        self.script: list[Callable[[], None]] = []
        self.flushes: list[tuple[int, str]] = []
        self.busy = threading.Lock()

    @property
    def readable_offset(self) -> int:
        return self.committed if self.pooled else self.wrote_offset

    def append(self, size: int = 10) -> int:
        self.wrote_offset += size
        return self.wrote_offset

    def commit(self) -> bool:
        assert self.busy.acquire(blocking=False), "two commit or flush at once"
        moved = self.committed < self.wrote_offset
        self.committed = self.wrote_offset
        self.busy.release()
        return moved

    def flush(self, confirm: Callable[[], None] | None = None) -> int:
        assert self.busy.acquire(blocking=False), "two commit or flush at once"
        try:
            reached = self.readable_offset
            if reached > self.flushed_offset:
                if self.script:
                    self.script.pop(0)()
                self.flushes.append((reached, threading.current_thread().name))
                self.flushed_offset = reached
            return self.flushed_offset
        finally:
            self.busy.release()


class Rig:
    """A flusher, its log, and what it reported."""

    def __init__(self, *, timeout_ms: int = 30_000, pooled: bool = False, start: bool = True) -> None:
        self.log = NumberLog()
        self.log.pooled = pooled
        self.reported: list[Any] = []
        settings = StoreSettings(
            flush=FlushDisk.ASYNC if pooled else FlushDisk.SYNC,
            sync_flush_timeout_ms=timeout_ms,
            flush_interval_ms=3_600_000,
            commit_interval_ms=3_600_000,
        )
        self.flusher = Flusher(
            self.log,  # type: ignore[arg-type]
            settings,
            SystemClock(),
            pooled=pooled,
            on_progress=self.reported.append,
            on_failure=self.reported.append,
        )
        if start:
            self.flusher.start()

    def wait_in_thread(self, end: int) -> "Waiting":
        return Waiting(self.flusher, end)


class Waiting(threading.Thread):
    """A thread that waits for `end`, and what came of it."""

    def __init__(self, flusher: Flusher, end: int) -> None:
        super().__init__(name=f"waits-for-{end}", daemon=True)
        self.outcome: Any = None
        self._flusher, self._end = flusher, end
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self._flusher.wait(self._end)
        except BaseException as problem:
            self.outcome = problem

    def result(self) -> Any:
        self.join(LONG)
        assert not self.is_alive(), f"{self.name} is still waiting"
        return self.outcome


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.log.script.clear()
    made.flusher.stop()


class Door:
    """Closed until opened; knows whether somebody stands before it."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.opened.wait(LONG)


def joined(rig: Rig) -> bool:
    """Whether somebody has joined the group that can be joined now."""
    return rig.flusher._group.joined


def test_who_waits_is_served_by_the_flushers_thread(rig: Rig) -> None:
    assert rig.flusher.wait(rig.log.append())
    assert rig.flusher.wait(rig.log.append())
    assert rig.log.flushes == [(10, "embermq-flush"), (20, "embermq-flush")]
    assert rig.reported == [10, 20]


def test_what_is_durable_needs_no_sync(rig: Rig) -> None:
    end = rig.log.append()
    assert rig.flusher.wait(end)
    assert rig.flusher.wait(end)
    assert rig.flusher.wait(0)
    assert len(rig.log.flushes) == 1


def test_one_sync_serves_all_who_came_meanwhile(rig: Rig) -> None:
    door = Door()
    rig.log.script = [door]
    first = rig.wait_in_thread(rig.log.append())
    assert door.reached.wait(LONG)
    ends = [rig.log.append() for _ in range(20)]
    others = [rig.wait_in_thread(end) for end in ends]
    wait_until(lambda: joined(rig))
    door.opened.set()
    assert [first.result(), *(other.result() for other in others)] == [True] * 21
    assert [reached for reached, _ in rig.log.flushes] == [10, 210]


def test_who_comes_late_to_a_group_that_was_served(rig: Rig) -> None:
    """Read the group, then be held up until its sync is over: the record was there when the sync began."""
    group = rig.flusher._group
    assert rig.flusher.wait(rig.log.append())
    assert rig.flusher._group is not group
    assert group.done.acquire(timeout=LONG)


def test_waiting_from_many_threads_again_and_again(rig: Rig) -> None:
    threads, rounds = 16, 40
    outcomes: list[bool] = []
    lock = threading.Lock()

    def work() -> None:
        for _ in range(rounds):
            with lock:
                end = rig.log.append()
            outcomes.append(rig.flusher.wait(end) and rig.log.flushed_offset >= end)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(LONG)
    assert outcomes == [True] * (threads * rounds)
    assert rig.reported == sorted(rig.reported)
    assert rig.log.flushed_offset == rig.log.wrote_offset


def test_a_failed_sync_fails_everybody_and_is_never_repeated(rig: Rig) -> None:
    door = Door()

    def fail() -> None:
        door()
        raise OSError(errno.EIO, "Input/output error")

    rig.log.script = [fail]
    first = rig.wait_in_thread(rig.log.append())
    assert door.reached.wait(LONG)
    others = [rig.wait_in_thread(rig.log.append()) for _ in range(5)]
    heard: list[Waiter] = []
    rig.flusher.when_durable(rig.log.append(), heard.append)
    wait_until(lambda: joined(rig))
    door.opened.set()
    for waiting in (first, *others):
        assert isinstance(waiting.result(), FlushFailed)
    wait_until(lambda: bool(heard))
    assert isinstance(heard[0].failure, FlushFailed)
    with pytest.raises(FlushFailed):
        rig.flusher.wait(rig.log.append())
    rig.flusher.when_durable(rig.log.wrote_offset, heard.append)
    assert isinstance(heard[1].failure, FlushFailed)
    assert rig.log.flushes == []
    assert [type(reported) for reported in rig.reported] == [FlushFailed]


def test_the_store_is_told_of_a_failure_before_anybody_who_waits(rig: Rig) -> None:
    order: list[str] = []

    def hear(failure: AppendRefused) -> None:
        threading.Event().wait(0.05)
        order.append("store")

    rig.flusher._on_failure = hear

    def fail() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    rig.log.script = [fail]
    with pytest.raises(FlushFailed, match="No space left"):
        rig.flusher.wait(rig.log.append())
    order.append("sender")
    assert order == ["store", "sender"]


def test_callbacks_run_on_the_flushers_thread(rig: Rig) -> None:
    heard: list[tuple[str, Any]] = []
    for _ in range(3):
        end = rig.log.append()
        rig.flusher.when_durable(end, lambda w: heard.append((threading.current_thread().name, w.failure)))
    wait_until(lambda: len(heard) == 3)
    assert heard == [("embermq-flush", None)] * 3


def test_who_has_waited_too_long_is_told_so_and_served_all_the_same() -> None:
    rig = Rig(timeout_ms=100)
    door = Door()
    rig.log.script = [door]
    waiting = [rig.wait_in_thread(rig.log.append())]
    assert door.reached.wait(LONG)
    waiting += [rig.wait_in_thread(rig.log.append()) for _ in range(3)]
    assert [one.result() for one in waiting] == [False] * 4
    door.opened.set()
    wait_until(lambda: rig.log.flushed_offset == rig.log.wrote_offset)
    rig.flusher.stop()


def test_nobody_waits_without_time() -> None:
    rig = Rig(timeout_ms=0, start=False)
    assert rig.flusher.wait(rig.log.append()) is False
    rig.flusher.flush_now()
    assert rig.flusher.wait(10) is True


def test_a_callback_hears_of_a_time_out() -> None:
    rig = Rig(timeout_ms=1, start=False)
    rig.log.pooled = True  # Nothing gets durable: nobody commits.
    heard: list[Waiter] = []
    rig.flusher.when_durable(rig.log.append(), heard.append)
    threading.Event().wait(0.01)
    rig.flusher.flush_now()
    assert isinstance(heard[0].failure, TimeoutError)


def test_the_flushers_thread_flushes_what_nobody_waits_for(rig: Rig) -> None:
    rig.log.append()
    rig.flusher.nudge()
    wait_until(lambda: rig.log.flushed_offset == 10)
    assert rig.log.flushes == [(10, "embermq-flush")]


def test_stopping_flushes_the_rest_and_serves_who_waits() -> None:
    rig = Rig(start=False)
    waiting = [rig.wait_in_thread(rig.log.append()) for _ in range(3)]
    wait_until(lambda: joined(rig))
    rig.flusher.stop()
    assert rig.log.flushed_offset == 30
    late = rig.wait_in_thread(30)
    assert [one.result() for one in (*waiting, late)] == [True] * 4


@pytest.mark.parametrize("how", ["wait", "callback", "stop"])
def test_private_buffers_are_committed_for_those_who_wait(how: str) -> None:
    rig = Rig(pooled=True)
    rig.log.append()
    if how == "wait":
        assert rig.flusher.wait(10)
    elif how == "callback":
        heard: list[Waiter] = []
        rig.flusher.when_durable(10, heard.append)
        wait_until(lambda: bool(heard))
        assert heard[0].failure is None
    rig.flusher.stop()
    assert (rig.log.committed, rig.log.flushed_offset) == (10, 10)


def test_a_failed_commit_is_a_failed_flush() -> None:
    rig = Rig(pooled=True, start=False)

    def fail() -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    rig.log.commit = fail  # type: ignore[method-assign]
    rig.log.append(1 << 20)
    rig.flusher.turn()
    assert [type(reported) for reported in rig.reported] == [FlushFailed]
    with pytest.raises(FlushFailed):
        rig.flusher.wait(10)


def test_a_callback_hears_of_a_time_out_while_the_disk_hangs() -> None:
    rig = Rig(timeout_ms=50)
    hangs, heard = threading.Event(), threading.Event()
    answers: list[Waiter] = []

    def answer(waiter: Waiter) -> None:
        answers.append(waiter)
        heard.set()

    rig.log.script.append(lambda: assert_set(hangs))
    rig.flusher.when_durable(rig.log.append(), answer)
    assert heard.wait(LONG), "answered although the sync has not returned"
    assert isinstance(answers[0].failure, TimeoutError)
    assert answers[0].is_told
    hangs.set()
    rig.flusher.stop()
    assert len(answers) == 1, "and not answered twice"


def assert_set(event: threading.Event) -> None:
    assert event.wait(LONG)


def test_a_callback_that_raises_does_not_end_the_thread(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    heard = threading.Event()

    def fail(waiter: Waiter) -> None:
        heard.set()
        raise ValueError("somebody's mistake")

    rig.flusher.when_durable(rig.log.append(), fail)
    assert heard.wait(LONG)
    assert rig.flusher.wait(rig.log.append())
    assert "somebody's mistake" in caplog.text


@pytest.mark.parametrize(
    ("pages_min", "wrote", "is_due"), [(0, 1, True), (0, 0, False), (4, 1, False), (4, 16384, True)]
)
def test_how_much_is_enough_for_a_flush_by_the_clock(pages_min: int, wrote: int, is_due: bool) -> None:
    log, clock = NumberLog(), ManualClock()
    settings = StoreSettings(flush=FlushDisk.ASYNC, flush_pages_min=pages_min, flush_interval_ms=500)
    flusher = Flusher(
        log,  # type: ignore[arg-type]
        settings,
        clock,
        pooled=False,
        on_progress=lambda at: None,
        on_failure=lambda why: None,
    )
    clock.advance(ms=1000)
    log.append(wrote)
    flusher.turn()
    assert (log.flushed_offset == wrote > 0) is is_due


class AppendingLog(NumberLog):
    """A log that tells the flusher of each append, as a store's writer does."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.pooled = bool(changes.get("transient_pool", False))
        self.clock = ManualClock()
        self.passed_on = 0
        self.reached: list[int] = []
        settings = StoreSettings(flush=FlushDisk.ASYNC, flush_interval_ms=3_600_000, **changes)
        self.flusher = Flusher(
            self,  # type: ignore[arg-type]
            settings,
            self.clock,
            pooled=self.pooled,
            on_progress=self.reached.append,
            on_failure=lambda why: None,
        )
        self._after_append = self.flusher.after_append(self._pass_on)
        self.pause()

    def _pass_on(self) -> None:
        self.passed_on += 1

    def append(self, size: int = 10) -> int:
        super().append(size)
        self._after_append()
        return self.wrote_offset

    def pause(self) -> float:
        """What the thread does before it sleeps; for how long."""
        return self.flusher._pause_seconds()

    def woke(self) -> bool:
        """Whether an append has woken the thread, which then takes its turn."""
        if not self.flusher._wake.wait(0):
            return False
        self.flusher.turn()
        self.pause()
        return True


PAGE = 4096


@pytest.mark.parametrize("timed", [False, True])
def test_appends_wake_the_flusher_unless_it_goes_by_the_clock(timed: bool) -> None:
    log = AppendingLog(flush_timed=timed)
    log.append(4 * PAGE - 1)
    assert not log.woke()
    log.append(1)  # flushCommitLogLeastPages: the fourth page is full.
    assert log.woke() is not timed
    assert log.flushed_offset == (0 if timed else 4 * PAGE)
    log.append(4 * PAGE - 1)
    assert not log.woke(), "it counts from what is flushed"
    log.append(1)
    assert log.woke() is not timed
    assert log.passed_on == 4


def test_with_no_least_pages_every_append_wakes_the_flusher() -> None:
    log = AppendingLog(flush_timed=False, flush_pages_min=0)
    for _ in range(3):
        log.append(1)
        assert log.woke()
    assert [reached for reached, _ in log.flushes] == [1, 2, 3]


def test_under_sync_flush_appends_pass_the_flusher_by() -> None:
    rig = Rig(start=False)

    def then() -> None:
        """Nothing else."""

    assert rig.flusher.after_append(then) is then


def test_four_waiting_pages_are_committed_before_the_thorough_look() -> None:
    log = AppendingLog(transient_pool=True)
    log.append(1)
    assert log.woke(), "after a pause the first byte is committed at once"
    assert log.committed == 1
    log.append(4 * PAGE - 2)
    assert not log.woke()
    assert log.committed == 1
    log.append(1)  # commitCommitLogLeastPages
    assert log.woke()
    assert log.committed == 4 * PAGE
    assert log.reached == [0, 0], "announced that more can be read; nothing was flushed"
    assert log.flushes == []


def test_little_is_committed_by_the_thorough_look() -> None:
    log = AppendingLog(transient_pool=True, commit_interval_ms=3_600_000)
    log.append(1)
    assert log.woke()
    log.append(1)
    assert not log.woke()
    assert log.pause() == pytest.approx(0.2), "commitCommitLogThoroughInterval"
    log.clock.advance(ms=200)
    assert log.pause() == 0.0, "an append that came before is not forgotten"
    log.flusher.turn()
    assert log.committed == 2


def test_committed_pages_are_flushed_at_once_when_the_flush_is_not_timed() -> None:
    log = AppendingLog(transient_pool=True, flush_timed=False)
    log.append(4 * PAGE)
    assert log.woke()
    assert (log.committed, log.flushed_offset) == (4 * PAGE, 4 * PAGE)


@pytest.mark.parametrize("pooled", [False, True])
def test_after_a_failure_no_append_wakes_the_flusher(pooled: bool) -> None:
    log = AppendingLog(transient_pool=pooled, flush_timed=False)

    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    log.script = [fail]
    log.append(4 * PAGE)
    assert log.woke()
    assert isinstance(log.flusher.failure, FlushFailed)
    log.append(1 << 20)
    assert not log.woke()
    assert log.pause() > 0


def test_a_future_whose_lock_stays_taken_holds_nothing_up() -> None:
    """As a signal handler leaves it that raises inside `result()`."""
    stuck: Future[int] = Future()
    taken, let_go = threading.Event(), threading.Event()

    def take() -> None:
        with stuck._condition:
            taken.set()
            let_go.wait(30)

    holder = threading.Thread(target=take)
    holder.start()
    assert taken.wait(30)
    settle(stuck, lambda: stuck.set_result(1))
    free: Future[int] = Future()
    settle(free, lambda: free.set_result(2))
    assert free.result(0) == 2
    let_go.set()
    holder.join()
    assert stuck.result(30) == 1
