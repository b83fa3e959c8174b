"""Replication over loopback: what a slave costs a master, beside Apache's pair, how fast a slave catches up, and what a
tap costs.

Master and slave are processes on the same cores: the rate with a slave is that of both together. Nothing waits without
a deadline: a slave that does not follow is an error that says what it reports, not a run that stands still.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.course import MIB, Course, not_measured
from bench.figures import Figure, at_least, at_most
from bench.network import servers as kinds
from bench.network.beside import OURS, REFERENCE, in_turn, over, present, rounds_of, same_answer, values
from bench.network.generator import Load, LoadFailed
from bench.network.sends import Case, send, warm_up
from bench.network.servers import Server
from embermq import BrokerRole, MessageStore
from embermq.columns import compiled_scan
from embermq.replication import MasterFollower
from tests.interop import java_broker
from tests.support.broker_process import SMALL
from tests.support.replication_processes import as_slave, figure
from tests.support.replication_processes import send as send_one

NAME = "network_replication"
ABOUT = "what replication costs, and how fast a slave catches up"
ASYNC = Case("ASYNC_MASTER, 1 x 256, 1 KiB", 1, 256, 1024, 200_000, at_least(0.8))
SYNC = Case("SYNC_MASTER, 1 x 64, 1 KiB", 1, 64, 1024, 60_000, at_least(1.5))
TAPPED = Case("tapped, 1 x 256, 1 KiB", 1, 256, 1024, 200_000, at_most(1.1))
CATCH_UP = "catch-up"
CATCH_UP_TARGET, CATCH_UP_MESSAGES = at_least(300), 400_000
FOLLOW_SECONDS, LOOK_SECONDS = 120.0, 0.005
_BROKER = "broker.BrokerStartup"


def run(course: Course) -> list[Figure]:
    rounds = range(rounds_of(course))
    return [
        *_asynchronous(course, rounds),
        *_synchronous(course, rounds),
        *_tap(course, rounds),
        *_catch_up(course, rounds),
    ]


# -- processes ---------------------------------------------------------------------------------------------------


@contextmanager
def _master(course: Course, directory: Path, role: str) -> Iterator[Server]:
    settings = {"brokerName": "b", "brokerRole": role, "slaveTimeout": 60_000}
    with kinds.embermq(directory, settings, small=course.size == "smoke") as server:
        yield server


@contextmanager
def _slave(course: Course, directory: Path, master: Server) -> Iterator[Path]:
    """A slave that follows; its store."""
    directory.mkdir(parents=True)
    with as_slave(directory, master.name_server, sizes=SMALL if course.size == "smoke" else ()) as slave:
        _wait(
            lambda: figure(_address(master), "emberReplicas") == "1",
            lambda: figure(slave.address, "emberMasterProblem"),
        )
        yield slave.store
        end = figure(_address(master), "commitLogMaxOffset")
        _wait(lambda: figure(slave.address, "commitLogMaxOffset") == end, lambda: "it does not catch up")


def _address(server: Server) -> str:
    return f"127.0.0.1:{server.port}"


def _wait(holds: Callable[[], bool], why_not: Callable[[], str]) -> None:
    """LoadFailed after FOLLOW_SECONDS."""
    deadline = time.monotonic() + FOLLOW_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise LoadFailed(f"a slave does not follow its master: {why_not()}")
        time.sleep(LOOK_SECONDS)


@contextmanager
def _apache_pair(directory: Path) -> Iterator[Server]:
    """Apache's SYNC_MASTER with a slave that has acknowledged a message."""
    with ExitStack() as stack:
        names = stack.enter_context(kinds.rocketmq_names(directory / "names"))
        ports = []
        for number, role in enumerate(("SYNC_MASTER", "SLAVE")):
            place = directory / role
            place.mkdir(parents=True)
            changes = {"brokerRole": role, "brokerId": number, "slaveTimeout": 60_000}
            config = kinds.rocketmq_config(place, names, changes)
            broker = stack.enter_context(java_broker.java_server(_BROKER, place, config, jvm=kinds.JVM))
            ports.append((int(str(config["listenPort"])), broker.pid))
        server = Server(REFERENCE, *ports[0], name_server=names)
        _wait(lambda: send_one(_address(server), b"x").code == 0, lambda: "no send is acknowledged")
        yield server


# -- measurements ------------------------------------------------------------------------------------------------


def _asynchronous(course: Course, rounds: Sequence[int]) -> list[Figure]:
    """The same sends to a master alone and to one with a slave."""
    alone: list[Load] = []
    followed: list[Load] = []
    answers = set()
    for number in rounds:
        with course.scratch() as scratch:
            with ExitStack() as stack:
                servers = [stack.enter_context(_master(course, scratch / name, "ASYNC_MASTER")) for name in "ab"]
                copy = stack.enter_context(_slave(course, scratch / "slave", servers[1]))
                warm_up(course, servers)
                for server in in_turn(servers, number):
                    course.note(f"{NAME}: {ASYNC.name}, round {number + 1}")
                    (alone if server is servers[0] else followed).append(send(course, ASYNC, server))
            answers.add(same_answer([*(server.store for server in servers if server.store is not None), copy]))
    (answer,) = answers
    rates = values(alone, "per_second"), values(followed, "per_second")
    return [
        Figure(ASYNC.name, "alone", "msg/s", rates[0], answer=answer),
        Figure(ASYNC.name, "with a slave", "msg/s", rates[1], answer=answer),
        Figure(ASYNC.name, "rate, with a slave / alone", "x", over(rates[1], rates[0]), ASYNC.target),
    ]


