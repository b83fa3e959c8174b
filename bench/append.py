"""Append: one message at a time, and 256 at a time, with default settings.

ASYNC_FLUSH, 1 GiB files that are new to the disk, index on, dispatch running meanwhile; one thread appends
messages built beforehand. Both sides of the comparison write the same records: a ready-made property string with
tag, key and unique key. That is proven by sizes: every byte RocketMQ stored is accounted for by our own
arithmetic over message numbers. Rounds of both sides alternate, each in a new directory.

What users write most, tags and keys without a unique key, is shown beside it.
"""

import time
from pathlib import Path
from typing import NamedTuple

from bench.answers import derived_answer, joined, log_answer
from bench.course import Course, not_measured
from bench.figures import Figure, at_least
from bench.peers import rocketmq
from bench.workload import (
    BATCH,
    FIRST_NUMBER,
    QUEUES,
    Form,
    load_kernels,
    make_messages,
    quiet,
    record_bytes,
)
from embermq import Message, MessageStore

NAME = "append"
ABOUT = "one at a time and 256 at a time, default settings"
BODIES = {"100 B": 100, "1 KiB": 1024}
SINGLE_TARGETS = {"100 B": at_least(0.35), "1 KiB": at_least(0.8)}
MANY_TARGET = at_least(1.2)
_PREPARED_BATCHES = 64  # As RocketMQ's benchmark has it: the same batches come again.


class Round(NamedTuple):
    single: float  # messages a second
    single_dispatched: float
    single_cpu_us: float  # of the appending thread, per message
    many: float
    many_cpu_us: float
    answer: str
    record_bytes: float


def run(course: Course) -> list[Figure]:
    load_kernels()
    figures = []
    for case, body_bytes in BODIES.items():
        figures += _measure(course, case, body_bytes)
    return figures


def _measure(course: Course, case: str, body_bytes: int) -> list[Figure]:
    messages = course.pick(2_048, 200_000)
    why_not = rocketmq.missing() if course.peers else None
    peers = course.peers and why_not is None
    theirs: list[rocketmq.Figures] = []
    ours: dict[Form, list[Round]] = {form: [] for form in Form}
    for number in range(course.rounds):
        course.note(f"append: {case}, round {number + 1} of {course.rounds}")
        for form in Form:
            with course.scratch() as scratch:
                ours[form].append(_round(course, scratch / "store", body_bytes, messages, form))
        if peers:
            measured = rocketmq.measure_append(body_bytes, messages, rounds=1, scratch=course.directory)
            _check_bytes(measured, body_bytes, messages)
            theirs.append(measured)
    figures = [figure for form in Form for figure in _own_figures(case, form, ours[form])]
    if why_not is not None:
        return [*figures, not_measured(case, "ours / reference", "x", why_not)]
    return figures + (_ratios(case, ours[Form.ENCODED], theirs) if peers else [])


def _round(course: Course, path: Path, body_bytes: int, messages: int, form: Form) -> Round:
    warm_up = make_messages(0, course.pick(512, 24_576), body_bytes, form)
    singles = make_messages(FIRST_NUMBER, messages, body_bytes, form)
    batches = [
        make_messages(number * BATCH, BATCH, body_bytes, form, queue_id=number % QUEUES)
        for number in range(_PREPARED_BATCHES)
    ]
    with MessageStore.open(path, course.settings()) as store:
        for at in range(0, len(warm_up), BATCH):
            store.append_many(warm_up[at : at + BATCH])
        _append_each(store, warm_up)
        store.wait_for_dispatch()
        quiet()
        began, cpu, before = time.perf_counter(), time.thread_time(), store.max_physical
        _append_each(store, singles)
        seconds, cpu_seconds = time.perf_counter() - began, time.thread_time() - cpu
        stored = store.max_physical - before
        store.wait_for_dispatch()
        dispatched = time.perf_counter() - began
        quiet()
        rounds = messages // BATCH
        began, cpu = time.perf_counter(), time.thread_time()
        for number in range(rounds):
            store.append_many(batches[number % _PREPARED_BATCHES])
        many_seconds, many_cpu_seconds = time.perf_counter() - began, time.thread_time() - cpu
    many = rounds * BATCH
    return Round(
        messages / seconds,
        messages / dispatched,
        cpu_seconds / messages * 1e6,
        many / many_seconds,
        many_cpu_seconds / many * 1e6,
        joined(log_answer(path), derived_answer(path)),
        stored / messages,
    )


def _append_each(store: MessageStore, messages: list[Message]) -> None:
    append = store.append
    for message in messages:
        append(message)


def _own_figures(case: str, form: Form, rounds: list[Round]) -> list[Figure]:
    answer = rounds[0].answer
    assert {one.answer for one in rounds} == {answer}, f"{case}, {form.value}: rounds give different answers"
    case = f"{case}, {form.value}"
    return [
        Figure(case, "record", "B per msg", [one.record_bytes for one in rounds], answer=answer),
        Figure(case, "single", "msg/s", [one.single for one in rounds], answer=answer),
        Figure(case, "single, until dispatched", "msg/s", [one.single_dispatched for one in rounds], answer=answer),
        Figure(case, "single, CPU of the thread", "µs per msg", [one.single_cpu_us for one in rounds], answer=answer),
        Figure(case, "256 at a time", "msg/s", [one.many for one in rounds], answer=answer),
        Figure(case, "256, CPU of the thread", "µs per msg", [one.many_cpu_us for one in rounds], answer=answer),
    ]


def _ratios(case: str, ours: list[Round], theirs: list[rocketmq.Figures]) -> list[Figure]:
    singles = [float(measured["messages_per_second"]) for measured in theirs]
    many = [float(measured["batch_256_messages_per_second"]) for measured in theirs]
    sizes = [measured["stored_bytes"] / measured["stored_messages"] for measured in theirs]
    return [
        Figure(case, "reference, record (mean)", "B per msg", sizes),
        Figure(case, "reference, single", "msg/s", singles),
        Figure(case, "reference, 256 at a time", "msg/s", many),
        Figure(
            case,
            "single, ours / reference",
            "x",
            [own.single / their for own, their in zip(ours, singles, strict=True)],
            SINGLE_TARGETS[case],
        ),
        Figure(
            case,
            "256 at a time, ours / reference single",
            "x",
            [own.many / their for own, their in zip(ours, singles, strict=True)],
            MANY_TARGET,
        ),
        Figure(
            case,
            "256 at a time, ours / reference 256",
            "x",
            [own.many / their for own, their in zip(ours, many, strict=True)],
        ),
    ]


def _check_bytes(measured: rocketmq.Figures, body_bytes: int, messages: int) -> None:
    """Both sides write records of the same size for the same message number."""
    batches = 2 * (messages // BATCH)  # one warm-up, one round
    singles = measured["stored_messages"] - batches * BATCH
    expected = _sum_of_records(singles, body_bytes)
    for put in range(messages // BATCH):
        first = put % _PREPARED_BATCHES * BATCH
        expected += 2 * (_sum_of_records(first + BATCH, body_bytes) - _sum_of_records(first, body_bytes))
    assert expected == measured["stored_bytes"], f"RocketMQ stored {measured['stored_bytes']} bytes, we {expected}"


def _sum_of_records(count: int, body_bytes: int) -> int:
    """Bytes of the records of messages 0..count: each power of ten makes the key a digit longer."""
    total, low = 0, 0
    for digits in range(1, 20):
        high = min(10**digits, count)
        if high > low:
            total += (high - low) * record_bytes(low, body_bytes)
            low = high
    return total
