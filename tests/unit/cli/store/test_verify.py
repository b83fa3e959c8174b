"""`embermq store verify`."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from tests.support import golden
from tests.unit.cli.store.conftest import Command


def test_a_sound_store(command: Command, directory: Path) -> None:
    before = golden.tree_state(directory)
    ran = command("verify", directory)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == "sound"
    assert "findings: none" in ran.out
    assert golden.tree_state(directory) == before  # Not even a lock.


@pytest.mark.parametrize("options", [[], ["--fast"]])
def test_json(command: Command, directory: Path, options: list[str]) -> None:
    document = command("verify", directory, "--output", "json", *options).document
    assert document["sound"] is True
    assert document["findings"] == []
    store = document["store"]
    assert store["mode"] == ("structure" if options else "everything")
    assert (store["queues"], store["queue_entries"], store["index_entries"]) == (2, 4, 6)
    assert store.get("records") == (None if options else 4)
    assert store["clean"] is True
    assert store["live"] is False


@pytest.mark.parametrize("name", golden.ALL_STORES)
@pytest.mark.slow
def test_stores_of_rocketmq_are_sound(command: Command, restored: Callable[[str], Path], name: str) -> None:
    for options in ([], ["--fast"]):
        document = command("verify", restored(name), "--output", "json", *options).document
        assert document["sound"] is True, document["findings"]
        assert all(one["severity"] == "note" for one in document["findings"])


def test_a_fault_names_file_place_and_remedy(command: Command, directory: Path) -> None:
    second = command("dump", directory).lines[1]["physicalOffset"]
    file = next((directory / "commitlog").iterdir())
    raw = bytearray(file.read_bytes())
    raw[second + 90] ^= 0xFF
    file.write_bytes(raw)
    ran = command("verify", directory, "--output", "json")
    assert ran.code == 1
    assert ran.document["sound"] is False
    (fault,) = [one for one in ran.document["findings"] if one["family"] == "commitlog"]
    assert fault["severity"] == "fault"
    assert fault["file"] == f"commitlog/{file.name}"
    assert (fault["physical_offset"], fault["byte_offset"]) == (second, second)
    assert fault["fault"].startswith("bad crc: ")
    assert f"embermq store salvage {directory} --into NEW" in fault["remedy"]
    text = command("verify", directory)
    assert text.code == 1
    assert "faults: 1" in text.out


@pytest.mark.slow
def test_a_running_store(command: Command, tmp_path: Path, settings: StoreSettings) -> None:
    with MessageStore.open(tmp_path / "store", settings) as store:
        for number in range(50):
            store.append(Message("orders", b"%d" % number, keys=[f"k{number}"]))
        document = command("verify", tmp_path / "store", "--output", "json").document
        assert document["sound"] is True, document["findings"]
        assert document["store"]["live"] is True
        assert document["findings"] == []


def test_bad_input(command: Command, tmp_path: Path) -> None:
    command("verify", tmp_path / "none").assert_one_line(2, str(tmp_path / "none"), "no such directory")
    (tmp_path / "file").write_text("x")
    command("verify", tmp_path / "file").assert_one_line(2, "this is a file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    command("verify", tmp_path / "other").assert_one_line(2, "not a message store", "notes.txt")
    (tmp_path / "empty").mkdir()
    command("verify", tmp_path / "empty").assert_one_line(2, "empty")


@pytest.mark.parametrize("size", [0, 1, 8, 39])
def test_index_files_that_were_cut(command: Command, restored: Callable[[str], Path], size: int) -> None:
    """Every verb that reads has an answer."""
    store = restored("index")
    for file in (store / "index").iterdir():
        os.truncate(file, size)
    ran = command("verify", store, "--output", "json")
    assert ran.code == 1
    said = [finding for finding in ran.document["findings"] if finding["family"] == "index"]
    assert [finding["fault"].split(";")[0] for finding in said] == [f"the file is {size} bytes long"] * 3
    for words in (["info"], ["find", "--topic", "T", "--key", "k"], ["trace", "--key", "k"], ["clean", "--dry-run"]):
        ran = command(words[0], store, *words[1:])
        assert ran.code in (0, 1), ran.err
        assert "Traceback" not in ran.out + ran.err


def test_one_index_file_that_was_cut(command: Command, restored: Callable[[str], Path]) -> None:
    store = restored("index")
    first, *others = sorted((store / "index").iterdir())
    os.truncate(first, 100)
    said = command("verify", store, "--output", "json").document["findings"]
    assert [one["fault"] for one in said if one["file"] == f"index/{first.name}"] == [
        f"the file is 100 bytes long; it should be {others[0].stat().st_size}"
    ]
    assert not [one for one in said if "420000040" in one["fault"]]


def test_every_finding_is_saved_as_a_line(command: Command, directory: Path, tmp_path: Path) -> None:
    next((directory / "index").iterdir()).write_bytes(b"")
    target = tmp_path / "findings.jsonl"
    target.write_text("older findings")
    ran = command("verify", directory, "--save", target, "--output", "json")
    assert ran.document["saved"] == [str(target)]
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert lines == ran.document["findings"] != []
    assert f"saved: {target}" in command("verify", directory, "--save", target).out
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_place_where_nothing_can_be_saved_is_refused_first(command: Command, directory: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    for name, problem in (
        ("findings.csv", "ends in .jsonl"),
        ("folder.jsonl", "this is a directory"),
        ("missing/findings.jsonl", "not a directory that can be written"),
    ):
        ran = command("verify", directory, "--save", tmp_path / name)
        assert ran.code == 2
        assert problem in ran.err
        assert "queue entries" not in ran.out
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == []
