"""Start and rest: from the start of the process to the first acknowledged message, memory at rest, idle connections.

The load generator tries to connect every 2 ms and sends one message as soon as it can; both clocks are the machine's.
RocketMQ's name server runs before its broker starts, and is not counted. Memory at rest is what the process holds 1.5 s
after that first message.
"""

import json
import os
import resource
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench.course import Course, not_measured
from bench.figures import Figure, at_least, at_most
from bench.network import servers as kinds
from bench.network.beside import OURS, REFERENCE, collect, in_turn, ours, over, present, rounds_of, values
from bench.network.generator import Load, command
from bench.network.servers import Server
from tests.interop import java_broker
from tests.support.broker_process import SMALL, BrokerProcess

NAME = "network_start"
ABOUT = "start to the first acknowledgement, memory at rest, idle connections"
_REST_SECONDS = 1.5
_SPARE_FILES = 200

START, REST = "start", "at rest"


def run(course: Course) -> list[Figure]:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # An installed program has its bytecode: the first round makes it.
    peers, lacking = present(course, (kinds.ROCKETMQ,))
    starters: dict[str, Callable[[Course, Path], Load]] = {OURS: _start_ours}
    if peers:
        starters[REFERENCE] = _start_rocketmq
    started, held = collect(), collect()
    connections, why_not = _connections(course)
    for number in range(rounds_of(course)):
        for name, start in starters.items():
            course.note(f"{NAME}: {name}, round {number + 1}")
            with course.scratch() as scratch:
                started[START][name].append(start(course, scratch / "first"))
        with course.scratch() as scratch, ExitStack() as stack:
            everyone = [ours(course), *peers]
            servers = [stack.enter_context(kind.start(scratch / kind.name, {})) for kind in everyone]
            for server in in_turn(servers, number):
                held[REST][server.name].append(_hold(course, server, connections))
    figures: list[Figure] = []
    limits = {OURS: (at_most(1), at_most(120), at_least(connections)), REFERENCE: (None, None, None)}
    for name in starters:
        soon, small, many = limits[name]
        figures += [
            Figure("first acknowledgement", name, "s", values(started[START][name], "seconds"), soon),
            Figure("memory at rest", name, "MB resident", values(started[START][name], "rss_mb"), small),
            Figure("idle connections", f"{name}, held", "connections", values(held[REST][name], "held"), many),
            Figure("idle connections", f"{name}, memory", "MB resident", values(held[REST][name], "rss_mb")),
        ]
    if peers:
        pair = [values(started[START][name], "seconds") for name in (OURS, REFERENCE)]
        figures.append(Figure("first acknowledgement", f"{OURS} / {REFERENCE}", "x", over(*pair)))
    figures += [not_measured("first acknowledgement", f"{OURS} / {name}", "x", why) for name, why in lacking.items()]
    if why_not:
        figures.append(not_measured("idle connections", f"{OURS}, 5,000 held", "connections", why_not))
    return figures


def _connections(course: Course) -> tuple[int, str]:
    """How many connections this process's limit of open files allows, and why not more."""
    wanted = course.pick(100, 5000)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY or hard >= wanted + _SPARE_FILES:
        return wanted, ""
    return hard - _SPARE_FILES, f"at most {hard} open files: raise the limit with ulimit -n {wanted + _SPARE_FILES}"


def _resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"process {pid} is gone")


def _first(port: int, began_ns: int, waiting: "subprocess.Popen[str]", pid: int) -> Load:
    said, problem = waiting.communicate(timeout=120)
    if waiting.returncode:
        raise RuntimeError(f"port {port}: {problem}")
    seconds = (json.loads(said)["acknowledged_ns"] - began_ns) / 1e9
    time.sleep(_REST_SECONDS)
    return {"seconds": seconds, "rss_mb": _resident_mb(pid)}


def _generator(port: int) -> "subprocess.Popen[str]":
    words = command("first", port, stall_ms=60_000, topic="first")
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _start_ours(course: Course, directory: Path) -> Load:
    directory.mkdir()
    port = java_broker.free_port()
    waiting = _generator(port)
    began = time.monotonic_ns()
    sizes = SMALL if course.size == "smoke" else ()
    with BrokerProcess(directory, listen=f"127.0.0.1:{port}", sizes=sizes) as broker:
        return _first(port, began, waiting, broker.process.pid)


def _start_rocketmq(course: Course, directory: Path) -> Load:
    with kinds.rocketmq_names(directory / "names") as names:
        config = kinds.rocketmq_config(directory, names, {})
        port = int(str(config["listenPort"]))
        waiting = _generator(port)
        began = time.monotonic_ns()
        with java_broker.java_server("broker.BrokerStartup", directory, config, jvm=kinds.JVM) as broker:
            return _first(port, began, waiting, broker.pid)


def _hold(course: Course, server: Server, connections: int) -> Load:
    """So many connections, each answered before and after a rest; the memory of the server while they are there."""
    words = command("hold", server.port, pid=server.pid, connections=connections, hold_ms=course.pick(100, 3000))
    holding = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert holding.stdout is not None
    line = holding.stdout.readline()
    found: Load = json.loads(line) | {"rss_mb": _resident_mb(server.pid)} if line else {}
    _, problem = holding.communicate("\n", timeout=60)
    if not found:
        raise RuntimeError(f"{server.name}: {connections} idle connections: {problem}")
    return found
