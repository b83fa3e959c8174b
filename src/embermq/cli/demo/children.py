"""Processes of the demo seen from outside: started, listened to line by line, ended or killed.

Their standard input ends when this process does, and so do they. What they say is taken by a thread each.
"""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from embermq.cli.demo.settings import PROPERTIES, READY_LINE
from embermq.errors import EmberError

END_SECONDS = 30.0


class Child:
    """A process that reports in lines; `take` gets each, on a thread of its own."""

    def __init__(self, module: str, arguments: list[str], take: Callable[[str], None], log: Path) -> None:
        self.name, self._log = module.rpartition(".")[2], log
        self.has_started = False  # It is connected, as it said.
        command = [sys.executable, "-m", module, *arguments]
        with open(log, "ab") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        self._reader = threading.Thread(target=self._read, args=(take,), name=f"embermq-demo-{self.name}")
        self._reader.start()

    def _read(self, take: Callable[[str], None]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == READY_LINE:
                self.has_started = True
            elif line.endswith("\n"):  # The last one may be cut off.
                take(line)

    @property
    def pid(self) -> int:
        return self._process.pid

    def go(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # It has ended by itself; `check_alive` says so.
            self._process.stdin.write("go\n")
            self._process.stdin.flush()

    def check_alive(self) -> None:
        """EmberError with its last words if it has ended by itself."""
        code = self._process.poll()
        if code is not None:
            words = self._log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise EmberError(f"the demo's {self.name} (process {self.pid}) ended by itself with code {code}: {words}")

    def end(self, number: int | None = None) -> None:
        """Let it end: by the end of its input, or by a signal. What it reported before is taken."""
        if number is not None and self._process.poll() is None:
            self._process.send_signal(number)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(None if kind is None else signal.SIGKILL)


class BrokerChild:
    """`embermq broker` on a store. Once `is_ready`, `ready` is what it said of itself."""

    def __init__(self, store: Path, log: Path, listen: str = "127.0.0.1:0", name_server: str = "127.0.0.1:0") -> None:
        self.ready: dict[str, Any] = {}
        arguments = ["broker", "--store", str(store), "--listen", listen, "--namesrv-listen", name_server]
        arguments += ["--output", "json", "--log-level", "warning", "--set", "emberFastPort=false"]
        for name, value in PROPERTIES.items():
            arguments += ["--set", f"{name}={value}"]
        self._child = Child("embermq.cli", arguments, self._take, log)

    def _take(self, line: str) -> None:
        self.ready = json.loads(line)

    def is_ready(self) -> bool:
        """EmberError if it has ended by itself."""
        self._child.check_alive()
        return bool(self.ready)

    @property
    def address(self) -> str:
        return str(self.ready["listen"])

    @property
    def name_server(self) -> str:
        return str(self.ready["nameServer"])

    @property
    def pid(self) -> int:
        return self._child.pid

    def kill(self) -> None:
        self._child.end(signal.SIGKILL)

    def stop(self) -> None:
        self._child.end(signal.SIGTERM)
