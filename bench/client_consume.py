"""The Python client's push consumer, one process, from our broker: how fast it works off what is stored, and how long a
message is on its way from `send` to its handler.

Messages of 1 KiB with a tag. The rate is that of stored messages, from the first that a handler got to the last, with
pulls of 256 and handlers that take 32 at a time. The way of a message is measured at 1,000 msg/s with the default
settings, producer and consumer in processes of their own. The answer is a hash of the numbers of all messages that
came, each once.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.course import Course
from bench.figures import Figure, at_least, at_most
from bench.network.beside import ours, rounds_of
from bench.network.python_consumer import fill, send_paced

NAME = "client_consume"
ABOUT = "the Python client's push consumer: stored messages, and the way from send to handler"
BODY_BYTES = 1024
STORED, ON_THE_WAY = "stored messages, 1 KiB", "1,000 msg/s, 1 KiB"
PER_SECOND = 1000.0


def run(course: Course) -> list[Figure]:
    many, few = course.pick(2000, 200_000), course.pick(200, 10_000)
    rates: list[float] = []
    halves: list[float] = []
    worst: list[float] = []
    answers: dict[str, set[str]] = {STORED: set(), ON_THE_WAY: set()}
    for number in range(rounds_of(course)):
        course.note(f"{NAME}: {STORED}, round {number + 1}")
        with course.scratch() as scratch, ours(course).start(scratch / "broker", {}) as server:
            fill(server.name_server, many, BODY_BYTES)
            with _consumer(server.name_server, "rate", many) as consumer:
                found = _result(consumer)
        rates.append(float(found["per_second"]))
        answers[STORED].add(str(found["answer"]))
        course.note(f"{NAME}: {ON_THE_WAY}, round {number + 1}")
        with course.scratch() as scratch, ours(course).start(scratch / "broker", {}) as server:
            fill(server.name_server, 0, BODY_BYTES)
            with _consumer(server.name_server, "late", few) as consumer:
                send_paced(server.name_server, few, BODY_BYTES, PER_SECOND)
                found = _result(consumer)
        halves.append(float(found["p50"]))
        worst.append(float(found["p99"]))
        answers[ON_THE_WAY].add(str(found["answer"]))
    (stored,), (on_the_way,) = answers[STORED], answers[ON_THE_WAY]
    return [
        Figure(STORED, "handled", "msg/s", rates, at_least(80_000), stored),
        Figure(ON_THE_WAY, "send to handler, median", "ms", halves, None, on_the_way),
        Figure(ON_THE_WAY, "send to handler, p99", "ms", worst, at_most(3), on_the_way),
    ]


@contextmanager
def _consumer(name_server: str, kind: str, count: int) -> Iterator["subprocess.Popen[str]"]:
    """A consumer that has its queues already."""
    words = [sys.executable, "-m", "bench.network.python_consumer", name_server, kind, str(count)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise AssertionError(process.communicate()[1])
            yield process
        finally:
            process.kill()


def _result(process: "subprocess.Popen[str]") -> dict[str, float | str]:
    out, problem = process.communicate()
    assert process.returncode == 0, problem
    found: dict[str, float | str] = json.loads(out.splitlines()[-1])
    return found
