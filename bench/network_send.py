"""Sends over the network: connections x messages in flight, beside Apache RocketMQ, NATS JetStream and Redis Streams.

The load generator builds each frame when it sends it (a copy of a template with numbers written over it) and checks
every acknowledgement. Brokers have default settings (ASYNC_FLUSH, 1 GiB files that are new to the disk); every round
starts them in a new directory. CPU is that of all threads of the server's process until 200 ms after the last
acknowledgement, so that dispatching is part of it.
"""

from bench.course import Course
from bench.figures import Figure, at_least
from bench.network import servers as kinds
from bench.network.beside import collect, in_turn, present, ratio_figures, rounds_of, running, same_answer
from bench.network.sends import Case, send, send_figures, warm_up

NAME = "network_send"
ABOUT = "acknowledged sends through sockets, connections x in flight"
CASES = (
    Case("1 x 256, 100 B", 1, 256, 100, 200_000, at_least(4)),
    Case("1 x 256, 1 KiB", 1, 256, 1024, 100_000, at_least(2.5)),
    Case("1 x 1, 100 B", 1, 1, 100, 10_000, at_least(3)),
    Case("16 x 16, 100 B", 16, 16, 100, 150_000, at_least(3)),
    Case("64 x 1, 100 B", 64, 1, 100, 50_000, at_least(1.2)),
)


def run(course: Course) -> list[Figure]:
    peers, lacking = present(course, (kinds.ROCKETMQ, kinds.NATS, kinds.REDIS))
    found, answers = collect(), []
    for number in range(rounds_of(course)):
        with course.scratch() as scratch:
            with running(course, scratch, peers) as servers:
                warm_up(course, servers)
                for case in CASES:
                    for server in in_turn(servers, number):
                        course.note(f"{NAME}: {case.name}, {server.name}, round {number + 1}")
                        found[case.name][server.name].append(send(course, case, server))
            answers.append(same_answer([server.store for server in servers if server.store is not None]))
    assert len(set(answers)) == 1, f"rounds give different answers: {answers}"
    figures: list[Figure] = []
    for case in CASES:
        runs = found[case.name]
        figures += send_figures(case.name, runs, answers[0])
        figures += ratio_figures(case.name, "rate", runs, "per_second", target=case.target, lacking=lacking)
        figures += ratio_figures(case.name, "server CPU", runs, "server_cpu_us")
    return figures
