"""What the requests of several families work with: tables, clients, pulls that wait, figures. The loop's thread.

Made once by the Broker. A family of requests is given from it what it needs (request_rows.py), never the whole.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from embermq.broker.answers import Acknowledgements, Later
from embermq.broker.config_tables import ConfigTables
from embermq.broker.hooks import Hooks
from embermq.broker.members import Clients, ConsumerGroup, QueueLocks, notify_members
from embermq.broker.reading import HeldPulls
from embermq.broker.routing import Announcements
from embermq.broker.statistics import Statistics
from embermq.broker.tables import ConsumerOffsets, GroupTable, Saver, TopicTable
from embermq.clock import Clock
from embermq.remoting import Link
from embermq.replication import Replicas
from embermq.settings import BrokerSettings
from embermq.store import MessageStore


class Shared:
    """The parts, and what one of them has to tell others."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        store: MessageStore,
        tables: ConfigTables,
        replicas: Replicas,
        hooks: Sequence[object],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        limits = settings()
        self.settings, self.store, self.clock, self.loop = settings, store, clock, loop
        self.saver = Saver(tables.saves(), loop)
        self.topics = TopicTable(tables.topics, settings, self._topics_changed)
        self.announcements = Announcements(self.topics, loop)
        self.groups = GroupTable(tables.groups, settings, self.saver.soon)
        self.offsets = ConsumerOffsets(tables.offsets, settings)
        self.filters = tables.filters
        self._notify_members = notify_members(settings, self.groups)
        self.clients = Clients(limits.clients_max, limits.subscription_bytes_max, self._members_changed)
        self.locks = QueueLocks(limits.clients_max, tables.lock_owners, clock.monotonic())
        self.held = HeldPulls(store, loop, limits.held_pulls_max)
        self.hooks = Hooks(hooks)
        self.statistics = Statistics(clock, limits.cluster_name)
        self.later = Later(loop, settings)
        self.acknowledgements = Acknowledgements(store, loop, replicas)

    def forget(self, link: Link, _reason: str) -> None:
        """A connection is gone."""
        self.clients.forget(link)
        self.held.forget(link)

    def scan(self) -> None:
        """Release what has not been used for long."""
        now = self.clock.monotonic()
        self.locks.expire(now)
        self.filters.clean()
        for peer in self.clients.close_silent(now):
            peer.close("no heartbeat for two minutes")

    def given_back(self, topic: str, group: str) -> None:
        """On a request's thread: a consumer gave a message back."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.statistics.given_back, topic, group)

    def refused(self) -> dict[str, int]:
        """How often something was refused because there was too much of it, by what it was."""
        return {
            "HeldPulls": self.held.refused,
            "Clients": self.clients.refused,
            "QueueLocks": self.locks.refused,
            "Names": self.topics.refused + self.groups.refused,
            "Offsets": self.offsets.refused,
        }

    def _members_changed(self, group: ConsumerGroup) -> None:
        if not group.members:
            self.filters.unregister(group.name)
        self._notify_members(group)

    def _topics_changed(self) -> None:
        """Any thread: save the table, and announce it."""
        self.saver.soon()
        self.announcements.changed()
