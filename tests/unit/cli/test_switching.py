"""`embermq broker promote` and `demote`: a switch of masters by hand, with brokers as processes."""

import json
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.cli.app import run
from embermq.replication import Epoch, demote, load_epoch, promote
from tests.support.broker_process import BrokerProcess
from tests.support.replication import file_bytes, settings
from tests.support.replication_processes import as_slave, figure, name_server, send
from tests.support.waiting import wait_until

SEGMENT = 16 << 20
Captured = pytest.CaptureFixture[str]


def as_master(place: Path, names: str) -> BrokerProcess:
    return BrokerProcess(place, "-n", names, "--set", "brokerRole=SYNC_MASTER", "--set", "brokerName=b")


@pytest.mark.slow(seconds=25)
def test_a_switch_keeps_the_tail_aside(tmp_path: Path, capsys: Captured) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    with name_server(tmp_path / "ns") as names:
        with as_master(one, names) as old:
            with as_slave(two, names) as slave:
                wait_until(lambda: figure(old.address, "emberReplicas") == "1", "the slave is there")
                assert send(old.address, b"both").code == 0
                slave.kill()
            wait_until(lambda: figure(old.address, "emberReplicas") == "0", "the slave is gone")
            for n in range(3):
                assert send(old.address, b"alone %d" % n).code == 11
            old.kill()
        assert run(["broker", "promote", str(two / "store")]) == 0
        assert "epoch 1 begins at" in capsys.readouterr().out
        with as_master(two, names) as new:
            assert figure(new.address, "emberEpoch") == "1"
            assert send(new.address, b"new").code == 11
            words = ["--store", str(one / "store"), "--listen", "127.0.0.1:0", "-n", names, "--set", "brokerName=b"]
            assert run(["broker", *words]) == 2  # It is fenced.
            assert f"embermq broker demote DIR --master {new.address}" in capsys.readouterr().err
            assert run(["broker", "demote", str(one / "store"), "--master", new.address]) == 0
            assert "3 messages" in capsys.readouterr().out
            [aside] = (one / "store" / "embermq.aside").iterdir()
            kept = [json.loads(line) for line in (aside / "messages.jsonl").read_text().splitlines()]
            assert len(kept) == 3
            with as_slave(one, names) as back:
                wait_until(lambda: figure(new.address, "emberReplicas") == "1", "the old master follows")
                assert send(new.address, b"both again").code == 0
                end = int(figure(new.address, "commitLogMaxOffset"))
                assert int(figure(back.address, "commitLogMaxOffset")) == end
                assert figure(back.address, "emberEpoch") == "1"
    assert file_bytes(one / "store", 0, end, SEGMENT) == file_bytes(two / "store", 0, end, SEGMENT)
    with MessageStore.open(one / "store", read_only=True) as store:
        bodies = [bytes(message.body) for message in store.fetch("T", 0, 0).messages]
    assert bodies == [b"both", b"new", b"both again"]


def made(path: Path, bodies: list[bytes]) -> int:
    with MessageStore.open(path, settings()) as store:
        for body in bodies:
            store.append(Message("T", body, keys=["k"]))
        return store.max_physical


@pytest.mark.parametrize("shared", [0, 1, 700, 1500])
def test_a_cut_log_is_a_sound_store(tmp_path: Path, shared: int) -> None:
    bodies = [b"%d" % n + b"x" * 60 for n in range(1500)]  # Several log files.
    start = made(tmp_path, bodies[:shared]) if shared else 0
    end = made(tmp_path, bodies[shared:])
    done = demote(tmp_path, settings(), Epoch(4, start))
    assert (done.start, done.end, done.messages) == (start, end, 1500 - shared)
    assert load_epoch(tmp_path) == Epoch(4, start)
    if done.aside is not None:
        assert (done.aside / "log.bin").stat().st_size == end - start
    with MessageStore.open(tmp_path, settings()) as store:
        assert store.max_physical == start
        assert store.max_offset("T", 0) == shared
        assert len(store.find("T", "k")) == shared
        receipt = store.append(Message("T", b"next"))
        assert (receipt.physical_offset, receipt.queue_offset) == (start, shared)


def test_epochs_only_grow(tmp_path: Path, capsys: Captured) -> None:
    end = made(tmp_path / "s", [b"x"])
    assert load_epoch(tmp_path / "s") == Epoch(0, 0)
    assert promote(tmp_path / "s", settings()) == Epoch(1, end)
    assert promote(tmp_path / "s", settings()) == Epoch(2, end)
    with BrokerProcess(tmp_path) as other:
        assert run(["broker", "demote", str(tmp_path / "s"), "--master", other.address]) == 2
    assert "has to be promoted first" in capsys.readouterr().err
    assert run(["broker", "demote", str(tmp_path / "s"), "--master", "127.0.0.1:1"]) == 2
    with MessageStore.open(tmp_path / "s", settings()):
        assert run(["broker", "promote", str(tmp_path / "s")]) == 2
    assert "already open" in capsys.readouterr().err
