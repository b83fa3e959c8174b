"""Reads: 32 messages of 1 KiB of one queue, as stored bytes and as messages; and what arrivals cost in a dispatch step.

The store is open and everything is in memory. Both ways read the same places in turn, so that a busy machine is equally
unfair to both; a round is the median of single reads. The bytes of all raw reads are hashed, and hold the messages that
fetches give.
"""

import hashlib
import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from bench.answers import DIGITS
from bench.course import Course
from bench.figures import Figure, at_least, at_most
from bench.workload import FIRST_NUMBER, TOPIC, FixedClock, load_kernels, make_messages, quiet
from embermq import MessageStore
from embermq.columns.rows import C_SIZE, RecordColumns, new_rows
from embermq.format.frame import Frame, decode
from embermq.format.frame_message import as_message
from embermq.model.message import StoredMessage

NAME = "reads"
ABOUT = "32 messages of 1 KiB: raw read and fetch; arrivals of a dispatch step"
BODY_BYTES = 1024
MESSAGES = 32
STEP_RECORDS = 1000
_PORTION = 1024
_RAW_PER_FETCH = 8


def run(course: Course) -> list[Figure]:
    load_kernels()
    messages = course.pick(2_048, 65_536)
    with (
        course.scratch() as scratch,
        MessageStore.open(scratch / "store", course.settings(), clock=FixedClock()) as store,
    ):
        for start in range(0, messages, _PORTION):
            store.append_many(make_messages(FIRST_NUMBER + start, _PORTION, BODY_BYTES, queue_id=0))
        store.wait_for_dispatch(600.0)
        return [
            *_measure_reads(course, store, messages, "all", None),
            *_measure_reads(course, store, messages, "one tag", "paid"),
            *_measure_arrivals(course, store),
        ]


def _measure_reads(course: Course, store: MessageStore, messages: int, case: str, tags: str | None) -> list[Figure]:
    starts = range(0, messages, MESSAGES)
    answer = _answer(store, starts, tags)
    raw_us, fetch_us = [], []
    for _ in range(course.rounds):
        quiet()
        raws, fetches = [], []
        for start in starts:
            raws.append(_us(partial(store.read_raw, TOPIC, 0, start, MESSAGES, filter=tags)))
            if start % (_RAW_PER_FETCH * MESSAGES) == 0:
                fetches.append(_us(partial(store.fetch, TOPIC, 0, start, MESSAGES, tags)))
        raw_us.append(statistics.median(raws))
        fetch_us.append(statistics.median(fetches))
    ratios = [fetch / raw for raw, fetch in zip(raw_us, fetch_us, strict=True)]
    is_plain = tags is None
    return [
        Figure(case, "raw read", "µs", raw_us, at_most(40) if is_plain else None, answer),
        Figure(case, "fetch", "µs", fetch_us, answer=answer),
        Figure(case, "fetch / raw read", "x", ratios, at_least(8) if is_plain else None, answer),
    ]


def _answer(store: MessageStore, starts: Iterable[int], tags: str | None) -> str:
    digest = hashlib.sha256()
    for start in starts:
        read = store.read_raw(TOPIC, 0, start, MESSAGES, filter=tags)
        assert (read.count, read.next_offset) == (MESSAGES, start + MESSAGES), read
        assert _messages(bytes(read.data)) == store.fetch(TOPIC, 0, start, MESSAGES, tags).messages
        digest.update(read.data)
    return digest.hexdigest()[:DIGITS]


def _messages(data: bytes) -> list[StoredMessage]:
    found, at = [], 0
    while at < len(data):
        frame = decode(data, at, len(data), physical_offset=None, check_crc=True)
        assert isinstance(frame, Frame)
        found.append(as_message(frame))
        at += frame.size
    return found


def _measure_arrivals(course: Course, store: MessageStore) -> list[Figure]:
    """What listeners add to a step of so many records: one call with arrays, or one call for each record."""
    from embermq.columns.compiled.scan import scan

    data, rows = store.read_log(0, 2 << 20), new_rows(STEP_RECORDS)
    count, _, _ = scan(data, 0, 0, len(data), rows, np.zeros(0, np.int64), False, True)
    assert count == STEP_RECORDS
    batch, arrivals = RecordColumns(data, 0, rows), store.engine.arrivals
    answer = f"{int(rows[:, C_SIZE].sum()):012x}"
    step_us, each_us = list[float](), list[float]()
    for _ in range(course.rounds):
        quiet()
        for rounds, listen in ((step_us, store.on_arrival_step), (each_us, store.on_arrival)):
            stop = listen(_ignore)
            take = partial(arrivals.take, batch, arrivals.position)
            rounds.append(statistics.median([_us(take) for _ in range(course.pick(3, 50))]))
            stop()
    case = f"arrivals of {STEP_RECORDS:,}"
    return [
        Figure(case, "one call for the step", "µs", step_us, at_most(200), answer),
        Figure(case, "one call for each record", "µs", each_us, answer=answer),
    ]


def _ignore(_: object) -> None:
    """A listener that costs nothing."""


def _us(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e6
