"""RocketMQ's mqadmin 4.9 administers an EmberMQ broker through an EmberMQ name server."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from embermq.namesrv import NameServer
from embermq.settings import NamesrvSettings
from tests.interop import java_broker, reference
from tests.interop.java_broker import mqadmin
from tests.support.brokers import RunningBroker, consumer, running, subscription

pytestmark = pytest.mark.interop

Admin = Callable[..., Awaitable[str]]


@pytest.fixture(scope="module", autouse=True)
def _fetched() -> None:
    try:
        java_broker.class_path()
    except reference.ReferenceMissing as why:
        pytest.skip(str(why))


def play(scenario: Callable[[RunningBroker, Admin], Awaitable[None]], directory: Path) -> None:
    """A name server, a broker that is registered with it, and mqadmin."""

    async def whole() -> None:
        settings = NamesrvSettings(
            kv_config_path=directory / "kvConfig.json", config_store_path=directory / "namesrv.properties"
        )
        server = NameServer(settings)
        address = str(await server.start("127.0.0.1", 0))
        try:
            async with running(directory, name_servers=(address,), store={"broker_ip": "127.0.0.1"}) as broker:

                async def admin(*words: str) -> str:
                    return await asyncio.to_thread(mqadmin, directory, [*words, "-n", address])

                await scenario(broker, admin)
        finally:
            await server.stop()

    directory.mkdir(parents=True, exist_ok=True)
    asyncio.run(whole())


def test_mqadmin_administers_a_broker(directory: Path) -> None:
    async def scenario(broker: RunningBroker, admin: Admin) -> None:
        shown = await admin("clusterList")
        assert "DefaultCluster" in shown
        assert broker.broker.address in shown
        assert "V4_9_8" in shown
        made = await admin("updateTopic", "-b", broker.broker.address, "-t", "orders", "-r", "2", "-w", "2")
        assert "success" in made
        assert "orders" in await admin("topicList")
        for _ in range(3):
            await broker.send("orders", b"x", "KEYS\x01k1\x02UNIQ_KEY\x01U1")
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        lines = [line.split() for line in (await admin("topicStatus", "-t", "orders")).splitlines()]
        assert ["b", "0", "0", "3"] in [line[:4] for line in lines]
        await broker.heartbeat("c1", [consumer("readers", subscription("orders"))])
        commit = {"consumerGroup": "readers", "topic": "orders", "queueId": 0, "commitOffset": 2}
        await broker.call(15, commit)
        progress = await admin("consumerProgress", "-g", "readers")
        assert ["orders", "b", "0", "3", "2", "1"] in [line.split()[:6] for line in progress.splitlines()]
        assert "Diff Total: 1" in progress
        status = await admin("brokerStatus", "-b", broker.broker.address)
        assert ["msgPutTotalTodayNow", ":", "3"] in [line.split() for line in status.splitlines()]
        assert "putTps" in status
        found = [line.split() for line in (await admin("queryMsgByKey", "-t", "orders", "-k", "k1")).splitlines()]
        assert [line for line in found if line[:1] == ["U1"]] == [["U1", "0", str(number)] for number in range(3)]
        refused = await admin("updateBrokerConfig", "-b", broker.broker.address, "-k", "rocketmqHome", "-v", "/tmp")
        assert "black list" in refused
        assert "success" in await admin("deleteTopic", "-c", "DefaultCluster", "-t", "orders")
        assert broker.broker.topics.find("orders") is None

    play(scenario, directory)
