"""`embermq store salvage`."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq import MessageStore, StoreSettings
from embermq.files import RealFiles
from tests.support import golden
from tests.unit.cli.store.conftest import Command


def damage(directory: Path, place: int) -> None:
    file = next((directory / "commitlog").iterdir())
    raw = bytearray(file.read_bytes())
    raw[place + 90] ^= 0xFF
    file.write_bytes(raw)


def test_a_whole_store(command: Command, directory: Path, tmp_path: Path) -> None:
    before = golden.tree_state(directory)
    ran = command("salvage", directory, "--into", tmp_path / "new")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == "nothing was lost"
    assert golden.tree_state(directory) == before
    assert command("dump", tmp_path / "new").lines == command("dump", directory).lines
    assert command("verify", tmp_path / "new").code == 0


def test_what_is_lost_is_told(command: Command, directory: Path, tmp_path: Path, settings: StoreSettings) -> None:
    lines = command("dump", directory).lines
    place = lines[1]["physicalOffset"]
    damage(directory, place)
    ran = command("salvage", directory, "--into", tmp_path / "new", "--output", "json")
    assert ran.code == 1
    document = ran.document
    assert document["salvaged"]["records"] == 3
    (lost,) = document["lost_ranges"]
    assert (lost["physical_offset"], lost["reason"]) == (place, "bad crc")
    assert document["lost_messages"] == [
        {"topic": "orders", "queue_id": 0, "first_offset": 1, "end_offset": 2, "messages": 1}
    ]
    with MessageStore.open(tmp_path / "new", settings) as store:
        assert [one.queue_offset for one in store.fetch("orders", 0, 0).messages] == [0, 2]
    text = command("salvage", directory, "--into", tmp_path / "other")
    assert text.code == 1
    assert "are lost" in text.out


def test_a_store_of_rocketmq(command: Command, restored: Callable[[str], Path], tmp_path: Path) -> None:
    store = restored("basic")
    assert command("salvage", store, "--into", tmp_path / "new").code == 0
    assert len(command("dump", tmp_path / "new").lines) == 200


def test_bad_input(command: Command, directory: Path, tmp_path: Path) -> None:
    command("salvage", directory, "--into", directory).assert_one_line(2, "exists already")
    command("salvage", directory, "--into", tmp_path / "no" / "new").assert_one_line(2, "no such directory")
    command("salvage", tmp_path / "none", "--into", tmp_path / "new").assert_one_line(2, "no such directory")
    assert command("salvage", directory).code == 2
    assert not (tmp_path / "new").exists()


def test_lost_files_and_config_files_are_told(
    command: Command, restored: Callable[[str], Path], tmp_path: Path
) -> None:
    store = restored("delay")
    (log,) = (store / "commitlog").iterdir()
    log.write_bytes(bytes(range(1, 255)) * (log.stat().st_size // 254))
    (store / "config" / "consumerOffset.json").write_bytes(b"{")
    (store / "config" / "consumerOffset.json.bak").unlink()
    ran = command("salvage", store, "--into", tmp_path / "new")
    assert ran.code == 1
    said = ran.out.splitlines()[-1]
    assert "1 ranges of the log, at least 49 messages, 1 config files are lost" in said
    assert "holds no whole record" in ran.out
    assert "taken along as it is" in ran.out


def test_the_rest_of_an_append_is_no_loss(command: Command, restored: Callable[[str], Path], tmp_path: Path) -> None:
    ran = command("salvage", restored("unclean-lost-pages"), "--into", tmp_path / "new")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "nothing was lost")
    assert "the rest of an append at 61396, which is no loss" in ran.out


def test_a_file_that_was_cut_gets_the_size_of_the_settings(
    command: Command, restored: Callable[[str], Path], tmp_path: Path
) -> None:
    store = restored("compressed")
    (log,) = (store / "commitlog").iterdir()
    os.truncate(log, 25641)
    ran = command(
        "salvage", store, "--into", tmp_path / "new", "--set", "mappedFileSizeCommitLog=131072", "--output", "json"
    )
    assert ran.code == 1
    assert ran.document["salvaged"]["segment_bytes"] == 131072
    assert command("verify", tmp_path / "new").code == 0
    assert len(command("dump", tmp_path / "new").lines) == ran.document["salvaged"]["records"]


def test_files_that_may_not_be_read(
    command: Command, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = RealFiles.open

    def refuse(self: RealFiles, path: Path, writable: bool) -> Any:
        if path.parent.name == "commitlog":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(self, path, writable)

    monkeypatch.setattr(RealFiles, "open", refuse)
    ran = command("salvage", directory, "--into", tmp_path / "new")
    ran.assert_one_line(2, "commitlog", "Permission denied")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_somebody_elses_directory_is_in_the_way(command: Command, directory: Path, tmp_path: Path) -> None:
    mine = tmp_path / "new.partial" / "mine"
    mine.parent.mkdir()
    mine.write_text("x")
    command("salvage", directory, "--into", tmp_path / "new").assert_one_line(2, "new.partial", "in the way")
    command("salvage", directory, "--into", directory / "sub").assert_one_line(2, "only read")
    assert mine.read_text() == "x"
    assert not (tmp_path / "new").exists()
