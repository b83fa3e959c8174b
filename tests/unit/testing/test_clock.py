"""The manual clock."""

import pytest

from embermq.clock import Clock, stamp_of
from embermq.testing.clock import START_MS, ManualClock


def test_time_stands_until_moved() -> None:
    clock = ManualClock()
    seam: Clock = clock
    assert (seam.now_ms(), seam.monotonic()) == (START_MS, 0.0)
    clock.advance(ms=5, s=1.5)
    assert (seam.now_ms(), seam.monotonic()) == (START_MS + 1505, 1.505)
    with pytest.raises(AssertionError):
        clock.advance(ms=-1)


def test_a_jump_is_seen_by_the_wall_clock_only() -> None:
    clock = ManualClock(1000)
    clock.jump(ms=-400)
    assert (clock.now_ms(), clock.monotonic()) == (600, 0.0)


def test_stamps_are_those_of_the_real_clock() -> None:
    assert ManualClock().local_stamp(START_MS) == stamp_of(START_MS)
