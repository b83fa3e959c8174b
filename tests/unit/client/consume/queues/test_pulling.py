"""The pulls of one queue: a test for each row of the table."""

from collections.abc import Callable
from typing import Any

import pytest

from embermq.client.consume.queues.process_queue import CacheLimits, ProcessQueue
from embermq.client.consume.queues.pulling import (
    BUSY_SECONDS,
    RETRY_SECONDS,
    SILENT_SECONDS,
    Ask,
    PullEmpty,
    PullFailed,
    PullFound,
    PullMoved,
    PullState,
    PullStop,
    PullWait,
    QueuePulls,
    Waiting,
)
from tests.support.received import several

NOW = 100.0


class Queue:
    """A queue of a consumer, from offset 10 on."""

    def __init__(self, *, is_orderly: bool = False, messages: int = 4) -> None:
        self.process = ProcessQueue(CacheLimits(messages=messages), is_orderly=is_orderly)
        self.pulls = QueuePulls(self.process, 10, NOW, is_orderly=is_orderly)

    def next(
        self, *, paused: bool = False, locked: bool = True, commit: int | None = None
    ) -> Ask | PullWait | PullStop:
        return self.pulls.next(is_paused=paused, is_locked=locked, commit_offset=commit)

    def asked(self) -> Ask:
        asked = self.next()
        assert isinstance(asked, Ask)
        return asked

    def answer(self, answer: Any) -> bool:
        return self.pulls.answered(self.asked().epoch, answer, NOW)


def dropped(queue: Queue) -> None:
    queue.pulls.drop()


def full(queue: Queue) -> None:
    queue.process.put(several(10, 14))


def nothing(queue: Queue) -> None:
    pass


@pytest.mark.parametrize(
    ("before", "given", "expected", "state"),
    [
        pytest.param(dropped, {}, PullStop(), PullState.ENDED, id="dropped"),
        pytest.param(dropped, {"paused": True}, PullStop(), PullState.ENDED, id="dropped and paused"),
        pytest.param(nothing, {"paused": True}, PullWait(Waiting.RESUME), PullState.READY, id="paused"),
        pytest.param(nothing, {"locked": False}, PullWait(Waiting.LOCK), PullState.READY, id="not locked"),
        pytest.param(full, {}, PullWait(Waiting.ROOM), PullState.READY, id="full"),
        pytest.param(nothing, {}, Ask(10, None, 0, 0), PullState.PULLING, id="pull"),
        pytest.param(nothing, {"commit": 7}, Ask(10, 7, 0, 0), PullState.PULLING, id="pull that commits"),
        pytest.param(nothing, {"commit": 0}, Ask(10, None, 0, 0), PullState.PULLING, id="nothing to commit"),
    ],
)
def test_next(before: Callable[[Queue], None], given: dict[str, Any], expected: object, state: PullState) -> None:
    queue = Queue(is_orderly="locked" in given)
    before(queue)
    assert queue.next(**given) == expected
    assert queue.pulls.state is state


def test_found() -> None:
    queue = Queue()
    assert queue.answer(PullFound(several(10, 12), 15))
    assert (queue.pulls.state, queue.pulls.next_offset, len(queue.process)) == (PullState.READY, 15, 2)
    queue.process.finish([10, 11])
    assert queue.process.committable == 15
    assert queue.asked().offset == 15


def test_nothing_passes_offsets_that_may_be_committed() -> None:
    queue = Queue()
    assert queue.answer(PullEmpty(42))
    assert (queue.pulls.state, queue.pulls.next_offset, queue.process.committable) == (PullState.READY, 42, 42)


def test_moved_forwards_goes_on_there_and_keeps_what_is_cached() -> None:
    queue = Queue()
    queue.answer(PullFound(several(10, 12), 12))
    assert queue.answer(PullMoved(500))
    assert (queue.pulls.state, queue.pulls.next_offset, queue.pulls.moved_to) == (PullState.READY, 500, None)
    assert queue.process.committable == 10
    assert not queue.process.is_dropped


