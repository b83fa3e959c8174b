"""Apache Kafka and Spark's own source for it: one broker on loopback, and a Spark session in a process of its own.

The broker runs with its defaults (KRaft, one node); its data lies in a directory the caller gives and removes. The
session has the settings ours has and is asked one thing at a time, so it rests while ours is measured. Its jars are
its own: no jar comes near the session of the benchmark.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.peers.kafka_jars import jars_folder, source_jars
from tests.interop.reference import ReferenceFailed, ReferenceMissing

Answer = dict[str, Any]

_START_SECONDS_MAX = 120.0
_STOP_SECONDS_MAX = 60.0
_POLL_SECONDS = 0.1
_JVM = ("-Xms1g", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
# The broker ends when we do, whatever ends us: its shell waits for the end of its own standard input.
_ENDS_WITH_INPUT = ("sh", "-c", '"$@" & broker=$!; read -r nothing; kill "$broker"; wait "$broker"', "sh")
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def missing() -> str | None:
    """Why this peer cannot be measured here, or None when it can. Fetches it the first time."""
    try:
        source_jars()
    except ReferenceMissing as why:
        return str(why)
    return None


class KafkaPeer:
    """A running broker and a Spark session beside it; leaving the `with` block ends both."""

    def __init__(self, directory: Path, *, partitions: int, master: str, driver_memory: str) -> None:
        directory.mkdir(parents=True)
        self._data, self._said = directory / "data", directory / "said.txt"
        ports = _free_ports(2)
        self.servers = f"127.0.0.1:{ports[0]}"
        settings = directory / "server.properties"
        settings.write_text(
            _SETTINGS.format(broker=ports[0], controller=ports[1], data=self._data, partitions=partitions)
        )
        self._format(settings)
        with self._said.open("ab") as said:
            self._broker = subprocess.Popen(
                [*_ENDS_WITH_INPUT, *_java("kafka.Kafka", settings)],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            self._session: subprocess.Popen[bytes] | None = None
            try:
                self._wait_for_port(ports[0])
                jars = ",".join(map(str, source_jars()))
                words = [sys.executable, "-m", "bench.peers.kafka_session", self.servers, jars, master, driver_memory]
                self._session = subprocess.Popen(
                    words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    env=_without_spark(os.environ),
                    start_new_session=True,
                )
                assert self._hear()["is"] == "ready"
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fill(self, topic: str, store: Path) -> int:
        """The rows of a store, as messages of one topic; how many there are now. Pages are written out."""
        rows = int(self._ask({"do": "fill", "topic": topic, "store": str(store)})["rows"])
        for file in sorted(self._data.glob("*/*.log")):
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return rows

    def seconds(self, topic: str, columns: Sequence[str] = ()) -> float:
        """The time of a query for all rows of a topic; of all columns unless some are named."""
        return float(self._ask({"do": "read", "topic": topic, "columns": list(columns)})["seconds"])

    def answer(self, topic: str, columns: Sequence[str]) -> tuple[str, int]:
        """The hash of all rows, and how many there are."""
        answer = self._ask({"do": "answer", "topic": topic, "columns": list(columns)})
        return answer["answer"], int(answer["rows"])

    def close(self) -> None:
        for process in (self._session, self._broker):
            if process is None:
                continue
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(_STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _ask(self, question: Answer) -> Answer:
        assert self._session is not None
        assert self._session.stdin is not None
        self._session.stdin.write(json.dumps(question).encode() + b"\n")
        self._session.stdin.flush()
        return self._hear()

    def _hear(self) -> Answer:
        assert self._session is not None
        assert self._session.stdout is not None
        line = self._session.stdout.readline()
        if not line:
            raise ReferenceFailed(f"the session beside Kafka ended: {self._last_words()}")
        answer: Answer = json.loads(line)
        return answer

    def _format(self, settings: Path) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Maven's folder holds a tool for this: a broker does not start on a directory without a cluster's id.
        command = _java("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "--config", settings)
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_START_SECONDS_MAX, check=False)
        if ran.returncode != 0:
            raise ReferenceFailed(f"Kafka's directory could not be made: {ran.stdout}{ran.stderr}"[-2000:])

    def _wait_for_port(self, port: int) -> None:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while True:
            if self._broker.poll() is not None or time.monotonic() > deadline:
                raise ReferenceFailed(f"Kafka did not start: {self._last_words()}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(_POLL_SECONDS)

    def _last_words(self) -> str:
        return self._said.read_text(errors="replace")[-2000:]


def _java(main: str, *words: str | Path) -> list[str]:
    return ["java", *_JVM, "-cp", f"{jars_folder()}/*", main, *map(str, words)]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _without_spark(environment: "os._Environ[str]") -> dict[str, str]:
    """Without what our session's gateway left behind: the other one is to start a JVM of its own."""
    return {name: value for name, value in environment.items() if not name.startswith("PYSPARK_GATEWAY")}
