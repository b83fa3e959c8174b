"""Broker: a store behind the wire. It holds the parts, starts and stops them in order.

    store           opened by the caller, closed by the caller: recovered before anything listens
    tables          topics, groups, offsets from config/
    requests        one class a family, each with its rows; together they are the request table
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

from embermq.broker.admin.configuration import ConfigurationAdmin
from embermq.broker.admin.connections import ConnectionAdmin
from embermq.broker.admin.entries import EntriesAdmin
from embermq.broker.admin.groups import GroupAdmin
from embermq.broker.admin.offsets import OffsetAdmin
from embermq.broker.admin.overrides import OVERRIDES, Overrides
from embermq.broker.admin.progress import ProgressAdmin
from embermq.broker.admin.refused import Refusals
from embermq.broker.admin.relay import RelayAdmin
from embermq.broker.admin.reset import ResetAdmin
from embermq.broker.admin.runtime import RuntimeAdmin
from embermq.broker.admin.topics import TopicAdmin
from embermq.broker.admin.upkeep import UpkeepAdmin
from embermq.broker.answers.acknowledgements import Acknowledgements
from embermq.broker.answers.later import Later
from embermq.broker.hooks import Hooks
from embermq.broker.members.clients import Clients, ConsumerGroup
from embermq.broker.members.consumer_filters import ConsumerFilters
from embermq.broker.members.queue_locks import LOCK_OWNERS, QueueLocks
from embermq.broker.members.requests import ClientRequests, notify_members
from embermq.broker.reading.held_pulls import LOOK_SECONDS, HeldPulls
from embermq.broker.reading.offset_requests import OffsetRequests
from embermq.broker.reading.pulls import Pulls
from embermq.broker.reading.queries import QueryRequests
from embermq.broker.replicas import Replication
from embermq.broker.replicas.tables import SlaveTables
from embermq.broker.routing.announcements import Announcements
from embermq.broker.routing.registration import Registration
from embermq.broker.sending.replies import Replies
from embermq.broker.sending.runs import SendRuns
from embermq.broker.sending.send_back import SendBacks
from embermq.broker.sending.sends import Sends
from embermq.broker.statistics import Statistics
from embermq.broker.tables.groups import Groups
from embermq.broker.tables.offsets import ConsumerOffsets
from embermq.broker.tables.saving import Saver
from embermq.broker.tables.topics import Topics
from embermq.broker.transactions import TRANSACTIONS, Transactions
from embermq.clock import Clock, SystemClock
from embermq.errors import StoreError
from embermq.files import Files, RealFiles
from embermq.model.hosts import Host
from embermq.remoting import Connector, Link, RemotingLimits, RemotingServer, RequestCode, RequestTable, Row, bind
from embermq.replication import Replicas
from embermq.settings import BrokerSettings
from embermq.store import MessageStore
from embermq.store.tables import CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, TOPICS, ConfigTable

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
        self.store, self._clock = store, clock or SystemClock()
        self._files = files or RealFiles()
        tables = (
            ConfigTable(self._files, store.path, TOPICS, self._clock),
            ConfigTable(self._files, store.path, GROUPS, self._clock),
            ConfigTable(self._files, store.path, CONSUMER_OFFSETS, self._clock),
            ConfigTable(self._files, store.path, OVERRIDES, self._clock),
            ConfigTable(self._files, store.path, TRANSACTIONS, self._clock),
            ConfigTable(self._files, store.path, LOCK_OWNERS, self._clock),
        )
        self.findings = [finding for table in tables if (finding := table.load()) is not None]
        topics, groups, offsets, overrides, transactions, lock_owners = tables
        if filters is None:
            filters = ConsumerFilters.load(store.path, store.settings, self._clock, self._files)
        self.filters = filters
        if self.filters.finding is not None:
            self.findings.append(self.filters.finding)
        self._overrides = Overrides(overrides)
        self._current = settings = self._overrides.apply(settings)
        self.offsets = ConsumerOffsets(offsets, self._settings_now)
        saved = {
            "topics": topics.save,
            "groups": groups.save,
            "offsets": offsets.save,
            "transactions": transactions.save,
            "filters": self.filters.save,
            "locks": lock_owners.save,
        }
        self._saver = Saver(saved, self._loop)
        self.topics = Topics(topics, self._settings_now, self._topics_changed)
        self._announcements = Announcements(self.topics, self._loop)
        self.groups = Groups(groups, self._settings_now, self._saver.soon)
        self.adopted = self.topics.adopt(store.topics())
        self._notify_members = notify_members(self._settings_now, self.groups)
        self.clients = Clients(settings.clients_max, settings.subscription_bytes_max, self._members_changed)
        self._locks = QueueLocks(settings.clients_max, lock_owners, self._clock.monotonic())
        self.held = HeldPulls(store, self._loop, settings.held_pulls_max)
        self._hooks = Hooks(hooks)
        self.statistics = Statistics(self._clock, settings.cluster_name)
        self._later = Later(self._loop, self._settings_now)
        self.server = RemotingServer(_limits(settings), self._forget)
        replicas = replicas or Replicas(store.settings.ha_behind_bytes_max)
        self._acknowledgements = Acknowledgements(store, self._loop, replicas)
        self.transactions = Transactions(
            self._settings_now,
            store,
            self.topics,
            self.clients,
            self.offsets,
            transactions,
            self._acknowledgements,
            self.statistics,
            self._clock,
            self.server.run_on_pool,
        )
        sends = Sends(
            self._settings_now,
            store,
            self.topics,
            self.groups,
            self._announcements,
            self._acknowledgements,
            self._hooks,
            self.statistics,
            self.transactions,
            self._clock,
        )
        self._connector = Connector()
        delays = ConfigTable(self._files, store.path, DELAY_OFFSETS, self._clock)
        slave_tables = SlaveTables(self.topics, self.groups, self.offsets, delays, self._connector)
        self.replication = Replication(store, replicas, slave_tables, self._settings_now, self._connector)
        self.runs = SendRuns(self._settings_now, store, self.topics, sends, self._acknowledgements, self.statistics)
        self.table = RequestTable(self._rows(sends))
        self._registration: Registration | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.listen: list[Host] = []

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

    def _rows(self, sends: Sends) -> list[Row]:
        settings, store, later = self._settings_now, self.store, self._later
        topics, groups, offsets, clients = self.topics, self.groups, self.offsets, self.clients
        statistics, clock = self.statistics, self._clock
        acknowledgements, transactions = self._acknowledgements, self.transactions
        pulls = Pulls(
            settings,
            store,
            topics,
            groups,
            offsets,
            clients,
            self.filters,
            self.held,
            self._hooks,
            statistics,
            self._loop.time,
            clock.now_ms,
            self.server.run_on_pool,
        )
        return [
            *sends.rows(),
            *Replies(store, sends, clients, acknowledgements, statistics, clock, later).rows(),
            *transactions.rows(),
            *SendBacks(settings, store, topics, groups, self._given_back).rows(),
            *pulls.rows(),
            *OffsetRequests(store, offsets).rows(),
            *ClientRequests(topics, groups, clients, self.filters, self._locks, clock, later).rows(),
            *QueryRequests(store).rows(),
            *TopicAdmin(settings, store, topics, statistics, self._announcements, later).rows(),
            *GroupAdmin(store, groups, offsets, statistics, later).rows(),
            *ConfigurationAdmin(settings, store, self._overrides, self._take, later).rows(),
            *RuntimeAdmin(
                settings,
                store,
                self._files,
                statistics,
                acknowledgements,
                self.server,
                later,
                self.refused,
                self.replication.figures,
            ).rows(),
            *ConnectionAdmin(clients, offsets).rows(),
            *ProgressAdmin(
                settings, store, topics, groups, offsets, clients, statistics, clock, lambda: self.address, later
            ).rows(),
            *OffsetAdmin(store, topics, offsets, clients, later).rows(),
            *ResetAdmin(settings, store, topics, offsets, clients, later).rows(),
            *RelayAdmin(store, clients, later).rows(),
            *EntriesAdmin(store, topics, clients, self.filters, later).rows(),
            *UpkeepAdmin(store, topics).rows(),
            *Refusals(settings, lambda: self.address).rows(),
        ]

    def refused(self) -> dict[str, int]:
        """How often something was refused because there was too much of it, by what it was."""
        counters = self.server.counters
        return {
            "Connections": counters.connections_refused,
            "Bodies": counters.bodies_refused,
            "Requests": counters.busy + self._later.refused,
            "Pushes": counters.pushes_dropped,
            "HeldPulls": self.held.refused,
            "Clients": self.clients.refused,
            "QueueLocks": self._locks.refused,
            "Names": self.topics.refused + self.groups.refused,
            "Offsets": self.offsets.refused,
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
            self._loop.create_task(self._saver.run()),
            self._loop.create_task(self._every(LOOK_SECONDS, self.held.look)),
            self._loop.create_task(self._every(settings.offsets_flush_ms / 1000, self._save_progress)),
            self._loop.create_task(self._every(SCAN_SECONDS, self._scan)),
            self._loop.create_task(self._check_transactions()),
            self._loop.create_task(self._keep_registered()),
            self._loop.create_task(self._announcements.run(self._registration)),
            self._loop.create_task(self.statistics.run()),
        ]
        self._saver.soon()

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
        await self._later.end()
        await self.replication.stop()
        await self._connector.close()
        await asyncio.to_thread(self.runs.stop)
        await self._save_transactions()
        await asyncio.to_thread(self._saver.save_all)

    async def abort(self) -> None:
        """End at once, like a killed process: no answer is sent, nothing is saved, no name server is notified."""
        self.server.abort("the broker ends at once")
        for task in self._tasks:
            task.cancel()
        await self.replication.stop()
        await self._connector.close()

    async def _save_transactions(self) -> None:
        """Take down the last state of transactions, with the log durable as far as it tells of it."""
        with suppress(StoreError):
            await asyncio.to_thread(self.store.flush)
        if not self.replication.is_slave:
            self.transactions.keep_state()

    async def topics_announced(self) -> None:
        """Until the name servers know every topic that was made up to now, or do not answer."""
        announced = self._announcements.of_now()
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
        self._saver.soon()

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
        now = self._clock.monotonic()
        self._locks.expire(now)
        self.filters.clean()
        for peer in self.clients.close_silent(now):
            peer.close("no heartbeat for two minutes")

    def _members_changed(self, group: ConsumerGroup) -> None:
        if not group.members:
            self.filters.unregister(group.name)
        self._notify_members(group)

    def _forget(self, link: Link, _reason: str) -> None:
        self.clients.forget(link)
        self.held.forget(link)

    def _topics_changed(self) -> None:
        """Any thread: save the table, and announce it."""
        self._saver.soon()
        self._announcements.changed()

    def _take(self, settings: BrokerSettings) -> None:
        """Go on with other settings. What clients may do stands in the routes."""
        before, self._current = self._current, settings
        if settings.permission != before.permission and self._registration is not None:
            self._tasks.append(self._loop.create_task(self._registration.register_all()))

    def _given_back(self, topic: str, group: str) -> None:
        """On a request's thread: a consumer gave a message back."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.statistics.given_back, topic, group)


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
