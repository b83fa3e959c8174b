"""A broker at its name servers: what it announces, what it takes from them, and that it leaves."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from embermq.namesrv import NameServer
from embermq.remoting import Command, parse_json
from embermq.settings import NamesrvSettings
from tests.support.brokers import RunningBroker, running, until

Scenario = Callable[[RunningBroker, str], Awaitable[None]]


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


def test_a_new_topic_is_in_the_routes_soon(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker, address: str) -> None:
        topics = parse_json((await ask(broker, address, 206)).body)["topicList"]
        assert sorted(topics) == sorted(broker.broker.topics.all())
        await broker.send("made", d=3)
        answer = await ask(broker, address, 105, topic="made")
        for _ in range(200):
            if answer.code == 0:
                break
            await asyncio.sleep(0.01)
            answer = await ask(broker, address, 105, topic="made")
        (queues,) = parse_json(answer.body)["queueDatas"]
        assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (3, 3, 6)

    play(scenario, tmp_path)


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
