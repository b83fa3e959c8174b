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
    assert (document["rebuilt"]["queues"], document["rebuilt"]["units"]) == (2, 4)
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
        command("rebuild", directory).assert_one_line(1, "already open for writing")
