"""Daemons of Spark on the loopback interface: a standalone master with workers, and a Connect server.

Each is a real JVM started from the pyspark package. Ports are chosen by the system, progress is read from what the
daemons log, and all of them are ended with the `with` block, whatever happened in it.
"""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from embermq.spark.runtime.java import find_java
from tests.support.jvm import SHORT_LIVED_JVM, spark_home

_found = spark_home()
assert _found is not None, "these tests need pyspark"
SPARK_HOME = _found

# A JVM on a busy machine takes its time to start; nothing waits this long unless something is wrong.
PATIENCE_SECONDS = 180.0


def spark_environment(scratch: Path) -> dict[str, str]:
    """What a daemon or driver finds around it: our Python, our Java, the loopback interface, its own scratch space."""
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(scratch),
    }


# Becomes the command it is given, and ends with the process that started it, however that ended.
_TIED = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Daemon:
    """A JVM of Spark that is running; what it logs is kept in a file and can be waited for."""

    def __init__(self, name: str, command: list[str], scratch: Path, memory: str = "256m") -> None:
        self.name = name
        self.log = scratch / f"{name}.log"
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        # A session of its own: workers start executors, and all of them have to go in the end.
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TIED, *command],
            env={
                **spark_environment(scratch),
                "SPARK_DAEMON_MEMORY": memory,
                "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED_JVM,
            },
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"log of {name}", daemon=True)
        self._reader.start()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first line from here on that has `pattern` in it."""
        while True:
            try:
                line = self._lines.get(timeout=PATIENCE_SECONDS)
            except queue.Empty:
                raise AssertionError(f"{self.name} never said {pattern!r}: {self.log.read_text()}") from None
            if line is None:
                raise AssertionError(f"{self.name} ended: {self.log.read_text()}")
            found = re.search(pattern, line)
            if found:
                return found

    def stop(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.log.open("w") as log:
            for line in self.process.stdout:
                log.write(line)
                log.flush()
                self._lines.put(line)
        self._lines.put(None)


@contextmanager
def standalone_cluster(scratch: Path, workers: int = 2) -> Iterator[str]:
    """A master and its workers, one core each; answers the master's address."""
    scratch.mkdir(parents=True, exist_ok=True)
    spark_class = str(SPARK_HOME / "bin" / "spark-class")
    with ExitStack() as running:

        def start(name: str, *command: str) -> Daemon:
            daemon = Daemon(name, [spark_class, *command], scratch)
            running.callback(daemon.stop)
            return daemon

        loopback = ("--host", "127.0.0.1", "--webui-port", "0")
        master = start("master", "org.apache.spark.deploy.master.Master", *loopback, "--port", "0")
        address = master.wait_for(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")[1]
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(scratch / "work"))
        started = [
            start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *loopback, *size, address)
            for number in range(workers)
        ]
        for worker in started:
            worker.wait_for(r"Successfully registered with master")
        yield address


@contextmanager
def connect_server(scratch: Path) -> Iterator[str]:
    """A Spark Connect server with two local cores; answers its address."""
    scratch.mkdir(parents=True, exist_ok=True)
    settings = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.log.level": "INFO",
    }
    submit = str(SPARK_HOME / "bin" / "spark-submit")
    command = [submit, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    daemon = Daemon("connect", [*command, "spark-internal"], scratch, memory="1g")
    try:
        port = daemon.wait_for(r"Spark Connect server started at: \S*?:(\d+)")[1]
        yield f"sc://127.0.0.1:{port}"
    finally:
        daemon.stop()
