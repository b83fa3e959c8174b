"""Recovery: starting again after a kill, after a power cut, and after a clean close.

A killed store is opened beside one plain walk of the kernel over the same bytes, both over fresh mappings of
pages that are in the cache. Three cases:

    killed               the process died, the machine did not: what was written counts
    power cut            the same, but only what was synced counts (the state page names another boot)
    no proofs            our own side files are gone: all of the log is walked, queues and index derived again

With peers RocketMQ recovers a store it was killed in; we recover one of ours of the same size, and
RocketMQ's own one, for which there are no proofs of ours.

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
from embermq.files import RealFiles
from embermq.store.layout.state_page import load_state_page

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
    size = course.pick("4 MiB", "1 GiB")
    cases = {"killed": _leave_alone, "power cut": _forget_boot, "no proofs": _remove_side_files}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    walked: dict[str, list[float]] = {name: [] for name in cases}
    ratios: dict[str, list[float]] = {name: [] for name in cases}
    scanned: list[float] = []
    answers = set()
    for _ in range(course.rounds):
        for name, prepare in cases.items():
            with course.scratch() as scratch:
                path = scratch / "killed"
                _kill_after_filling(course, path)
                prepare(path)
                took, walked_bytes = _recover(course.settings(), path)
                scanned.append(_scan_seconds(path))
                seconds[name].append(took)
                walked[name].append(walked_bytes / MIB)
                ratios[name].append(took / scanned[-1])
                answers.add(joined(log_answer(path), derived_answer(path)))
    assert len(answers) == 1, f"recovery gives different answers: {answers}"
    answer = answers.pop()
    figures = [Figure(size, "kernel scan of all of it", "s", scanned, answer=answer)]
    for name in cases:
        target = at_most(2) if name != "no proofs" else None
        figures += [
            Figure(f"{name}, {size}", "recovery", "s", seconds[name], answer=answer),
            Figure(f"{name}, {size}", "log walked", "MiB", walked[name], answer=answer),
            Figure(f"{name}, {size}", "recovery / scan", "x", ratios[name], target, answer),
        ]
    return figures


def _kill_after_filling(course: Course, path: Path) -> None:
    messages = messages_in(course.pick(4 * MIB, GIB), BODY_BYTES)
    fresh.kill_after_filling(path, body_bytes=BODY_BYTES, messages=messages, size=course.size)
    sync_log(path)


def _leave_alone(path: Path) -> None:
    """What a kill leaves."""


def _forget_boot(path: Path) -> None:
    page = load_state_page(RealFiles(), path, writable=True)
    assert page is not None
    page.boot = 0


def _remove_side_files(path: Path) -> None:
    for file in path.glob("embermq.*"):
        file.unlink()


def _recover(settings: StoreSettings, path: Path) -> tuple[float, int]:
    """Seconds to open a store that was not closed, and how much of its log was walked for that."""
    quiet()
    began = time.perf_counter()
    store = MessageStore.open(path, settings)
    seconds = time.perf_counter() - began
    report = store.recovery
    assert not report.clean
    store.close()
    return seconds, report.scanned_bytes


def _scan_seconds(path: Path) -> float:
    """One walk over the log, sums checked, mapping it included."""
    from embermq.columns.compiled.scan import scan

    began = time.perf_counter()
    for _ in walk(path, scan):
        pass
    return time.perf_counter() - began


def _beside_reference(course: Course) -> list[Figure]:
    case = "killed reference"
    why_not = rocketmq.missing()
    if why_not is not None:
        return [not_measured(case, "times as fast", "x", why_not)]
    ours, adopted, theirs, answers = [], [], [], set()
    with course.scratch() as scratch:
        killed = scratch / "reference"
        rocketmq.fill(killed, log_bytes=course.pick(4 * MIB, GIB - MIB))
        sync_log(killed)
        for number in range(course.rounds):
            path = scratch / f"round-{number}"
            copy_store(killed, path, derived=True)
            theirs.append(float(rocketmq.measure_recovery(killed, rounds=1)["seconds"]))
            adopted.append(_recover(StoreSettings(), path)[0])
            answers.add(derived_answer(path))  # The log itself holds the times of RocketMQ's run.
            own = scratch / f"own-{number}"
            _kill_after_filling(course, own)
            ours.append(_recover(course.settings(), own)[0])
    assert len(answers) == 1, f"recovery gives different answers: {answers}"
    faster = [their / own for own, their in zip(ours, theirs, strict=True)]
    adopting = [their / own for own, their in zip(adopted, theirs, strict=True)]
    return [
        Figure(case, "reference, its own store", "s", theirs),
        Figure(case, "ours, our own store", "s", ours),
        Figure(case, "times as fast", "x", faster, at_least(4)),
        Figure(case, "ours, RocketMQ's store", "s", adopted, answer=answers.pop()),
        Figure(case, "times as fast, the same store", "x", adopting),
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
                measured = fresh.watch("open", scratch / name, course.size).figures
                assert measured["reason"] == "closed cleanly", measured
                seconds[name].append(float(measured["seconds"]))
                scanned[name].append(measured["scanned_bytes"] / MIB)
                read[name].append(measured["read_bytes"] / MIB)
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
