"""`embermq broker`: what it says, how it ends, and what it refuses before anything is written."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq import Message
from embermq.cli.addresses import bind_both, own_address
from embermq.cli.app import run
from embermq.cli.broker_process import durability
from embermq.cli.serving import NotStarted
from embermq.remoting import Command, Connector, RequestCode
from embermq.settings import FlushDisk, StoreSettings
from embermq.store import MessageStore
from tests.support.broker_process import BrokerProcess
from tests.support.brokers import pull_fields, send_fields

Captured = pytest.CaptureFixture[str]


def call(address: str, code: int, fields: dict[str, object], body: bytes = b"") -> Command:
    async def one() -> Command:
        connector = Connector()
        try:
            texts = {name: str(value) for name, value in fields.items()}
            return await connector.call(address, Command(code, ext=texts, body=body), 10.0)
        finally:
            await connector.close()

    return asyncio.run(one())


def send(address: str, topic: str, body: bytes) -> Command:
    return call(address, RequestCode.SEND_MESSAGE_V2, send_fields(topic), body)


# -- a broker that runs ------------------------------------------------------------------------------------------


def test_it_says_ready_serves_and_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--log-level", "debug") as broker:
        ready = broker.ready
        assert ready["event"] == "ready"
        assert ready["advertised"] == ready["listen"] == broker.address
        assert ready["advertisedAnswers"] is True
        assert ready["store"] == str(tmp_path / "store")
        assert (ready["flush"], ready["role"]) == ("ASYNC_FLUSH", "ASYNC_MASTER")
        assert ready["nameServersUnreachable"] == []
        port = int(broker.address.rpartition(":")[2])
        assert ready["fastListen"] == f"127.0.0.1:{port - 2}"
        assert send(broker.address, "orders", b"first").code == 0
        assert send(ready["fastListen"], "orders", b"second").code == 0
        route = call(broker.name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        assert route.code == 0
        assert broker.address.encode() in route.body
        assert broker.stop() == 0
    assert [line for line in broker.log.splitlines() if " event=" not in line] == []
    assert "event=stopped" in broker.log
    with BrokerProcess(tmp_path, "--set", "emberFastPort=false") as again:
        assert again.ready["fastListen"] is None
        held = call(again.address, RequestCode.PULL_MESSAGE, pull_fields("orders", 0))
        assert (held.code, held.body.count(b"first"), held.body.count(b"second")) == (0, 1, 1)
        assert again.stop(signal.SIGINT) == 0


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """The first one waits for a request that is under way: a pull that is answered late keeps it from stopping."""
    with BrokerProcess(tmp_path) as broker:
        pid = broker.process.pid
        os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGCONT)
        assert broker.process.wait(30) in (128 + signal.SIGTERM, 128 + signal.SIGINT)


def test_an_unreachable_name_server_is_one_warning(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound and not listening: a connection is refused.
        nowhere = f"127.0.0.1:{taken.getsockname()[1]}"
        with BrokerProcess(tmp_path, "-n", nowhere) as broker:
            assert broker.ready["nameServer"] == nowhere
            assert broker.ready["nameServersUnreachable"] == [nowhere]
            assert broker.ready["nameServerEmbedded"] is False
            assert send(broker.address, "orders", b"x").code == 0
            assert broker.stop() == 0
    warnings = [line for line in broker.log.splitlines() if "level=WARNING" in line]
    assert len(warnings) == 1, broker.log
    assert f"event=register_failed name_server={nowhere}" in warnings[0]


def test_an_advertised_address_that_does_not_answer_is_said(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--set", "brokerIP1=127.0.0.77", "--set", "emberFastPort=false") as broker:
        assert broker.ready["advertised"].startswith("127.0.0.77:")
        assert broker.ready["advertisedAnswers"] is False
        assert "set brokerIP1" in broker.ready["advice"]
    assert broker.log.count("event=advertised_address_unreachable") == 1


def test_it_takes_the_sizes_of_a_store_that_is_there(tmp_path: Path) -> None:
    settings = StoreSettings(segment_bytes=1 << 20, queue_file_bytes=4000, index_slots_max=100, index_entries_max=400)
    with MessageStore.open(tmp_path / "store", settings) as store:
        store.append(Message("orders", b"before"))
    command = [sys.executable, "-m", "embermq.cli", "broker", "--store", str(tmp_path / "store"), "--output", "json"]
    command += ["--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0", "--log", str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert send(ready["listen"], "orders", b"x").code == 0
        process.terminate()
        assert process.wait(30) == 0
    assert {path.stat().st_size for path in (tmp_path / "store" / "commitlog").iterdir()} == {1 << 20}
    assert "event=ready" in (tmp_path / "log").read_text()


def test_systemd_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with BrokerProcess(tmp_path) as broker:
            assert manager.recv(100) == b"READY=1"
            assert broker.stop() == 0
            assert manager.recv(100) == b"STOPPING=1"


# -- what is refused ---------------------------------------------------------------------------------------------


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def refused(capsys: Captured, place: Path, *arguments: str) -> str:
    """The one line with which a start is refused, and that nothing was written."""
    before = sorted(place.rglob("*"))
    store = [] if "--store" in arguments else ["--store", str(place / "store")]
    listen = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
    assert run(["broker", *store, *listen, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("embermq: ")
    line = [one for one in captured.err.splitlines() if " level=INFO " not in one]
    assert len(line) == 1, captured.err
    assert sorted(place.rglob("*")) == before
    return line[0]


def test_a_port_in_use(tmp_path: Path, capsys: Captured, taken: int) -> None:
    address = f"127.0.0.1:{taken}"
    line = refused(capsys, tmp_path, "--listen", address, "--log", str(tmp_path / "log"))
    assert line.startswith(f"embermq: cannot listen on {address}: Address already in use; ")


def test_the_port_two_below_in_use(tmp_path: Path, capsys: Captured, taken: int) -> None:
    line = refused(capsys, tmp_path, "--listen", f"127.0.0.1:{taken + 2}")
    assert f"cannot listen on 127.0.0.1:{taken}: " in line
    assert "emberFastPort=false" in line


def test_the_port_of_the_name_server_in_use(tmp_path: Path, capsys: Captured, taken: int) -> None:
    assert run(["broker", "--listen", "127.0.0.1:0", "--namesrv-listen", f"127.0.0.1:{taken}"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"embermq: cannot listen on 127.0.0.1:{taken}: Address already in use; name the name server")
    assert not list(tmp_path.iterdir())


def test_a_key_that_is_no_setting(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=b\nflushDiskTipe=SYNC_FLUSH\n")
    expected = "flushDiskTipe = 'SYNC_FLUSH': there is no such setting; did you mean flushDiskType?"
    assert refused(capsys, tmp_path, "-c", str(file)) == f"embermq: {file}:2: {expected}"
    assert refused(capsys, tmp_path, "--set", "brokrName=x").endswith("did you mean brokerName?")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--set", "flushDiskType=SOON"], "ASYNC_FLUSH or SYNC_FLUSH is expected"),
        (["--set", "brokerPermission=9"], "from 0 to 7 is expected"),
        (["--set", "brokerName=a b"], "letters, digits, and any of _ - % | are expected"),
        (["--set", "brokerName"], "KEY=VALUE is expected"),
        (["--set", "brokerRole=SLAVE"], "a SLAVE needs an id above 0"),
        (["--listen", "10911"], "HOST:PORT is expected"),
        (["--listen", "127.0.0.1:99999"], "HOST:PORT is expected"),
        (["--listen", "no-such-host.invalid:1"], "cannot be resolved"),
        (["--listen", "203.0.113.7:10911"], "cannot listen on 203.0.113.7:10911: Cannot assign requested address"),
        (["-n", "somewhere"], "HOST:PORT is expected"),
        (["-n", "127.0.0.1:0"], "port 0 cannot be connected to"),
        (["-n", "127.0.0.1:1", "--namesrv-listen", "127.0.0.1:2"], "others are named (-n)"),
        (["-c", "no-such-file.conf"], "no-such-file.conf: cannot be read: No such file or directory"),
    ],
)
def test_values_of_no_use(tmp_path: Path, capsys: Captured, arguments: list[str], says: str) -> None:
    more = [] if "-n" in arguments else ["--namesrv-listen", "127.0.0.1:0"]
    assert says in refused_late(capsys, tmp_path, *arguments, *more)


def refused_late(capsys: Captured, place: Path, *arguments: str) -> str:
    """The same where the start may have begun to log."""
    listen = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
    store = [] if "--store" in arguments else ["--store", str(place / "store")]
    before = sorted(place.rglob("*"))
    assert run(["broker", *store, *listen, *arguments]) == 2
    captured = capsys.readouterr()
    lines = [one for one in captured.err.splitlines() if not one.startswith("time=")]
    assert (captured.out, len(lines)) == ("", 1), captured.err
    assert sorted(place.rglob("*")) == before
    return lines[0]


def test_a_store_that_is_locked(tmp_path: Path, capsys: Captured) -> None:
    with MessageStore.open(tmp_path / "store", StoreSettings(segment_bytes=1 << 20)):
        line = refused_late(capsys, tmp_path, "--namesrv-listen", "127.0.0.1:0")
    assert line.startswith(f"embermq: {tmp_path / 'store'} is already open for writing by process {os.getpid()}")


def test_a_file_for_a_store(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "store").write_text("no store")
    line = refused_late(capsys, tmp_path, "--namesrv-listen", "127.0.0.1:0")
    assert line.startswith(f"embermq: {tmp_path / 'store'}: a file, where a store is a directory; ")


def test_a_foreign_directory(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "photo.jpg").touch()
    line = refused_late(capsys, tmp_path, "--namesrv-listen", "127.0.0.1:0")
    assert line.startswith(f"embermq: {tmp_path / 'store'}: not a message store (it holds photo.jpg); ")


def test_a_place_without_permission(tmp_path: Path) -> None:
    shut = tmp_path / "shut"
    shut.mkdir()
    shut.chmod(0o555)
    command = [sys.executable, "-m", "embermq.cli", "broker", "--store", str(shut / "store")]
    command += ["--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0", "--log", os.devnull]
    if os.geteuid() == 0:
        if shutil.which("unshare") is None:
            pytest.skip("there is no unshare here")
        command = ["unshare", "--user", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if "unshare" in done.stderr:
        pytest.skip("user namespaces may not be made here")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith(f"embermq: {shut / 'store'}: cannot be written: Permission denied")
    assert done.stderr.count("\n") == 1
    assert not list(shut.iterdir())


# -- settings in effect ------------------------------------------------------------------------------------------


def test_settings_in_effect(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=b-1\nflushDiskType=SYNC_FLUSH\nlistenPort=10921\nfileReservedTime=1\nbrokerId=3\n")
    monkeypatch.setenv("EMBERMQ_FILE_RESERVED_TIME", "2")
    monkeypatch.chdir(tmp_path)
    shown: list[dict[str, str]] = []
    for option in ("-p", "-m"):
        more = ["--set", "defaultTopicQueueNums=16", "-n", "a.example:1;b.example:2"]
        assert run(["broker", "-c", str(file), *more, option]) == 0
        shown.append(dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines()))
    everything, important = shown
    assert important.items() < everything.items()
    assert everything["defaultTopicQueueNums"] == "16"
    assert important["namesrvAddr"] == "a.example:1;b.example:2"
    assert important["storePathRootDir"] == str(tmp_path / "embermq-store")
    assert (important["listenPort"], important["fileReservedTime"], important["brokerId"]) == ("10921", "2", "0")
    assert list(tmp_path.iterdir()) == [file]


def test_keys_without_effect_are_one_warning(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("sendMessageThreadPoolNums=16\nduplicationEnable=true\nbrokerName=b\n")
    with pytest.warns(UserWarning, match="without effect") as caught:
        assert run(["broker", "-c", str(file), "-p", "--output", "json"]) == 0
    (warning,) = caught
    assert "sendMessageThreadPoolNums" in str(warning.message)
    assert "duplicationEnable (queues follow the log as far as a crash cannot take it back)" in str(warning.message)
    assert json.loads(capsys.readouterr().out)["brokerName"] == "b"


def test_what_an_acknowledgement_promises() -> None:
    assert "survives a power cut" in durability(StoreSettings(flush=FlushDisk.SYNC))
    assert "500 ms" in durability(StoreSettings())
    assert "a kill may lose" in durability(StoreSettings(transient_pool=True))


# -- addresses ---------------------------------------------------------------------------------------------------


def test_an_address_to_advertise() -> None:
    assert own_address("127.0.0.5") == "127.0.0.5"
    assert own_address("0.0.0.0") != "0.0.0.0"
    assert own_address("::") != "::"


def test_two_free_ports_that_fit() -> None:
    main, fast = bind_both("127.0.0.1", 0, fast=True)
    assert fast is not None
    with main, fast:
        assert main.getsockname()[1] - 2 == fast.getsockname()[1]
        with pytest.raises(NotStarted, match="choose another address"):
            bind_both("127.0.0.1", main.getsockname()[1], fast=True)


def test_nothing_runs_on_after_a_refusal(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "photo.jpg").touch()
    refused_late(capsys, tmp_path, "--namesrv-listen", "127.0.0.1:0")
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("embermq")]
    assert names == []
