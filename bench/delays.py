"""Delayed delivery: how late messages come, by delay level and by delivery time.

One store, real clock. *Burst*: messages that all fall due within one second, parked
before; what is measured is the time from the first one's due time to the last delivery. *Stream*: 1,000 messages a
second, each with a delay of one second; what is measured is how much later than its time each is stored again.
*Parked*: what a million messages that wait cost in memory, and a pass over them in time.
"""

import time
from pathlib import Path

import numpy as np

from bench.course import Course
from bench.figures import Figure, at_most
from embermq import Message, MessageStore
from embermq.model.properties import TIMER_TOPIC
from embermq.testing.clock import ManualClock

NAME = "delays"
ABOUT = "how late delayed messages come, and what they cost while they wait"
BURST_MS = 2000  # One second in which they fall due, one to deliver them.
STREAM_LATE_MS = 100
BODY = b"x" * 100
_LIST = 1000
_PATIENCE_SECONDS = 600.0


def run(course: Course) -> list[Figure]:
    burst, stream, parked = (course.pick(*sizes) for sizes in ((1000, 100_000), (200, 10_000), (2000, 1_000_000)))
    late: dict[str, list[float]] = {"delivery times": [], "delay level": []}
    behind: dict[str, list[float]] = {"p99": [], "max": []}
    bytes_each, pass_ms = [], []
    for number in range(course.pick(1, min(course.rounds, 3))):
        with course.scratch() as scratch:
            course.note(f"{NAME}: round {number + 1}")
            late["delivery times"].append(_burst(course, scratch / "times", burst, by_level=False))
            late["delay level"].append(_burst(course, scratch / "level", burst, by_level=True))
            lateness = _stream(course, scratch / "stream", stream)
            behind["p99"].append(float(np.percentile(lateness, 99)))
            behind["max"].append(float(lateness.max()))
            cost = _parked(course, scratch / "parked", parked)
            bytes_each.append(cost[0])
            pass_ms.append(cost[1])
    return [
        *(
            Figure(
                f"{burst:,} due in one second",
                f"by {kind}: first due to last delivered",
                "ms",
                values,
                at_most(BURST_MS),
            )
            for kind, values in late.items()
        ),
        *(
            Figure("1,000 a second, by delivery time", f"late below, {kind}", "ms", values, at_most(STREAM_LATE_MS))
            for kind, values in behind.items()
        ),
        Figure(f"{parked:,} parked", "memory each", "bytes", bytes_each),
        Figure(f"{parked:,} parked", "one pass", "ms", pass_ms),
    ]


def _burst(course: Course, path: Path, count: int, *, by_level: bool) -> float:
    """How late the last of `count` messages is that fall due within a second."""
    wait_s = course.pick(3, 60)
    settings = course.settings().replace(delay_levels=f"{wait_s}s")
    began_ms = int(time.time() * 1000)
    clock = ManualClock(began_ms)  # Parks all within one second, however long it takes.
    with MessageStore.open(path, settings, clock=clock) as store:
        for start in range(0, count, _LIST):
            clock.set(began_ms + start * 1000 // count)
            numbers = range(start, min(start + _LIST, count))
            if by_level:
                store.append_many([Message("due", BODY, delay_level=1) for _ in numbers])
            else:
                given = {"TIMER_DELAY_SEC": str(wait_s)}
                store.append_many([Message("due", BODY, properties=given) for _ in numbers])
    with MessageStore.open(path, settings) as store:
        # From the first due time; where parking took longer than the wait, from the opening.
        begins_ms = max(began_ms + wait_s * 1000, int(time.time() * 1000))
        return max(1.0, _last_delivery_ms(store, "due", count) - begins_ms)


def _last_delivery_ms(store: MessageStore, topic: str, count: int) -> float:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while store.max_offset(topic, 0) < count:
        assert time.monotonic() < deadline, f"{store.max_offset(topic, 0)} of {count} messages were delivered"
        time.sleep(0.01)
    [last] = store.fetch(topic, 0, count - 1, max_messages=1).messages
    return float(last.store_timestamp)


def _stream(course: Course, path: Path, count: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """By how much each message is late."""
    with MessageStore.open(path, course.settings()) as store:
        began = time.monotonic()
        for number in range(count):
            store.append(Message("stream", BODY, properties={"TIMER_DELAY_SEC": "1"}))
            time.sleep(max(0.0, began + number / 1000 - time.monotonic()))
        _last_delivery_ms(store, "stream", count)
        late: list[float] = []
        while more := store.fetch("stream", 0, len(late), max_messages=1000).messages:
            late += [one.store_timestamp - int(one.properties["TIMER_OUT_MS"]) + 1 for one in more]  # Whole ms.
    return np.array(late, np.float64)


def _parked(course: Course, path: Path, count: int) -> tuple[float, float]:
    """Anonymous memory of each message that waits, and the time of a pass over all of them."""
    with MessageStore.open(path, course.settings()) as store:
        timers = store.engine.services.timers
        assert timers is not None
        store.append_many([Message("far", BODY, properties={"TIMER_DELAY_SEC": "864000"}) for _ in range(_LIST)])
        assert store.wait_for_dispatch(_PATIENCE_SECONDS)
        before = _anonymous_bytes()
        for _ in range(_LIST, count, _LIST):
            store.append_many([Message("far", BODY, properties={"TIMER_DELAY_SEC": "864000"}) for _ in range(_LIST)])
        assert store.wait_for_dispatch(_PATIENCE_SECONDS)
        timers.stop()
        grown = max(1, _anonymous_bytes() - before)
        began = time.perf_counter()
        timers._plan.make(store.max_offset(TIMER_TOPIC, 0), int(time.time() * 1000))
        return grown / count, (time.perf_counter() - began) * 1000


def _anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
