"""`embermq store rebuild`."""

import shutil
from collections.abc import Callable
from pathlib import Path

from embermq import MessageStore, StoreSettings
from tests.support import golden
from tests.unit.cli.store.conftest import Command


def test_both_are_made_again(command: Command, directory: Path) -> None:
    before = {name: golden.content(directory / name, names=name != "index") for name in ("consumequeue", "index")}
    shutil.rmtree(directory / "consumequeue")
    ran = command("rebuild", directory)
    assert (ran.code, ran.err) == (0, "")
    assert "queues and index" in ran.out
    after = {name: golden.content(directory / name, names=name != "index") for name in ("consumequeue", "index")}
    assert after == before  # With the sizes found there.
    assert command("verify", directory).code == 0


def test_json_and_one_family(command: Command, directory: Path, settings: StoreSettings) -> None:
    document = command("rebuild", directory, "--queues", "--output", "json").document
    assert document["rebuilt"]["families"] == ["queues"]
    assert (document["rebuilt"]["queues"], document["rebuilt"]["queue_entries"]) == (2, 4)
    assert document["damages"] == []
    assert command("rebuild", directory, "--index", "--output", "json").document["rebuilt"]["index_entries"] == 6
    with MessageStore.open(directory, settings) as store:
        assert store.recovery.reason == "closed cleanly"


def test_into(command: Command, directory: Path, tmp_path: Path) -> None:
    before = golden.tree_state(directory)
    assert command("rebuild", directory, "--into", tmp_path / "new").code == 0
    assert golden.content(tmp_path / "new" / "consumequeue") == golden.content(directory / "consumequeue")
    assert golden.tree_state(directory) == before
    command("rebuild", directory, "--into", tmp_path / "new").assert_one_line(2, "exists already")


def test_light_queues_and_extensions_are_found(command: Command, restored: Callable[[str], Path]) -> None:
    store = restored("lmq")
    before = golden.content(store / "consumequeue")
    assert command("rebuild", store).code == 0
    assert golden.content(store / "consumequeue") == before
    store = restored("cqext")
    assert command("rebuild", store).code == 0
    assert command("verify", store).code == 0


def test_a_damaged_log(command: Command, directory: Path) -> None:
    place = command("dump", directory).lines[1]["physicalOffset"]
    file = next((directory / "commitlog").iterdir())
    raw = bytearray(file.read_bytes())
    raw[place + 90] ^= 0xFF
    file.write_bytes(raw)
    ran = command("rebuild", directory)
    assert ran.code == 1
    assert f"damaged: physical offset {place:,}" in ran.out
    assert "salvage" in ran.out
    document = command("rebuild", directory, "--output", "json").document
    assert document["damages"][0]["physical_offset"] == place


def test_bad_input(command: Command, tmp_path: Path, directory: Path, settings: StoreSettings) -> None:
    command("rebuild", tmp_path / "none").assert_one_line(2, "no such directory")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    command("rebuild", tmp_path / "other").assert_one_line(2, "not a message store")
    assert command("rebuild", directory, "--set", "maxIndexNumm=5").code == 2
    with MessageStore.open(directory, settings):
        command("rebuild", directory).assert_one_line(2, "already open for writing", "beside it, with --into NEW\n")
        assert command("rebuild", directory, "--into", tmp_path / "beside").code == 0


def test_a_torn_tail_is_no_damage(command: Command, restored: Callable[[str], Path], tmp_path: Path) -> None:
    store = restored("unclean-lost-pages")
    assert command("verify", store).code == 0
    ran = command("rebuild", store, "--into", tmp_path / "new")
    assert ran.code == 0
    assert "torn tail: physical offset 61,396: bad topic" in ran.out
    assert "damaged" not in ran.out
    document = command("rebuild", store, "--output", "json").document
    assert document["damages"] == []
    assert document["torn_tail"] == [{"physical_offset": 61396, "length_bytes": 4140, "reason": "bad topic"}]


def test_a_store_without_its_log(command: Command, restored: Callable[[str], Path], tmp_path: Path) -> None:
    store = restored("delay")
    shutil.rmtree(store / "commitlog")
    before = golden.tree_state(store)
    command("rebuild", store).assert_one_line(2, "commitlog: there are no log files")
    command("rebuild", store, "--into", tmp_path / "new").assert_one_line(2, "commitlog: there are no log files")
    assert golden.tree_state(store) == before
    (store / "commitlog").mkdir()
    command("rebuild", store).assert_one_line(2, "commitlog: there are no log files")


def test_an_empty_store_has_nothing_to_be_made_again(command: Command, tmp_path: Path) -> None:
    MessageStore.open(tmp_path / "new", StoreSettings(disk_full_percent=100)).close()
    assert command("rebuild", tmp_path / "new").code == 0


def test_what_lies_in_the_way_is_not_removed(command: Command, directory: Path, tmp_path: Path) -> None:
    (tmp_path / "new.partial").mkdir()
    (tmp_path / "new.partial" / "mine").write_text("x")
    command("rebuild", directory, "--into", tmp_path / "new").assert_one_line(2, "new.partial: ", "holds mine")
    assert (tmp_path / "new.partial" / "mine").read_text() == "x"
    (tmp_path / "other.partial").write_text("x")
    command("rebuild", directory, "--into", tmp_path / "other").assert_one_line(2, "other.partial: this is a file")
    assert (tmp_path / "other.partial").read_text() == "x"
    (tmp_path / "third.partial").mkdir()
    assert command("rebuild", directory, "--into", tmp_path / "third").code == 0


def test_nothing_is_made_inside_the_store(command: Command, directory: Path, tmp_path: Path) -> None:
    before = golden.tree_state(directory)
    (tmp_path / "link").symlink_to(directory)
    for place in (directory / "sub", directory / "commitlog" / "sub", tmp_path / "link" / "sub"):
        command("rebuild", directory, "--into", place).assert_one_line(2, "lies in the store, which is only read")
    assert golden.tree_state(directory) == before
