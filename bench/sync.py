"""Sync: SYNC_FLUSH with 64 waiting threads, beside a plain loop that writes and syncs the same bytes.

The steps of the syncs are noted while the store works, so the loop can repeat them: the same records, in portions
of the sizes that group commit reached, each written to a new preallocated file and synced with fdatasync. What
the loop lacks is everything else a store does.

Most of the rest is what CPython asks for waking 64 threads one after another. So the same threads are also shown
handing over in the same way and for syncs of the same length, with nothing to store at all: no store in CPython can
be faster than that. The processor's time per message is shown too: on a busy disk it says more than the rest.

All of it twice: with the threads wherever the system puts them, and kept on one processor (`waiters_share_core`).
"""

import os
import threading
import time
from itertools import pairwise
from pathlib import Path

from bench.answers import joined, log_files, map_file
from bench.course import Course
from bench.figures import Figure, at_least
from bench.workload import FIRST_NUMBER, Form, load_kernels, make_messages, quiet
from embermq import FlushDisk, Message, MessageStore
from embermq.store.append.flush import Group

NAME = "sync"
ABOUT = "SYNC_FLUSH with 64 threads"
THREADS = 64
BODY_BYTES = 1024


def _note_syncs(store: MessageStore) -> list[int]:
    """How far each sync of the log reaches, from now on."""
    flusher = store.engine.services.flusher
    reached: list[int] = []
    report = flusher._on_progress

    def note(flushed_offset: int) -> None:
        reached.append(flushed_offset)
        report(flushed_offset)

    flusher._on_progress = note
    return reached


def run(course: Course) -> list[Figure]:
    load_kernels()
    return [*_measured(course, share_core=False), *_measured(course, share_core=True)]


def _measured(course: Course, *, share_core: bool) -> list[Figure]:
    each = course.pick(4, 300)
    rates, cpu, loop_rates, bare_rates, per_flush, answers = [], [], [], [], [], set()
    for _ in range(course.rounds):
        with course.scratch() as scratch:
            seconds, cpu_seconds, ends, answer = _store_round(course, scratch / "store", each, share_core)
            loop_seconds = _loop_round(scratch, ends)
        rates.append(THREADS * each / seconds)
        cpu.append(cpu_seconds / (THREADS * each) * 1e6)
        loop_rates.append(THREADS * each / loop_seconds)
        bare_rates.append(THREADS * each / _hand_over_seconds(each, loop_seconds / (len(ends) - 1)))
        per_flush.append(THREADS * each / (len(ends) - 1))
        answers.add(answer)
    assert len(answers) == 1, f"rounds give different answers: {answers}"
    answer = answers.pop()
    ratios = [own / loop for own, loop in zip(rates, loop_rates, strict=True)]
    bare_ratios = [own / bare for own, bare in zip(rates, bare_rates, strict=True)]
    case = f"{THREADS} threads, 1 KiB{', on one core' if share_core else ''}"
    figures = [
        Figure(case, "store", "msg/s", rates, answer=answer),
        Figure(case, "store, CPU of the process", "µs per msg", cpu, answer=answer),
        Figure(case, "messages per sync", "msg", per_flush, answer=answer),
        Figure(case, "loop of write and fdatasync", "msg/s", loop_rates, answer=answer),
        Figure(case, "store / loop", "x", ratios, at_least(0.7), answer),
    ]
    if share_core:
        return figures
    return [
        *figures,
        Figure(case, "threads handing over, no store", "msg/s", bare_rates),
        Figure(case, "store / threads handing over", "x", bare_ratios),
    ]


def _store_round(course: Course, path: Path, each: int, share_core: bool) -> tuple[float, float, list[int], str]:
    """Seconds; those of the processor; the ends of all syncs, beginning with the start of the first; a hash of
    what was stored."""
    work = [
        make_messages(FIRST_NUMBER + number * each, each, BODY_BYTES, Form.ENCODED, queue_id=number % 4)
        for number in range(THREADS)
    ]
    settings = course.settings().replace(flush=FlushDisk.SYNC, waiters_share_core=share_core)
    gate = threading.Barrier(THREADS + 1)
    store = MessageStore.open(path, settings)
    flushes = _note_syncs(store)
    with store:
        # Not by this thread: those it makes would begin where it is kept.
        first = threading.Thread(target=store.append, args=make_messages(0, 1, BODY_BYTES))
        first.start()
        first.join()
        threads = [threading.Thread(target=_append_all, args=(store, gate, messages)) for messages in work]
        for thread in threads:
            thread.start()
        quiet()
        start = store.flushed_offset
        flushes.clear()
        gate.wait()
        began, cpu = time.perf_counter(), time.process_time()
        for thread in threads:
            thread.join()
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
        ends = [start, *flushes]
        assert ends[-1] == store.max_physical
        # Threads interleave as they like: only what was stored is the same each time.
        stored = sorted((message.unique_key, message.body_crc) for message in store.scan())
        fetched = sum(store.message_count("bench", queue_id) for queue_id in range(4))
    assert len(stored) == fetched == THREADS * each + 1, (len(stored), fetched)
    return seconds, cpu_seconds, ends, joined(*stored)


def _append_all(store: MessageStore, gate: threading.Barrier, messages: list[Message]) -> None:
    gate.wait()
    for message in messages:
        receipt = store.append(message)
        assert receipt.ok, receipt


def _hand_over_seconds(each: int, sync_seconds: float) -> float:
    """Seconds in which 64 threads wait and are woken `each` times, in groups, as the flusher does it, by one that
    has nothing to do but to sleep as long as a sync takes."""
    groups = [Group()]
    finished: list[int] = []
    arrived = threading.Event()

    def work() -> None:
        for _ in range(each):
            group = groups[-1]
            if not arrived.is_set():
                arrived.set()
            group.done.acquire(timeout=60)
            group.done.release()
        finished.append(each)
        arrived.set()

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    while len(finished) < THREADS:
        arrived.wait(1)
        arrived.clear()
        group = groups[-1]
        groups.append(Group())
        time.sleep(sync_seconds)
        group.done.release()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def _loop_round(scratch: Path, ends: list[int]) -> float:
    """Seconds to write and sync the store's records in the store's portions."""
    first = log_files(scratch / "store")[0]
    assert ends[-1] <= first.stat().st_size, "the measured part lies in one file"
    log = map_file(first)
    portions = [log[start:end].tobytes() for start, end in pairwise(ends)]
    descriptor = os.open(scratch / "loop", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        os.posix_fallocate(descriptor, 0, first.stat().st_size)
        os.fsync(descriptor)
        at = ends[0]
        began = time.perf_counter()
        for portion in portions:
            at += os.pwrite(descriptor, portion, at)
            os.fdatasync(descriptor)
        seconds = time.perf_counter() - began
    finally:
        os.close(descriptor)
    assert at == ends[-1]
    return seconds
