"""RocketMQ's own Java client 4.9.8 as the load, against our broker and against RocketMQ's.

64 threads that each wait for their acknowledgement; 256 asynchronous sends in flight; a push consumer that catches up
with 1 KiB messages; a producer at a steady rate and a push consumer beside it. The client is a JVM of its own for each
server and round, and takes half of a small machine: with two cores, twice the other broker's rate is about the most
that can be seen. Sends are run once, unmeasured, before the run that counts.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.course import Course, not_measured
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
from bench.network.generator import Load
from bench.network.plain_load import cpu_seconds
from bench.network.sends import warm_up
from bench.network.servers import Server
from tests.interop.reference import ROOT, ReferenceFailed, ReferenceMissing, class_path, java_command

NAME = "network_java"
ABOUT = "the Java client: 64 threads, 256 asynchronous, catching up, delivery"
PEERS_ONLY = True  # needs a JVM for the client, whatever the broker
POM = ROOT / "tests" / "interop" / "java_client" / "v4" / "pom.xml"
SOURCES = (ROOT / "bench" / "peers" / "java_client",)
_JVM = ("-Xms512m", "-Xmx512m")


class Case(NamedTuple):
    name: str
    step: str  # of ClientBench, with places for the topic and the number of messages
    messages: int
    field: str
    target: Target


CASES = (
    Case("64 threads, 100 B", "sync:{topic}:{messages}:100:64", 40_000, "per_second", at_least(1.5)),
    Case("256 asynchronous, 100 B", "async:{topic}:{messages}:100:256", 40_000, "per_second", at_least(1.5)),
    Case("delivery, 1 k msg/s", "deliver:{topic}:{messages}:100:1000", 10_000, "delivery_p99_us", at_most(1)),
    Case("delivery, 5 k msg/s", "deliver:{topic}:{messages}:100:5000", 30_000, "delivery_p99_us", at_most(0.1)),
)
CATCH_UP = Case("catching up, 1 KiB", "consume:{topic}:{messages}", 100_000, "per_second", at_least(1))


def missing() -> str | None:
    """Why there is no Java client here, or None."""
    try:
        class_path(POM, SOURCES)
    except ReferenceMissing as why:
        return str(why)
    return None


def run(course: Course) -> list[Figure]:
    why_not = missing()
    if why_not is not None:
        return [not_measured(case.name, OURS, "", why_not) for case in (*CASES, CATCH_UP)]
    peers, lacking = present(course, (kinds.ROCKETMQ,))
    found, answers = collect(), []
    for number in range(rounds_of(course)):
        with course.scratch() as scratch:
            with running(course, scratch, peers) as servers:
                warm_up(course, servers)
                for server in in_turn(servers, number):
                    course.note(f"{NAME}: {server.name}, round {number + 1}")
                    for name, told in _measure(course, server, scratch / f"client-{server.name}").items():
                        found[name][server.name].append(told)
            stores = [server.store for server in servers if server.store is not None]
            answers.append(same_answer(stores, places=False))  # The client chooses the queues.
    assert len(set(answers)) == 1, f"rounds give different answers: {answers}"
    figures: list[Figure] = []
    for case in (*CASES, CATCH_UP):
        runs = found[case.name]
        for name in (OURS, REFERENCE):
            if name not in runs:
                continue
            if case.field == "per_second":
                figures.append(Figure(case.name, name, "msg/s", values(runs[name], "per_second"), answer=answers[0]))
            else:
                figures += [
                    Figure(case.name, f"{name}, {part}", "ms", values(runs[name], f"delivery_{part}_us", 1e-3))
                    for part in ("p50", "p99")
                ]
            figures.append(Figure(case.name, f"{name}, server CPU", "µs per msg", values(runs[name], "server_cpu_us")))
        measure = "rate" if case.field == "per_second" else "p99"
        figures += ratio_figures(case.name, measure, runs, case.field, target=case.target, lacking=lacking)
        if case.field != "per_second":
            half = at_most(1) if "1 k" in case.name else None
            figures += ratio_figures(case.name, "p50", runs, "delivery_p50_us", target=half)
        figures += ratio_figures(case.name, "server CPU", runs, "server_cpu_us")
    return figures


def _measure(course: Course, server: Server, directory: Path) -> dict[str, Load]:
    steps: list[tuple[str, str, int]] = []  # (case or nothing for a run before it, step, messages)
    for at, case in enumerate(CASES):
        messages = course.amount(300, case.messages)
        if case.field == "per_second":
            steps.append(("", case.step.format(topic=f"before-{at}", messages=messages), messages))
        steps.append((case.name, case.step.format(topic=f"java-{at}", messages=messages), messages))
    messages = course.amount(300, CATCH_UP.messages)
    steps.append(("", f"async:catch-up:{messages}:1024:256", messages))
    steps.append((CATCH_UP.name, CATCH_UP.step.format(topic="catch-up", messages=messages), messages))
    told = {}
    with _client(server, [step for _, step, _ in steps], directory) as client:
        for case_name, step, messages in steps:
            _hear(client, step, directory)
            cpu = cpu_seconds(server.pid)
            assert client.stdin is not None
            client.stdin.write("\n")
            client.stdin.flush()
            result = _hear(client, step, directory)
            result["server_cpu_us"] = (cpu_seconds(server.pid) - cpu) / result.get("sent", messages) * 1e6
            if case_name:
                told[case_name] = result
    return told


@contextmanager
def _client(server: Server, steps: list[str], directory: Path) -> "Iterator[subprocess.Popen[str]]":
    directory.mkdir()
    places = [f"-Duser.home={directory}", f"-Drocketmq.client.logRoot={directory}", "-Drocketmq.client.logLevel=ERROR"]
    words = java_command(
        "ClientBench", [server.name_server, *steps], jvm=[*_JVM, *places], classes=class_path(POM, SOURCES)
    )
    with (directory / "said").open("w") as said:
        client = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True)
    try:
        yield client
        client.wait(60)
    finally:
        client.kill()
        client.communicate()


def _hear(client: "subprocess.Popen[str]", step: str, directory: Path) -> Load:
    assert client.stdout is not None
    for line in client.stdout:
        if line.startswith("{"):
            told: Load = json.loads(line)
            return told
    code = client.wait(60)
    raise ReferenceFailed(f"{step}: the Java client ended with {code}: {(directory / 'said').read_text()[-2000:]}")
