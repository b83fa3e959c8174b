"""`embermq store salvage`."""

from collections.abc import Callable
from pathlib import Path

from embermq import MessageStore, StoreSettings
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


def test_a_store_of_the_reference(command: Command, restored: Callable[[str], Path], tmp_path: Path) -> None:
    store = restored("basic")
    assert command("salvage", store, "--into", tmp_path / "new").code == 0
    assert len(command("dump", tmp_path / "new").lines) == 200


def test_bad_input(command: Command, directory: Path, tmp_path: Path) -> None:
    command("salvage", directory, "--into", directory).assert_one_line(2, "exists already")
    command("salvage", directory, "--into", tmp_path / "no" / "new").assert_one_line(2, "no such directory")
    command("salvage", tmp_path / "none", "--into", tmp_path / "new").assert_one_line(2, "no such directory")
    assert command("salvage", directory).code == 2
    assert not (tmp_path / "new").exists()
