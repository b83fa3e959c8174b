"""A master that was cut off while another one was promoted: it refuses sends once it can ask, and stays away."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from embermq import Message, MessageStore, StoreSettings
from embermq.remoting import Command, RequestCode, ResponseCode, parse_json
from embermq.replication import promote
from tests.support.brokers import SMALL, RunningBroker, running
from tests.support.cut_link import CutLink
from tests.unit.broker.replicas.test_pair import name_server


def settings() -> StoreSettings:
    small: dict[str, Any] = dict(SMALL)
    return StoreSettings(**small)


def promoted(path: Path) -> None:
    """A store that was a slave of epoch 0, and is the master of epoch 1."""
    with MessageStore.open(path / "store", settings()) as store:
        store.append(Message("T", b"both"))
    assert promote(path / "store", settings()).number == 1


async def master_of(broker: RunningBroker, names: str) -> str:
    """Whom a name server calls the master."""
    answer = await broker.client.call(names, Command(RequestCode.GET_BROKER_CLUSTER_INFO), 30.0)
    address: str = parse_json(answer.body)["brokerAddrTable"]["b"]["brokerAddrs"]["0"]
    return address


async def figure(broker: RunningBroker, name: str) -> str:
    shown = parse_json((await broker.call(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
    return str(shown[name])


@contextlib.asynccontextmanager
async def old_and_new(path: Path) -> AsyncIterator[tuple[RunningBroker, RunningBroker, CutLink, str]]:
    """An old master behind a link that is blocked, and the one that was promoted meanwhile; the name server's address
    without the link."""
    promoted(path / "new")
    async with asyncio.timeout(90), name_server(path) as names:
        with CutLink(int(names.rpartition(":")[2])) as link:
            far: dict[str, Any] = {"name_servers": (f"127.0.0.1:{link.port}",), "replicates": True}
            async with running(path / "old", **far) as old:
                assert (await old.send("T", b"1")).code == 0
                link.block(True)
                async with running(path / "new", name_servers=(names,), replicates=True) as new:
                    yield old, new, link, names


def test_a_running_master_that_was_cut_off_is_fenced(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with old_and_new(tmp_path) as (old, new, link, names):
            await old.broker.register_again()  # In vain: it cannot ask, and goes on.
            assert (await old.send("T", b"2")).code == 0
            assert await figure(old, "emberFencedBy") == ""
            link.block(False)
            await old.broker.register_again()
            refused = await old.send("T", b"3")
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert await figure(old, "emberFencedBy") == new.broker.address
            assert [m.body for m in await old.stored("T")] == [b"1", b"2"]
            assert (await new.send("T", b"4")).code == 0
            assert await master_of(new, names) == new.broker.address

    asyncio.run(scenario())


def test_a_fenced_one_stays_fenced_and_takes_no_route(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with old_and_new(tmp_path) as (old, new, link, names):
            link.block(False)
            await old.broker.register_again()
            await new.broker.stop()  # The name server knows no master now.
            await old.broker.register_again()
            assert (await old.send("T", b"x")).code == ResponseCode.SERVICE_NOT_AVAILABLE
            answer = await old.client.call(names, Command(RequestCode.GET_BROKER_CLUSTER_INFO), 30.0)
            assert parse_json(answer.body)["brokerAddrTable"] == {}

    asyncio.run(scenario())


def test_the_later_one_is_not_fenced_by_the_earlier(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with old_and_new(tmp_path) as (old, new, link, names):
            link.block(False)
            assert old.broker._registration is not None
            await old.broker._registration.register_all()  # It has taken the route in the moment after its look.
            assert await master_of(new, names) == old.broker.address
            await new.broker.register_again()
            assert (await new.send("T", b"x")).code == 0
            assert await master_of(new, names) == new.broker.address
            await old.broker.register_again()
            assert (await old.send("T", b"x")).code == ResponseCode.SERVICE_NOT_AVAILABLE

    asyncio.run(scenario())
