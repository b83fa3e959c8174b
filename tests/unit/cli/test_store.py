"""`embermq store` over real directories."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.cli.app import run

Captured = pytest.CaptureFixture[str]
SMALL = StoreSettings(
    segment_bytes=1 << 20,
    queue_file_bytes=2000,
    index_slots_max=100,
    index_entries_max=400,
    disk_full_percent=100,
    disk_clean_percent=100,
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A store with three orders: 3 messages in queue 0, 1 in queue 1."""
    root = tmp_path / "store"
    with MessageStore.open(root, SMALL) as store:
        for number, tag in enumerate(("created", "paid", "created")):
            keys = [f"order-{number}", "all"]
            store.append(Message("orders", b"body %d" % number, tags=tag, keys=keys, properties={"region": "eu"}))
        store.append(Message("orders", b"\xff\x00", queue_id=1))
    return root


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    file = tmp_path / "broker.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in SMALL.to_properties(changed_only=True).items()))
    return file


def answer(capsys: Captured, *arguments: str | Path, code: int = 0) -> Any:
    assert run(["store", *map(str, arguments), "--output", "json"]) == code
    return json.loads(capsys.readouterr().out)


def test_append_and_read_back(capsys: Captured, tmp_path: Path, settings_file: Path) -> None:
    root = tmp_path / "new"
    options = ["--tags", "paid", "--key", "k1", "--key", "k2", "--property", "region=eu", "--queue", "3"]
    appended = answer(capsys, "append", root, "orders", "hello", *options, "--settings", settings_file)
    [receipt] = appended["receipts"]
    assert receipt["status"] == "PUT_OK"
    assert receipt["queue_offset"] == 0
    [message] = answer(capsys, "fetch", root, "orders", "3")["messages"]
    assert message["body"] == "hello"
    assert message["keys"] == ["k1", "k2"]
    whole = answer(capsys, "get", root, receipt["message_id"])["message"]
    assert whole["properties"] == {"region": "eu", "TAGS": "paid", "KEYS": "k1 k2"}
    assert whole["size_bytes"] == receipt["size_bytes"]


