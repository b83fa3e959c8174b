"""Spark jobs: queues and index of a whole log made again, the pipeline, the audit, on two cores.

`rebuild` is the whole job, from a log alone to files that were read back, compared with what its records said, synced
and put in place; beside it the same on one core, in a session of its own, and, with peers, RocketMQ restarting in
process without its queues and index, which neither syncs nor compares. The pipeline derives from a log that is
complete: one run of it, checkpoint and all. `audit` is held against one walk of the scan kernel over the same log,
mapped, on one thread.

Sessions are warm, kernels loaded, the log in the page cache; how long a session takes to start is measured apart. Both
sides of a ratio run in turn. The answer is a hash of every queue entry and index entry, and of every row.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.answers import derived_answer, joined, walk
from bench.course import GIB, MIB, Course, not_measured
from bench.figures import Figure, at_least, at_most
from bench.peers import rocketmq
from bench.spark_one import OneCore
from bench.spark_side import Filled, answer_of, fill, held, in_turn, ratios, session, worker_peak_mb
from bench.workload import copy_store, load_kernels, quiet, sync_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "spark_jobs"
ABOUT = "rebuild, pipeline and audit on Spark"
GROWTH = 8
WARM_ROUNDS = 3


def run(course: Course) -> list[Figure]:
    load_kernels()
    with session(course, NAME) as spark, OneCore(course) as alone, course.scratch() as scratch:
        course.note(f"{NAME}: filling a store")
        store = _filled(course, scratch / "store", course.pick(4 * MIB, GIB))
        figures = [*_rebuild(course, spark, alone, store, scratch), *_audit(course, spark, store)]
        figures += _pipeline(course, spark, store, scratch)
        if course.peers:
            figures += _beside_reference(course, spark, scratch)
        return [*figures, *_growth(course, spark, alone, store, scratch)]


def _filled(course: Course, path: Path, log_bytes: int) -> Filled:
    return fill(path, course.settings(), body_bytes=1024, log_bytes=log_bytes)


def _seconds(spark: "SparkSession", store: Path, target: Path) -> float:
    """One rebuild beside the store, into a directory that is gone afterwards."""
    from embermq.spark.jobs.rebuild import rebuild

    quiet()
    began = time.perf_counter()
    made = rebuild(spark, store, into=target)
    seconds = time.perf_counter() - began
    assert not made.damages, made
    shutil.rmtree(target)
    return seconds


def _rebuild(course: Course, spark: "SparkSession", alone: OneCore, store: Filled, scratch: Path) -> list[Figure]:
    from embermq.spark.jobs.rebuild import rebuild

    before = derived_answer(store.path)
    rebuild(spark, store.path, into=scratch / "first")
    answer = derived_answer(scratch / "first")
    assert answer == before, "rebuilt files differ from the first ones"
    shutil.rmtree(scratch / "first")
    for _ in range(course.pick(1, WARM_ROUNDS)):  # Kernels are loaded, and the JVM has compiled what it uses.
        _seconds(spark, store.path, scratch / "two")
        alone.rebuild(store.path, scratch / "one")
    two, one = in_turn(
        course,
        lambda: _seconds(spark, store.path, scratch / "two"),
        lambda: alone.rebuild(store.path, scratch / "one"),
    )
    case = f"rebuild, {store.log_bytes / MIB:,.0f} MiB of 1 KiB"
    return [
        Figure(case, "two cores", "GB/s", [store.log_bytes / s / 1e9 for s in two], held(course, at_least(1)), answer),
        Figure(case, "one core", "GB/s", [store.log_bytes / s / 1e9 for s in one], answer=answer),
        Figure(case, "two cores / one core", "x", ratios(one, two), held(course, at_least(1.6)), answer),
        Figure("session", "start, kernels not loaded", "s", [alone.session_seconds]),
    ]


def _audit(course: Course, spark: "SparkSession", store: Filled) -> list[Figure]:
    from embermq.columns.compiled.scan import scan
    from embermq.spark.jobs.audit import audit

    def by_kernel() -> float:
        quiet()
        began = time.perf_counter()
        for _ in walk(store.path, scan):
            pass
        return time.perf_counter() - began

    def by_job() -> float:
        quiet()
        began = time.perf_counter()
        found = audit(spark, [str(store.path)])
        assert found.is_sound, found.findings
        return time.perf_counter() - began

    for _ in range(course.pick(0, WARM_ROUNDS)):  # As for the rebuild.
        by_job()
    found = audit(spark, [str(store.path)])
    report = found.stores[0].report
    assert report.records == store.messages, report
    answer = joined(report.records, report.queue_entries, report.index_entries, report.log_end)
    kernel, job = in_turn(course, by_kernel, by_job)
    case = f"audit, {store.log_bytes / MIB:,.0f} MiB of 1 KiB"
    return [
        Figure(case, "kernel scan, one thread", "GB/s", [store.log_bytes / s / 1e9 for s in kernel], answer=answer),
        Figure(case, "audit", "GB/s", [store.log_bytes / s / 1e9 for s in job], answer=answer),
        Figure(case, "audit / kernel scan", "x", ratios(kernel, job), held(course, at_least(0.5)), answer),
    ]


@contextmanager
def _log_alone(store: Filled, path: Path) -> Iterator[Path]:
    """The same log in a store without anything else."""
    copy_store(store.path, path, derived=False)
    yield path
    shutil.rmtree(path)


def _pipeline(course: Course, spark: "SparkSession", store: Filled, scratch: Path) -> list[Figure]:
    from embermq.spark.pipelines import pipeline

    derived, lake = [], []
    answers, rows = set(), set()
    for number in range(course.rounds):
        with _log_alone(store, scratch / "bare") as bare:
            place = str(scratch / f"checkpoint-{number}")
            quiet()
            began = time.perf_counter()
            made = pipeline(
                spark, [str(bare)], derive=["queues", "index"], checkpoint=place, settings=course.settings()
            )
            done = made.once()
            derived.append(time.perf_counter() - began)
            assert sum(one.records for one in done) == store.messages
            answers.add(derived_answer(bare))
        place = str(scratch / f"lake-{number}")
        quiet()
        began = time.perf_counter()
        pipeline(spark, [str(store.path)], into=place, derive=["lake"]).once()
        lake.append(time.perf_counter() - began)
        rows.add(answer_of(lambda: spark.read.parquet(place), _LAKE_COLUMNS))  # noqa: B023
        shutil.rmtree(place)
    assert answers == {derived_answer(store.path)}, "other queues and index than the store's own"
    ((row_answer, count),) = rows
    assert count == store.messages, (count, store)
    case = f"{store.log_bytes / MIB:,.0f} MiB of 1 KiB"
    return [
        Figure(
            f"pipeline into queues and index, {case}",
            "rate",
            "MB/s",
            [store.log_bytes / s / 1e6 for s in derived],
            held(course, at_least(300)),
            answers.pop(),
        ),
        Figure(
            f"pipeline into a lake, {case}",
            "rate",
            "MB/s",
            [store.log_bytes / s / 1e6 for s in lake],
            held(course, at_least(100)),
            row_answer,
        ),
    ]


_LAKE_COLUMNS = ("topic", "queueId", "queueOffset", "physicalOffset", "uniqKey", "tags", "keys", "body", "size")


def _beside_reference(course: Course, spark: "SparkSession", scratch: Path) -> list[Figure]:
    case = "rebuild, log of RocketMQ"
    why_not = rocketmq.missing()
    if why_not is not None:
        return [not_measured(case, "ours / reference", "x", why_not)]
    ours, theirs, dispatches, answers = [], [], [], set()
    source = scratch / "reference"
    rocketmq.fill(source, log_bytes=course.pick(4 * MIB, GIB - MIB))
    sync_log(source)
    from embermq.spark.jobs.rebuild import rebuild

    for _ in range(course.rounds):
        measured = rocketmq.measure_rebuild(source, rounds=1)
        theirs.append(float(measured["seconds"]))
        dispatches.append(float(measured["dispatch_seconds"]))
        quiet()
        began = time.perf_counter()
        rebuild(spark, source, into=scratch / "ours")
        ours.append(time.perf_counter() - began)
        answers |= {derived_answer(source), derived_answer(scratch / "ours")}
        shutil.rmtree(scratch / "ours")
    assert len(answers) == 1, "not RocketMQ's queues and index"
    shutil.rmtree(source)
    return [
        Figure(case, "ours, two cores", "s per GiB", ours, answer=answers.pop()),
        Figure(case, "reference, scan and dispatch", "s per GiB", theirs),
        Figure(case, "ours / reference", "x", ratios(theirs, ours), held(course, at_least(2.5))),
        Figure(case, "ours / its dispatch alone", "x", ratios(dispatches, ours)),
    ]


def _growth(course: Course, spark: "SparkSession", alone: OneCore, store: Filled, scratch: Path) -> list[Figure]:
    small_mb = worker_peak_mb()
    course.note(f"{NAME}: filling a store {GROWTH} times as large")
    large = _filled(course, scratch / "large", course.pick(2, GROWTH) * store.log_bytes)
    answer = derived_answer(large.path)
    small, long, one = in_turn(
        course,
        lambda: _seconds(spark, store.path, scratch / "small-again"),
        lambda: _seconds(spark, large.path, scratch / "large-again"),
        lambda: alone.rebuild(large.path, scratch / "alone"),
    )
    times = large.log_bytes / store.log_bytes
    case = f"rebuild, {large.log_bytes / MIB:,.0f} MiB of 1 KiB"
    peak_mb = worker_peak_mb()
    return [
        Figure(case, "two cores", "GB/s", [large.log_bytes / s / 1e9 for s in long], answer=answer),
        Figure(case, "two cores / one core", "x", ratios(one, long), held(course, at_least(1.6)), answer),
        Figure(
            case,
            "time / its share of the smaller one's",
            "x",
            [x / times for x in ratios(long, small)],
            held(course, at_most(1.15)),
            answer,
        ),
        Figure("workers", "resident, peak", "MB", [peak_mb], at_most(600)),
        Figure("workers", "peak / that of the smaller log", "x", [peak_mb / small_mb], held(course, at_most(1.15))),
        *_audit(course, spark, large),
    ]
