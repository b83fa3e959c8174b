"""A name server over real sockets: brokers that come and go, several servers, a stop."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from embermq.errors import RemotingError
from embermq.namesrv import NameServer
from embermq.remoting import Command, Connector, parse_json
from embermq.settings import NamesrvSettings
from embermq.testing import ManualClock
from tests.unit.namesrv.test_register_body import JSON_BODY


class Broker:
    """A broker that registers on a connection of its own."""

    def __init__(self, name: str, address: str, broker_id: int = 0) -> None:
        self.ext = {"brokerName": name, "brokerAddr": address, "clusterName": "C", "haServerAddr": "127.0.0.1:1"}
        self.ext["brokerId"] = str(broker_id)
        self.connector = Connector()

    async def register(self, server: str) -> Command:
        return await self.connector.call(server, Command(103, ext=dict(self.ext), body=JSON_BODY), 5.0)

    async def leave(self) -> None:
        await self.connector.close()


class Running:
    """A name server on a free port, its clock, and a client."""

    def __init__(self, settings: NamesrvSettings) -> None:
        self.clock = ManualClock()
        self.server = NameServer(settings, clock=self.clock)
        self.client = Connector()
        self.address = ""

    async def start(self) -> None:
        self.address = str(await self.server.start("127.0.0.1", 0))

    async def ask(self, code: int, body: bytes = b"", /, **ext: str) -> Command:
        return await self.client.call(self.address, Command(code, ext=ext, body=body), 5.0)

    async def topics(self) -> list[str]:
        found: list[str] = parse_json((await self.ask(206)).body)["topicList"]
        return found


Scenario = Callable[[Running], Awaitable[None]]


def settings_in(directory: Path) -> NamesrvSettings:
    return NamesrvSettings(kv_config_path=directory / "kv.json", config_store_path=directory / "namesrv.properties")


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scenario], None]:
    def run(scenario: Scenario) -> None:
        async def whole() -> None:
            running = Running(settings_in(tmp_path))
            await running.start()
            try:
                async with asyncio.timeout(30):
                    await scenario(running)
            finally:
                await running.client.close()
                await running.server.stop()

        asyncio.run(whole())

    return run


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(5000):
        if holds():
            return
        await asyncio.sleep(0.002)
    raise TimeoutError("it did not come to hold within 10 s")


Play = Callable[[Scenario], None]


def test_a_broker_registers_and_a_client_finds_it(play: Play) -> None:
    async def scenario(running: Running) -> None:
        broker = Broker("a", "127.0.0.1:10911")
        assert (await broker.register(running.address)).code == 0
        route = parse_json((await running.ask(105, topic="T")).body)
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:10911"}
        await broker.leave()

    play(scenario)


def test_a_broker_whose_connection_is_closed_is_gone_at_once(play: Play) -> None:
    async def scenario(running: Running) -> None:
        master, slave, other = (
            Broker("a", "127.0.0.1:1"),
            Broker("a", "127.0.0.1:2", broker_id=1),
            Broker("b", "127.0.0.1:3"),
        )
        for broker in (master, slave, other):
            await broker.register(running.address)
        await master.leave()
        await until(lambda: running.server.counters.brokers_disconnected == 1)
        route = parse_json((await running.ask(105, topic="T")).body)
        assert {one["brokerName"]: one["brokerAddrs"] for one in route["brokerDatas"]} == {
            "a": {"1": "127.0.0.1:2"},
            "b": {"0": "127.0.0.1:3"},
        }
        for broker in (slave, other):
            await broker.leave()
        await until(lambda: running.server.counters.brokers_disconnected == 3)
        assert await running.topics() == []

    play(scenario)


def test_a_broker_that_reconnects_stays(play: Play) -> None:
    async def scenario(running: Running) -> None:
        broker, again = Broker("a", "127.0.0.1:1"), Broker("a", "127.0.0.1:1")
        await broker.register(running.address)
        await again.register(running.address)
        await broker.leave()
        assert await running.topics() == ["T"]
        assert running.server.counters.brokers_disconnected == 0
        await again.leave()

    play(scenario)


def test_a_silent_broker_is_removed_and_its_connection_closed(play: Play) -> None:
    async def scenario(running: Running) -> None:
        broker = Broker("a", "127.0.0.1:1")
        await broker.register(running.address)
        link = await broker.connector.link(running.address)
        running.clock.advance(s=120)
        assert running.server.expire_brokers() == []
        running.clock.advance(ms=1)
        assert len(running.server.expire_brokers()) == 1
        await link.wait_closed()
        assert await running.topics() == []
        assert (running.server.counters.brokers_expired, running.server.counters.brokers_disconnected) == (1, 0)
        await broker.register(running.address)
        assert await running.topics() == ["T"]
        await broker.leave()

    play(scenario)


def test_silent_brokers_are_looked_for_by_themselves(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embermq.namesrv.server.SCAN_FIRST_SECONDS", 0.01)
    monkeypatch.setattr("embermq.namesrv.server.SCAN_SECONDS", 0.01)

    async def scenario(running: Running) -> None:
        for name in ("a", "b"):
            broker = Broker(name, f"127.0.0.1:{ord(name)}")
            await broker.register(running.address)
            running.clock.advance(s=121)
            await until(lambda: not running.server.routes.brokers)
            await broker.leave()
        assert running.server.counters.brokers_expired == 2

    play(scenario)


def test_kv_config_survives_a_restart(tmp_path: Path) -> None:
    async def once(code: int, **ext: str) -> Command:
        running = Running(settings_in(tmp_path))
        await running.start()
        answer = await running.ask(code, **ext)
        await running.client.close()
        await running.server.stop()
        return answer

    assert asyncio.run(once(100, namespace="n", key="k", value="v")).code == 0
    assert asyncio.run(once(101, namespace="n", key="k")).ext == {"value": "v"}


def test_several_name_servers_know_nothing_of_one_another(play: Play, tmp_path: Path) -> None:
    async def scenario(running: Running) -> None:
        second = NameServer(settings_in(tmp_path / "second"))
        address = str(await second.start("127.0.0.1", 0))
        broker = Broker("a", "127.0.0.1:1")
        await broker.register(running.address)
        assert (await running.client.call(address, Command(105, ext={"topic": "T"}), 5.0)).code == 17
        await broker.register(address)
        assert (await running.client.call(address, Command(105, ext={"topic": "T"}), 5.0)).code == 0
        await second.stop()
        assert await running.topics() == ["T"]
        await broker.leave()

    play(scenario)


def test_unknown_requests_are_answered_with_3(play: Play) -> None:
    async def scenario(running: Running) -> None:
        for code in (10, 34, 217, 901, 904, 99999):
            assert (await running.ask(code)).code == 3

    play(scenario)


def test_the_settings_show_where_it_listens(play: Play) -> None:
    async def scenario(running: Running) -> None:
        port = running.address.rpartition(":")[2]
        assert f"listenPort={port}\n" in (await running.ask(319)).body.decode()

    play(scenario)


def test_a_port_in_use(play: Play, tmp_path: Path) -> None:
    async def scenario(running: Running) -> None:
        second = NameServer(settings_in(tmp_path / "second"))
        with pytest.raises(RemotingError, match="cannot listen on 127"):
            await second.start("127.0.0.1", int(running.address.rpartition(":")[2]))
        assert not (tmp_path / "second").exists(), "nothing was written"

    play(scenario)


def test_a_stop_is_not_a_line_for_every_broker(
    play: Play, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", logger="embermq.namesrv")

    async def scenario(running: Running) -> None:
        broker = Broker("a", "127.0.0.1:1")
        await broker.register(running.address)
        await running.server.stop()
        await broker.leave()

    play(scenario)
    events = [record.getMessage().split()[0] for record in caplog.records]
    assert "event=broker_registered" in events
    assert "event=broker_removed" not in events