def test_append_lines_of_standard_input(
    capsys: Captured, tmp_path: Path, settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = io.TextIOWrapper(io.BytesIO(b"one\ntwo\r\n\nfour"))
    monkeypatch.setattr("sys.stdin", lines)
    root = tmp_path / "new"
    receipts = answer(capsys, "append", root, "t", "--lines", "--settings", settings_file)["receipts"]
    assert [receipt["queue_offset"] for receipt in receipts] == [0, 1, 2, 3]
    messages = answer(capsys, "fetch", root, "t", "0")["messages"]
    assert [message["body"] for message in messages] == ["one", "two", "", "four"]


@pytest.mark.parametrize(
    "arguments", [["t", "body", "--lines"], ["t", "body", "--property", "novalue"], ["t", "b", "--queue", "-1"]]
)
def test_append_refuses_a_wrong_command_line(arguments: list[str], tmp_path: Path) -> None:
    assert run(["store", "append", str(tmp_path / "new"), *arguments]) == 2
    assert not (tmp_path / "new").exists()


def test_append_to_an_invalid_topic_is_one_line(capsys: Captured, directory: Path) -> None:
    assert run(["store", "append", str(directory), "not valid", "body"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("embermq: topic 'not valid': character ' ' is not allowed")


def test_fetch_from_an_offset_with_tags(capsys: Captured, directory: Path) -> None:
    shown = answer(capsys, "fetch", directory, "orders", "0", "--offset", "1", "--tags", "created")
    assert [message["body"] for message in shown["messages"]] == ["body 2"]
    assert shown["queue"] == {"min_offset": 0, "max_offset": 3, "next_offset": 3}


def test_fetch_shows_as_many_as_asked(capsys: Captured, directory: Path) -> None:
    shown = answer(capsys, "fetch", directory, "orders", "0", "--count", "2")
    assert [message["queue_offset"] for message in shown["messages"]] == [0, 1]
    assert shown["queue"]["next_offset"] == 2


def test_fetch_from_a_time(capsys: Captured, directory: Path) -> None:
    [first, *_] = answer(capsys, "fetch", directory, "orders", "0")["messages"]
    shown = answer(capsys, "fetch", directory, "orders", "0", "--offset", "2020-01-01")
    assert shown["messages"][0]["message_id"] == first["message_id"]
    assert run(["store", "fetch", str(directory), "orders", "0", "--offset", "yesterday"]) == 2


def test_bodies_that_are_no_text_are_shown_in_hexadecimal(capsys: Captured, directory: Path) -> None:
    [message] = answer(capsys, "fetch", directory, "orders", "1")["messages"]
    assert message["body"] == {"hex": "ff00"}
    assert run(["store", "fetch", str(directory), "orders", "1"]) == 0
    assert "(2 B) ff00" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(["nothing", "0"], "topic 'nothing' is not in"), (["orders", "7"], "has no queue 7; queues: 0, 1")],
)
def test_fetch_from_a_queue_that_is_not_there_says_what_is(
    capsys: Captured, directory: Path, arguments: list[str], reason: str
) -> None:
    assert run(["store", "fetch", str(directory), *arguments]) == 1
    assert reason in capsys.readouterr().err


def test_find_by_key(capsys: Captured, directory: Path) -> None:
    found = answer(capsys, "find", directory, "orders", "order-1")
    assert [message["body"] for message in found["messages"]] == ["body 1"]
    assert found["query"]["seconds"] >= 0
    assert len(answer(capsys, "find", directory, "orders", "all")["messages"]) == 3
    assert len(answer(capsys, "find", directory, "orders", "all", "--limit", "2")["messages"]) == 2
    assert answer(capsys, "find", directory, "orders", "all", "--end", "2020-01-01", code=1)["messages"] == []


def test_a_key_nobody_used_is_said_and_is_exit_code_1(capsys: Captured, directory: Path) -> None:
    assert run(["store", "find", str(directory), "orders", "nobody"]) == 1
    assert "no message of topic 'orders' has the key 'nobody'" in capsys.readouterr().out


def test_get_the_body_alone(capsysbinary: pytest.CaptureFixture[bytes], directory: Path) -> None:
    with MessageStore.open(directory, read_only=True) as store:
        [message] = store.fetch("orders", 1, 0).messages
    assert run(["store", "get", str(directory), message.message_id, "--body"]) == 0
    assert capsysbinary.readouterr().out == b"\xff\x00"


def test_a_body_that_does_not_decompress_is_shown_as_stored(
    capsys: Captured, tmp_path: Path, settings_file: Path
) -> None:
    root = tmp_path / "new"
    with MessageStore.open(root, SMALL) as store:
        receipt = store.append(Message("t", b"not zlib", sys_flag=1))
    [message] = answer(capsys, "fetch", root, "t", "0")["messages"]
    assert message["body"] == "not zlib"
    assert answer(capsys, "get", root, receipt.message_id)["message"]["body"] == "not zlib"
    assert run(["store", "get", str(root), receipt.message_id, "--body"]) == 1
    assert "does not decompress" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("message_id", "code", "reason"),
    [
        ("nonsense", 2, "is not a message id"),
        ("7F00000100002A9F" + "0" * 15 + "7", 1, "there is no message"),
        ("0A00000100002A9F" + "0" * 16, 2, "is an id of the store at 10.0.0.1:10911"),
    ],
)
def test_get_what_is_not_there(capsys: Captured, directory: Path, message_id: str, code: int, reason: str) -> None:
    assert run(["store", "get", str(directory), message_id]) == code
    assert reason in capsys.readouterr().err


def test_info(capsys: Captured, directory: Path) -> None:
    shown = answer(capsys, "info", directory, "--runtime")
    [topic] = shown["topics"]
    assert (topic["topic"], topic["queues"], topic["messages"]) == ("orders", 2, 4)
    assert shown["log"]["min_physical_offset"] == 0
    assert shown["log"]["log_bytes"] == shown["log"]["max_physical_offset"] > 0
    assert shown["state"]["clean"] is True
    assert shown["start"]["reason"] == "closed cleanly"
    assert shown["start"]["derived"] == "keep"
    assert shown["runtime"]["commitLogMaxOffset"] == str(shown["log"]["max_physical_offset"])


def test_reading_changes_nothing(capsys: Captured, directory: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    for arguments in (["info"], ["fetch", "orders", "0"], ["find", "orders", "all"]):
        assert run(["store", arguments[0], str(directory), *arguments[1:]]) == 0
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("*")} == before


@pytest.mark.parametrize("command", ["info", "fetch", "find", "get"])
def test_a_directory_that_is_no_store_is_one_line(capsys: Captured, tmp_path: Path, command: str) -> None:
    rest = {"info": [], "fetch": ["t", "0"], "find": ["t", "k"], "get": ["0" * 32]}[command]
    assert run(["store", command, str(tmp_path / "missing"), *rest]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("embermq: ")
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "missing").exists()
