"""`embermq tap` at a broker in another process: a copy of its log that goes on, and is a store."""

import json
from pathlib import Path

import pytest

from embermq import MessageStore
from embermq.cli.app import run
from tests.support.broker_process import BrokerProcess
from tests.support.replication import file_bytes
from tests.support.replication_processes import ask_all, figure, send, send_command
from tests.support.waiting import wait_until

SEGMENT = 16 << 20
Captured = pytest.CaptureFixture[str]


def tapped(master: BrokerProcess, into: Path, *more: str) -> int:
    place = f"127.0.0.1:{master.ready['haListen']}"
    return run(["tap", place, "--into", str(into), "--broker", master.address, "--once", "--output", "json", *more])


@pytest.mark.slow(seconds=10)
def test_a_tap_copies_the_whole_log_and_goes_on(tmp_path: Path, capsys: Captured) -> None:
    words = ("--set", "haSendHeartbeatInterval=100", "--set", "mappedFileSizeCommitLog=1048576")
    with BrokerProcess(tmp_path, *words) as master:
        end = 0
        for _ in range(3):
            answers = ask_all(master.address, [send_command(b"x" * 4000) for _ in range(150)])
            assert {answer.code for answer in answers} == {0}
            assert tapped(master, tmp_path / "copy", "--whole") == 0
            said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            end = int(figure(master.address, "commitLogMaxOffset"))
            assert (said[-1]["state"], said[-1]["stored"], said[-1]["behind"]) == ("stopped", end, 0)
            assert figure(master.address, "emberReplicatedOffset") == "0"  # It acknowledges nothing.
        assert end > 1 << 20
        assert file_bytes(tmp_path / "copy", 0, end, 1 << 20) == file_bytes(master.store, 0, end, 1 << 20)
    with MessageStore.open(tmp_path / "copy", read_only=True) as store:
        assert store.max_offset("T", 0) == 450
        assert len(store.fetch("T", 0, 440).messages) == 10


@pytest.mark.slow(seconds=5)
def test_a_master_that_has_nothing_yet(tmp_path: Path, capsys: Captured) -> None:
    with BrokerProcess(tmp_path, "--set", "haSendHeartbeatInterval=100") as master:
        assert tapped(master, tmp_path / "copy", "--whole") == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["stored"] == 0
        assert send(master.address, b"first").code == 0
        assert tapped(master, tmp_path / "copy", "--whole") == 0
    assert b"first" in file_bytes(tmp_path / "copy", 0, 1000, SEGMENT)


@pytest.mark.slow(seconds=6)
def test_a_sync_master_is_not_tapped_without_a_word(tmp_path: Path, capsys: Captured) -> None:
    words = ("--set", "haSendHeartbeatInterval=100", "--set", "brokerRole=SYNC_MASTER", "--set", "slaveTimeout=100")
    with BrokerProcess(tmp_path, *words) as master:
        assert send(master.address, b"x").code == 11
        assert tapped(master, tmp_path / "copy") == 2
        shown = capsys.readouterr().err
        assert "is a SYNC_MASTER" in shown
        assert "--yes" in shown
        assert not (tmp_path / "copy").exists()
        assert tapped(master, tmp_path / "copy", "--yes") == 0
        wait_until(lambda: figure(master.address, "emberReplicas") == "0", "the tap is seen to be gone")
        assert send(master.address, b"y").code == 11
    assert b"x" in file_bytes(tmp_path / "copy", 0, 1000, SEGMENT)


def test_a_master_that_is_not_there(tmp_path: Path, capsys: Captured) -> None:
    assert run(["tap", "127.0.0.1:2", "--into", str(tmp_path / "copy"), "--whole", "--yes"]) == 2
    assert "--broker" in capsys.readouterr().err
    assert run(["tap", "nonsense", "--into", str(tmp_path / "copy")]) == 2
    assert not (tmp_path / "copy").exists()
