"""A broker at its name servers: what it announces, what it takes from them, and that it leaves."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from embermq.broker.routing import announcements
from embermq.namesrv import NameServer
from embermq.remoting import (
    Call,
    Command,
    NoHeader,
    RemotingServer,
    Reply,
    RequestCode,
    RequestTable,
    ResponseCode,
    Row,
    parse_json,
)
from embermq.settings import FlushDisk, NamesrvSettings
from tests.support.brokers import RunningBroker, running, until

Scenario = Callable[[RunningBroker, str], Awaitable[None]]
NEW_TOPIC = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": 2,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
}


def play(scenario: Scenario, path: Path, **settings: Any) -> None:
    """Run a scenario with a name server; the broker is gone from its routes afterwards."""

    async def whole() -> None:
        names = NamesrvSettings(kv_config_path=path / "kv.json", config_store_path=path / "namesrv.properties")
        server = NameServer(names)
        address = str(await server.start("127.0.0.1", 0))
        try:
            async with running(path, name_servers=(address,), **settings) as broker:
                await scenario(broker, address)
                assert await brokers(broker, address) == {"b": {"0": broker.broker.address}}
                await broker.broker.stop()
                answer = await broker.client.call(address, Command(106), 5.0)
                assert parse_json(answer.body)["brokerAddrTable"] == {}
        finally:
            await server.stop()

    asyncio.run(whole())


async def ask(broker: RunningBroker, address: str, code: int, **ext: str) -> Command:
    return await broker.client.call(address, Command(code, ext=ext), 5.0)


async def brokers(broker: RunningBroker, address: str) -> dict[str, Any]:
    table = parse_json((await ask(broker, address, 106)).body)["brokerAddrTable"]
    return {name: one["brokerAddrs"] for name, one in table.items()}


async def permission(broker: RunningBroker, address: str, topic: str) -> int:
    (queues,) = parse_json((await ask(broker, address, 105, topic=topic)).body)["queueDatas"]
    return int(queues["perm"])


def test_a_new_topic_is_in_the_routes_when_its_first_message_is_acknowledged(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker, address: str) -> None:
        topics = parse_json((await ask(broker, address, 206)).body)["topicList"]
        assert sorted(topics) == sorted(broker.broker.topics.all())
        for number in range(30):
            assert (await broker.send(f"made-{number}", d=3)).code == 0
            answer = await ask(broker, address, 105, topic=f"made-{number}")
            assert answer.code == 0, number
            (queues,) = parse_json(answer.body)["queueDatas"]
            assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (3, 3, 6)

    play(scenario, tmp_path)


def test_a_changed_topic_is_in_the_routes_when_the_change_is_answered(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker, address: str) -> None:
        for queues in range(1, 20):
            assert (await broker.call(17, NEW_TOPIC | {"readQueueNums": queues})).code == 0
            answer = await ask(broker, address, 105, topic="T")
            assert parse_json(answer.body)["queueDatas"][0]["readQueueNums"] == queues

    play(scenario, tmp_path)


class SlowNameServer:
    """Answers a registration when it is let go; the first one, of the broker's start, at once."""

    def __init__(self) -> None:
        self.registered: list[set[str]] = []  # the topics of each registration
        self._goes_on = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.server = RemotingServer()

    async def start(self) -> str:
        rows = [Row(RequestCode.REGISTER_BROKER, NoHeader, self._register), Row(104, NoHeader, lambda _call: Reply())]
        return str(await self.server.listen("127.0.0.1", 0, RequestTable(rows)))

    def let_go(self) -> None:
        self._goes_on.set()

    def _register(self, call: Call[NoHeader]) -> Reply | None:
        table = parse_json(call.body)["topicConfigSerializeWrapper"]["topicConfigTable"]
        self.registered.append(set(table))
        if len(self.registered) == 1:
            return Reply()
        task = asyncio.get_running_loop().create_task(self._answer_late(call))
        self._tasks.add(task)
        return None

    async def _answer_late(self, call: Call[NoHeader]) -> None:
        await self._goes_on.wait()
        call.answer(Reply())

    async def stop(self) -> None:
        self.let_go()
        await self.server.stop()


def play_slow(scenario: Callable[[RunningBroker, SlowNameServer], Awaitable[None]], path: Path, **more: Any) -> None:
    async def whole() -> None:
        slow = SlowNameServer()
        address = await slow.start()
        try:
            async with asyncio.timeout(180), running(path, name_servers=(address,), **more) as broker:
                await scenario(broker, slow)
        finally:
            await slow.stop()

    asyncio.run(whole())


def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcements, "ANNOUNCE_SECONDS", 50.0)


