"""What does not grow: CPU a message with 1 and 1,000 topics, and with and without 10,000 pulls that wait elsewhere.

The figure is CPU of the server's process for each message; the message is the same, so it must be the same. Topics
and the files of their queues are made before; what that costs is a figure of its own. Pulls wait on queues of other
topics, a hundred on each of a hundred connections.
"""

from bench.course import Course
from bench.figures import Figure, at_most
from bench.network import servers as kinds
from bench.network.beside import (
    OURS,
    collect,
    in_turn,
    over,
    present,
    rounds_of,
    running,
    same_answer,
    values,
)
from bench.network.generator import Load, load
from bench.network.plain_load import cpu_seconds
from bench.network.sends import warm_up
from bench.network.servers import Server

NAME = "network_scale"
ABOUT = "CPU a message with many topics, and with many pulls that wait"
TARGET = at_most(1.15)
_FIELD = "server_cpu_us"
QUEUES = 4
MAKING = "a new queue"


def run(course: Course) -> list[Figure]:
    peers, _ = present(course, (kinds.ROCKETMQ,))
    many, pulls = course.pick(20, 1000), course.pick(100, 10_000)
    found, answers = collect(), []
    for number in range(rounds_of(course)):
        with course.scratch() as scratch:
            with running(course, scratch, peers) as servers:
                warm_up(course, servers)
                for server in in_turn(servers, number):
                    course.note(f"{NAME}: {server.name}, round {number + 1}")
                    for case, told in _measure(course, server, many, pulls).items():
                        found[case][server.name].append(told)
            answers.append(same_answer([server.store for server in servers if server.store is not None]))
    assert len(set(answers)) == 1, f"rounds give different answers: {answers}"
    figures = [Figure(MAKING, name, "µs of CPU", values(loads, _FIELD)) for name, loads in found[MAKING].items()]
    for case, measure, base, changed in (
        (f"1 to {many:,} topics", f"{many:,} topics / 1 topic", "one topic", "many topics"),
        (f"{pulls:,} pulls wait", "with them / without", "no pulls", "pulls"),
    ):
        for name in found[base]:
            before, after = values(found[base][name], _FIELD), values(found[changed][name], _FIELD)
            target = TARGET if name == OURS else None
            figures += [
                Figure(case, f"{name}, {base}", "µs per msg", before, answer=answers[0]),
                Figure(case, f"{name}, {changed}", "µs per msg", after, answer=answers[0]),
                Figure(case, f"{name}, {measure}", "x", over(after, before), target),
            ]
    return figures


def _measure(course: Course, server: Server, many: int, pulls: int) -> dict[str, Load]:
    messages = course.amount(400, 400_000)
    terms = {
        "pid": server.pid,
        "window": 256,
        "messages": messages,
        "warm_up": messages // 4,
        "settle_ms": course.pick(10, 200),
    }
    return {
        MAKING: {_FIELD: _make_queues(course, server, many)},
        "one topic": load("send", server.port, topic="one", **terms),
        "many topics": load("send", server.port, topic="many", topics=many, **terms),
        "no pulls": load("send", server.port, topic="without", **terms),
        "pulls": load(
            "send",
            server.port,
            topic="with",
            held_pulls=pulls,
            held_connections=100,
            stall_ms=120_000,
            hold_ms=course.pick(50, 2000),
            **terms,
        ),
    }


def _make_queues(course: Course, server: Server, many: int) -> float:
    """CPU for each queue of new topics, until its first entry is in its file."""
    before = cpu_seconds(server.pid)
    load("send", server.port, topic="many", topics=many, messages=1, settle_ms=course.pick(10, 3000))
    return (cpu_seconds(server.pid) - before) / (QUEUES * many) * 1e6
