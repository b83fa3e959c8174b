"""The servers that are measured: EmberMQ's broker, Apache RocketMQ 4.9.7, NATS JetStream and Redis Streams.

Each is a process on a free port of loopback with its files in a new directory, and is ended with its `with` block.
RocketMQ has a heap of 1 GiB, a name server of its own, and otherwise its defaults; Redis appends to a file and syncs it
every second; JetStream writes to files. The Debian packages are nats-server and redis-server.
"""

import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.network.generator import compiler
from tests.interop import java_broker
from tests.interop.reference import ReferenceMissing
from tests.support.broker_process import SMALL, BrokerProcess

_START_SECONDS = 30.0
_POLL_SECONDS = 0.02
JVM = ("-Xms1g", "-Xmx1g")
# Of tests/interop/java_broker.py: small files, which a benchmark must not have.
_SIZES = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")

Settings = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers."""

    name: str
    port: int
    pid: int
    wire: str = "rocketmq"
    store: Path | None = None  # with a log in RocketMQ's format
    name_server: str = ""
    ha_port: int = 0  # where slaves connect; 0: not known


@dataclass(frozen=True, slots=True)
class Kind:
    """A server that can be started here, or not: `missing` says why."""

    name: str
    start: Callable[[Path, Settings], AbstractContextManager[Server]]
    missing: Callable[[], str | None]


def set_words(settings: Settings) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


@contextmanager
def embermq(directory: Path, settings: Settings, *, small: bool = False) -> Iterator[Server]:
    """Our broker with default sizes; `small`: files of a few MiB, for a run of seconds."""
    directory.mkdir(parents=True)
    with BrokerProcess(directory, *set_words(settings), sizes=SMALL if small else ()) as broker:
        port = int(broker.address.rpartition(":")[2])
        ha_port = int(broker.ready.get("haListen") or 0)
        names = broker.name_server
        yield Server("EmberMQ", port, broker.process.pid, store=broker.store, name_server=names, ha_port=ha_port)


def rocketmq_config(directory: Path, name_server: str, settings: Settings) -> dict[str, object]:
    config = java_broker.broker_config(directory, name_server)
    return {key: value for key, value in config.items() if key not in _SIZES} | dict(settings)


@contextmanager
def rocketmq_names(directory: Path) -> Iterator[str]:
    """RocketMQ's name server; its address."""
    directory.mkdir(parents=True)
    port = java_broker.free_port()
    with java_broker.java_server("namesrv.NamesrvStartup", directory, {"listenPort": port}):
        yield f"127.0.0.1:{port}"


@contextmanager
def rocketmq(directory: Path, settings: Settings) -> Iterator[Server]:
    with rocketmq_names(directory / "names") as names:
        config = rocketmq_config(directory, names, settings)
        with java_broker.java_server("broker.BrokerStartup", directory, config, jvm=JVM) as broker:
            port = int(str(config["listenPort"]))
            yield Server("RocketMQ", port, broker.pid, store=directory / "store", name_server=names)


def _rocketmq_missing() -> str | None:
    try:
        java_broker.class_path()
    except ReferenceMissing as why:
        return str(why)
    return None


@contextmanager
def _process(command: list[str], directory: Path, port: int) -> Iterator[int]:
    """A server process that listens on `port`; its pid."""
    with (directory / "said").open("wb") as said:
        process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
        )
    try:
        _wait_for_port(process, port, directory / "said")
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_port(process: "subprocess.Popen[bytes]", port: int, said: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{process.args!r}: did not start: {said.read_text()[-1000:]}") from None
            time.sleep(_POLL_SECONDS)


@contextmanager
def redis(directory: Path, settings: Settings) -> Iterator[Server]:
    """`settings` are those of RocketMQ's; a synced acknowledgement is `appendfsync always` here."""
    directory.mkdir(parents=True)
    port = java_broker.free_port()
    sync = "always" if settings.get("flushDiskType") == "SYNC_FLUSH" else "everysec"
    words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
    words += ["--appendonly", "yes", "--appendfsync", sync, "--save", ""]
    with _process(words, directory, port) as pid:
        yield Server("Redis", port, pid, wire="redis")


@contextmanager
def nats(directory: Path, settings: Settings) -> Iterator[Server]:
    directory.mkdir(parents=True)
    port = java_broker.free_port()
    words = ["nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory / "data")]
    with _process(words, directory, port) as pid:
        _make_stream(port)
        yield Server("NATS", port, pid, wire="nats")


def _make_stream(port: int) -> None:
    """A stream in files for every subject the load generator uses."""
    config = {"name": "bench", "subjects": ["bench", "bench.>", "bench-*"], "storage": "file", "num_replicas": 1}
    body = json.dumps(config)
    lines = (
        f'CONNECT {{"verbose":false}}\r\nSUB _INBOX.made 1\r\nPUB $JS.API.STREAM.CREATE.bench _INBOX.made {len(body)}'
    )
    with socket.create_connection(("127.0.0.1", port), timeout=_START_SECONDS) as made:
        made.sendall(f"{lines}\r\n{body}\r\n".encode())
        heard = b""
        while b"stream_create_response" not in heard or not heard.endswith(b"\r\n"):
            piece = made.recv(1 << 16)
            if not piece or b'"error"' in heard:
                raise RuntimeError(f"JetStream makes no stream: {heard[-500:]!r}")
            heard += piece


def _program_missing(program: str) -> Callable[[], str | None]:
    def missing() -> str | None:
        if compiler() is None:
            return "no C compiler: only the compiled load generator speaks its protocol"
        if shutil.which(program) is None:
            return f"{program} is not on the PATH (on Debian: apt-get install {program})"
        return None

    return missing


ROCKETMQ = Kind("RocketMQ", rocketmq, _rocketmq_missing)
REDIS = Kind("Redis", redis, _program_missing("redis-server"))
NATS = Kind("NATS", nats, _program_missing("nats-server"))
