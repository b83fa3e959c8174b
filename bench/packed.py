"""Appends as they are written in programs: packed batches of a server, columns of a bulk writer, messages built on the
way.

The scenario `append` is given messages that were built beforehand; here everything that a program does for a message is
inside the measured loop, but for the packed batch, which a server's parser has at hand. Default settings, new files,
index on, dispatch running meanwhile; one thread appends.

    packed      256 messages as from the network: born host, flag, unique key, WAIT=true; rows and bytes made beforehand
    raw         the bytes of a log with these, 256 records at a time, into the log of a replica, by append_raw
    columns     1,024 bodies at a time with a tag and keys made in the loop, by append_columns
    Arrow       the same records from Arrow arrays made beforehand
    built, 256  the same records from Message objects, 256 at a time, by append_many
    built, one  the same, by append
"""

import mmap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.answers import derived_answer, joined, log_answer
from bench.course import Course, not_measured
from bench.figures import Figure, Target, at_least
from bench.peers import rocketmq
from bench.workload import (
    BATCH,
    BORN_MS,
    FIRST_NUMBER,
    QUEUES,
    TOPIC,
    FixedClock,
    bodies,
    load_kernels,
    property_bytes,
    quiet,
)
from embermq import Host, Message, MessageStore
from embermq.columns import (
    R_BODY_AT,
    R_BODY_LEN,
    R_BORN_TIME,
    R_FLAG,
    R_HOST_LEN,
    R_PROPS_AT,
    R_PROPS_LEN,
    R_QUEUE_ID,
    R_TOPIC_LEN,
    new_run_rows,
)
from embermq.model.hosts import pack_host
from embermq.settings import BrokerRole
from embermq.store import PackedBatch

NAME = "packed"
ABOUT = "packed batches, columns, and messages built inside the loop"
BODIES = {"100 B": 100, "1 KiB": 1024}
PACKED_TARGETS = {"100 B": at_least(1.0e6), "1 KiB": at_least(0.45e6)}
COLUMNS_TARGET = at_least(2.0)
MANY_TARGETS = {"100 B": at_least(0.8), "1 KiB": at_least(1.2)}
SINGLE_TARGETS = {"100 B": at_least(0.25), "1 KiB": at_least(0.6)}
_PREPARED_BATCHES = 64
_COLUMN_BATCHES = 4  # A bulk writer has more at a time than a client.
_CLIENT = pack_host(Host("10.1.2.3", 50_000))

Step = Callable[[MessageStore, int], None]


class Way(NamedTuple):
    step: Step  # Appends `at_once` messages: the n-th ones of a sequence.
    at_once: int = BATCH
    role: BrokerRole = BrokerRole.ASYNC_MASTER


class Round(NamedTuple):
    rate: float  # messages a second
    cpu_us: float  # of the appending thread, per message
    answer: str


def run(course: Course) -> list[Figure]:
    load_kernels()
    figures = []
    for case, body_bytes in BODIES.items():
        figures += _measure(course, case, body_bytes)
    return figures


def _measure(course: Course, case: str, body_bytes: int) -> list[Figure]:
    messages = course.pick(2_048, 200_000)
    why_not = rocketmq.missing() if course.peers else None
    theirs: list[float] = []
    rounds: dict[str, list[Round]] = {}
    with course.scratch() as master, _ways(course, body_bytes, messages, master / "store") as ways:
        for number in range(course.rounds):
            course.note(f"packed: {case}, round {number + 1} of {course.rounds}")
            for name, way in ways.items():
                with course.scratch() as scratch:
                    rounds.setdefault(name, []).append(_round(course, scratch / "store", messages, way))
            if course.peers and why_not is None:
                measured = rocketmq.measure_append(body_bytes, messages, rounds=1, scratch=course.directory)
                theirs.append(float(measured["messages_per_second"]))
    figures = [figure for name in rounds for figure in _own_figures(case, name, rounds[name])]
    built = _rates(rounds["built, 256"])
    figures.append(_ratio(case, "columns / built, 256", rounds["columns"], built, COLUMNS_TARGET))
    figures.append(_ratio(case, "Arrow / built, 256", rounds["Arrow"], built, COLUMNS_TARGET))
    if why_not is not None:
        return [*figures, not_measured(case, "ours / reference single", "x", why_not)]
    if not theirs:
        return figures
    return [
        *figures,
        Figure(case, "reference, single", "msg/s", theirs),
        _ratio(case, "columns / reference single", rounds["columns"], theirs, COLUMNS_TARGET),
        _ratio(case, "Arrow / reference single", rounds["Arrow"], theirs, COLUMNS_TARGET),
        _ratio(case, "built, 256 / reference single", rounds["built, 256"], theirs, MANY_TARGETS[case]),
        _ratio(case, "built, one / reference single", rounds["built, one"], theirs, SINGLE_TARGETS[case]),
    ]


@contextmanager
def _ways(course: Course, body_bytes: int, messages: int, master: Path) -> Iterator[dict[str, Way]]:
    packed, at_once = _packed_step(body_bytes), _COLUMN_BATCHES * BATCH
    everything = messages + _warm_up(course)
    with _log_of(course, master, packed, everything) as log:
        yield {
            "packed": Way(packed),
            "raw": Way(_raw_step(log, everything), role=BrokerRole.SLAVE),
            "columns": Way(_columns_step(body_bytes), at_once),
            "Arrow": Way(_arrow_step(body_bytes, everything), at_once),
            "built, 256": Way(_many_step(body_bytes)),
            "built, one": Way(_single_step(body_bytes)),
        }


def _warm_up(course: Course) -> int:
    return course.pick(1_024, 24_576)


