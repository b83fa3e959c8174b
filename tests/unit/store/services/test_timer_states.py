"""Every row of the table of delivery times, in a store."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embermq import MessageStore
from embermq.errors import MessageRejected
from embermq.model.properties import TIMER_TOPIC
from embermq.testing.clock import ManualClock
from tests.support.documented_states import CANCELLED, DELIVERED, DONE, NEW, REFUSED, TIMED, WAITING, Step
from tests.unit.store.services.test_timers_in_store import DAY_MS, HOUR_MS, SMALL, Bench, cancelling, opened, timed

FAR_MS = 10 * DAY_MS


class Life:
    """One message in a store that can be restarted."""

    def __init__(self, path: Path) -> None:
        self.path, self.clock = path, ManualClock()
        self.due_ms = self.clock.now_ms() + FAR_MS
        self.is_refused = self.is_cancelled = False

    @contextmanager
    def bench(self) -> Iterator[Bench]:
        with opened(self.path, self.clock) as bench:
            bench.look()
            yield bench
            bench.look()

    def reach(self, state: str) -> None:
        if state != NEW:
            self.do("sent with a time ahead" if state != DELIVERED else "sent with a time that has come")
        if state == CANCELLED:
            self.do("cancelled by key and time")

    def do(self, event: str) -> None:
        if event == "a restart":
            return  # Every look at it is one.
        with self.bench() as bench:
            match event:
                case "its time comes":
                    self.clock.set(self.due_ms)
                case "the clock is set back":
                    self.clock.jump(ms=-DAY_MS)
                case "half of fileReservedTime passes, stored again":
                    bench.advance(ms=SMALL.retention_hours * HOUR_MS // 2)
                    assert bench.timers.stored_again == 1
                case "cancelled by key and time":
                    bench.store.append(cancelling("k", self.due_ms))
                    self.is_cancelled = True
                case "cancelled by key and another time":
                    bench.store.append(cancelling("k", self.due_ms + 1))
                case _:
                    self.send(bench.store, event)

    def send(self, store: MessageStore, event: str) -> None:
        times = {
            "sent with a time ahead": self.due_ms,
            "sent with a time that has come": self.clock.now_ms(),
            "sent with a time too far ahead": self.clock.now_ms() + 41 * DAY_MS,
            "sent with a time that is no number": "tomorrow",
        }
        try:
            store.append(timed(b"x", at_ms=times[event], UNIQ_KEY="k"))
        except MessageRejected:
            self.is_refused = True

    def state(self) -> str:
        with self.bench() as bench:
            is_waiting = bench.timers.first_parked() is not None
            assert len(bench.bodies()) <= 1
            if bench.bodies():
                assert not is_waiting
                return DELIVERED
            if is_waiting:
                return CANCELLED if self.is_cancelled else WAITING
            if self.is_refused:
                assert bench.store.max_offset(TIMER_TOPIC, 0) == 0
                return REFUSED
            return DONE


@pytest.mark.parametrize("step", TIMED, ids=lambda step: f"{step.state}: {step.event}")
def test_a_row(tmp_path: Path, step: Step) -> None:
    life = Life(tmp_path)
    life.reach(step.state)
    life.do(step.event)
    assert life.state() == step.then
    if step.then in (WAITING, CANCELLED):  # And in the end.
        life.do("its time comes")
        assert life.state() == (DELIVERED if step.then == WAITING else DONE)
