"""Verify, rebuild and salvage: how fast a store is checked and repaired, beside the work that cannot be avoided.

`verify` is held against one walk of the scan kernel over the same log, mapped, on one thread: the full form reads
with pread and compares queues and index as well, but on all cores. `rebuild` is held against the store's own start
from a log alone. The log is in the page cache. Peaks count anonymous memory only.
"""

import time
from pathlib import Path

from bench.answers import derived_answer, joined, log_answer, walk
from bench.course import GIB, MIB, Course
from bench.figures import Figure, at_least, at_most
from bench.rebuild import rebuild as open_with_log_alone
from bench.tools import PEAK_TARGET_MB, peak_mb
from bench.workload import fill, load_kernels, messages_in, quiet, sync_log
from embermq.repair.rebuild.rebuilding import rebuild
from embermq.repair.salvage.salvaging import salvage
from embermq.repair.verify.store_check import verify

NAME = "verify"
ABOUT = "verify, rebuild and salvage of a store directory"
BODIES = {"1 KiB": 1024, "100 B": 100}


def run(course: Course) -> list[Figure]:
    load_kernels()
    import embermq.columns.compiled.check
    import embermq.columns.compiled.check_log
    import embermq.columns.compiled.links  # noqa: F401

    figures = [figure for case, body_bytes in BODIES.items() for figure in _verify(course, case, body_bytes)]
    return [*figures, *_mend(course), *_memory(course)]


def _verify(course: Course, case: str, body_bytes: int) -> list[Figure]:
    from embermq.columns.compiled.scan import scan

    messages = course.pick(4_000, messages_in(GIB - 64 * MIB, body_bytes))
    scans, fulls, fasts, cpu = [], [], [], []
    with course.scratch() as scratch:
        path = scratch / "store"
        fill(path, course.settings(), body_bytes=body_bytes, messages=messages)
        sync_log(path)
        log, report = log_answer(path), verify(path)
        for _ in range(course.rounds):
            quiet()
            began, used = time.perf_counter(), time.process_time()
            for _ in walk(path, scan):
                pass
            scan_cpu = time.process_time() - used
            scans.append(time.perf_counter() - began)
            seconds, full_cpu = _checked(path, fast=False)
            fulls.append(seconds)
            cpu.append(full_cpu / scan_cpu)
            fasts.append(_checked(path, fast=True)[0])
    assert report.records == messages, (report, messages)
    answer = joined(log, report.queue_entries, report.index_entries)
    return [
        Figure(case, "kernel scan", "GB/s", [log.end / s / 1e9 for s in scans], answer=answer),
        Figure(case, "verify", "GB/s", [log.end / s / 1e9 for s in fulls], answer=answer),
        Figure(case, "verify", "M msg/s", [messages / s / 1e6 for s in fulls], answer=answer),
        Figure(case, "verify / kernel scan", "x", _ratios(scans, fulls), at_least(0.7), answer),
        Figure(case, "CPU, verify / kernel scan", "x", cpu, answer=answer),
        Figure(case, "fast / full", "x", _ratios(fulls, fasts), at_least(4), answer),
    ]


def _checked(path: Path, *, fast: bool) -> tuple[float, float]:
    """Seconds, and seconds of the processor."""
    quiet()
    began, used = time.perf_counter(), time.process_time()
    report = verify(path, fast=fast)
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    assert not report.flaws, report.flaws
    return seconds, cpu


def _ratios(above: list[float], below: list[float]) -> list[float]:
    return [one / other for one, other in zip(above, below, strict=True)]


def _mend(course: Course) -> list[Figure]:
    messages = course.pick(4_000, 800_000)
    case = f"{messages:,} messages of 1 KiB"
    opens, builds, wholes, saves = [], [], [], []
    with course.scratch() as scratch:
        source = scratch / "source"
        fill(source, course.settings(), body_bytes=1024, messages=messages)
        sync_log(source)
        log, before = log_answer(source), derived_answer(source)
        for number in range(course.rounds):
            opens.append(open_with_log_alone(course.settings(), source, scratch / f"own-{number}").wall_seconds)
            quiet()
            ended: dict[str, float] = {}
            began = time.perf_counter()
            target = scratch / f"rebuilt-{number}"
            rebuild(
                source,
                course.settings(),
                into=target,
                progress=lambda what, done, total: ended.__setitem__(what, time.perf_counter()),  # noqa: B023
            )
            wholes.append(time.perf_counter() - began)
            builds.append(ended["building"] - began)
            assert derived_answer(target) == before, "rebuilt files differ from the first ones"
            saved = salvage(source, scratch / f"saved-{number}", course.settings())
            assert saved.is_complete
            assert log_answer(scratch / f"saved-{number}") == log
            saves.append(saved.seconds)
    answer = joined(log, before)
    return [
        Figure(f"rebuild, {case}", "whole", "M msg/s", [messages / s / 1e6 for s in wholes], answer=answer),
        Figure(f"rebuild, {case}", "building alone", "M msg/s", [messages / s / 1e6 for s in builds], answer=answer),
        Figure(f"rebuild, {case}", "building / the store's own", "x", _ratios(opens, builds), at_least(0.8), answer),
        Figure(f"salvage, {case}", "whole", "GB/s", [log.end / s / 1e9 for s in saves], answer=answer),
    ]


def _memory(course: Course) -> list[Figure]:
    log_bytes = course.pick(4 * MIB, 4 * GIB)
    with course.scratch() as scratch:
        path = scratch / "store"
        course.note(f"verify: filling a store of {log_bytes / MIB:,.0f} MiB")
        fill(path, course.settings(), body_bytes=1024, messages=messages_in(log_bytes, 1024))
        commands: dict[str, tuple[str | Path, ...]] = {
            "verify": ("verify", path),
            "rebuild": ("rebuild", path, "--into", scratch / "new"),
            "salvage": ("salvage", path, "--into", scratch / "saved"),
        }
        peaks = {name: peak_mb(words) for name, words in commands.items()}
    case = f"{log_bytes / MIB:,.0f} MiB"
    return [
        Figure(f"{name} of {case}", "anonymous, peak", "MB", [peak], at_most(PEAK_TARGET_MB))
        for name, peak in peaks.items()
    ]