def _synchronous(course: Course, rounds: Sequence[int]) -> list[Figure]:
    """Answers that wait for the slave; beside Apache's pair."""
    peers, lacking = present(course, (kinds.ROCKETMQ,))
    own: list[Load] = []
    theirs: list[Load] = []
    answers = set()
    for number in rounds:
        with course.scratch() as scratch:
            with ExitStack() as stack:
                server = stack.enter_context(_master(course, scratch / "master", "SYNC_MASTER"))
                copy = stack.enter_context(_slave(course, scratch / "slave", server))
                pairs = [server, *(stack.enter_context(_apache_pair(scratch / "apache")) for _ in peers)]
                warm_up(course, pairs)
                for one in in_turn(pairs, number):
                    course.note(f"{NAME}: {SYNC.name}, {one.name}, round {number + 1}")
                    (own if one is server else theirs).append(send(course, SYNC, one))
            assert server.store is not None
            answers.add(same_answer([server.store, copy]))
    (answer,) = answers
    figures = [
        Figure(SYNC.name, OURS, "msg/s", values(own, "per_second"), answer=answer),
        Figure(SYNC.name, f"{OURS}, p99", "ms", values(own, "latency_p99_us", 1e-3), answer=answer),
    ]
    if theirs:
        rates = values(theirs, "per_second")
        figures.append(Figure(SYNC.name, REFERENCE, "msg/s", rates))
        ratio = over(values(own, "per_second"), rates)
        figures.append(Figure(SYNC.name, f"rate, {OURS} / {REFERENCE}", "x", ratio, SYNC.target))
    return figures + [not_measured(SYNC.name, f"rate, {OURS} / {name}", "x", why) for name, why in lacking.items()]


@contextmanager
def _tapped(directory: Path, server: Server) -> Iterator[None]:
    """A tap that follows."""
    words = [sys.executable, "-m", "embermq.cli", "tap", f"127.0.0.1:{server.ha_port}", "--into", str(directory)]
    words += ["--broker", _address(server), "--whole"]
    with (directory.parent / "tap").open("wb") as said:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        _wait(lambda: figure(_address(server), "emberReplicas") == "1", (directory.parent / "tap").read_text)
        yield
    finally:
        process.terminate()
        try:
            process.wait(FOLLOW_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _tap(course: Course, rounds: Sequence[int]) -> list[Figure]:
    """CPU of a master for a message, without and with a tap."""
    without: list[Load] = []
    tapped: list[Load] = []
    answers = set()
    for number in rounds:
        with course.scratch() as scratch:
            with ExitStack() as stack:
                servers = [stack.enter_context(_master(course, scratch / name, "ASYNC_MASTER")) for name in "ab"]
                stack.enter_context(_tapped(scratch / "copy", servers[1]))
                warm_up(course, servers)
                for server in in_turn(servers, number):
                    course.note(f"{NAME}: {TAPPED.name}, round {number + 1}")
                    (without if server is servers[0] else tapped).append(send(course, TAPPED, server))
            answers.add(same_answer([server.store for server in servers if server.store is not None]))
    (answer,) = answers
    cpu = values(without, "server_cpu_us"), values(tapped, "server_cpu_us")
    return [
        Figure(TAPPED.name, "master's CPU, no tap", "µs per msg", cpu[0], answer=answer),
        Figure(TAPPED.name, "master's CPU, tapped", "µs per msg", cpu[1], answer=answer),
        Figure(TAPPED.name, "master's CPU, tapped / no tap", "x", over(cpu[1], cpu[0]), TAPPED.target),
    ]


def _catch_up(course: Course, rounds: Sequence[int]) -> list[Figure]:
    """An empty slave copies what a master has: from the first byte to the last, with the kernel loaded."""
    compiled_scan()
    filling = Case("", 1, 256, 1024, CATCH_UP_MESSAGES, CATCH_UP_TARGET)
    rates, answers = [], set()
    for number in rounds:
        with course.scratch() as scratch:
            with _master(course, scratch / "master", "ASYNC_MASTER") as server:
                send(course, filling, server)
                end = int(figure(_address(server), "commitLogMaxOffset"))
                course.note(f"{NAME}: {CATCH_UP}, {end / MIB:.0f} MiB, round {number + 1}")
                rates.append(_copied_per_second(course, scratch / "copy", server, end) / 1e6)
            assert server.store is not None
            answers.add(same_answer([server.store, scratch / "copy"]))
    (answer,) = answers
    return [Figure(CATCH_UP, "empty slave", "MB/s", rates, CATCH_UP_TARGET, answer)]


def _copied_per_second(course: Course, copy: Path, server: Server, end: int) -> float:
    sizes = {"segment_bytes": 16 * MIB} if course.size == "smoke" else {}
    settings = course.settings().replace(role=BrokerRole.SLAVE, broker_id=1, **sizes)
    with MessageStore.open(copy, settings) as store:
        follower = MasterFollower(store, lambda: f"127.0.0.1:{server.ha_port}", begin=0, acknowledges=False)
        began = time.perf_counter()
        follower.start()
        try:
            _wait(lambda: store.max_physical >= end, lambda: follower.now.problem)
            return end / (time.perf_counter() - began)
        finally:
            follower.stop()
