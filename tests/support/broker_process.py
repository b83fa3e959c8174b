"""`embermq broker` as a process of its own, on free ports and with small files.

with BrokerProcess(tmp_path) as broker:
    broker.name_server      # "127.0.0.1:40123"
    broker.address          # where it listens
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.waiting import PATIENCE_SECONDS

START_SECONDS = STOP_SECONDS = PATIENCE_SECONDS
SMALL = (
    "mappedFileSizeCommitLog=16777216",
    "mappedFileSizeConsumeQueue=20000",
    "maxHashSlotNum=1000",
    "maxIndexNum=4000",
    "emberPrefaultBytesMax=0",
)


class BrokerProcess:
    """A broker that is ready when the object is made."""

    def __init__(
        self,
        place: Path,
        *arguments: str,
        name_server: str = "127.0.0.1:0",
        listen: str = "",
        sizes: Sequence[str] = SMALL,
        within: Sequence[str] = (),
    ) -> None:
        """`place` gets the store and a file `stderr`; `name_server`: where that of the process listens; `sizes`:
        settings of file sizes, the defaults when there are none; `within`: words before the command, of a program
        that becomes it."""
        self.store, self._stderr = place / "store", place / "stderr"
        command = [*within, sys.executable, "-m", "embermq.cli", "broker", "--store", str(self.store)]
        command += ["--output", "json"]
        command += ["--listen", listen or "127.0.0.1:0"]
        if "-n" not in arguments:
            command += ["--namesrv-listen", name_server]
        for one in sizes:
            command += ["--set", one]
        with open(self._stderr, "a") as stderr:
            self.process = subprocess.Popen(
                [*command, *arguments], stdout=subprocess.PIPE, stderr=stderr, stdin=subprocess.DEVNULL
            )
        self.ready = self._wait_until_ready()
        self.address: str = self.ready["listen"]
        self.name_server: str = self.ready["nameServer"]

    def _wait_until_ready(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line, deadline = b"", time.monotonic() + START_SECONDS
        poll = select.poll()  # Unlike select, it takes descriptors from 1024 on.
        poll.register(self.process.stdout, select.POLLIN)
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if not poll.poll(max(left, 0) * 1000):
                self.kill()
                raise TimeoutError(f"no broker within {START_SECONDS:g} s: {self.log}")
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            if not piece:
                raise RuntimeError(f"the broker ended with {self.process.wait(STOP_SECONDS)}: {self.log}")
            line += piece
        ready: dict[str, Any] = json.loads(line)
        return ready

    @property
    def log(self) -> str:
        return self._stderr.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(STOP_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()
