"""SYNC_FLUSH over the network: acknowledged when the message is on the disk; beside RocketMQ, and beside our own
ASYNC_FLUSH of the same shape.

Redis syncs before it answers as well (appendfsync always); JetStream of Debian cannot.
"""

from contextlib import ExitStack

from bench.course import Course, not_measured
from bench.figures import Figure, at_least
from bench.network import servers as kinds
from bench.network.beside import (
    OURS,
    collect,
    in_turn,
    ours,
    over,
    present,
    ratio_figures,
    rounds_of,
    running,
    same_answer,
    values,
)
from bench.network.sends import Case, send, send_figures, warm_up

NAME = "network_sync"
ABOUT = "sends acknowledged after a sync of the disk"
SYNC = {"flushDiskType": "SYNC_FLUSH"}
OWN_TARGET = at_least(0.7)  # of our own asynchronous rate
CASES = (
    Case("64 x 1, 100 B, synced", 64, 1, 100, 30_000, at_least(1.3)),
    Case("1 x 64, 100 B, synced", 1, 64, 100, 30_000, at_least(2)),
)


def run(course: Course) -> list[Figure]:
    peers, lacking = present(course, (kinds.ROCKETMQ, kinds.REDIS))
    synced, unsynced, answers = collect(), collect(), []
    for number in range(rounds_of(course)):
        with course.scratch() as scratch:
            with ExitStack() as stack:
                plain = stack.enter_context(ours(course).start(scratch / "asynchronous", {}))
                servers = stack.enter_context(running(course, scratch, peers, SYNC))
                everyone = [plain, *servers]
                warm_up(course, everyone)
                for case in CASES:
                    for server in in_turn(everyone, number):
                        course.note(f"{NAME}: {case.name}, {server.name}, round {number + 1}")
                        found = unsynced if server is plain else synced
                        found[case.name][server.name].append(send(course, case, server))
            answers.append(same_answer([server.store for server in everyone if server.store is not None]))
    assert len(set(answers)) == 1, f"rounds give different answers: {answers}"
    figures: list[Figure] = []
    for case in CASES:
        runs = synced[case.name]
        figures += send_figures(case.name, runs, answers[0])
        asynchronous = values(unsynced[case.name][OURS], "per_second")
        share = over(values(runs[OURS], "per_second"), asynchronous)
        figures += [
            Figure(case.name, f"{OURS}, not synced", "msg/s", asynchronous, answer=answers[0]),
            Figure(case.name, "rate, synced / not synced", "x", share, OWN_TARGET),
        ]
        figures += ratio_figures(case.name, "rate", runs, "per_second", target=case.target)
        figures += ratio_figures(case.name, "server CPU", runs, "server_cpu_us")
        figures += [not_measured(case.name, f"rate, {OURS} / {name}", "x", why) for name, why in lacking.items()]
    return figures
