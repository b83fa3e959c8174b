"""Clients: which connections belong to which producer and consumer groups. The loop's thread only.

A heartbeat tells what a client is; a member that is silent for two minutes, or whose connection closes, is gone.
Members of a consumer group hear of every change, and share the queues out anew among themselves.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from embermq.broker.members.subscriptions import Subscription, from_heartbeat
from embermq.remoting import Peer, parse_json

SILENT_SECONDS = 120.0
INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
NAME_CHARACTERS_MAX = 255
_SUBSCRIPTION_BYTES = 200  # of one beside its texts
_CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY")
_MODELS = ("BROADCASTING", "CLUSTERING")
_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


class Member(msgspec.Struct):
    """One connection in a group."""

    peer: Peer
    client_id: str
    language: str | None
    version: int
    seen_at: float  # monotonic seconds
    seen_ms: int


class ConsumerGroup(msgspec.Struct):
    """The members of a consumer group and what they want. What the newest heartbeat says holds for all."""

    name: str
    members: dict[int, Member] = {}  # by the id of the connection
    subscriptions: dict[str, Subscription] = {}
    consume_type: str = _CONSUME_TYPES[1]
    model: str = _MODELS[1]
    from_where: str = _FROM_WHERE[0]
    subscription_bytes: int = 0

    def client_ids(self) -> list[str]:
        return [member.client_id for member in self.members.values()]

    def member(self, client_id: str) -> Member | None:
        return next((one for one in self.members.values() if one.client_id == client_id), None)


class ConsumerData(msgspec.Struct):
    """One consumer group of a heartbeat."""

    group: str
    consume_type: str
    model: str
    from_where: str
    subscriptions: dict[str, Subscription]
    unit_mode: bool = False


class Heartbeat(msgspec.Struct):
    """What a client says of itself."""

    client_id: str
    consumers: list[ConsumerData]
    producers: list[str]


def parse_heartbeat(body: bytes, now_ms: int) -> Heartbeat:
    """A heartbeat; ValueError when it is none. Parts may be missing, enumerations may be numbers."""
    document = parse_json(body)
    if not isinstance(document, dict) or not isinstance(document.get("clientID"), str):
        raise ValueError("a heartbeat has a clientID")
    consumers = [_consumer(one, now_ms) for one in _objects(document.get("consumerDataSet"))]
    producers = [str(one["groupName"]) for one in _objects(document.get("producerDataSet")) if one.get("groupName")]
    beat = Heartbeat(document["clientID"], [one for one in consumers if one.group], producers)
    for name in (beat.client_id, *beat.producers, *(one.group for one in beat.consumers)):
        if len(name) > NAME_CHARACTERS_MAX:
            raise ValueError(f"the name {name[:40]!r}... is longer than {NAME_CHARACTERS_MAX} characters")
    return beat


def _objects(listed: Any) -> Iterable[dict[str, Any]]:
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _consumer(document: dict[str, Any], now_ms: int) -> ConsumerData:
    subscriptions = [from_heartbeat(one, now_ms) for one in _objects(document.get("subscriptionDataSet"))]
    return ConsumerData(
        str(document.get("groupName") or ""),
        _enumerated(_CONSUME_TYPES, document.get("consumeType"), 1),
        _enumerated(_MODELS, document.get("messageModel"), 1),
        _enumerated(_FROM_WHERE, document.get("consumeFromWhere"), 0),
        {one.topic: one for one in subscriptions if one is not None},
        document.get("unitMode") is True,
    )


def _enumerated(names: tuple[str, ...], given: Any, default: int) -> str:
    if isinstance(given, int) and 0 <= given < len(names):
        return names[given]
    return given if isinstance(given, str) and given in names else names[default]


def _subscription_bytes(subscriptions: dict[str, Subscription]) -> int:
    return sum(_SUBSCRIPTION_BYTES + len(topic) + len(one.expression) for topic, one in subscriptions.items())


class Clients:
    """The connected producers and consumers."""

    def __init__(
        self, members_max: int, subscription_bytes_max: int, members_changed: Callable[[ConsumerGroup], None]
    ) -> None:
        """`members_changed` is called after a consumer group got or lost a member, or other topics."""
        self._members_max, self._changed = members_max, members_changed
        self._subscription_bytes_max, self._subscription_bytes = subscription_bytes_max, 0
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[int, Member]] = {}
        self._groups_of: dict[int, set[tuple[str, str]]] = {}  # by connection: kind and name
        self._by_client_id: dict[str, Member] = {}
        self._memberships = 0
        self.refused = 0

    @property
    def has_producers(self) -> bool:
        """Whether a producer is connected. RocketMQ's consumers and tools all have a producer of their own."""
        return any(group != INNER_PRODUCER for group in self._producers)

    # -- coming ----------------------------------------------------------------------------------------------

    def register_consumer(self, member: Member, data: ConsumerData) -> bool:
        """Add or refresh a member of a consumer group; False if there are too many."""
        group = self._consumers.get(data.group)
        key = id(member.peer)
        is_new = group is None or key not in group.members
        known_bytes = 0 if group is None else group.subscription_bytes
        bytes_then = self._subscription_bytes - known_bytes + _subscription_bytes(data.subscriptions)
        if (is_new and self._memberships >= self._members_max) or (
            bytes_then > self._subscription_bytes_max and bytes_then > self._subscription_bytes
        ):
            self.refused += 1
            return False
        if group is None:
            group = self._consumers[data.group] = ConsumerGroup(data.group, {}, {})
        group.members[key] = member
        group.consume_type, group.model, group.from_where = data.consume_type, data.model, data.from_where
        self._join(key, "consumer", data.group)
        if self._subscribe(group, data.subscriptions) or is_new:
            self._changed(group)
        return True

    def register_producer(self, member: Member, group: str) -> bool:
        """Add or refresh a member of a producer group; False if there are too many."""
        members = self._producers.get(group, {})
        key = id(member.peer)
        if key not in members and self._memberships >= self._members_max:
            self.refused += 1
            return False
        members[key] = member
        self._producers[group] = members
        self._join(key, "producer", group)
        self._by_client_id[member.client_id] = member
        return True

    def _join(self, key: int, kind: str, name: str) -> None:
        groups = self._groups_of.setdefault(key, set())
        self._memberships += (kind, name) not in groups
        groups.add((kind, name))

    def _subscribe(self, group: ConsumerGroup, wanted: dict[str, Subscription]) -> bool:
        """Take over the newest subscriptions; whether topics came or went. An older version replaces nothing."""
        changed = group.subscriptions.keys() != wanted.keys()
        for topic, subscription in wanted.items():
            known = group.subscriptions.get(topic)
            if known is None or known.version < subscription.version:
                group.subscriptions[topic] = subscription
        for topic in group.subscriptions.keys() - wanted.keys():
            del group.subscriptions[topic]
        self._subscription_bytes -= group.subscription_bytes
        group.subscription_bytes = _subscription_bytes(group.subscriptions)
        self._subscription_bytes += group.subscription_bytes
        return changed

    # -- going -----------------------------------------------------------------------------------------------

    def leave(self, peer: Peer, consumer_group: str | None, producer_group: str | None) -> None:
        """Remove a connection from the groups that are named."""
        for kind, name in (("consumer", consumer_group), ("producer", producer_group)):
            if name:
                self._remove(id(peer), kind, name)

    def forget(self, peer: Peer) -> None:
        """Remove a connection from everything: it is closed."""
        for kind, name in list(self._groups_of.get(id(peer), ())):
            self._remove(id(peer), kind, name)

    def close_silent(self, now: float) -> list[Peer]:
        """Remove the members that sent no heartbeat for long; their connections, which are to be closed."""
        members = [one for group in self._consumers.values() for one in group.members.values()]
        members += [one for producers in self._producers.values() for one in producers.values()]
        silent = {id(one.peer): one.peer for one in members if now - one.seen_at > SILENT_SECONDS}
        for peer in silent.values():
            self.forget(peer)
        return list(silent.values())

    def _remove(self, key: int, kind: str, name: str) -> None:
        groups = self._groups_of.get(key)
        if groups is None or (kind, name) not in groups:
            return
        groups.discard((kind, name))
        self._memberships -= 1
        if not groups:
            del self._groups_of[key]
        if kind == "producer":
            self._remove_producer(key, name)
            return
        group = self._consumers[name]
        del group.members[key]
        if not group.members:
            del self._consumers[name]
            self._subscription_bytes -= group.subscription_bytes
        self._changed(group)

    def _remove_producer(self, key: int, name: str) -> None:
        members = self._producers[name]
        gone = members.pop(key)
        if not members:
            del self._producers[name]
        known = self._by_client_id.get(gone.client_id)
        if known is not None and known.peer is gone.peer and not self._produces(key):
            del self._by_client_id[gone.client_id]

    def _produces(self, key: int) -> bool:
        return any(kind == "producer" for kind, _name in self._groups_of.get(key, ()))

    # -- asking ----------------------------------------------------------------------------------------------

    def consumers(self, group: str) -> ConsumerGroup | None:
        return self._consumers.get(group)

    def producers(self, group: str) -> list[Member]:
        return list(self._producers.get(group, {}).values())

    def producer_groups(self) -> dict[str, list[Member]]:
        return {name: list(members.values()) for name, members in self._producers.items()}

    def producer(self, client_id: str) -> Member | None:
        """A connected producer by its client id: the target of a reply."""
        return self._by_client_id.get(client_id)

    def groups_consuming(self, topic: str) -> list[str]:
        return sorted(name for name, group in self._consumers.items() if topic in group.subscriptions)
