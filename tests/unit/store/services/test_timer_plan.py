"""Which entries of the timer topic fall due next, against sorting all of them."""

import random

import numpy as np
import numpy.typing as npt
import pytest

from embermq.format.queue_entry import ENTRY_DTYPE
from embermq.store.services import timer_plan
from embermq.store.services.done_bits import DoneBits
from embermq.store.services.timer_plan import TimerPlan

NOW_MS = 1_704_067_200_000


class Queue:
    """A queue of due times, read in portions of seven."""

    def __init__(self) -> None:
        self.due: list[int] = []
        self.in_records: dict[int, int] = {}
        self.passes = 0
        self.done = DoneBits()
        self.plan = TimerPlan(self.entries, lambda physical, _size: self.in_records[physical], self.done)

    def entries(self, start: int) -> npt.NDArray[np.void]:
        self.passes += start == 0
        return np.array([(100 * n, 100, self.due[n]) for n in range(start, min(start + 7, len(self.due)))], ENTRY_DTYPE)

    def finish(self, planned: timer_plan.Planned) -> list[int]:
        offsets = planned["queue_offset"].astype(np.int64)
        self.done.mark(offsets)
        self.plan.drop(offsets)
        return [int(offset) for offset in offsets]


def test_in_order_of_time_then_of_arrival() -> None:
    queue = Queue()
    queue.due = [NOW_MS + late for late in (50, 10, 50, 0, 10)]
    queue.plan.make(5, NOW_MS)
    assert queue.plan.first_due_ms() == NOW_MS
    assert queue.plan.due(NOW_MS + 49, 10)["queue_offset"].tolist() == [3, 1, 4]
    assert queue.plan.due(NOW_MS + 50, 4)["queue_offset"].tolist() == [3, 1, 4, 0]
    assert len(queue.plan) == 5  # Nothing leaves it but by `drop`.


def test_beyond_the_window_is_not_planned() -> None:
    queue = Queue()
    queue.due = [NOW_MS + timer_plan.WINDOW_MS, NOW_MS + timer_plan.WINDOW_MS - 1]
    queue.plan.make(2, NOW_MS)
    assert len(queue.plan) == 1
    assert queue.plan.horizon_ms == NOW_MS + timer_plan.WINDOW_MS
    queue.plan.make(2, NOW_MS + 1)
    assert len(queue.plan) == 2


def test_arrivals_join_if_they_are_due_before_the_horizon() -> None:
    queue = Queue()
    queue.due = [NOW_MS + 10]
    queue.plan.make(1, NOW_MS)
    queue.due += [NOW_MS + 5, NOW_MS + 10, NOW_MS + timer_plan.WINDOW_MS]
    queue.plan.add_arrivals(4)
    assert queue.plan.read_to == 4
    assert queue.plan.due(NOW_MS + 10, 10)["queue_offset"].tolist() == [1, 0, 2]
    assert queue.finish(queue.plan.due(NOW_MS + 5, 10)) == [1]
    assert queue.plan.first_due_ms() == NOW_MS + 10


def test_many_arrivals_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_plan, "ARRIVED_MAX", 3)
    queue = Queue()
    queue.due = [NOW_MS + 9]
    queue.plan.make(1, NOW_MS)
    for number in range(8, 0, -1):
        queue.due.append(NOW_MS + number)
        queue.plan.add_arrivals(len(queue.due))
    assert queue.plan.due(NOW_MS + 9, 100)["queue_offset"].tolist() == list(range(8, -1, -1))


def test_more_than_fit_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_plan, "PLAN_ENTRIES_MAX", 4)
    queue = Queue()
    queue.due = [NOW_MS + 100 - n for n in range(50)]
    queue.plan.make(50, NOW_MS)
    assert len(queue.plan) == 4
    assert queue.plan.horizon_ms == NOW_MS + 54
    assert queue.plan.due(NOW_MS + 500, 100)["queue_offset"].tolist() == [49, 48, 47, 46]


def test_many_of_the_same_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_plan, "PLAN_ENTRIES_MAX", 4)
    queue = Queue()
    queue.due = [NOW_MS] * 30
    seen: list[int] = []
    while len(seen) < 30:
        queue.plan.make(30, NOW_MS)
        assert 0 < len(queue.plan) <= 4
        seen += queue.finish(queue.plan.due(NOW_MS, 100))
    assert sorted(seen) == list(range(30))
    queue.plan.make(30, NOW_MS)
    assert len(queue.plan) == 0


def test_an_entry_without_a_time_asks_the_record() -> None:
    """RocketMQ 4.9 makes queue entries with the hash of the tag."""
    queue = Queue()
    queue.due = [0, -5, 2_000_000_000, NOW_MS + 7]
    queue.in_records = {0: NOW_MS + 9, 100: NOW_MS + 8, 200: NOW_MS + 1}
    queue.plan.make(4, NOW_MS)
    assert queue.plan.due(NOW_MS + 9, 9)["queue_offset"].tolist() == [2, 3, 1, 0]


def test_a_queue_that_gives_less_than_it_says() -> None:
    queue = Queue()
    queue.due = [NOW_MS] * 3
    queue.plan.make(9, NOW_MS)
    assert (len(queue.plan), queue.plan.read_to) == (3, 3)


@pytest.mark.parametrize("seed", range(8))
def test_like_sorting_everything(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrivals, passes and deliveries in any order: each entry comes once, at its time, and the earliest first."""
    monkeypatch.setattr(timer_plan, "PLAN_ENTRIES_MAX", 16)
    monkeypatch.setattr(timer_plan, "ARRIVED_MAX", 5)
    monkeypatch.setattr(timer_plan, "WINDOW_MS", 50)
    chance = random.Random(seed)
    queue, now_ms, seen = Queue(), NOW_MS, list[int]()
    for _ in range(400):
        queue.due += [now_ms + chance.randrange(1, 300) for _ in range(chance.randrange(4))]
        first_due = queue.plan.first_due_ms()
        if now_ms >= queue.plan.horizon_ms and (first_due is None or first_due > now_ms):
            queue.plan.make(len(queue.due), now_ms)
        else:
            queue.plan.add_arrivals(len(queue.due))
        due = queue.plan.due(now_ms, chance.randrange(1, 30))
        assert (due["due_ms"] <= now_ms).all()
        seen += queue.finish(due)
        now_ms += chance.randrange(12)
    while len(seen) < len(queue.due):
        now_ms += 10
        if not len(queue.plan.due(now_ms, 1)):
            queue.plan.make(len(queue.due), now_ms)
        seen += queue.finish(queue.plan.due(now_ms, 100))
        assert now_ms < NOW_MS + 100_000
    assert sorted(seen) == list(range(len(queue.due)))
