"""A thread is known to run as long as it runs, also where a look at it or a wait for it is interrupted."""

import linecache
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

from embermq.files import Bell, WorkThread
from embermq.files import work_thread as module


class Interruption(BaseException):
    """What a signal handler raises."""


class Work:
    """Goes on until it is asked to end."""

    def __init__(self) -> None:
        self.end = Bell()
        self.done = False
        self.thread = WorkThread(self._run, "embermq-test")

    def _run(self) -> None:
        self.end.wait()
        self.done = True


@pytest.fixture
def work() -> Work:
    return Work()


def test_runs_from_start_to_end(work: Work) -> None:
    seen = [work.thread.is_running]
    work.thread.start()
    seen.append(work.thread.is_running)
    work.end.ring()
    assert work.thread.join()
    assert work.done
    seen.append(work.thread.is_running)
    assert seen == [False, True, False]
    assert work.thread.join()


def test_the_thread_has_its_name_and_does_not_hold_the_process_up(work: Work) -> None:
    work.thread.start()
    found = [one for one in threading.enumerate() if one.name == "embermq-test"]
    work.end.ring()
    work.thread.join()
    assert [one.daemon for one in found] == [True]
    assert not [one for one in threading.enumerate() if one.name == "embermq-test"]


def test_a_join_that_takes_too_long_says_so(work: Work) -> None:
    work.thread.start()
    assert not work.thread.join(0.001)
    assert not work.thread.join(0)
    assert work.thread.is_running
    work.end.ring()
    assert work.thread.join(10)


def test_one_that_was_not_started_is_not_waited_for(work: Work) -> None:
    assert work.thread.join()


def test_work_that_fails_is_reported_and_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[tuple[type[BaseException], str]] = []

    def note(failure: threading.ExceptHookArgs) -> None:
        assert failure.thread is not None
        reported.append((failure.exc_type, failure.thread.name))

    def fail() -> None:
        raise ValueError

    monkeypatch.setattr(threading, "excepthook", note)
    thread = WorkThread(fail, "embermq-test")
    thread.start()
    assert thread.join()
    assert not thread.is_running
    assert reported == [(ValueError, "embermq-test")]


def test_a_thread_does_not_wait_for_itself() -> None:
    reported: list[str] = []

    def wait_for_oneself() -> None:
        with pytest.raises(RuntimeError) as problem:
            thread.join()
        reported.append(str(problem.value))

    thread = WorkThread(wait_for_oneself, "embermq-test")
    thread.start()
    thread.join()
    assert reported == ["embermq-test cannot wait for its own end"]


def test_many_may_wait(work: Work) -> None:
    work.thread.start()
    ended: list[bool] = []
    waiting = [threading.Thread(target=lambda: ended.append(work.thread.join())) for _ in range(5)]
    for one in waiting:
        one.start()
    work.end.ring()
    for one in waiting:
        one.join()
    assert ended == [True] * 5


def interrupt_at_line(
    nth: int, call: Callable[[], object], traced: Sequence[str] = (module.__file__, threading.__file__)
) -> bool:
    """Raise at the n-th line that `call` runs of the traced files; False if there are fewer."""
    left = nth

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in traced:
            return None
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and text != "try:" and not text.startswith("with "):  # There no handler runs.
            left -= 1
            if left == 0:
                raise Interruption
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interruption:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupted_look_does_not_make_it_count_as_stopped(work: Work) -> None:
    work.thread.start()
    nth = 1
    while interrupt_at_line(nth, lambda: work.thread.is_running):
        assert work.thread.is_running
        nth += 1
    assert nth > 1
    work.end.ring()
    assert work.thread.join()


def test_an_interrupted_wait_does_not_make_it_count_as_stopped(work: Work) -> None:
    """A second wait waits."""
    work.thread.start()
    nth = 1
    while interrupt_at_line(nth, lambda: work.thread.join(0.001)):
        assert work.thread.is_running
        assert not work.thread.join(0)
        nth += 1
    assert nth > 5
    work.end.ring()
    assert work.thread.join()
    assert work.done


def test_a_wait_interrupted_when_the_end_has_come_holds_no_other_up() -> None:
    nth, interrupted = 1, True
    while interrupted:
        work = Work()
        work.thread.start()
        other = threading.Thread(target=work.thread.join, daemon=True)
        other.start()
        work.end.ring()
        interrupted = interrupt_at_line(nth, work.thread.join)
        other.join(10)
        assert not other.is_alive()
        assert work.thread.join(0)
        nth += 1


def test_an_interrupted_start_leaves_no_work_behind_that_was_asked_to_end() -> None:
    """Interrupted before the thread was begun, or after."""
    nth, interrupted = 1, True
    while interrupted:
        work = Work()
        interrupted = interrupt_at_line(nth, work.thread.start, [module.__file__])
        work.end.ring()
        assert work.thread.join(10)
        deadline = time.monotonic() + 10
        while work.thread.is_running:
            assert time.monotonic() < deadline
            work.thread.join()
        nth += 1
