"""Steps of time that a chart shows. Pure."""

from collections.abc import Iterable

STEPS_MAX = 5_000


def usual_span(steps: Iterable[int]) -> tuple[int, int]:
    """From the first to the last step, half-open; a record whose time is wrong by years does not stretch it."""
    ordered = sorted(steps)
    if not ordered:
        return 0, 0
    middle = ordered[len(ordered) // 2]
    near = [step for step in ordered if abs(step - middle) <= STEPS_MAX]
    return near[0], near[-1] + 1
