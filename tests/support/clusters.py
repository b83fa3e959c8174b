"""Brokers with a name server on loopback, for tests of clients.

def test_something(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with Producer(name_server=cluster.name_server, group="g") as producer: ...

    play(scenario, tmp_path)
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from embermq.namesrv import NameServer
from embermq.settings import NamesrvSettings
from tests.support.brokers import SCENARIO_SECONDS, RunningBroker, running

Scenario = Callable[["Cluster"], Awaitable[None]]


class Cluster:
    """A name server and the brokers that are registered with it, by name."""

    def __init__(self, name_server: str, brokers: dict[str, RunningBroker]) -> None:
        self.name_server, self.brokers = name_server, brokers

    @property
    def broker(self) -> RunningBroker:
        """The first."""
        return next(iter(self.brokers.values()))


@contextlib.asynccontextmanager
async def running_cluster(path: Path, brokers: int = 1, **more: Any) -> AsyncIterator[Cluster]:
    """Brokers named a, b, ...; the rest as for `running`."""
    names = NamesrvSettings(kv_config_path=path / "kv.json", config_store_path=path / "namesrv.properties")
    server = NameServer(names)
    address = str(await server.start("127.0.0.1", 0))
    try:
        async with contextlib.AsyncExitStack() as stack:
            started = {
                name: await stack.enter_async_context(
                    running(path / name, broker_name=name, name_servers=(address,), **more)
                )
                for name in "abcdefgh"[:brokers]
            }
            yield Cluster(address, started)
    finally:
        await server.stop()


def play(scenario: Scenario, path: Path, **more: Any) -> None:
    """Run a scenario against a cluster; all of it is gone afterwards."""

    async def whole() -> None:
        async with asyncio.timeout(SCENARIO_SECONDS), running_cluster(path, **more) as cluster:
            await scenario(cluster)

    asyncio.run(whole())


@contextlib.contextmanager
def cluster_on_thread(path: Path, **more: Any) -> Iterator[Cluster]:
    """A cluster on the loop of another thread, for synchronous clients."""
    is_up, ready, stop = threading.Event(), [], asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with running_cluster(path, **more) as cluster:
            ready.append(cluster)
            is_up.set()
            await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            is_up.set()
            loop.close()

    thread = threading.Thread(target=run, name="test-cluster")
    thread.start()
    try:
        assert is_up.wait(30)
        assert ready, "the cluster did not start"
        yield ready[0]
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join(30)