def test_moved_backwards_ends_the_queue() -> None:
    queue = Queue()
    assert queue.answer(PullMoved(3))
    assert (queue.pulls.state, queue.pulls.moved_to) == (PullState.ENDED, 3)
    assert queue.process.is_dropped
    assert queue.next() == PullStop()


@pytest.mark.parametrize(("is_busy", "seconds"), [(False, RETRY_SECONDS), (True, BUSY_SECONDS)])
def test_failed_waits_once(is_busy: bool, seconds: float) -> None:
    queue = Queue()
    assert queue.answer(PullFailed(is_busy))
    assert queue.pulls.state is PullState.READY
    assert queue.next() == PullWait(Waiting.RETRY, seconds)
    assert queue.asked().offset == 10


@pytest.mark.parametrize("state", [PullState.READY, PullState.PULLING])
def test_sought(state: PullState) -> None:
    queue = Queue()
    queue.answer(PullFound(several(10, 12), 12))
    old = queue.asked() if state is PullState.PULLING else None
    queue.pulls.seek(3)
    assert (queue.pulls.state, len(queue.process)) == (PullState.READY, 0)
    fresh = queue.asked()
    assert fresh.offset == 3
    if old is not None:
        assert not queue.pulls.answered(old.epoch, PullFound(several(12, 13), 13), NOW)
        assert queue.pulls.state is PullState.PULLING
    assert queue.pulls.answered(fresh.epoch, PullFound(several(3, 4), 4), NOW)
    assert queue.pulls.next_offset == 4


def test_renewed_asks_again_from_the_same_offset() -> None:
    queue = Queue()
    queue.answer(PullFound(several(10, 12), 12))
    old = queue.asked()
    queue.pulls.renew()
    assert (queue.pulls.state, len(queue.process)) == (PullState.READY, 2)
    fresh = queue.asked()
    assert fresh.offset == 12
    assert not queue.pulls.answered(old.epoch, PullFound(several(12, 13), 13), NOW)
    assert queue.pulls.answered(fresh.epoch, PullEmpty(13), NOW)


def test_an_answer_after_the_drop_changes_nothing() -> None:
    queue = Queue()
    asked = queue.asked()
    queue.pulls.drop()
    assert not queue.pulls.answered(asked.epoch, PullFound(several(10, 12), 12), NOW)
    assert len(queue.process) == 0
    assert queue.next() == PullStop()


def test_pulls_that_stopped_at_a_limit_go_on_when_half_is_free() -> None:
    queue = Queue(messages=4)
    queue.answer(PullFound(several(10, 14), 14))
    assert queue.next() == PullWait(Waiting.ROOM)
    queue.process.finish([10])
    assert queue.next() == PullWait(Waiting.ROOM)
    queue.process.finish([11])
    assert isinstance(queue.next(), Ask)


def test_the_next_pull_goes_where_the_last_answer_said_and_commits_only_at_a_master() -> None:
    queue = Queue()
    queue.answer(PullEmpty(10, broker_id=1))
    assert queue.next(commit=5) == Ask(10, None, 1, 0)
    queue.pulls.answered(0, PullFailed(), NOW)
    assert queue.next() == PullWait(Waiting.RETRY, RETRY_SECONDS)
    assert queue.next(commit=5) == Ask(10, 5, 0, 0)


def test_a_pull_without_an_answer_is_silent_after_two_minutes() -> None:
    queue = Queue()
    assert not queue.pulls.is_silent(NOW + 10 * SILENT_SECONDS)  # Nothing was asked.
    queue.asked()
    assert not queue.pulls.is_silent(NOW + SILENT_SECONDS)
    assert queue.pulls.is_silent(NOW + SILENT_SECONDS + 1)


def test_one_pull_at_a_time() -> None:
    queue = Queue()
    queue.asked()
    with pytest.raises(AssertionError, match="under way"):
        queue.next()