@pytest.mark.parametrize("flush", FlushDisk)
def test_only_the_first_message_of_a_topic_waits_for_a_name_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: FlushDisk
) -> None:
    async def scenario(broker: RunningBroker, slow: SlowNameServer) -> None:
        first = asyncio.ensure_future(broker.send("new", b"1"))
        await until(lambda: slow.registered[1:] == [{"new"}])
        assert (await broker.send("new", b"2")).code == 0
        assert (await broker.send("TBW102", b"3")).code == 0
        assert not first.done()
        assert [message.body for message in await broker.stored("new")] == [b"1", b"2"], "it is stored meanwhile"
        slow.let_go()
        assert (await first).code == 0

    patient(monkeypatch)
    play_slow(scenario, tmp_path, store={"flush": flush})


def test_topics_that_are_made_meanwhile_are_announced_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: RunningBroker, slow: SlowNameServer) -> None:
        sends = [asyncio.ensure_future(broker.send("one"))]
        await until(lambda: len(slow.registered) == 2)
        sends += [asyncio.ensure_future(broker.send(topic)) for topic in ("two", "three")]
        change = asyncio.ensure_future(broker.call(17, NEW_TOPIC))
        await until(lambda: broker.broker.topics.find("T") is not None)
        assert not any(answer.done() for answer in (*sends, change))
        slow.let_go()
        assert {answer.code for answer in await asyncio.gather(*sends, change)} == {0}
        assert slow.registered[1:] == [{"one"}, {"two", "three", "T"}]

    patient(monkeypatch)
    play_slow(scenario, tmp_path)


def test_a_name_server_that_never_answers_delays_the_first_message_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: RunningBroker, slow: SlowNameServer) -> None:
        assert (await broker.send("new")).code == 0
        assert (await broker.call(17, NEW_TOPIC)).code == 0
        assert slow.registered[1] == {"new"}

    monkeypatch.setattr(announcements, "ANNOUNCE_SECONDS", 0.05)
    play_slow(scenario, tmp_path)


def test_a_refused_message_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: RunningBroker, slow: SlowNameServer) -> None:
        assert (await broker.send("new", c="none")).code == ResponseCode.TOPIC_NOT_EXIST
        assert len(slow.registered) == 1

    patient(monkeypatch)
    play_slow(scenario, tmp_path)


def test_one_silent_name_server_does_not_keep_topics_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def whole() -> None:
        names = NamesrvSettings(kv_config_path=tmp_path / "kv.json", config_store_path=tmp_path / "namesrv.properties")
        good, slow = NameServer(names), SlowNameServer()
        address, hung = str(await good.start("127.0.0.1", 0)), await slow.start()
        both: dict[str, Any] = {"name_servers": (address, hung), "register_timeout_ms": 300}
        try:
            async with asyncio.timeout(180), running(tmp_path, **both) as broker:
                assert (await broker.send("first")).code == 0
                assert broker.broker.unreachable_name_servers == {hung}
                for topic in ("second", "third"):
                    assert (await broker.send(topic)).code == 0
                    assert (await ask(broker, address, 105, topic=topic)).code == 0
                assert slow.registered[-1] >= {"first", "second", "third"}, "it gets what it has missed"
        finally:
            await good.stop()
            await slow.stop()

    patient(monkeypatch)
    asyncio.run(whole())


def test_a_broker_that_stops_answers_what_waits_for_a_name_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: RunningBroker, slow: SlowNameServer) -> None:
        sends = [asyncio.ensure_future(broker.send("one"))]
        await until(lambda: len(slow.registered) == 2)
        sends.append(asyncio.ensure_future(broker.send("two")))
        await until(lambda: broker.broker.topics.find("two") is not None)
        await broker.broker.stop()
        assert {answer.code for answer in await asyncio.gather(*sends)} == {0}

    patient(monkeypatch)
    play_slow(scenario, tmp_path)


def test_a_broker_that_may_only_be_read_says_so_of_every_topic(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker, address: str) -> None:
        assert await permission(broker, address, "TBW102") == 4
        assert await permission(broker, address, "BenchmarkTest") == 4
        config = broker.broker.topics.find("TBW102")
        assert config is not None
        assert config.perm == 7, "the table keeps what was configured"

    play(scenario, tmp_path, permission=4)


def test_ordered_topics_are_those_that_the_name_server_names(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker, address: str) -> None:
        def is_ordered() -> bool:
            config = broker.broker.topics.find("orders")
            return config is not None and config.order

        await broker.send("orders")
        put = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "b:4"}
        assert (await ask(broker, address, 100, **put)).code == 0
        await broker.send("another")  # A topic is announced: the answer names the ordered ones.
        await until(is_ordered)
        assert (await ask(broker, address, 102, namespace="ORDER_TOPIC_CONFIG", key="orders")).code == 0
        await broker.send("yet-another")
        await until(lambda: not is_ordered())

    play(scenario, tmp_path)
