"""Spark has enough rows: the worker that has more ends. That nothing is printed is in test_own_process.py."""

import gc
import signal
from collections.abc import Generator, Iterator

import pytest

from embermq.spark.runtime import cancelled_tasks
from embermq.spark.runtime.cancelled_tasks import silent_end

# --- the signal --------------------------------------------------------------------------------------


@pytest.fixture
def in_a_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = signal.getsignal(signal.SIGPIPE)
    monkeypatch.setattr(cancelled_tasks, "inside_spark_process", lambda: True)
    yield
    if cancelled_tasks._Borrowed.last is not None:
        cancelled_tasks._Borrowed.last.give_back()
    assert signal.getsignal(signal.SIGPIPE) is before


def rows(count: int) -> Generator[int, None, None]:
    with silent_end():
        yield from range(count)


def test_elsewhere_the_signal_is_left_alone() -> None:
    before = signal.getsignal(signal.SIGPIPE)
    for _ in rows(2):
        assert signal.getsignal(signal.SIGPIPE) is before


@pytest.mark.usefixtures("in_a_worker")
def test_read_to_the_end() -> None:
    before = signal.getsignal(signal.SIGPIPE)
    gc.collect()
    for _ in rows(2):
        assert signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL
    gc.collect()  # As a worker does between two tasks.
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL
    gc.collect(0)  # The next one is at work.
    assert signal.getsignal(signal.SIGPIPE) is before
    callbacks = list(gc.callbacks)
    gc.collect()
    assert gc.callbacks == callbacks


@pytest.mark.usefixtures("in_a_worker")
def test_one_task_after_another() -> None:
    """The second begins before the signal was given back, and gives back what the first one found."""
    before, callbacks = signal.getsignal(signal.SIGPIPE), list(gc.callbacks)
    for _ in range(3):
        assert list(rows(2)) == [0, 1]
        gc.collect()
        assert signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL
    gc.collect(0)
    assert signal.getsignal(signal.SIGPIPE) is before
    assert gc.callbacks == callbacks


@pytest.mark.usefixtures("in_a_worker")
def test_an_error_is_for_spark_to_tell() -> None:
    before = signal.getsignal(signal.SIGPIPE)
    with pytest.raises(ValueError, match="bad row"), silent_end():
        raise ValueError("bad row")
    assert signal.getsignal(signal.SIGPIPE) is before


@pytest.mark.usefixtures("in_a_worker")
def test_given_up_in_the_middle() -> None:
    reading = rows(2)
    next(reading)
    reading.close()
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL
