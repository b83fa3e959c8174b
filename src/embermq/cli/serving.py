"""What commands that stay in the foreground share: their log, their end by signals, and a start that fails.

    with event_log(file, level):
        run_until_stopped(serve)

The log has one line for an event: time, level, and `event=... key=value`. An event that repeats within ten seconds is
counted, and the count is in the next line of its kind. The first SIGTERM or SIGINT ends `serve` by its event, a second
one the process at once. What keeps a server from starting is one line and exit code 2.
"""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from embermq.errors import EmberError

EXIT_NOT_STARTED = 2
LEVELS = ("debug", "info", "warning", "error")
REPEAT_SECONDS = 10.0
REPEATS_KEPT_MAX = 1000

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | {10: "\\n", 13: "\\r", 9: "\\t"}


class NotStarted(EmberError):
    """A server that could not be started; the text is one line."""


class LineFormatter(logging.Formatter):
    """One line for an event, however the values in it look; times are UTC."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        text = record.getMessage()
        if record.exc_info:
            text = f"{text} error={self.formatException(record.exc_info)}"
        repeated = getattr(record, "repeated", 0)
        count = f" repeated={repeated}" if repeated else ""
        head = f"time={moment}.{int(record.msecs):03d}Z level={record.levelname}"
        return f"{head} {text.translate(_CONTROL)}{count}"


class RepeatFilter(logging.Filter):
    """Lets the same line through once in ten seconds, with the number of those held back since."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._shown: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text, now = record.getMessage(), self._monotonic()
        at, held_back = self._shown.get(text, (-REPEAT_SECONDS, 0))
        if now - at < REPEAT_SECONDS:
            self._shown[text] = (at, held_back + 1)
            return False
        if len(self._shown) >= REPEATS_KEPT_MAX:
            self._shown.clear()
        self._shown[text] = (now, 0)
        record.repeated = held_back
        return True


@contextmanager
def event_log(file: Path | None, level: str) -> Iterator[None]:
    """The program's log on standard error or at the end of a file; NotStarted if that cannot be opened."""
    try:
        handler = logging.StreamHandler(sys.stderr) if file is None else logging.FileHandler(file, encoding="utf-8")
    except OSError as problem:
        raise NotStarted(f"{file}: the log cannot be opened: {problem.strerror or problem}") from None
    handler.setFormatter(LineFormatter())
    handler.addFilter(RepeatFilter())
    logger = logging.getLogger("embermq")
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
        handler.close()


def run_until_stopped(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `serve` on a loop of its own; the event is set when a signal asks for the end."""

    async def whole() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def asked(number: signal.Signals) -> None:
            if stop.is_set():
                os._exit(128 + number)  # At once: nothing more is written, waited for or closed.
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, asked, number)
        await serve(stop)

    asyncio.run(whole())


def leave_not_started(problem: Exception) -> None:
    """Say in one line why a server did not start, and leave with code 2."""
    click.echo(f"embermq: {problem}", err=True)
    click.get_current_context().exit(EXIT_NOT_STARTED)


def parse_listen(text: str, option: str = "--listen") -> tuple[str, int]:
    """`127.0.0.1:9876`, `localhost:0` or `[::1]:9876`; NotStarted for anything else."""
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise NotStarted(f"{option} {text!r}: HOST:PORT is expected, for example 127.0.0.1:9876 or [::1]:9876")
    return host, int(port)
