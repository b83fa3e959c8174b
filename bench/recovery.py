"""Recovery: starting again after a kill, and after a clean close.

A killed store is opened beside one plain walk of the kernel over the same bytes, both over fresh mappings of
pages that are in the cache and on the disk. Nothing vouches for any part of the log, so recovery walks all of
it and derives queues and index again: the worst case. With peers the reference recovers a store it was killed
in, and we the same one.

A clean start of a large store is shown beside that of a small one, each in a fresh process.
"""

import time
from pathlib import Path

from bench import fresh
from bench.answers import derived_answer, joined, log_answer, walk
from bench.course import GIB, MIB, Course, not_measured
from bench.figures import Figure, at_least, at_most
from bench.peers import rocketmq
from bench.workload import Form, copy_store, fill, load_kernels, messages_in, quiet, sync_log
from embermq import MessageStore, StoreSettings

NAME = "recovery"
ABOUT = "start after a kill, and after a clean close"
BODY_BYTES = 1024
# A clean start reads at most two stretches of the tail (64 MiB each) and a portion of rows.
TAIL_MIB_MAX = 160


def run(course: Course) -> list[Figure]:
    load_kernels()
    figures = _after_kill(course)
    if course.peers:
        figures += _beside_reference(course)
    return figures + _after_close(course)


def _after_kill(course: Course) -> list[Figure]:
    case = f"killed, {course.pick('4 MiB', '1 GiB')}"
    recovered, cpu, scanned, fresh_seconds, answers = [], [], [], [], set()
    with course.scratch() as scratch:
        killed = scratch / "killed"
        told = fresh.kill_after_filling(
            killed, body_bytes=BODY_BYTES, messages=messages_in(course.pick(4 * MIB, GIB), BODY_BYTES),
            size=course.size,
        )
        sync_log(killed)
        for number in range(course.rounds):
            path = scratch / f"round-{number}"
            copy_store(killed, path, derived=True)
            seconds, cpu_seconds = _recover(course.settings(), path, told["log_bytes"])
            recovered.append(seconds)
            cpu.append(cpu_seconds)
            scanned.append(_scan_seconds(path))
            answers.add(joined(log_answer(path), derived_answer(path)))
        path = scratch / "fresh"
        copy_store(killed, path, derived=True)
        fresh_seconds.append(float(fresh.watch("open", path, course.size).told["seconds"]))
        answers.add(joined(log_answer(path), derived_answer(path)))
    assert len(answers) == 1, f"recovery gives different answers: {answers}"
    answer = answers.pop()
    ratios = [one / scan for one, scan in zip(recovered, scanned, strict=True)]
    cpu_ratios = [one / scan for one, scan in zip(cpu, scanned, strict=True)]
    return [
        Figure(case, "recovery", "s", recovered, answer=answer),
        Figure(case, "recovery, CPU of all threads", "s", cpu, answer=answer),
        Figure(case, "kernel scan", "s", scanned, answer=answer),
        Figure(case, "recovery / scan", "x", ratios, at_most(2), answer),
        Figure(case, "recovery CPU / scan", "x", cpu_ratios, answer=answer),
        Figure(case, "in a fresh process", "s", fresh_seconds, answer=answer),
    ]


def _recover(settings: StoreSettings, path: Path, log_bytes: int) -> tuple[float, float]:
    quiet()
    cpu, began = time.process_time(), time.perf_counter()
    store = MessageStore.open(path, settings)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    report = store.recovery
    assert not report.clean
    assert report.log_end == report.scanned_bytes == log_bytes, (report, log_bytes)
    store.close()
    return seconds, cpu_seconds


def _scan_seconds(path: Path) -> float:
    """One walk over the log, sums checked, mapping it included."""
    from embermq.kernels.scan import scan

    began = time.perf_counter()
    for _ in walk(path, scan):
        pass
    return time.perf_counter() - began


def _beside_reference(course: Course) -> list[Figure]:
    case = "killed reference"
    why_not = rocketmq.missing()
    if why_not is not None:
        return [not_measured(case, "times as fast", "x", why_not)]
    ours, theirs, answers = [], [], set()
    with course.scratch() as scratch:
        killed = scratch / "reference"
        rocketmq.fill(killed, log_bytes=course.pick(4 * MIB, GIB - MIB))
        sync_log(killed)
        for number in range(course.rounds):
            path = scratch / f"round-{number}"
            copy_store(killed, path, derived=True)
            told = rocketmq.measure_recovery(killed, rounds=1)
            theirs.append(float(told["seconds"]))
            ours.append(_recover(StoreSettings(), path, told["max_physical_offset"])[0])
            answers.add(derived_answer(path))  # The log itself holds the times of the reference's run.
    assert len(answers) == 1, f"recovery gives different answers: {answers}"
    ratios = [their / own for own, their in zip(ours, theirs, strict=True)]
    return [
        Figure(case, "ours", "s", ours, answer=answers.pop()),
        Figure(case, "reference", "s", theirs),
        Figure(case, "times as fast", "x", ratios, at_least(4)),
    ]


def _after_close(course: Course) -> list[Figure]:
    sizes = {"small": course.pick(2 * MIB, 256 * MIB), "large": course.pick(8 * MIB, 10 * GIB)}
    seconds: dict[str, list[float]] = {name: [] for name in sizes}
    scanned: dict[str, list[float]] = {name: [] for name in sizes}
    read: dict[str, list[float]] = {name: [] for name in sizes}
    answers = {}
    with course.scratch() as scratch:
        for name, log_bytes in sizes.items():
            course.note(f"recovery: filling a store of {log_bytes / MIB:,.0f} MiB")
            path, count = scratch / name, messages_in(log_bytes, BODY_BYTES, Form.TAGS_AND_KEYS)
            fill(path, course.settings(), body_bytes=BODY_BYTES, messages=count, form=Form.TAGS_AND_KEYS)
            answers[name] = joined(log_answer(path), derived_answer(path))
        for _ in range(course.rounds):
            for name in sizes:
                told = fresh.watch("open", scratch / name, course.size).told
                assert told["reason"] == "closed cleanly", told
                seconds[name].append(float(told["seconds"]))
                scanned[name].append(told["scanned_bytes"] / MIB)
                read[name].append(told["read_bytes"] / MIB)
        for name in sizes:
            again = joined(log_answer(scratch / name), derived_answer(scratch / name))
            assert again == answers[name], f"{name}: changed by being opened"
    figures = []
    for name, log_bytes in sizes.items():
        case = f"closed, {log_bytes / MIB:,.0f} MiB"
        figures += [
            Figure(case, "start", "s", seconds[name], answer=answers[name]),
            Figure(case, "log bytes walked", "MiB", scanned[name], at_most(TAIL_MIB_MAX), answers[name]),
            Figure(case, "bytes read otherwise", "MiB", read[name], answer=answers[name]),
        ]
    ratios = [large / small for small, large in zip(seconds["small"], seconds["large"], strict=True)]
    return [*figures, Figure("closed", "large / small", "x", ratios, at_most(2))]
