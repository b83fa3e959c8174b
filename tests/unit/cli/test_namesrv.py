"""`embermq namesrv` as a process: its ready message, its end by signals, and what keeps it from starting."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embermq.cli.app import run
from embermq.remoting import Command, Connector

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def starting(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "embermq.cli", "namesrv", "--listen", "127.0.0.1:0", *arguments]
        environment = os.environ | {"HOME": str(tmp_path / "home")}
        child = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )
        started.append(child)
        return child

    yield starting
    for child in started:
        if child.poll() is None:
            child.kill()
        child.communicate()


def ready_line(child: subprocess.Popen[str]) -> dict[str, str]:
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line, child.communicate()[1]
    found: dict[str, str] = json.loads(line)
    return found


def ask(address: str, request: Command) -> Command:
    async def whole() -> Command:
        client = Connector()
        try:
            return await client.call(address, request, 5.0)
        finally:
            await client.close()

    return asyncio.run(whole())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_ready_answers_and_stops(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    child = start("--output", "json")
    ready = ready_line(child)
    assert ready["event"] == "ready"
    assert ready["kvConfig"] == str(tmp_path / "home" / "namesrv" / "kvConfig.json")
    assert not (tmp_path / "home").exists(), "nothing is written before something has to be"
    put = Command(100, ext={"namespace": "n", "key": "k", "value": "v"})
    assert ask(ready["listen"], put).code == 0
    assert Path(ready["kvConfig"]).read_text() == '{"configTable":{"n":{"k":"v"}}}'
    child.send_signal(number)
    said, log = child.communicate(timeout=30)
    assert (child.returncode, said) == (0, "")
    events = [dict(word.partition("=")[::2] for word in line.split()) for line in log.splitlines()]
    assert [event["event"] for event in events] == ["namesrv_started", "kv_put", "namesrv_stopped"]
    assert events[0]["listen"] == ready["listen"]
    assert {event["level"] for event in events} == {"INFO"}


def test_the_ready_block_and_the_log_file(start: Start, tmp_path: Path) -> None:
    child = start("--log", str(tmp_path / "namesrv.log"))
    assert child.stdout is not None
    block = [child.stdout.readline() for _ in range(3)]
    assert block[0] == "ready\n"
    assert block[1].startswith("  listens on  127.0.0.1:")
    assert block[2].startswith("  KV config   /")
    child.terminate()
    assert child.communicate(timeout=30) == ("", "")
    assert "event=namesrv_started" in (tmp_path / "namesrv.log").read_text()


# -- what keeps it from starting ---------------------------------------------------------------------------------

Captured = pytest.CaptureFixture[str]


def refused(arguments: list[str], capsys: Captured) -> str:
    """The one line of a command that did not start."""
    assert run(["namesrv", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


def test_a_port_in_use_is_one_line(capsys: Captured, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = tmp_path / "namesrv.conf"
        config.write_text(f"listenPort={port}\nkvConfigPath={tmp_path}/kv/kvConfig.json\n")
        line = refused(["-c", str(config)], capsys)
    assert line.startswith(f"embermq: cannot listen on 127.0.0.1:{port}: ")
    assert "in use" in line
    assert not (tmp_path / "kv").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lisenPort=1", "lisenPort = '1': there is no such setting; did you mean listenPort?"),
        ("listenPort=x", "listenPort = 'x': a whole number from 0 to 65535 is expected"),
    ],
)
def test_a_config_that_cannot_be_used_is_one_line(text: str, message: str, capsys: Captured, tmp_path: Path) -> None:
    config = tmp_path / "namesrv.conf"
    config.write_text(text)
    assert refused(["-c", str(config)], capsys) == f"embermq: {config}:1: {message}"


def test_a_config_that_is_not_there_is_one_line(capsys: Captured, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.conf")
    assert refused(["-c", missing], capsys) == f"embermq: {missing}: cannot be read: No such file or directory"


@pytest.mark.parametrize("listen", ["9876", ":9876", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "[::1]", ""])
def test_an_address_that_is_none_is_one_line(listen: str, capsys: Captured) -> None:
    line = refused(["--listen", listen], capsys)
    assert line.startswith(f"embermq: --listen {listen!r}: HOST:PORT is expected")


def test_an_address_of_another_machine_is_one_line(capsys: Captured) -> None:
    assert refused(["--listen", "192.0.2.1:0"], capsys).startswith("embermq: cannot listen on 192.0.2.1:0: ")


def test_a_log_that_cannot_be_written_is_one_line(capsys: Captured, tmp_path: Path) -> None:
    line = refused(["--listen", "127.0.0.1:0", "--log", str(tmp_path)], capsys)
    assert line == f"embermq: {tmp_path}: the log cannot be opened: Is a directory"


def test_the_help_has_an_example(capsys: Captured) -> None:
    assert run(["namesrv", "--help"]) == 0
    assert "embermq namesrv --listen" in capsys.readouterr().out
