"""`embermq store dump`."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from tests.unit.cli.store.conftest import Command


def test_every_message_as_a_line(command: Command, directory: Path) -> None:
    ran = command("dump", directory)
    assert (ran.code, ran.err) == (0, "")
    assert [line["queueOffset"] for line in ran.lines] == [0, 1, 2, 0]
    assert ran.lines[1]["tags"] == "paid"
    assert ran.lines[1]["keys"] == "order-1 all"


def test_options(command: Command, directory: Path) -> None:
    assert [line["body"] for line in command("dump", directory, "--body", "text", "--limit", "2").lines] == [
        "body 0",
        "body 1",
    ]
    assert len(command("dump", directory, "--queue", "1").lines) == 1
    assert len(command("dump", directory, "--topic", "nothing").lines) == 0
    assert len(command("dump", directory, "--tags", "paid || created").lines) == 3
    second = command("dump", directory).lines[1]["physicalOffset"]
    assert len(command("dump", directory, "--from", str(second)).lines) == 3
    assert len(command("dump", directory, "--from", str(second - 1)).lines) == 3
    assert len(command("dump", directory, "--since", "2020-01-01").lines) == 4
    assert len(command("dump", directory, "--until", "2020-01-01T00:00:00Z").lines) == 0


def test_raw_bodies(command: Command, restored: Callable[[str], Path]) -> None:
    store = restored("compressed")
    plain, raw = command("dump", store).lines, command("dump", store, "--raw").lines
    compressed = [at for at, line in enumerate(plain) if line["sysFlag"] & 1]
    assert compressed
    assert all(plain[at]["body"] != raw[at]["body"] for at in compressed)


def test_damage_is_told_with_its_place(command: Command, directory: Path) -> None:
    lines = command("dump", directory).lines
    file = next((directory / "commitlog").iterdir())
    raw = bytearray(file.read_bytes())
    place = lines[1]["physicalOffset"]
    raw[place + 90] ^= 0xFF
    file.write_bytes(raw)
    ran = command("dump", directory)
    assert ran.code == 1
    assert ran.lines == [lines[0], lines[2], lines[3]]
    reported, summary = ran.err.splitlines()
    assert reported == f"damaged: {directory}, physical offset {place:,} to {lines[2]['physicalOffset']:,}: bad crc"
    assert summary.startswith("3 messages dumped; 1 damaged places hold ")
    report = command("dump", directory, "--output", "json")
    assert report.code == 1
    assert report.lines == ran.lines
    assert json.loads(report.err)["damages"] == [
        {"start": place, "end": lines[2]["physicalOffset"], "reason": "bad crc"}
    ]


def test_bodies_that_do_not_decompress(command: Command, tmp_path: Path, settings: StoreSettings) -> None:
    with MessageStore.open(tmp_path / "store", settings) as store:
        store.append(Message("t", b"not zlib", sys_flag=1))
    ran = command("dump", tmp_path / "store", "--body", "text")
    assert ran.code == 1
    assert ran.lines[0]["body"] == "not zlib"
    assert ran.err == "1 bodies do not decompress and are given as they are stored\n"


def test_the_report_of_a_sound_store(command: Command, directory: Path) -> None:
    ran = command("dump", directory, "--output", "json")
    report = json.loads(ran.err)
    assert (report["messages"], report["damages"], report["broken_bodies"]) == (4, [], 0)
    assert report["start_physical_offset"] == 0
    assert report["end_physical_offset"] > ran.lines[-1]["physicalOffset"]


@pytest.mark.parametrize("option", ["--since", "--until"])
def test_seconds_for_milliseconds_are_noticed(command: Command, directory: Path, option: str) -> None:
    ran = command("dump", directory, option, "1700000000")
    assert (ran.code, ran.out) == (2, "")
    assert "1700000000 looks like seconds (2023-11-14T22:13:20Z); times are in milliseconds: 1700000000000" in ran.err


def test_a_reader_that_has_seen_enough_is_no_failure_worth_a_word(directory: Path) -> None:
    command = [sys.executable, "-m", "embermq.cli", "store", "dump", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_a_log_that_is_gone_is_told(command: Command, restored: Callable[[str], Path]) -> None:
    store = restored("basic")
    last = sorted((store / "commitlog").iterdir())[-1]
    last.write_bytes(bytes(range(256)) * 256)
    ran = command("dump", store)
    assert (ran.code, len(ran.lines)) == (1, 173)
    assert f"physical offset {int(last.name):,} to 376,992: the log ends here, and once went further" in ran.err
    (store / "broker.conf").write_text("storePathCommitLog=/nowhere\n")
    ran = command("dump", store)
    assert (ran.code, ran.out) == (1, "")
    assert "there is no log: no such directory as /nowhere" in ran.err
