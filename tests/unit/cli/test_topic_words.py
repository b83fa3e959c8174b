"""The topic is an argument or an option, alike in every verb that has room for both."""

import json
from pathlib import Path
from typing import Any

import click
import pytest

from embermq import Message, MessageStore
from embermq.cli.app import app, run
from embermq.cli.topic_words import TopicArgument, TopicCommand
from tests.unit.cli.store.conftest import SMALL
from tests.unit.cli.test_help import commands

# Any number of directories before it, or an id in its place: these have the option alone.
OPTION_ONLY = {"message get", "spark pipeline", "spark replay", "spark stats"}


def found(name: str) -> click.Command:
    noun, verb = name.split()
    context = click.Context(app)
    group = app.get_command(context, noun)
    assert isinstance(group, click.Group)
    command = group.get_command(context, verb)
    assert command is not None
    return command


@pytest.mark.parametrize("name", commands())
def test_a_topic_is_taken_in_both_forms(name: str) -> None:
    command = found(name)
    has_option = any("--topic" in parameter.opts for parameter in command.params)
    has_argument = any(
        isinstance(parameter, click.Argument) and "TOPIC" in (parameter.metavar or parameter.name or "").upper()
        for parameter in command.params
    )
    if name in OPTION_ONLY:
        assert has_option
        assert not has_argument
        return
    assert has_option == has_argument
    if has_option:
        assert isinstance(command, TopicCommand)
        assert any(isinstance(parameter, TopicArgument) for parameter in command.params)
        assert "--topic TOPIC" in command.get_help(click.Context(command))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with MessageStore.open(root, SMALL) as opened:
        opened.append(Message("orders", b"one", keys=["k-1"]))
        opened.append(Message("returns", b"two", keys=["k-1"]))
    return root


def asked(capsys: pytest.CaptureFixture[str], verb: str, *words: str) -> Any:
    code = run(["store", verb, "--output", "json", *words])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)


@pytest.mark.parametrize(
    ("verb", "rest"),
    [("fetch", ["0"]), ("find", ["k-1"]), ("find", ["--key", "k-1"]), ("trace", ["--key", "k-1"])],
)
def test_both_forms_answer_the_same(
    verb: str, rest: list[str], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_argument = asked(capsys, verb, str(store), "orders", *rest)["messages"]
    assert len(by_argument) == 1
    for words in (["--topic", "orders", *rest], [*rest, "--topic=orders"]):
        assert asked(capsys, verb, str(store), *words)["messages"] == by_argument


def test_dump_append_and_drop(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topics = []
    for words in (["returns"], ["--topic", "returns"], []):
        assert run(["store", "dump", str(store), *words]) == 0
        topics.append([json.loads(line)["topic"] for line in capsys.readouterr().out.splitlines()])
    assert topics == [["returns"], ["returns"], ["orders", "returns"]]
    asked(capsys, "append", str(store), "three", "--topic", "orders")
    asked(capsys, "append", str(store), "--topic", "orders", "--", "--topic")
    shown = asked(capsys, "fetch", str(store), "orders", "0", "--body", "text")["messages"]
    assert [one["body"] for one in shown] == ["one", "three", "--topic"]
    assert asked(capsys, "drop", str(store), "--topic", "orders", "--dry-run")["dropped"]["messages"] == 3


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["fetch", "DIR", "0"], "Missing argument 'QUEUE'"),
        (["fetch", "DIR", "orders", "0", "--topic", "orders"], "QUEUE"),
        (["drop", "DIR"], "Missing argument 'TOPIC'"),
        (["drop", "DIR", "--topic", ""], "Missing option '--topic'"),
        (["find", "DIR", "--key", "k-1"], "say what to look for"),
    ],
)
def test_a_topic_that_is_missing_or_given_twice(
    words: list[str], reason: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["store", *(str(store) if word == "DIR" else word for word in words)]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("embermq: ")
    assert reason in line
