"""Reads over the network: catching up by pulls, delivery to a consumer that waits, and queries by key; beside RocketMQ.

Catching up: 1 KiB messages of four queues over one connection, a pull of 32 in flight for each queue, everything in the
page cache. Delivery: messages sent at a steady rate, each timed from when it was due to when a consumer that waits by
long polling has it. Queries: one at a time over one connection, each finding one message.
"""

from bench.course import Course
from bench.figures import Figure, Target, at_least, at_most
from bench.network import servers as kinds
from bench.network.beside import (
    OURS,
    REFERENCE,
    collect,
    in_turn,
    present,
    ratio_figures,
    rounds_of,
    running,
    same_answer,
    values,
)
from bench.network.generator import Load, load
from bench.network.sends import warm_up
from bench.network.servers import Server

NAME = "network_read"
ABOUT = "catching up, delivery to a waiting consumer, queries by key"
PULL, QUERY = "pull, 1 KiB", "query by key"
RATES = {"delivery, 1 k msg/s": 1000, "delivery, 5 k msg/s": 5000}
PULL_TARGET = at_least(1)
QUERY_TARGET = at_least(1)  # theirs over ours
DELIVERY_TARGETS: dict[str, dict[str, Target | None]] = {  # ours over theirs
    "delivery, 1 k msg/s": {"p50": at_most(1), "p99": at_most(1)},
    "delivery, 5 k msg/s": {"p50": None, "p99": at_most(0.1)},
}


def run(course: Course) -> list[Figure]:
    peers, lacking = present(course, (kinds.ROCKETMQ,))
    found, answers = collect(), []
    for number in range(rounds_of(course)):
        with course.scratch() as scratch:
            with running(course, scratch, peers) as servers:
                warm_up(course, servers)
                for server in in_turn(servers, number):
                    course.note(f"{NAME}: {server.name}, round {number + 1}")
                    for case, measured in _measure(course, server).items():
                        found[case][server.name].append(measured)
            answers.append(same_answer([server.store for server in servers if server.store is not None]))
    assert len(set(answers)) == 1, f"rounds give different answers: {answers}"
    figures: list[Figure] = []
    for name in (OURS, REFERENCE):
        if name in found[PULL]:
            figures += [
                Figure(PULL, name, "msg/s", values(found[PULL][name], "per_second"), answer=answers[0]),
                Figure(PULL, f"{name}, server CPU", "µs per msg", values(found[PULL][name], "server_cpu_us")),
            ]
    figures += ratio_figures(PULL, "rate", found[PULL], "per_second", target=PULL_TARGET, lacking=lacking)
    figures += ratio_figures(PULL, "server CPU", found[PULL], "server_cpu_us")
    for case in RATES:
        for part, target in DELIVERY_TARGETS[case].items():
            field = f"delivery_{part}_us"
            figures += [Figure(case, f"{n}, {part}", "ms", values(r, field, 1e-3)) for n, r in found[case].items()]
            figures += ratio_figures(case, part, found[case], field, target=target, lacking=lacking)
        figures += ratio_figures(case, "server CPU", found[case], "server_cpu_us")
    for part in ("p50", "p99"):
        runs, field = found[QUERY], f"latency_{part}_us"
        figures += [Figure(QUERY, f"{name}, {part}", "ms", values(r, field, 1e-3)) for name, r in runs.items()]
        figures += ratio_figures(QUERY, part, runs, field, target=QUERY_TARGET, inverse=True, lacking=lacking)
    return figures


def _measure(course: Course, server: Server) -> dict[str, Load]:
    fill = course.amount(400, 100_000)
    sent = load("send", server.port, topic="catch_up", window=256, messages=fill, body=1024)
    everything = sent["next_number"]
    load("pull", server.port, topic="catch_up", messages=everything)  # once before it is measured
    measured = {PULL: load("pull", server.port, pid=server.pid, topic="catch_up", messages=everything)}
    for case, rate in RATES.items():
        measured[case] = load(
            "deliver",
            server.port,
            pid=server.pid,
            topic=f"deliver_{rate}",
            rate=rate,
            messages=course.amount(200, 10 * rate),
            warm_up=course.amount(20, 2 * rate),
        )
    measured[QUERY] = load(
        "query",
        server.port,
        pid=server.pid,
        topic="catch_up",
        messages=everything,
        rate=course.amount(100, 5000),
        warm_up=course.amount(10, 1000),
    )
    return measured
