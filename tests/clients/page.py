"""The programs of docs/clients.md, run as they stand there but for the address of the name server."""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
USUAL_ADDRESS = "127.0.0.1:9876"
RUN_SECONDS = 120


def program(language: str, name_server: str) -> str:
    """The only block of the page in this language, for another name server."""
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert USUAL_ADDRESS in block
    return str(block).replace(USUAL_ADDRESS, name_server)


def languages() -> list[str]:
    return re.findall(r"^```(\w+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def check_prints(
    wanted: str, command: Sequence[str], place: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Runs a program until it prints a line, and ends it; it is given an input that does not end."""
    process = subprocess.Popen(
        command,
        cwd=place,
        env={**os.environ, "HOME": str(place), **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # `go run` and the like have children.
    )
    watchdog = threading.Timer(RUN_SECONDS, os.killpg, [process.pid, signal.SIGKILL])
    watchdog.start()
    assert process.stdout is not None
    assert process.stdin is not None
    said: list[str] = []
    try:
        for line in process.stdout:
            said.append(line)
            if line.strip() == wanted:
                return
        raise AssertionError(f"no line {wanted!r}: {''.join(said)[-4000:]}")
    finally:
        watchdog.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        process.stdin.close()
