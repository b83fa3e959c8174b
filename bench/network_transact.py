"""Transactions over the network: a half message and its commit, 64 in flight, beside Apache RocketMQ.

The load generator sends a half message, waits for its acknowledgement, commits it, and waits for the answer to that:
what is counted are transactions. Brokers have default settings (ASYNC_FLUSH); every round starts them in a new
directory. The answer is a hash of the bodies in the topics after both have ended: each message once, in both stores.
"""

import hashlib
from pathlib import Path

from bench.course import Course
from bench.figures import Figure, at_least
from bench.network import servers as kinds
from bench.network.beside import collect, in_turn, present, ratio_figures, rounds_of, running
from bench.network.generator import Load, load
from bench.network.sends import Case, send_figures, warm_up
from bench.network.servers import Server
from embermq import MessageStore

NAME = "network_transact"
ABOUT = "half message and commit, 64 transactions in flight"
CASES = (
    Case("1 x 64, 100 B, committed", 1, 64, 100, 30_000, at_least(2)),
    Case("64 x 1, 100 B, committed", 64, 1, 100, 20_000, at_least(2)),
)


def run(course: Course) -> list[Figure]:
    peers, lacking = present(course, (kinds.ROCKETMQ,))
    found, answers = collect(), []
    for number in range(rounds_of(course)):
        with course.scratch() as scratch:
            with running(course, scratch, peers) as servers:
                warm_up(course, servers)
                for case in CASES:
                    for server in in_turn(servers, number):
                        course.note(f"{NAME}: {case.name}, {server.name}, round {number + 1}")
                        found[case.name][server.name].append(_transact(course, case, server))
            answers += [_bodies(server.store) for server in servers if server.store is not None]
    assert len(set(answers)) == 1, f"the topics differ: {answers}"
    figures: list[Figure] = []
    for case in CASES:
        runs = found[case.name]
        figures += send_figures(case.name, runs, answers[0])
        figures += ratio_figures(case.name, "rate", runs, "per_second", target=case.target, lacking=lacking)
        figures += ratio_figures(case.name, "server CPU", runs, "server_cpu_us")
    return figures


def _transact(course: Course, case: Case, server: Server) -> Load:
    messages = course.amount(256, case.messages)
    return load(
        "transact",
        server.port,
        pid=server.pid,
        topic=case.topic,
        connections=case.connections,
        window=case.window,
        body=case.body,
        messages=messages,
        warm_up=messages // 2,
        settle_ms=course.pick(10, 200),
    )


def _bodies(path: Path) -> str:
    """A hash of the bodies of the topics, each of which is there once."""
    topics = {case.topic for case in CASES}
    with MessageStore.open(path, read_only=True) as store:
        bodies = sorted(message.topic.encode() + message.body for message in store.scan() if message.topic in topics)
    assert len(set(bodies)) == len(bodies), "a message was committed twice"
    return hashlib.sha256(b"".join(bodies)).hexdigest()[:12]
