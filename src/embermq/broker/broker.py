"""Broker: a store behind the wire. It holds the parts, starts and stops them in order.

    store           opened by the caller, closed by the caller: recovered before anything listens
    tables          topics, groups, offsets from config/ (config_tables.py)
    shared          what requests of several families work with (shared.py)
    requests        one class a family, each with its rows; together they are the request table (request_rows.py)
    runs            many sends at once, before the table is asked
    server          the main port with all rows, and the port two below without pulls
    replication     the log to slaves, or from the master (replicas/)
    registration    all name servers

One asyncio loop owns the sockets and runs the handlers; its thread makes the appends. `stop` answers what waits, takes
the broker out of the name servers' routes first, and saves every table.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from embermq.broker.admin.overrides import Overrides
from embermq.broker.admin.runtime import RuntimeAdmin
from embermq.broker.config_tables import ConfigTables
from embermq.broker.members import ConsumerFilters
from embermq.broker.reading import LOOK_SECONDS
from embermq.broker.replicas import Replication
from embermq.broker.replicas.tables import SlaveTables
from embermq.broker.request_rows import admin_rows, client_rows
from embermq.broker.request_runs import RequestRuns
from embermq.broker.routing import Registration
from embermq.broker.sending import SendRuns, Sends
from embermq.broker.shared import Shared
from embermq.broker.transactions import EndRuns, Transactions
from embermq.clock import Clock, SystemClock
from embermq.columns import ServerKernels
from embermq.errors import StoreError
from embermq.files import Files, RealFiles
from embermq.model.hosts import Host
from embermq.remoting import Connector, RemotingLimits, RemotingServer, RequestCode, RequestTable, Row, bind
from embermq.replication import Replicas
from embermq.settings import BrokerSettings, KernelUse
from embermq.store import MessageStore

log = logging.getLogger(__name__)

SCAN_SECONDS = 10.0
LOST_SECONDS = 5.0  # A slave without its master asks name servers for it so often.


class Broker:
    """One broker on a running loop. Make it with `Broker.start`."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        hooks: Sequence[object] = (),
        filters: ConsumerFilters | None = None,
        replicas: Replicas | None = None,
    ) -> None:
        """`filters`: those whose bits `store` was opened with, if it keeps filter bits; `replicas`: those that its
        retention asks, if it does."""
        self._loop = asyncio.get_running_loop()
        self.store, clock, files = store, clock or SystemClock(), files or RealFiles()
        replicas = replicas or Replicas(store.settings.ha_behind_bytes_max)
        tables = ConfigTables(store, clock, files, filters)
        self.findings = tables.findings
        self._overrides = Overrides(tables.overrides)
        self._current = self._overrides.apply(settings)
        self._shared = shared = Shared(self._settings_now, store, tables, replicas, hooks, clock, self._loop)
        self.topics, self.groups, self.offsets = shared.topics, shared.groups, shared.offsets
        self.filters, self.clients, self.held = shared.filters, shared.clients, shared.held
        self.statistics = shared.statistics
        self.adopted = self.topics.adopt(store.topics())
        self.server = RemotingServer(_limits(self._current), shared.forget)
        self._connector = Connector()
        slave_tables = SlaveTables(self.topics, self.groups, self.offsets, tables.delays, self._connector)
        self.replication = Replication(store, replicas, slave_tables, self._settings_now, self._connector)
        self.transactions = _transactions(shared, tables, self.server)
        sends = _sends(shared, self.transactions)
        acknowledgements = shared.acknowledgements
        self.runs = RequestRuns(
            SendRuns(
                self._settings_now, store, self.topics, sends, self.transactions, acknowledgements, self.statistics
            ),
            EndRuns(store, self.transactions, acknowledgements, self.statistics),
        )
        self.table = RequestTable(
            [*client_rows(shared, sends, self.transactions, self.server), *self._admin_rows(files)]
        )
        self._kernels = ServerKernels()
        self._registration: Registration | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.listen: list[Host] = []

    def _admin_rows(self, files: Files) -> list[Row]:
        shared = self._shared
        runtime = RuntimeAdmin(
            self._settings_now,
            self.store,
            files,
            self.statistics,
            shared.acknowledgements,
            self.server,
            shared.later,
            self.refused,
            self.replication.figures,
        )
        return admin_rows(shared, runtime, self._overrides, self._take, lambda: self.address)

    @property
    def settings(self) -> BrokerSettings:
        return self._current

    def _settings_now(self) -> BrokerSettings:
        return self._current

    @property
    def address(self) -> str:
        """Where clients find this broker."""
        port = self.listen[0].port if self.listen else self.store.settings.listen_port
        return str(Host(self.store.settings.broker_ip, port))

    def refused(self) -> dict[str, int]:
        """How often something was refused because there was too much of it, by what it was."""
        counters = self.server.counters
        return {
            "Connections": counters.connections_refused,
            "Bodies": counters.bodies_refused,
            "Requests": counters.busy + self._shared.later.refused,
            "Pushes": counters.pushes_dropped,
            **self._shared.refused(),
        }

    # -- life ------------------------------------------------------------------------------------------------

    async def start(
        self,
        bound: socket.socket | None = None,
        fast: socket.socket | None = None,
        ha: socket.socket | None = None,
    ) -> None:
        """Listen, register, and take requests. `bound`, `fast`: sockets that have the main port and the one two below
        it already; `ha`: one that has the replication port, without which no slave can follow."""
        settings, port = self._current, self.store.settings.listen_port
        bound = bound or bind(settings.listen_address, port)
        await asyncio.to_thread(self.transactions.open)
        if self.store.settings.kernels is KernelUse.ALWAYS:
            await asyncio.to_thread(self._kernels.load)
        self._kernels.enter()
        main = await self.server.accept(bound, self.table, self.runs)
        self.listen = [main]
        if settings.fast_port and main.port > 2:
            fast = fast or bind(settings.listen_address, main.port - 2)
            self.listen.append(await self.server.accept(fast, _fast(self.table), self.runs))
        await self.replication.fence.check(str(Host(self.store.settings.broker_ip, main.port)))
        self.replication.start(ha)
        self._registration = Registration(
            self._settings_now,
            self.topics,
            self._connector,
            str(Host(self.store.settings.broker_ip, main.port)),
            str(Host(self.store.settings.broker_ip, self.replication.port or main.port + 1)),
            self.store.settings.broker_id,
            self.replication.learn_master,
        )
        self.topics.take_unannounced()
        await self._registration.register_all()
        self._tasks = [
            self._loop.create_task(self._shared.saver.run()),
            self._loop.create_task(self._every(LOOK_SECONDS, self.held.look)),
            self._loop.create_task(self._every(settings.offsets_flush_ms / 1000, self._save_progress)),
            self._loop.create_task(self._every(SCAN_SECONDS, self._scan)),
            self._loop.create_task(self._check_transactions()),
            self._loop.create_task(self._keep_registered()),
            self._loop.create_task(self._shared.announcements.run(self._registration)),
            self._loop.create_task(self.statistics.run()),
        ]
        self._shared.saver.soon()

    async def stop(self) -> None:
        """Leave the routes, answer what waits, close the connections, save the tables."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        if self._registration is not None and self.replication.fence.rival is None:
            # Of a fenced one, RocketMQ's name server would take the other master out: it looks at the name alone.
            await self._registration.unregister()
        self.held.release_all()
        await self.server.stop()
        await self._shared.later.end()
        await self.replication.stop()
        await self._connector.close()
        await asyncio.to_thread(self._kernels.stop)
        await self._save_transactions()
        await asyncio.to_thread(self.save_tables)

    def save_tables(self) -> None:
        """Write every table that changed. Any thread; blocks."""
        self._shared.saver.save_all()

    async def abort(self) -> None:
        """End at once, like a killed process: no answer is sent, nothing is saved, no name server is notified."""
        self.server.abort("the broker ends at once")
        for task in self._tasks:
            task.cancel()
        await self.replication.stop()
        await self._connector.close()
        await asyncio.to_thread(self._kernels.stop)

    async def _save_transactions(self) -> None:
        """Take down the last state of transactions, with the log durable as far as it tells of it."""
        with suppress(StoreError):
            await asyncio.to_thread(self.store.flush)
        if not self.replication.is_slave:
            self.transactions.keep_state()

    async def topics_announced(self) -> None:
        """Until the name servers know every topic that was made up to now, or do not answer."""
        announced = self._shared.announcements.of_now()
        if announced is not None:
            await asyncio.shield(announced)  # Others may wait for it as well.

    @property
    def unreachable_name_servers(self) -> frozenset[str]:
        return self._registration.unreachable if self._registration is not None else frozenset()

    # -- what goes on by itself ------------------------------------------------------------------------------

    async def _every(self, seconds: float, do: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            do()

    def _save_progress(self) -> None:
        if not self.replication.is_slave:
            self.transactions.keep_state()
        self._shared.saver.soon()

    async def _check_transactions(self) -> None:
        while True:
            await asyncio.sleep(self._current.transaction_check_interval_ms / 1000)
            try:
                await self.transactions.check()
            except StoreError as problem:
                log.error("event=transaction_check_failed reason=%r", str(problem))

    async def _keep_registered(self) -> None:
        assert self._registration is not None
        while True:
            period = self._current.register_period_ms / 1000
            is_lost = self.replication.is_slave and not self.replication.is_following
            await asyncio.sleep(min(period, LOST_SECONDS) if is_lost else period)
            await self.register_again()

    async def register_again(self) -> None:
        """Show the name servers that this broker is there; a fenced one leaves the routes to the other master."""
        if self._registration is not None and await self.replication.fence.is_passed(self.address):
            await self._registration.register_all()

    def _scan(self) -> None:
        self._shared.scan()
        if self.clients.has_producers and self.store.settings.kernels is KernelUse.AUTO:
            self._kernels.load_soon()  # They are there when many messages come at once.

    def _take(self, settings: BrokerSettings) -> None:
        """Go on with other settings. What clients may do stands in the routes."""
        before, self._current = self._current, settings
        if settings.permission != before.permission and self._registration is not None:
            self._tasks.append(self._loop.create_task(self._registration.register_all()))


def _limits(settings: BrokerSettings) -> RemotingLimits:
    return RemotingLimits(
        frame_bytes=settings.frame_bytes_max,
        connections=settings.connections_max,
        in_flight_per_connection=settings.requests_per_connection_max,
        in_flight=settings.requests_max,
        kept_bytes=settings.kept_bytes_max,
        blocking_calls=settings.blocking_requests_max,
        pending_calls=settings.pushes_max,
        unread_bytes=settings.unread_bytes_max,
        unsent_bytes=settings.unsent_bytes_max,
        write_limit_bytes=settings.unsent_per_connection_max,
        idle_seconds=float(settings.idle_seconds),
    )


def _fast(table: RequestTable) -> RequestTable:
    """The rows of the port two below the main one: all but pulls."""
    return RequestTable(row for row in table if row.code != RequestCode.PULL_MESSAGE)


def _transactions(shared: Shared, tables: ConfigTables, server: RemotingServer) -> Transactions:
    return Transactions(
        shared.settings,
        shared.store,
        shared.topics,
        shared.clients,
        shared.offsets,
        tables.transactions,
        shared.acknowledgements,
        shared.statistics,
        shared.clock,
        server.run_on_pool,
    )


def _sends(shared: Shared, transactions: Transactions) -> Sends:
    return Sends(
        shared.settings,
        shared.store,
        shared.topics,
        shared.groups,
        shared.announcements,
        shared.acknowledgements,
        shared.hooks,
        shared.statistics,
        transactions,
        shared.clock,
    )
