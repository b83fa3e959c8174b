"""Routes that are kept and refreshed, over answers that are given by hand."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from embermq.client.calls import BrokerAddress, Caller
from embermq.client.name_servers import NameServers
from embermq.client.routes import Routes
from embermq.errors import NameServersUnreachable, RouteMissing
from embermq.remoting import Call, Connector, NoHeader, RemotingServer, Reply, RequestCode, RequestTable, Row


def body(perm: int = 6, queues: int = 8, broker: str = "a", address: str = "1.1.1.1:1") -> bytes:
    return (
        f'{{"brokerDatas":[{{"brokerAddrs":{{"0":"{address}"}},"brokerName":"{broker}","cluster":"C"}}],'
        f'"queueDatas":[{{"brokerName":"{broker}","perm":{perm},"readQueueNums":{queues},"writeQueueNums":{queues}}}]}}'
    ).encode()


class Names:
    """A name server that says what a test wants."""

    def __init__(self) -> None:
        self.routes: dict[str, bytes] = {}
        self.asked: list[str] = []

    def answer(self, call: Call[Any]) -> Reply:
        topic = (call.request.ext or {})["topic"]
        self.asked.append(topic)
        known = self.routes.get(topic)
        return Reply(17, "no") if known is None else Reply(body=known)


def play(scenario: Callable[[Names, Routes, RemotingServer], Awaitable[None]]) -> None:
    async def whole() -> None:
        names, server, connector = Names(), RemotingServer(), Connector()
        table = RequestTable([Row(RequestCode.GET_ROUTEINFO_BY_TOPIC, NoHeader, names.answer)])
        address = str(await server.listen("127.0.0.1", 0, table))
        try:
            await scenario(names, Routes(Caller(connector), NameServers([address]), 5.0), server)
        finally:
            await connector.close()
            await server.stop()

    asyncio.run(whole())


def test_a_route_is_asked_for_once() -> None:
    async def scenario(names: Names, routes: Routes, server: RemotingServer) -> None:
        names.routes["T"] = body()
        found = await asyncio.gather(*(routes.route("T") for _ in range(5)))
        await routes.route("T")
        assert names.asked == ["T"]
        assert all(one is found[0] for one in found)
        assert routes.broker("a") == BrokerAddress("a", "1.1.1.1:1")
        assert routes.broker("x") is None
        assert set(routes.brokers()) == {"a"}

    play(scenario)


def test_a_topic_that_is_not_there_is_named() -> None:
    async def scenario(names: Names, routes: Routes, server: RemotingServer) -> None:
        with pytest.raises(RouteMissing, match=r"'T'.*create the topic"):
            await routes.route("T")
        with pytest.raises(RouteMissing):
            await routes.route_to_send("T")

    play(scenario)


def test_a_new_topic_is_sent_to_where_it_would_be_made() -> None:
    async def scenario(names: Names, routes: Routes, server: RemotingServer) -> None:
        names.routes["TBW102"] = body(perm=7, queues=8)
        derived = await routes.route_to_send("T", 4)
        assert [queue.queue_id for queue in derived.write_queues()] == [0, 1, 2, 3]
        assert await routes.route_to_send("T", 4) is derived
        with pytest.raises(RouteMissing):
            await routes.route("T")
        names.routes["T"] = body(queues=2)
        await routes.refresh_all()
        assert len((await routes.route_to_send("T")).write_queues()) == 2
        assert len((await routes.route("T")).write_queues()) == 2

    play(scenario)


def test_changes_are_told_once() -> None:
    async def scenario(names: Names, routes: Routes, server: RemotingServer) -> None:
        changed: list[str] = []
        routes.on_change = changed.append
        names.routes["T"] = body()
        await routes.route("T")
        await routes.refresh_all()
        assert changed == ["T"]
        names.routes["T"] = body(address="2.2.2.2:2")
        await routes.refresh_all()
        assert changed == ["T", "T"]
        assert routes.broker("a") == BrokerAddress("a", "2.2.2.2:2")

    play(scenario)


def test_what_is_known_stays_known_without_a_name_server() -> None:
    async def scenario(names: Names, routes: Routes, server: RemotingServer) -> None:
        names.routes["T"] = body()
        known = await routes.route("T")
        await server.stop()
        await routes.refresh_all(["S"])
        assert await routes.route("T") is known
        with pytest.raises(NameServersUnreachable):
            await routes.route("S")
        routes.forget("T")
        assert routes.find("T") is None

    play(scenario)
