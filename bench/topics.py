"""Topics: CPU per message with 1, 10, 100 and 1,000 topics, messages going round robin.

Counted is the CPU of the whole process, dispatch included, from the first append until every message has
reached queues and index and the queue entries have been written out. Topics and their files exist beforehand: two
directories and a file cost a millisecond in the file system, and are paid once. Rounds go through all topic counts
in turn, so that a busy machine is equally unfair to all.

Keys are scattered, as if customers had chosen them. Numbers in sequence have neighbouring hashes in one topic, and
so neighbouring places in the index file, but not in a thousand: that is a matter of keys, and not what is asked here.
"""

import time
from pathlib import Path

from bench.answers import derived_answer, joined, log_answer
from bench.course import Course
from bench.figures import Figure, at_most
from bench.workload import BATCH, FIRST_NUMBER, load_kernels, make_messages, quiet
from embermq import Message, MessageStore

NAME = "topics"
ABOUT = "CPU per message with 1 to 1,000 topics"
BODY_BYTES = 100
TARGET = at_most(1.15)
_WAYS = {"single": 1, "256 at a time": BATCH}
# How often the messages are appended: both ways take about a second, as often as queue entries are written out.
_PASSES = {1: 1, BATCH: 4}


def run(course: Course) -> list[Figure]:
    load_kernels()
    messages = course.pick(1_024, 300_000)
    topics = course.pick((1, 10, 50), (1, 10, 100, 1000))  # Every queue file costs two syncs.
    cpu: dict[tuple[str, int], list[float]] = {(way, count): [] for way in _WAYS for count in topics}
    answers: dict[tuple[str, int], set[str]] = {key: set() for key in cpu}
    for _ in range(course.rounds):
        for (way, count), rounds in cpu.items():
            with course.scratch() as scratch:
                rounds.append(_cpu_us(course, scratch / "store", messages, count, _WAYS[way]))
                found = joined(log_answer(scratch / "store"), derived_answer(scratch / "store"))
                answers[way, count].add(found)
    figures = []
    for (way, count), rounds in cpu.items():
        assert len(answers[way, count]) == 1, f"{way}, {count} topics: rounds give different answers"
        answer = next(iter(answers[way, count]))
        figures.append(Figure(_case(way, count), "CPU of the process", "µs per msg", rounds, answer=answer))
    for way in _WAYS:
        for count in topics[1:]:
            ratios = [many / one for one, many in zip(cpu[way, 1], cpu[way, count], strict=True)]
            figures.append(Figure(_case(way, count), "compared with 1 topic", "x", ratios, TARGET))
    return figures


def _case(way: str, count: int) -> str:
    return f"{way}, {count:,} topic{'s' if count > 1 else ''}"


def _cpu_us(course: Course, path: Path, messages: int, topics: int, at_once: int) -> float:
    warm_up = _scatter(make_messages(0, max(topics, BATCH), BODY_BYTES, queue_id=0, topics=topics))
    counted = _scatter(make_messages(FIRST_NUMBER, messages, BODY_BYTES, queue_id=0, topics=topics))
    portions = [counted[at : at + at_once] for at in range(0, messages, at_once)]
    passes = course.pick(1, _PASSES[at_once])
    # A turn of the housekeeping: it writes out what is pending.
    settle_seconds = course.pick(0.0, 1.2)
    with MessageStore.open(path, course.settings()) as store:
        store.append_many(warm_up)
        store.wait_for_dispatch()
        _wait_for_files(path / "consumequeue", topics)
        time.sleep(settle_seconds)
        quiet()
        began = time.process_time()
        for _ in range(passes):
            _append(store, portions)
        store.wait_for_dispatch()
        time.sleep(settle_seconds)
        return (time.process_time() - began) / (messages * passes) * 1e6


def _scatter(messages: list[Message]) -> list[Message]:
    """The same messages with tags and keys, the keys all over the place."""
    return [
        Message(
            message.topic,
            message.body,
            tags="paid",
            keys=f"order-{number * 0x9E37_79B1 & 0xFFFF_FFFF:010d}",
            queue_id=message.queue_id,
            born_timestamp=message.born_timestamp,
        )
        for number, message in enumerate(messages)
    ]


def _wait_for_files(directory: Path, count: int) -> None:
    """Wait until the first entries of all queues are in their files."""
    deadline = time.monotonic() + 60
    while len(list(directory.glob("*/*/*"))) < count:
        assert time.monotonic() < deadline, f"not all queue files of {directory} were made within a minute"
        time.sleep(0.05)


def _append(store: MessageStore, portions: list[list[Message]]) -> None:
    if len(portions[0]) == 1:
        for (message,) in portions:
            store.append(message)
    else:
        for portion in portions:
            store.append_many(portion)
