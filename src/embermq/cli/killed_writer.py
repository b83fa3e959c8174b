"""The demo's writing process seen from outside: start it, listen to it, kill it with SIGKILL.

What it reports is taken for its word: a message counts as acknowledged once its line is complete.
Not thread-safe.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from embermq.errors import EmberError

SILENCE_SECONDS_MAX = 60.0
_READ_BYTES = 4096


class Acknowledged(NamedTuple):
    """What the writer said about one message."""

    message_id: str
    queue_offset: int


class KilledWriter:
    """A child process that appends orders until it is killed, at the latest when the block ends."""

    def __init__(self, directory: Path, count: int) -> None:
        self.acknowledged: dict[int, Acknowledged] = {}  # by number of the event
        self.seconds = 0.0  # from the first report to the kill
        command = [sys.executable, "-m", "embermq.cli.order_writer", str(directory), str(count)]
        # Its standard input ends when we do, and so does it.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._descriptor = self._process.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        self._began: float | None = None
        self._incomplete = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def listen(self, enough: int, seconds_max: float, progress: Callable[[int], None]) -> None:
        """Take reports until `enough` messages are acknowledged or the time is over."""
        while len(self.acknowledged) < enough and self._writing_seconds() < seconds_max:
            if not self._poll.poll(SILENCE_SECONDS_MAX * 1000):
                raise EmberError(f"the writing process was silent for {SILENCE_SECONDS_MAX:.0f} s")
            if not self._read():
                raise EmberError(f"the writing process ended by itself with code {self._process.wait()}")
            progress(len(self.acknowledged))

    def kill(self) -> None:
        """End it at once, and take what it had reported before."""
        if self._process.stdin is None or self._process.stdin.closed:
            return
        self._process.send_signal(signal.SIGKILL)  # Does nothing if it has ended already.
        self.seconds = self._writing_seconds()
        while self._read():
            pass
        self._process.communicate()

    def _writing_seconds(self) -> float:
        return 0.0 if self._began is None else time.monotonic() - self._began

    def _read(self) -> bool:
        """Take what can be read now; False at the end."""
        chunk = os.read(self._descriptor, _READ_BYTES)
        if self._began is None:
            self._began = time.monotonic()
        *lines, self._incomplete = (self._incomplete + chunk).split(b"\n")
        for line in lines:
            number, message_id, queue_offset = line.decode().split()
            self.acknowledged[int(number)] = Acknowledged(message_id, int(queue_offset))
        return bool(chunk)
