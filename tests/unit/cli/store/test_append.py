"""`embermq store append`, and the settings of commands that write."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from embermq import MessageStore
from tests.support import golden
from tests.unit.cli.store.conftest import Command


def test_append_and_read_back(command: Command, tmp_path: Path, settings_file: Path) -> None:
    root = tmp_path / "new"
    options = ["--tags", "paid", "--key", "k1", "--key", "k2", "--property", "region=eu", "--queue", "3"]
    ran = command("append", root, "orders", "hello", *options, "--config", settings_file, "--output", "json")
    assert ran.code == 0
    [receipt] = ran.document["receipts"]
    assert receipt["status"] == "PUT_OK"
    assert receipt["queue_offset"] == 0
    [message] = command("fetch", root, "orders", "3", "--body", "text", "--output", "json").document["messages"]
    assert message["body"] == "hello"
    assert message["keys"] == "k1 k2"
    whole = command("get", root, "--id", receipt["message_id"], "--output", "json").document["message"]
    assert whole["properties"] == {"region": "eu", "TAGS": "paid", "KEYS": "k1 k2"}
    assert whole["size"] == receipt["size_bytes"]


def test_lines_of_standard_input(
    command: Command, tmp_path: Path, settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\r\n\nfour")))
    root = tmp_path / "new"
    receipts = command("append", root, "t", "--lines", "--settings", settings_file, "--output", "json").document[
        "receipts"
    ]
    assert [receipt["queue_offset"] for receipt in receipts] == [0, 1, 2, 3]
    messages = command("fetch", root, "t", "0", "--body", "text", "--output", "json").document["messages"]
    assert [message["body"] for message in messages] == ["one", "two", "", "four"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["t", "body", "--lines"],
        ["t", "body", "--property", "novalue"],
        ["t", "b", "--queue", "-1"],
        ["t", "b", "--set", "flushDiskType"],
        ["t", "b", "--set", "flushDiskTyp=SYNC_FLUSH"],
        ["t", "b", "--set", "flushDiskType=SOMETIMES"],
        ["t", "b", "--set", "mappedFileSizeCommitLog=12"],
        ["t", "b", "--config", "/nowhere/broker.conf"],
    ],
)
def test_a_wrong_command_line_makes_nothing(command: Command, arguments: list[str], tmp_path: Path) -> None:
    ran = command("append", tmp_path / "new", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "new").exists()


def test_a_slip_in_a_setting_says_what_was_meant(command: Command, tmp_path: Path) -> None:
    ran = command("append", tmp_path / "new", "t", "b", "--set", "flushDiskTyp=SYNC_FLUSH")
    assert "there is no such setting; did you mean flushDiskType?" in ran.err


def test_set_comes_on_top_of_the_file(command: Command, tmp_path: Path, settings_file: Path) -> None:
    root = tmp_path / "new"
    words = ["--config", str(settings_file), "--set", "mappedFileSizeCommitLog=65536", "--set", "maxIndexNum=500"]
    assert command("append", root, "t", "b", "--key", "k", *words).code == 0
    [segment, *_] = sorted((root / "commitlog").iterdir())
    assert segment.stat().st_size == 65536
    [index] = (root / "index").iterdir()
    assert index.stat().st_size == 40 + 4 * 100 + 20 * 500
    [queue] = (root / "consumequeue" / "t" / "0").iterdir()
    assert queue.stat().st_size == 2000


def test_a_store_keeps_its_file_sizes(command: Command, restored: Callable[[str], Path]) -> None:
    store = restored("basic")
    before = {file.name for file in (store / "commitlog").iterdir()}
    assert command("append", store, "TopicTest", "new", "--set", "emberDiskFullPercent=100").code == 0
    sizes = {file.stat().st_size for file in (store / "consumequeue").rglob("*") if file.is_file()}
    assert sizes == {1000}
    assert before <= {file.name for file in (store / "commitlog").iterdir()}
    with MessageStore.open(store, read_only=True) as opened:
        records = [record for record in golden.manifest("basic").records if not record.blank]
        assert sum(1 for _ in opened.scan()) == len(records) + 1


def test_an_invalid_topic_is_one_line(command: Command, directory: Path) -> None:
    ran = command("append", directory, "not valid", "body")
    ran.assert_one_line(1, "topic 'not valid': character ' ' is not allowed")


def test_a_directory_that_is_no_store(command: Command, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    command("append", tmp_path, "t", "b").assert_one_line(2, "not a message store (it holds letters.txt)")
    command("append", tmp_path / "letters.txt", "t", "b").assert_one_line(2, "this is a file")
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_a_store_that_somebody_has_open(command: Command, directory: Path) -> None:
    with MessageStore.open(directory):
        command("append", directory, "t", "b").assert_one_line(2, "already open for writing", "); close it there\n")
