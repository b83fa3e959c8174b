"""NameServer: the tables, the requests and the connections of one name server, on a running asyncio loop.

    server = NameServer(NamesrvSettings(kv_config_path=...))
    address = await server.start("127.0.0.1", 9876)
    ...
    await server.stop()

In a process of its own or inside a broker's: nothing of it is shared. A broker is removed when it unregisters, at once
when the connection on which it registered last is closed, and after 120 s without a registration, which is looked at
every 10 s. The loop's thread only.
"""

import asyncio
import logging

from embermq.clock import Clock, SystemClock
from embermq.files import Files, RealFiles
from embermq.model.hosts import Host
from embermq.namesrv.counters import NamesrvCounters
from embermq.namesrv.kv_config import KvConfig
from embermq.namesrv.live_settings import LiveSettings
from embermq.namesrv.requests import NamesrvRequests
from embermq.namesrv.route_table import LiveBroker, RouteTable
from embermq.remoting import Link, RemotingLimits, RemotingServer, RequestTable
from embermq.settings import NamesrvSettings

log = logging.getLogger(__name__)

BROKER_SECONDS = 120.0
SCAN_FIRST_SECONDS = 5.0
SCAN_SECONDS = 10.0


class NameServer:
    """One name server. Started once, stopped once."""

    def __init__(
        self, settings: NamesrvSettings | None = None, *, files: Files | None = None, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        files = files or RealFiles()
        self._settings = LiveSettings(files, settings or NamesrvSettings())
        self._kv = KvConfig(files, self._settings.current.kv_config_path)
        self._server: RemotingServer | None = None
        self._scanner: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self.counters = NamesrvCounters()
        self.routes = RouteTable()
        requests = NamesrvRequests(self.routes, self._kv, self._settings, self.counters, self._clock)
        self.requests: RequestTable = requests.table()

    @property
    def settings(self) -> NamesrvSettings:
        """As they are now: some may be changed by request."""
        return self._settings.current

    async def start(self, host: str, port: int) -> Host:
        """Load the KV config and listen; the address with its real port. RemotingError when it cannot be had."""
        assert self._server is None, "a name server is started once"
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._load)
        settings = self._settings.current
        limits = RemotingLimits(connections=settings.connections_max, idle_seconds=float(settings.idle_seconds))
        server = RemotingServer(limits, self._disconnected)
        try:
            address = await server.listen(host, port, self.requests)
        except BaseException:
            await server.stop()
            raise
        self._server = server
        self._settings.listens_on(address)
        self._scanner = loop.call_later(SCAN_FIRST_SECONDS, self._scan)
        log.info("event=namesrv_started listen=%s kv_config=%s kv_entries=%d", address, self._kv.path, self._kv.entries)
        return address

    async def stop(self) -> None:
        """Answer what is under way, then close everything."""
        self._is_stopping = True
        if self._scanner is not None:
            self._scanner.cancel()
        if self._server is not None:
            await self._server.stop()
            log.info("event=namesrv_stopped registrations=%d", self.counters.registrations)

    def expire_brokers(self) -> list[LiveBroker]:
        """Remove the brokers that were silent for too long, and close their connections."""
        gone = self.routes.expire(self._clock.monotonic(), BROKER_SECONDS)
        for live in gone:
            self.counters.brokers_expired += 1
            _log_removed(live, f"silent for over {BROKER_SECONDS:g} s")
            live.connection.close(f"no registration for {BROKER_SECONDS:g} s")
        return gone

    def _load(self) -> None:
        self._settings.load()
        self._kv.load()

    def _scan(self) -> None:
        self._scanner = asyncio.get_running_loop().call_later(SCAN_SECONDS, self._scan)
        self.expire_brokers()

    def _disconnected(self, link: Link, reason: str) -> None:
        for live in self.routes.disconnected(link):
            self.counters.brokers_disconnected += 1
            if not self._is_stopping:
                _log_removed(live, f"its connection ended: {reason}")


def _log_removed(live: LiveBroker, reason: str) -> None:
    one = live.identity
    log.warning(
        "event=broker_removed broker=%s id=%d address=%s cluster=%s reason=%r",
        one.name,
        one.broker_id,
        one.address,
        one.cluster,
        reason,
    )
