"""RouteTable: which brokers are alive, and which queues of which topics they have. State only: no socket, no clock.

    brokers    name -> id -> the live broker; every address is that of exactly one live broker
    topics     topic -> broker name -> queues
    clusters   follow from the live brokers

A registration of a master brings its topics if it is a new one or their version changed; topics that it does not name
are kept, because a broker also registers single topics. Slaves bring none. When the last address of a name is gone, so
are its topics. A registration over a limit changes nothing, but is a sign of life of a broker that was there before.

Time is an argument, in seconds of any steady clock. The loop's thread only.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from embermq.errors import LimitReached
from embermq.model.data_version import DataVersion
from embermq.namesrv.registration import (
    MASTER_ID,
    PERM_READ,
    PERM_WRITE,
    BrokerIdentity,
    RegisterBody,
    TopicQueues,
)

UNIT_FLAG, UNIT_SUB_FLAG = 1, 2  # of topicSysFlag


class Connection(Protocol):
    """What the table knows of a connection: which it is, and how to end it."""

    def close(self, reason: str) -> None: ...


class RouteLimits(Protocol):
    """How large the tables may get."""

    @property
    def brokers_max(self) -> int: ...

    @property
    def topics_max(self) -> int: ...

    @property
    def topic_entries_max(self) -> int: ...


class LiveBroker(msgspec.Struct, eq=False):
    """A broker that is registered."""

    identity: BrokerIdentity
    ha_address: str
    version: DataVersion
    seen_at: float
    connection: Connection
    filter_servers: tuple[str, ...] = ()


class Registered(msgspec.Struct, frozen=True):
    """What a registration led to. A slave learns of its master, if there is one."""

    is_new: bool
    took_topics: bool
    master_address: str | None = None
    ha_address: str | None = None


class Route(msgspec.Struct, frozen=True):
    """Where a topic is: its queues by broker name, and the brokers of those names."""

    queues: dict[str, TopicQueues]
    brokers: dict[str, dict[int, LiveBroker]]


class RouteTable:
    """Brokers and topics."""

    def __init__(self) -> None:
        self._live: dict[str, LiveBroker] = {}  # by address
        self._brokers: dict[str, dict[int, LiveBroker]] = {}
        self._topics: dict[str, dict[str, TopicQueues]] = {}
        self._entries = 0  # of all topics

    # -- brokers -------------------------------------------------------------------------------------------------

    def register(
        self,
        identity: BrokerIdentity,
        ha_address: str,
        body: RegisterBody,
        connection: Connection,
        now: float,
        limits: RouteLimits,
    ) -> Registered:
        """Take a registration in; LimitReached if there is no room for it."""
        before = self._live.get(identity.address)
        if before is not None:
            before.seen_at, before.connection = now, connection
        is_new = before is None or before.identity != identity
        is_changed = before is None or is_new or before.version != body.version
        topics = body.topics if identity.is_master and is_changed else None
        self._check_room(identity, before, topics or {}, limits)
        holder = self._brokers.get(identity.name, {}).get(identity.broker_id)
        for other in (before, holder):
            if other is None or other.identity == identity:
                continue
            # The address has a new id, name or cluster, or the id a new address. Both may be one broker.
            if self._live.get(other.identity.address) is other:
                self._take_out(other, keeps_topics=other.identity.name == identity.name)
        servers = before.filter_servers if before is not None else ()
        if body.filter_servers is not None:
            servers = tuple(body.filter_servers)
        live = LiveBroker(identity, ha_address, body.version, now, connection, servers)
        self._live[identity.address] = live
        self._brokers.setdefault(identity.name, {})[identity.broker_id] = live
        self._take_topics(identity.name, topics or {})
        master = self._brokers[identity.name].get(MASTER_ID)
        if identity.is_master or master is None:
            return Registered(is_new, topics is not None)
        return Registered(is_new, False, master.identity.address, master.ha_address)

    def unregister(self, identity: BrokerIdentity) -> LiveBroker | None:
        """Remove a broker; None if that one is not registered (any more)."""
        live = self._live.get(identity.address)
        if live is None or (live.identity.name, live.identity.broker_id) != (identity.name, identity.broker_id):
            return None
        self._take_out(live)
        return live

    def disconnected(self, connection: Connection) -> list[LiveBroker]:
        """Remove the brokers that registered last on this connection."""
        return self._take_out_if(lambda live: live.connection is connection)

    def expire(self, now: float, seconds: float) -> list[LiveBroker]:
        """Remove the brokers that gave no sign of life for longer than `seconds`."""
        return self._take_out_if(lambda live: live.seen_at + seconds < now)

    def version_of(self, address: str) -> DataVersion | None:
        """The version of the topics that a broker registered; None if it is not registered."""
        live = self._live.get(address)
        return live.version if live is not None else None

    def touch(self, address: str, now: float) -> None:
        """A sign of life."""
        if (live := self._live.get(address)) is not None:
            live.seen_at = now

    @property
    def brokers(self) -> dict[str, dict[int, LiveBroker]]:
        """Name, id, broker. To be read at once, not kept."""
        return self._brokers

    def clusters(self) -> dict[str, list[str]]:
        """Cluster and names of its brokers."""
        found: dict[str, dict[str, None]] = {}
        for live in self._live.values():
            found.setdefault(live.identity.cluster, {})[live.identity.name] = None
        return {cluster: list(names) for cluster, names in found.items()}

    # -- topics --------------------------------------------------------------------------------------------------

    def route(self, topic: str) -> Route | None:
        """Where a topic is; None if no known broker has it."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        return Route(queues, {name: self._brokers[name] for name in queues})

    def topics(self, has: Callable[[TopicQueues], bool] = lambda _queues: True) -> list[str]:
        """Every topic whose queues (on the first of its brokers) are as asked for."""
        return [topic for topic, queues in self._topics.items() if has(next(iter(queues.values())))]

    def topics_of_cluster(self, cluster: str) -> list[str]:
        names = set(self.clusters().get(cluster, ()))
        return [topic for topic, queues in self._topics.items() if not names.isdisjoint(queues)]

    def delete_topic(self, topic: str, cluster: str | None = None) -> int:
        """Forget a topic, or what brokers of one cluster have of it; how many brokers that were."""
        queues = self._topics.get(topic, {})
        names = list(queues) if cluster is None else [one for one in self.clusters().get(cluster, ()) if one in queues]
        for name in names:
            self._drop(topic, name)
        return len(names)

    def wipe_write(self, broker_name: str) -> int:
        """Nothing is to be written to a broker, until it registers another version; how many topics it has."""
        return self._change_perms(broker_name, lambda perm: perm & ~PERM_WRITE)

    def restore_write(self, broker_name: str) -> int:
        """All topics of a broker may be read and written again; how many it has."""
        return self._change_perms(broker_name, lambda _perm: PERM_READ | PERM_WRITE)

    # -- inside --------------------------------------------------------------------------------------------------

    def _check_room(
        self,
        identity: BrokerIdentity,
        before: LiveBroker | None,
        topics: Iterable[str],
        limits: RouteLimits,
    ) -> None:
        if before is None and len(self._live) >= limits.brokers_max:
            raise LimitReached(f"no room for the broker {identity.address}", limits.brokers_max, "emberMaxBrokers")
        names = entries = 0
        for topic in topics:
            queues = self._topics.get(topic)
            names += queues is None
            entries += queues is None or identity.name not in queues
        if names and len(self._topics) + names > limits.topics_max:
            raise LimitReached(f"no room for {names:,} more topics", limits.topics_max, "emberMaxTopics")
        if entries and self._entries + entries > limits.topic_entries_max:
            what = f"no room for {entries:,} more topics of {identity.name}"
            raise LimitReached(what, limits.topic_entries_max, "emberMaxTopicEntries")

    def _take_topics(self, name: str, topics: Mapping[str, TopicQueues]) -> None:
        for topic, queues in topics.items():
            of_topic = self._topics.setdefault(topic, {})
            self._entries += name not in of_topic
            of_topic[name] = queues

    def _take_out_if(self, is_meant: Callable[[LiveBroker], bool]) -> list[LiveBroker]:
        gone = [live for live in self._live.values() if is_meant(live)]
        for live in gone:
            self._take_out(live)
        return gone

    def _take_out(self, live: LiveBroker, *, keeps_topics: bool = False) -> None:
        """Remove one live broker, and its name with its topics if it was the last of that name."""
        name = live.identity.name
        del self._live[live.identity.address]
        ids = self._brokers[name]
        del ids[live.identity.broker_id]
        if not ids and not keeps_topics:
            del self._brokers[name]
            for topic in [topic for topic, queues in self._topics.items() if name in queues]:
                self._drop(topic, name)

    def _drop(self, topic: str, name: str) -> None:
        queues = self._topics[topic]
        del queues[name]
        self._entries -= 1
        if not queues:
            del self._topics[topic]

    def _change_perms(self, name: str, change: Callable[[int], int]) -> int:
        changed = 0
        for queues in self._topics.values():
            if (one := queues.get(name)) is not None:
                queues[name] = msgspec.structs.replace(one, perm=change(one.perm))
                changed += 1
        return changed
