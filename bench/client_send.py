"""The Python client's producer, one process, into our broker: one message in flight, and 256.

Beside the blocking producer, the C++ client of PyPI (`rocketmq`) in the same role. Messages of 1 KiB with a tag. Every
measurement is a process of its own, and a broker in a new directory; the first message, which makes the topic, does not
count. The answer is a hash of all bodies in the store.
"""

import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from bench.course import Course, not_measured
from bench.figures import Figure, at_least
from bench.network.beside import OURS, ours, over, rounds_of
from bench.network.python_load import TOPIC
from embermq import MessageStore

NAME = "client_send"
ABOUT = "the Python client's producer: one in flight, 256 in flight"
BODY_BYTES = 1024
ONE, MANY = "1 in flight, 1 KiB", "256 in flight, 1 KiB"
CPP = "C++ client"


def run(course: Course) -> list[Figure]:
    few, many = course.pick(200, 20_000), course.pick(1000, 200_000)
    runs = [(ONE, OURS, "ours", 1, few), (MANY, OURS, "ours", 256, many)]
    has_cpp = importlib.util.find_spec("rocketmq") is not None
    if has_cpp:
        runs.insert(1, (ONE, CPP, "cpp", 1, few))
    rates: dict[tuple[str, str], list[float]] = {(case, name): [] for case, name, *_rest in runs}
    answers: dict[str, set[str]] = {ONE: set(), MANY: set()}
    for number in range(rounds_of(course)):
        for case, name, kind, in_flight, count in runs:
            course.note(f"{NAME}: {case}, {name}, round {number + 1}")
            with course.scratch() as scratch:
                rate, answer = _measured(course, scratch, kind, in_flight, count)
            rates[case, name].append(rate)
            answers[case].add(answer)
    found = {case: _the_one(seen) for case, seen in answers.items()}
    figures = [
        Figure(case, name, "msg/s", measured, at_least(40_000) if case == MANY else None, found[case])
        for (case, name), measured in rates.items()
    ]
    measure = f"{OURS} / {CPP}"
    if has_cpp:
        ratio = over(rates[ONE, OURS], rates[ONE, CPP])
        return [*figures, Figure(ONE, measure, "x", ratio, at_least(1.5), found[ONE])]
    return [*figures, not_measured(ONE, measure, "x", "the package rocketmq is not installed")]


def _measured(course: Course, scratch: Path, kind: str, in_flight: int, count: int) -> tuple[float, str]:
    with ours(course).start(scratch / "broker", {}) as server:
        words = [server.name_server, kind, str(in_flight), str(count), str(BODY_BYTES)]
        done = subprocess.run(
            [sys.executable, "-m", "bench.network.python_load", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        rate = float(json.loads(done.stdout.splitlines()[-1])["per_second"])
    assert server.store is not None
    return rate, _bodies(server.store)


def _bodies(path: Path) -> str:
    """A hash of the bodies of the topic, in the order of their numbers."""
    with MessageStore.open(path, read_only=True) as store:
        bodies = sorted(message.payload for message in store.scan() if message.topic == TOPIC)
    assert len(set(bodies)) == len(bodies), "a message was stored twice"
    return hashlib.sha256(b"".join(bodies)).hexdigest()[:12]


def _the_one(answers: set[str]) -> str:
    assert len(answers) == 1, f"rounds give different answers: {answers}"
    return next(iter(answers))
