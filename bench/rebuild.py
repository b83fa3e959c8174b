"""Rebuild: queues and index from the log alone.

The store is opened with nothing but its log: consumequeue/, index/ and our own files are gone. Measured is the
whole `open`, until queues and index are complete and durable; the log is in the page cache. With peers
RocketMQ does the same on a log it wrote itself, and we on that very log: its time is that of its dispatch
alone, which syncs nothing.
"""

import time
from pathlib import Path
from typing import NamedTuple

from bench.answers import derived_answer, joined, log_answer
from bench.course import Course, not_measured
from bench.figures import Figure, at_least
from bench.peers import rocketmq
from bench.workload import copy_store, fill, load_kernels, quiet, sync_log
from embermq import MessageStore, StoreSettings

NAME = "rebuild"
ABOUT = "queues and index from a log alone"
TARGETS = {"1 KiB": (1024, at_least(0.7)), "100 B": (100, at_least(1.3))}


class Rebuilt(NamedTuple):
    records: int
    wall_seconds: float
    walk_seconds: float
    cpu_seconds: float
    answer: str


def run(course: Course) -> list[Figure]:
    load_kernels()
    figures = []
    for case, (body_bytes, limit) in TARGETS.items():
        messages = course.pick(4_000, 800_000)
        with course.scratch() as scratch:
            source = scratch / "source"
            fill(source, course.settings(), body_bytes=body_bytes, messages=messages)
            before = joined(log_answer(source), derived_answer(source))
            sync_log(source)
            targets = [scratch / f"round-{number}" for number in range(course.rounds)]
            rounds = [rebuild(course.settings(), source, target) for target in targets]
        answer = rounds[0].answer
        assert {one.answer for one in rounds} == {before}, f"{case}: rebuilt files differ from the first ones"
        rates = [one.records / one.wall_seconds / 1e6 for one in rounds]
        walk_rates = [one.records / one.walk_seconds / 1e6 for one in rounds]
        cpu = [one.cpu_seconds / one.records * 1e6 for one in rounds]
        figures += [
            Figure(case, "rate", "M msg/s", rates, limit, answer),
            Figure(case, "rate of the walk", "M msg/s", walk_rates, answer=answer),
            Figure(case, "CPU, all threads", "s per M msg", cpu, answer=answer),
        ]
    if course.peers:
        figures += _beside_reference(course)
    return figures


def rebuild(settings: StoreSettings, source: Path, target: Path) -> Rebuilt:
    """Derive everything once more in a new directory. The walk is measured alone as well: the rest is syncing."""
    copy_store(source, target, derived=False)
    quiet()
    cpu, began = time.process_time(), time.perf_counter()
    store = MessageStore.open(target, settings)
    wall_seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    report = store.recovery
    store.close()
    answer = joined(log_answer(target), derived_answer(target))
    return Rebuilt(report.records, wall_seconds, report.seconds, cpu_seconds, answer)


def _beside_reference(course: Course) -> list[Figure]:
    case = "1 KiB, log of RocketMQ"
    why_not = rocketmq.missing()
    if why_not is not None:
        return [not_measured(case, "ours / reference", "x", why_not)]
    ours, theirs, dispatches, answers = [], [], [], set()
    with course.scratch() as scratch:
        source = scratch / "reference"
        rocketmq.fill(source, log_bytes=course.pick(4 << 20, rocketmq.GIB - (1 << 20)))
        sync_log(source)
        for number in range(course.rounds):
            measured = rocketmq.measure_rebuild(source, rounds=1)
            theirs.append(float(measured["seconds"]))
            dispatches.append(float(measured["dispatch_seconds"]))
            reference_answer = derived_answer(source)
            mine = rebuild(StoreSettings(), source, scratch / f"round-{number}")
            assert mine.records == measured["queue_entries"], (mine, measured)
            assert derived_answer(scratch / f"round-{number}") == reference_answer, "not RocketMQ's queues"
            ours.append(mine)
            answers.add(reference_answer)  # Its log holds the times of its run; what follows from it does not.
    assert len(answers) == 1, answers
    records = ours[0].records
    ratios = [their / one.wall_seconds for one, their in zip(ours, theirs, strict=True)]
    alone = [their / one.wall_seconds for one, their in zip(ours, dispatches, strict=True)]
    return [
        Figure(case, "ours", "M msg/s", [records / one.wall_seconds / 1e6 for one in ours], answer=answers.pop()),
        Figure(case, "reference, scan and dispatch", "M msg/s", [records / seconds / 1e6 for seconds in theirs]),
        Figure(case, "ours / reference", "x", ratios, at_least(2)),
        Figure(case, "ours / its dispatch alone", "x", alone),
    ]
