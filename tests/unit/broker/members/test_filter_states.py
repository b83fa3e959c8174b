"""Every row of the table of registered filters, by what heartbeats say and by the time that passes."""

from pathlib import Path
from typing import Any

import pytest

from embermq.broker import ConsumerFilters
from embermq.broker.members.subscriptions import Subscription
from embermq.format.config_json import parse_config
from embermq.settings import StoreSettings
from embermq.testing import ManualClock
from tests.support.documented_states import ALIVE, FILTERED, LEFT, NONE, Step

SETTINGS = StoreSettings(filter_properties=True)
KEY = ("T", "g")


class Life:
    """The filter of one group for one topic, in a broker that can be restarted."""

    def __init__(self, path: Path) -> None:
        self._path, self._clock = path, ManualClock()
        self._filters = self._load()

    def _load(self) -> ConsumerFilters:
        return ConsumerFilters.load(self._path, SETTINGS, self._clock)

    def reach(self, state: str) -> None:
        if state != NONE:
            self._hear("n > 5", 7)
        if state == LEFT:
            self._filters.unregister("g")

    def do(self, event: str) -> None:
        match event:
            case "heartbeat with an expression" | "heartbeat with the same version":
                self._hear("n > 5", 7)
            case "heartbeat with a newer version":
                self._hear("n > 6", 8)
            case "heartbeat with an older version":
                self._hear("n > 4", 6)
            case (
                "heartbeat with an expression that does not compile"
                | "heartbeat with a newer version that does not compile"
            ):
                self._hear("n > > 5", 8)
            case "heartbeat without the topic, or with tags for it":
                self._filters.register("g", {"T": Subscription("T", "*", "TAG", 8)})
            case "the last member of the group is gone":
                self._filters.unregister("g")
            case "filterDataCleanTimeSpan passes":
                self._clock.advance(ms=SETTINGS.filter_dead_ms)
                self._filters.clean()
            case "a restart":
                self._filters.save()
                self._filters = self._load()
            case _:
                raise AssertionError(event)

    def _hear(self, expression: str, version: int) -> None:
        self._filters.register("g", {"T": Subscription("T", expression, "SQL92", version)})

    @property
    def state(self) -> str:
        if self._filters.find(*KEY) is None:
            assert len(self._filters) == 0
            return NONE
        assert len(self._filters) == 1
        self._filters.save()
        document: Any = parse_config((self._path / "config" / "consumerFilter.json").read_text())
        return LEFT if document["filterDataByTopic"]["T"]["groupFilterData"]["g"]["dead"] else ALIVE

    def matches(self, number: int) -> bool:
        found = self._filters.find(*KEY)
        assert found is not None
        return found.matches_record(b"n\x01%d" % number)


@pytest.mark.parametrize("step", FILTERED, ids=lambda step: f"{step.state}, {step.event}")
def test_a_row(tmp_path: Path, step: Step) -> None:
    life = Life(tmp_path)
    life.reach(step.state)
    assert life.state == step.state
    life.do(step.event)
    assert life.state == step.then
    if step.then != NONE:
        is_new = step.event == "heartbeat with a newer version"
        assert (life.matches(6), life.matches(7)) == (not is_new, True)
        assert not life.matches(5)


def test_a_topic_that_is_left_out_is_not_wanted_either(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.reach(ALIVE)
    life._filters.register("g", {})
    assert life.state == LEFT
