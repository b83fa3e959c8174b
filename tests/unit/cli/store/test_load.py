"""`embermq store load`."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from embermq import MessageStore, StoreSettings
from tests.support import golden
from tests.unit.cli.store.conftest import Command

ROOMY = ["--set", "emberDiskFullPercent=100"]


def test_a_dump_and_back(command: Command, directory: Path, tmp_path: Path, settings_file: Path) -> None:
    text = command("dump", directory).out
    (tmp_path / "all.jsonl").write_text(text)
    ran = command(
        "load", tmp_path / "copy", "--from", tmp_path / "all.jsonl", "--config", settings_file, "--output", "json"
    )
    assert ran.code == 0
    assert ran.document["loaded"]["messages"] == 4
    assert ran.document["loaded"]["kept_times"] is True
    assert command("dump", tmp_path / "copy").out == text


def test_standard_input_and_text_bodies(
    command: Command, tmp_path: Path, settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b'{"topic": "orders", "body": "hello", "tags": "paid", "keys": "k1"}\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert command("load", tmp_path / "new", "--from", "-", "--body", "text", "--config", settings_file).code == 0
    [line] = command("dump", tmp_path / "new", "--body", "text").lines
    assert (line["body"], line["tags"], line["keys"]) == ("hello", "paid", "k1")


def test_a_store_of_rocketmq_gets_more(
    command: Command, directory: Path, tmp_path: Path, restored: Callable[[str], Path]
) -> None:
    store = restored("retry-dlq")
    (tmp_path / "all.jsonl").write_text(command("dump", directory).out)
    ran = command("load", store, "--from", tmp_path / "all.jsonl", *ROOMY, "--output", "json")
    assert ran.code == 0, ran.err
    assert ran.document["loaded"]["kept_times"] is False
    records = [record for record in golden.manifest("retry-dlq").records if not record.blank]
    assert len(command("dump", store).lines) == len(records) + 4


@pytest.mark.parametrize(("times", "kept"), [("keep", True), ("new", False), ("auto", True)])
def test_times(command: Command, directory: Path, tmp_path: Path, settings_file: Path, times: str, kept: bool) -> None:
    text = command("dump", directory).out.replace('"storeTimestamp":1', '"storeTimestamp":')  # Long ago.
    (tmp_path / "all.jsonl").write_text(text)
    words = ["--from", str(tmp_path / "all.jsonl"), "--config", str(settings_file), "--times", times]
    ran = command("load", tmp_path / "copy", *words, "--output", "json")
    assert ran.document["loaded"]["kept_times"] is kept
    assert (command("dump", tmp_path / "copy").lines[0]["storeTimestamp"] < 10**12) is kept
    assert command("load", tmp_path / "copy", *words[:-1], "sometimes").code == 2


def test_a_broken_line_is_named_and_what_came_before_stays(
    command: Command, directory: Path, tmp_path: Path, settings_file: Path
) -> None:
    lines = command("dump", directory).out.splitlines()
    lines[2] = lines[2].replace('"flag":0', '"flag":zero')
    file = tmp_path / "all.jsonl"
    file.write_text("\n".join(lines))
    column = lines[2].index("zero") + 1
    ran = command("load", tmp_path / "copy", "--from", file, "--config", settings_file)
    ran.assert_one_line(2, f"{file}:3:{column}: no JSON: Expecting value; 2 messages before it are loaded")
    assert len(command("dump", tmp_path / "copy").lines) == 2
    file.write_text(file.read_text().replace("zero", "0"))
    assert command("load", tmp_path / "copy", "--from", file, "--start-line", "3", *ROOMY).code == 0
    assert len(command("dump", tmp_path / "copy").lines) == 4


def test_a_broken_first_line_makes_nothing(command: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{}\n")
    ran = command("load", tmp_path / "new", "--from", tmp_path / "bad.jsonl")
    ran.assert_one_line(2, "bad.jsonl:1:1: no message: the key topic is missing; nothing was loaded")
    assert not (tmp_path / "new").exists()


def test_a_first_line_no_store_takes_makes_nothing(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"queueId": 0, "topic": "../x"}\n')
    command("load", tmp_path / "new", "--from", file).assert_one_line(2, "bad.jsonl:1:16: topic '../x'", "nothing was")
    file.write_text('{"topic": "t", "storeTimestamp": 1700000000}\n')
    command("load", tmp_path / "new", "--from", file).assert_one_line(2, "bad.jsonl:1:16: ", "looks like seconds")
    assert not (tmp_path / "new").exists()


def test_a_store_that_somebody_has_open(
    command: Command, directory: Path, tmp_path: Path, settings: StoreSettings
) -> None:
    (tmp_path / "one.jsonl").write_text('{"topic": "t"}\n')
    with MessageStore.open(directory, settings):
        ran = command("load", directory, "--from", tmp_path / "one.jsonl")
        ran.assert_one_line(2, "already open for writing by process", "); close it there\n")


def test_a_file_that_is_not_there(command: Command, tmp_path: Path) -> None:
    command("load", tmp_path / "new", "--from", tmp_path / "no.jsonl").assert_one_line(2, "no.jsonl: No such file")
    command("load", tmp_path / "new", "--from", tmp_path).assert_one_line(2, "Is a directory")
    assert not (tmp_path / "new").exists()
    assert command("load", tmp_path / "new").code == 2


def test_a_text_dump_loaded_as_base64_is_noticed(command: Command, directory: Path, tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_text(command("dump", directory, "--body", "text").out)
    ran = command("load", tmp_path / "new", "--from", tmp_path / "all.jsonl")
    ran.assert_one_line(2, "give --body text if bodies are text")
    assert not (tmp_path / "new").exists()
