"""The command line as a whole: exit codes, where errors go, and that modules load lazily."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import embermq
from embermq.cli import app as app_module
from embermq.cli.app import run
from embermq.errors import StoreError

Captured = pytest.CaptureFixture[str]


def test_version(capsys: Captured) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"embermq, version {embermq.__version__}\n"


def test_help_names_every_noun(capsys: Captured) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(noun in shown for noun in app_module.NOUNS)


@pytest.mark.parametrize("arguments", [["no-such-noun"], ["--no-such-option"], ["settings", "explain"]])
def test_a_wrong_command_line_is_2(arguments: list[str], capsys: Captured) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("embermq: ")
    assert "Error:" not in captured.err


@pytest.mark.parametrize("arguments", [[], ["store"], ["spark"]])
def test_a_group_without_a_command_shows_its_help(arguments: list[str], capsys: Captured) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.count("Usage:") == 1
    assert "Commands:" in captured.err
    assert "embermq: " not in captured.err


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setattr(app_module.Nouns, "get_command", lambda *_: failing)
    return lambda: run(["failing"])


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (StoreError("it is broken"), 1, "embermq: it is broken\n"),
        (
            PermissionError(13, "Permission denied", "/somewhere"),
            1,
            "embermq: /somewhere: Permission denied\n",
        ),
        (OSError(28, "No space left on device"), 1, "embermq: No space left on device\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_code(
    error: BaseException, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert fail_with(error, monkeypatch)() == code
    captured = capsys.readouterr()
    assert captured.err.lstrip("\n") == line
    assert captured.out == ""


def test_a_mistake_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        fail_with(ZeroDivisionError(), monkeypatch)()


def test_help_does_not_load_what_it_does_not_need() -> None:
    script = (
        "import sys; from embermq.cli.app import run; run(['--help']);"
        "print([name for name in ('numba', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def test_a_reader_that_goes_away_is_no_error_worth_a_traceback() -> None:
    command = [sys.executable, "-c", "from embermq.cli.app import main; main()", "settings", "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 1


def run_with(redirections: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """The command under a shell that closes streams."""
    command = shlex.join([sys.executable, "-m", "embermq.cli", *map(str, words)])
    return subprocess.run(["sh", "-c", f"{command} {redirections}"], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [["settings", "list"], ["store", "append", "STORE", "t", "x"], ["--help"]])
def test_closed_output_is_noticed_before_anything_is_done(words: list[str], tmp_path: Path) -> None:
    done = run_with(">&-", *(tmp_path / "new" if word == "STORE" else word for word in words))
    assert done.returncode == 2
    assert done.stderr == "embermq: standard output is closed; use >/dev/null to discard the answer\n"
    assert not (tmp_path / "new").exists()


@pytest.mark.slow(2)
def test_closed_errors_are_nobodys_loss(tmp_path: Path) -> None:
    small = ["--set", "emberDiskFullPercent=100", "--set", "mappedFileSizeCommitLog=65536"]
    done = run_with("2>&-", "store", "append", tmp_path / "new", "t", "x", *small)
    assert (done.returncode, "PUT_OK" in done.stdout) == (0, True)
    done = run_with("2>&-", "store", "dump", tmp_path / "new", "--output", "json")
    assert (done.returncode, json.loads(done.stdout)["topic"]) == (0, "t")
    done = run_with("2>&-", "store", "dump", tmp_path / "nothing")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


@pytest.mark.parametrize("words", [["append", "STORE", "t"], ["append", "STORE", "t", "--lines"], ["load", "STORE"]])
@pytest.mark.slow
def test_closed_input_is_noticed_where_it_is_needed(words: list[str], tmp_path: Path) -> None:
    more = ["--from", "-"] if words[0] == "load" else []
    done = run_with("<&-", "store", *(tmp_path / "new" if word == "STORE" else word for word in words), *more)
    assert (done.returncode, done.stderr) == (2, "embermq: standard input is closed: there is nothing to read\n")
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_terminal_without_our_characters_is_no_reason_to_fail() -> None:
    command = [sys.executable, "-m", "embermq.cli", "demo", "--messages", "100", "--no-spark"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert b"? Every acknowledged message is there" in done.stdout
