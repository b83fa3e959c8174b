"""What scenarios that send have in common: a case, one run of it against a server, and its figures."""

from collections.abc import Sequence
from typing import NamedTuple

from bench.course import Course
from bench.figures import Figure, Target
from bench.network.beside import OURS, REFERENCE, Runs, values
from bench.network.generator import Load, load
from bench.network.servers import Server

_WARM_UP = 80_000


class Case(NamedTuple):
    name: str
    connections: int
    window: int
    body: int
    messages: int
    target: Target  # of the rate, ours over RocketMQ's

    @property
    def topic(self) -> str:
        return f"bench_{self.connections}_{self.window}_{self.body}"


def warm_up(course: Course, servers: Sequence[Server]) -> None:
    """Before the first measurement: a JVM has compiled what it runs, whatever the scale of the measurements."""
    for server in servers:
        course.note(f"warm-up: {server.name}")
        messages = course.pick(8, _WARM_UP)
        load("send", server.port, wire=server.wire, topic="bench", window=256, messages=messages, settle_ms=0)


def send(course: Course, case: Case, server: Server) -> Load:
    messages = course.amount(256, case.messages)
    found = load(
        "send",
        server.port,
        pid=server.pid,
        wire=server.wire,
        topic="bench" if server.wire == "nats" else case.topic,
        connections=case.connections,
        window=case.window,
        body=case.body,
        messages=messages,
        warm_up=messages // 4,
        settle_ms=course.pick(10, 200),
    )
    assert found["gaps"] == 0, found
    return found


def send_figures(case: str, runs: Runs, answer: str) -> list[Figure]:
    figures = []
    for name, loads in runs.items():
        own = answer if name in (OURS, REFERENCE) else ""
        figures += [
            Figure(case, name, "msg/s", values(loads, "per_second"), answer=own),
            Figure(case, f"{name}, server CPU", "µs per msg", values(loads, "server_cpu_us"), answer=own),
            Figure(case, f"{name}, p50", "ms", values(loads, "latency_p50_us", 1e-3), answer=own),
            Figure(case, f"{name}, p99", "ms", values(loads, "latency_p99_us", 1e-3), answer=own),
        ]
    return figures