def _round(course: Course, path: Path, messages: int, way: Way) -> Round:
    settings = course.settings().replace(role=way.role)
    with MessageStore.open(path, settings, clock=FixedClock()) as store:
        for number in range(_warm_up(course) // way.at_once):
            way.step(store, number)
        store.wait_for_dispatch()
        quiet()
        batches = messages // way.at_once
        began, cpu = time.perf_counter(), time.thread_time()
        for number in range(batches):
            way.step(store, number)
        seconds, cpu_seconds = time.perf_counter() - began, time.thread_time() - cpu
        store.wait_for_dispatch(600.0)
    stored = batches * way.at_once
    return Round(stored / seconds, cpu_seconds / stored * 1e6, joined(log_answer(path), derived_answer(path)))


@contextmanager
def _log_of(course: Course, path: Path, step: Step, messages: int) -> Iterator[mmap.mmap]:
    """The bytes of a master's first log file, with so many messages."""
    with MessageStore.open(path, course.settings(), clock=FixedClock()) as store:
        for number in range(messages // BATCH):
            step(store, number)
        store.wait_for_dispatch(600.0)
        end = store.max_physical
    first = min((path / "commitlog").iterdir())
    with first.open("rb") as file, mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ) as log:
        yield log


def _raw_step(log: mmap.mmap, messages: int) -> Step:
    piece = len(log) // (messages // BATCH)  # All records have the same size.

    def step(store: MessageStore, number: int) -> None:
        at = store.max_physical
        assert store.append_raw(at, log[at : at + piece]) == at + piece

    return step


def _packed_step(body_bytes: int) -> Step:
    batches = [_packed_batch(number, body_bytes) for number in range(_PREPARED_BATCHES)]

    def step(store: MessageStore, number: int) -> None:
        receipts = store.append_packed(batches[number % _PREPARED_BATCHES])
        assert not receipts.refused

    return step


def _packed_batch(number: int, body_bytes: int) -> PackedBatch:
    """256 messages of one client, as a parser of frames leaves them: parts one behind another in a buffer."""
    rows, texts = new_run_rows(BATCH), bytearray(_CLIENT)
    for at in range(BATCH):
        text = property_bytes(FIRST_NUMBER + number * BATCH + at) + b"\x02WAIT\x01true"
        rows[at, R_PROPS_AT], rows[at, R_PROPS_LEN] = len(texts), len(text)
        rows[at, R_FLAG], rows[at, R_QUEUE_ID] = at, at % QUEUES
        texts += text
    rows[:, R_BODY_AT], rows[:, R_BODY_LEN] = range(0, BATCH * body_bytes, body_bytes), body_bytes
    rows[:, R_TOPIC_LEN], rows[:, R_HOST_LEN], rows[:, R_BORN_TIME] = len(TOPIC), len(_CLIENT), BORN_MS
    return PackedBatch(rows, bodies=b"".join(bodies(body_bytes)), topics=TOPIC.encode(), properties=bytes(texts))


def _columns_step(body_bytes: int) -> Step:
    some = list(bodies(body_bytes)) * _COLUMN_BATCHES
    assert _COLUMN_BATCHES == QUEUES
    queue_ids = np.repeat(np.arange(QUEUES), BATCH)

    def step(store: MessageStore, number: int) -> None:
        first = FIRST_NUMBER + number * len(some)
        keys = [f"order-{first + at}" for at in range(len(some))]
        store.append_columns(TOPIC, some, tags="paid", keys=keys, queue_id=queue_ids)

    return step


def _arrow_step(body_bytes: int, messages: int) -> Step:
    import pyarrow as pa

    at_once = _COLUMN_BATCHES * BATCH
    some = pa.array(list(bodies(body_bytes)) * _COLUMN_BATCHES, pa.binary())
    queue_ids = np.repeat(np.arange(QUEUES), BATCH)
    firsts = range(FIRST_NUMBER, FIRST_NUMBER + messages, at_once)
    keys = [pa.array([f"order-{number}" for number in range(first, first + at_once)]) for first in firsts]

    def step(store: MessageStore, number: int) -> None:
        store.append_columns(TOPIC, some, tags="paid", keys=keys[number], queue_id=queue_ids)

    return step


def _many_step(body_bytes: int) -> Step:
    some = bodies(body_bytes)

    def step(store: MessageStore, number: int) -> None:
        first, queue_id = FIRST_NUMBER + number * BATCH, number % QUEUES
        store.append_many(
            [
                Message(TOPIC, body, tags="paid", keys=f"order-{first + at}", queue_id=queue_id)
                for at, body in enumerate(some)
            ]
        )

    return step


def _single_step(body_bytes: int) -> Step:
    some = bodies(body_bytes)

    def step(store: MessageStore, number: int) -> None:
        first, queue_id, append = FIRST_NUMBER + number * BATCH, number % QUEUES, store.append
        for at, body in enumerate(some):
            append(Message(TOPIC, body, tags="paid", keys=f"order-{first + at}", queue_id=queue_id))

    return step


def _own_figures(case: str, way: str, rounds: list[Round]) -> list[Figure]:
    answer = rounds[0].answer
    assert {one.answer for one in rounds} == {answer}, f"{case}, {way}: rounds give different answers"
    target = PACKED_TARGETS[case] if way == "packed" else None
    return [
        Figure(f"{case}, {way}", "messages", "msg/s", _rates(rounds), target, answer=answer),
        Figure(f"{case}, {way}", "CPU of the thread", "µs per msg", [one.cpu_us for one in rounds], answer=answer),
    ]


def _rates(rounds: list[Round]) -> list[float]:
    return [one.rate for one in rounds]


def _ratio(case: str, measure: str, ours: list[Round], theirs: list[float], target: Target) -> Figure:
    ratios = [own.rate / other for own, other in zip(ours, theirs, strict=True)]
    return Figure(case, measure, "x", ratios, target)
