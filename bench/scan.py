"""Scan: the compiled walk over a log, sums checked, beside its plain Python twin over the same bytes.

The log is a real one, written by a store and mapped from its file. Both sides fill the same rows in the same
portions; the rows of both are hashed and must agree.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.answers import log_answer, rows_digest, walk
from bench.course import Course
from bench.figures import Figure, at_least
from bench.workload import fill, load_kernels, quiet, sync_log
from embermq.columns.plain.scan import scan_rows
from embermq.columns.rows import Rows

NAME = "scan"
ABOUT = "kernel scan with sums, and its plain twin"
BODIES = {"1 KiB": 1024, "100 B": 100}


def run(course: Course) -> list[Figure]:
    load_kernels()
    return [figure for case, body_bytes in BODIES.items() for figure in _measure(course, case, body_bytes)]


def _measure(course: Course, case: str, body_bytes: int) -> list[Figure]:
    from embermq.columns.compiled.scan import scan

    messages = course.pick(4_000, 200_000)
    passes = course.pick(5, 10)
    kernel_seconds, twin_seconds = [], []
    with course.scratch() as scratch:
        path = scratch / "store"
        fill(path, course.settings(), body_bytes=body_bytes, messages=messages)
        sync_log(path)
        log = log_answer(path)
        assert log.records == messages, (log, messages)
        kernel_rows, twin_rows = _all_rows(path, scan), _all_rows(path, scan_rows)
        answer = rows_digest(kernel_rows)
        assert answer == rows_digest(twin_rows), f"{case}: kernel and twin disagree"
        for _ in range(course.rounds):
            quiet()
            kernel_seconds.append(_seconds(path, scan, passes))
            twin_seconds.append(_seconds(path, scan_rows, 1))
    ratios = [twin / kernel for kernel, twin in zip(kernel_seconds, twin_seconds, strict=True)]
    return [
        Figure(case, "kernel", "M msg/s", [log.records / s / 1e6 for s in kernel_seconds], answer=answer),
        Figure(case, "kernel", "GB/s", [log.end / s / 1e9 for s in kernel_seconds], answer=answer),
        Figure(case, "twin", "M msg/s", [log.records / s / 1e6 for s in twin_seconds], answer=answer),
        Figure(case, "kernel / twin", "x", ratios, at_least(10), answer),
    ]


def _all_rows(path: Path, scan: Any) -> Rows:
    return np.concatenate([rows.copy() for _, _, rows, _ in walk(path, scan)])


def _seconds(path: Path, scan: Any, passes: int) -> float:
    """Of one walk over the whole log, mapping its files included."""
    began = time.perf_counter()
    for _ in range(passes):
        for _ in walk(path, scan):
            pass
    return (time.perf_counter() - began) / passes
