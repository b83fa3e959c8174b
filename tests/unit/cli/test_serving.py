"""What servers in the foreground share: one line an event, repeated ones counted, a log that ends with them."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from embermq.cli.serving import LineFormatter, NotStarted, RepeatFilter, event_log, parse_listen, run_until_stopped


def record(text: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord("embermq.x", logging.WARNING, __file__, 1, text, values, None)


def test_a_line_stays_a_line_whatever_a_peer_calls_its_topic() -> None:
    line = LineFormatter().format(record("event=x topic=%s", "a\nevent=forged\r\x1b[31m\x7f"))
    assert line.endswith(r"level=WARNING event=x topic=a\nevent=forged\r\x1b[31m\x7f")
    assert "\n" not in line


def test_a_traceback_is_one_line_too() -> None:
    try:
        raise ValueError("why")
    except ValueError as problem:
        made = record("event=failed")
        made.exc_info = (ValueError, problem, problem.__traceback__)
    line = LineFormatter().format(made)
    assert "\n" not in line
    assert line.endswith("ValueError: why")


def test_repeated_lines_are_counted() -> None:
    now = 0.0
    repeats = RepeatFilter(lambda: now)
    shown = [repeats.filter(record("event=refused peer=%s", "a")) for _ in range(5)]
    assert shown == [True, False, False, False, False]
    assert repeats.filter(record("event=refused peer=%s", "b"))
    now = 10.0
    last = record("event=refused peer=%s", "a")
    assert repeats.filter(last)
    assert LineFormatter().format(last).endswith("event=refused peer=a repeated=4")


def test_what_is_remembered_of_lines_is_bounded() -> None:
    repeats = RepeatFilter(lambda: 0.0)
    assert all(repeats.filter(record("event=x n=%d", number)) for number in range(5000))


def test_the_log_is_there_only_meanwhile(tmp_path: Path) -> None:
    log = logging.getLogger("embermq.test_serving")
    handlers = list(logging.getLogger("embermq").handlers)
    file = tmp_path / "log"
    with event_log(file, "info"):
        log.info("event=one")
        log.debug("event=two")
    with event_log(file, "debug"):
        log.debug("event=three")
    log.warning("event=four")
    assert [line.split()[-1] for line in file.read_text().splitlines()] == ["event=one", "event=three"]
    assert logging.getLogger("embermq").handlers == handlers


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_what_runs(number: signal.Signals) -> None:
    ended = []

    async def serve(stop: asyncio.Event) -> None:
        os.kill(os.getpid(), number)
        await stop.wait()
        ended.append(number)

    run_until_stopped(serve)
    assert ended == [number]


def test_a_second_signal_ends_the_process_at_once() -> None:
    code = """
import asyncio, os, signal
from embermq.cli.serving import run_until_stopped

async def serve(stop):
    os.kill(os.getpid(), signal.SIGTERM)
    await stop.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(60)

run_until_stopped(serve)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_listen(text) == expected


@pytest.mark.parametrize("text", ["", "9876", ":1", "a:", "a:-1", "a:65536", "a:²"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(NotStarted):
        parse_listen(text)
