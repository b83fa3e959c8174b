"""kill -9 while several threads append and delayed messages are delivered.

Each thread has a queue of its own, so what must hold is simple: of every life of the process the queue has an unbroken
row of the thread's messages in their order, at least as long as what was acknowledged, once. Delayed messages are
parked once and delivered at least once.
"""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq import MessageStore, StoreSettings
from embermq.model.properties import SCHEDULE_TOPIC
from embermq.settings import FlushDisk
from tests.crash.crowd_child import LATER, THREADS, body
from tests.crash.kills import PATIENCE_SECONDS, Child, Figures, check_sound

SETTINGS: dict[str, Any] = {
    "segment_bytes": 1 << 18,
    "queue_file_bytes": 20 * 100,
    "index_slots_max": 100,
    "index_entries_max": 1000,
    "delay_levels": "1s",
    "delay_offset_interval_ms": 50,
    "sync_flush_timeout_ms": 600_000,
}

Row = list[tuple[int, int]]  # life, number


def acknowledged(child: Child) -> dict[int, int]:
    """How many messages of each thread were acknowledged."""
    last = {int(line.split()[0]): int(line.split()[1]) for line in child.lines}
    return {thread: last.get(thread, 0) for thread in range(THREADS)}


def row(store: MessageStore, topic: str, queue_id: int) -> Row:
    """Life and number of all messages of a queue, each with the bytes it was sent with."""
    found: Row = []
    at, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    assert at == 0
    while at < end:
        outcome = store.fetch(topic, queue_id, at)
        for one in outcome.messages:
            life, thread, i = (int(part) for part in one.body.split(b"|")[:3])
            assert one.body == body(life, thread, i)
            found.append((life, i))
        at = outcome.next_offset
    assert len(found) >= end, "a hole"  # More, if something came meanwhile.
    return found


def check_rows(found: Row, wanted: list[int]) -> None:
    """Of each life an unbroken row from 0 on, with at least what was acknowledged."""
    lives = [[i for life, i in found if life == number] for number in range(len(wanted))]
    assert [life for life, _ in found] == sorted(life for life, _ in found)
    for numbers, least in zip(lives, wanted, strict=True):
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= least


def kill_and_check(directory: Path, flush: FlushDisk, rounds: int, seed: int) -> Figures:
    source, figures, settings = random.Random(seed), Figures(), SETTINGS | {"flush": flush}
    heard: list[dict[int, int]] = []
    for life in range(rounds):
        child = Child("crowd_child", directory, life, json.dumps(settings))
        enough = source.randrange(20, 400)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while sum(acknowledged(child).values()) < enough:
            child.hear(deadline - time.monotonic())
            assert time.monotonic() < deadline
        time.sleep(source.random() * 1.2)  # Some of what was parked becomes due.
        child.kill_quietly()
        heard.append(acknowledged(child))
        check_sound(directory)
        began = time.monotonic()
        with MessageStore.open(directory, StoreSettings(**settings | {"delayed_delivery": False})) as store:
            figures.opening_seconds.append(time.monotonic() - began)
            for thread in range(THREADS - 1):
                found = row(store, "Crowd", thread)
                check_rows(found, [said[thread] for said in heard])
                figures.found += len(found)
            check_rows(row(store, SCHEDULE_TOPIC, 0), [said[LATER] for said in heard])
        figures.acknowledged += sum(heard[-1].values())
    check_delivered(directory, settings, [said[LATER] for said in heard])
    return figures


def check_delivered(directory: Path, settings: dict[str, Any], wanted: list[int]) -> None:
    """Every delayed message comes, at least once."""
    with MessageStore.open(directory, StoreSettings(**settings)) as store:
        deadline = time.monotonic() + PATIENCE_SECONDS
        needed = {(life, i) for life, count in enumerate(wanted) for i in range(count)}
        while not needed <= set(row(store, "Later", 0)):
            assert time.monotonic() < deadline, "not delivered"
            time.sleep(0.05)
    check_sound(directory)


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_killed_while_many_append(tmp_path: Path, flush: FlushDisk) -> None:
    kill_and_check(tmp_path / "store", flush, rounds=2, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("flush", list(FlushDisk))
def test_killed_many_times_while_many_append(
    tmp_path: Path, flush: FlushDisk, kill_figures: Callable[[str, Figures], None]
) -> None:
    for part in range(3):
        figures = kill_and_check(tmp_path / f"store{part}", flush, rounds=6, seed=part)
        kill_figures(f"{flush.name.lower()}, four threads and delayed delivery", figures)
