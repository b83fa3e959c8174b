"""`embermq broker` as a master and as a slave: two processes, a name server in the first."""

import socket
from pathlib import Path

import pytest

from embermq.cli.app import run
from tests.support.broker_process import BrokerProcess
from tests.support.replication import file_bytes
from tests.support.replication_processes import as_slave, figure, send
from tests.support.waiting import wait_until

SEGMENT = 16 << 20


@pytest.mark.slow(seconds=12)
def test_two_processes(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("m", "s")]
    for place in places:
        place.mkdir()
    words = ("--set", "brokerRole=SYNC_MASTER", "--set", "slaveTimeout=60000", "--set", "brokerName=b")
    with BrokerProcess(places[0], *words) as master:
        assert "on a slave as well" in master.ready["acknowledges"]
        assert master.ready["haListen"]
        assert send(master.address, b"alone").code == 11  # SLAVE_NOT_AVAILABLE
        with as_slave(places[1], master.name_server) as slave:
            assert slave.ready["brokerId"] == 1
            wait_until(lambda: figure(master.address, "emberReplicas") == "1", "the slave is there")
            for n in range(20):
                assert send(master.address, b"%d" % n).code == 0
            assert send(slave.address, b"no").code == 14  # SERVICE_NOT_AVAILABLE
            end = int(figure(slave.address, "commitLogMaxOffset"))
            assert end == int(figure(master.address, "commitLogMaxOffset"))
            slave.kill()
        assert send(master.address, b"alone again").code in (11, 12)
        with as_slave(places[1], master.name_server):
            wait_until(lambda: figure(master.address, "emberReplicas") == "1", "the slave is back")
            assert send(master.address, b"last").code == 0
            end = int(figure(master.address, "commitLogMaxOffset"))
    assert file_bytes(places[0] / "store", 0, end, SEGMENT) == file_bytes(places[1] / "store", 0, end, SEGMENT)


@pytest.mark.slow(seconds=8)
def test_another_past_is_said_and_a_resync_moves_it_aside(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("m", "s")]
    for place in places:
        place.mkdir()
        with BrokerProcess(place, "--set", "brokerName=b") as alone:
            assert send(alone.address, place.name.encode() * 50).code == 0
    with BrokerProcess(places[0], "--set", "brokerName=b") as master:
        with as_slave(places[1], master.name_server) as slave:
            wait_until(lambda: "does not continue" in figure(slave.address, "emberMasterProblem"), "it is noticed")
        with as_slave(places[1], master.name_server, "--resync") as slave:
            wait_until(lambda: figure(slave.address, "emberMasterFollowed") == "true", "it follows")
            assert figure(slave.address, "commitLogMaxOffset") == figure(master.address, "commitLogMaxOffset")
        [moved] = (places[1] / "store" / "embermq.aside").iterdir()
        assert b"s" * 50 in file_bytes(moved, 0, 1 << 12, SEGMENT)


def test_a_resync_is_for_slaves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["broker", "--store", str(tmp_path / "s"), "--listen", "127.0.0.1:0", "--resync"]
    assert run(words) == 2
    assert "--resync is for a slave" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_a_replication_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["broker", "--store", str(tmp_path / "s"), "--listen", "127.0.0.1:0", "--set", f"haListenPort={port}"]
        assert run(words) == 2
    assert "haListenPort" in capsys.readouterr().err
