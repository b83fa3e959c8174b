"""Instance: what producers and consumers have in common: connections, routes, heartbeats. The loop's thread only.

    instance = Instance(settings, heartbeat=lambda: Heartbeat(...), rows=[Row(...)])
    await instance.start()
    await instance.close()

`rows` answer what brokers ask their clients. The heartbeat is asked for whenever one is sent; it goes to the master of
every broker in the routes, and to slaves as well if it has consumers.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from embermq.client.calls import BrokerAddress, Caller, Heartbeat, heartbeat, unregister
from embermq.client.name_servers import NameServers
from embermq.client.namespaces import with_namespace, without_namespace
from embermq.client.routes import Routes
from embermq.client.settings import ClientSettings, new_client_id
from embermq.client.topic_route import MASTER
from embermq.errors import BrokerUnreachable, ClientError, RequestRefused
from embermq.remoting import Connector, RequestTable, Row

log = logging.getLogger(__name__)

FIRST_HEARTBEAT_SECONDS = 1.0
UNREGISTER_SECONDS = 1.0


class Instance:
    """One client of a cluster, with an id of its own. Started once, closed once."""

    def __init__(self, settings: ClientSettings, heartbeat: Callable[[], Heartbeat], rows: Iterable[Row] = ()) -> None:
        self.settings = settings
        self.client_id = settings.client_id or new_client_id(settings.name_servers)
        self._heartbeat = heartbeat
        self.connector = Connector(RequestTable(rows), tls=settings.tls_context())
        self.caller = Caller(self.connector, settings.credentials)
        self.routes = Routes(self.caller, NameServers(settings.name_servers), settings.call_timeout)
        self.topics: set[str] = set()  # refreshed with those that are known, for topics that do not exist yet
        self.versions: dict[str, int] = {}  # protocol versions of brokers by name, from their heartbeats
        self._loops: list[asyncio.Task[None]] = []

    def wire(self, name: str) -> str:
        """A topic or group as the brokers know it."""
        return with_namespace(name, self.settings.namespace)

    def plain(self, name: str) -> str:
        """A topic or group as the user knows it."""
        return without_namespace(name, self.settings.namespace)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._loops.append(loop.create_task(self._refresh_routes()))
        self._loops.append(loop.create_task(self._send_heartbeats()))

    async def close(self) -> None:
        """Leave the groups, then close the connections."""
        loops, self._loops = self._loops, []
        for task in loops:
            task.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await self._leave()
        await self.connector.close()

    def every(self, seconds: float, work: Callable[[], Any], first: float | None = None) -> None:
        """Call an async function again and again until the instance is closed. Errors are logged."""

        async def repeat() -> None:
            await asyncio.sleep(seconds if first is None else first)
            while True:
                try:
                    await work()
                except ClientError as problem:
                    log.warning("event=client_work_failed client=%s reason=%r", self.client_id, str(problem))
                except Exception:
                    log.exception("event=client_work_failed client=%s", self.client_id)
                await asyncio.sleep(seconds)

        self._loops.append(asyncio.get_running_loop().create_task(repeat()))

    # -- heartbeats --------------------------------------------------------------------------------------------

    async def beat(self) -> None:
        """Send a heartbeat to every broker. What goes wrong is logged."""
        said = self._heartbeat()
        if not said.producer_groups and not said.consumers:
            return
        body = said.body()
        await asyncio.gather(*(self._beat_logged(to, body) for to in self._targets(bool(said.consumers))))

    async def beat_to(self, to: BrokerAddress) -> None:
        """Send a heartbeat to one broker; BrokerUnreachable, RequestRefused."""
        version = await heartbeat(self.caller, to, self._heartbeat().body(), self.settings.call_timeout)
        self.versions[to.name] = version

    async def _beat_logged(self, to: BrokerAddress, body: bytes) -> None:
        try:
            self.versions[to.name] = await heartbeat(self.caller, to, body, self.settings.call_timeout)
        except (BrokerUnreachable, RequestRefused) as problem:
            log.warning("event=heartbeat_failed client=%s reason=%r", self.client_id, str(problem))

    def _targets(self, also_slaves: bool) -> list[BrokerAddress]:
        return [
            BrokerAddress(name, address)
            for name, data in self.routes.brokers().items()
            for broker_id, address in data.broker_addrs.items()
            if also_slaves or broker_id == MASTER
        ]

    async def _leave(self) -> None:
        """Tell the brokers to which there is a connection that the groups have one member less."""
        said = self._heartbeat()
        targets = [to for to in self._targets(also_slaves=True) if self.connector.find(to.address) is not None]
        groups: list[dict[str, str]] = [{"producer_group": group} for group in said.producer_groups]
        groups += [{"consumer_group": one.group} for one in said.consumers]
        calls = [
            unregister(self.caller, to, self.client_id, UNREGISTER_SECONDS, **group)
            for to in targets
            for group in groups
        ]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, ClientError):
                log.info("event=unregister_failed client=%s reason=%r", self.client_id, str(outcome))
            elif isinstance(outcome, BaseException):
                raise outcome

    # -- loops -------------------------------------------------------------------------------------------------

    async def _refresh_routes(self) -> None:
        while True:
            await asyncio.sleep(self.settings.route_seconds)
            await self.routes.refresh_all(self.topics)

    async def _send_heartbeats(self) -> None:
        await asyncio.sleep(FIRST_HEARTBEAT_SECONDS)
        while True:
            await self.beat()
            await asyncio.sleep(self.settings.heartbeat_seconds)
