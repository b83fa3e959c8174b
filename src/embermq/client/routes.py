"""Routes: what the name servers know of the topics that a client uses, kept and refreshed. The loop's thread only.

A topic is asked for once, however many wait for it. `refresh_all` is called every half minute; while no name server can
be reached, the routes stay as they are. Brokers are found by name in all routes together.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec

from embermq.client.calls import BrokerAddress, Caller, topic_route
from embermq.client.calls.sends import DEFAULT_QUEUES
from embermq.client.name_servers import NameServers
from embermq.client.topic_route import MASTER, BrokerData, QueueData, TopicRoute, parse_route
from embermq.errors import ClientError, RouteMissing
from embermq.model.names import DEFAULT_TOPIC

log = logging.getLogger(__name__)

OnChange = Callable[[str], None]


class Routes:
    """The routes of one client."""

    def __init__(self, caller: Caller, name_servers: NameServers, seconds: float = 3.0) -> None:
        self._caller, self._seconds = caller, seconds
        self.name_servers = name_servers
        self._known: dict[str, TopicRoute] = {}
        self._derived: set[str] = set()  # topics that do not exist yet: their routes are made of the default topic's
        self._asking: dict[str, asyncio.Task[TopicRoute | None]] = {}
        self.on_change: OnChange | None = None

    # -- what is known -----------------------------------------------------------------------------------------

    def find(self, topic: str) -> TopicRoute | None:
        """The route as it is known now."""
        return self._known.get(topic)

    def brokers(self) -> dict[str, BrokerData]:
        """Every broker that serves one of the topics."""
        return {name: data for route in self._known.values() for name, data in route.brokers.items()}

    def broker(self, name: str, broker_id: int = MASTER) -> BrokerAddress | None:
        """A broker by name: the one with this id, else any other of the same name."""
        for route in self._known.values():
            address = route.address(name, broker_id)
            if address is not None:
                return BrokerAddress(name, address)
        return None

    # -- asking ------------------------------------------------------------------------------------------------

    async def route(self, topic: str) -> TopicRoute:
        """The route of a topic; RouteMissing, NameServersUnreachable."""
        known = self._known.get(topic)
        if known is not None and topic not in self._derived:
            return known
        fetched = await self.fetch(topic)
        if fetched is None:
            raise RouteMissing(topic, self.name_servers.addresses)
        return fetched

    async def route_to_send(self, topic: str, queues_max: int = DEFAULT_QUEUES) -> TopicRoute:
        """The route of a topic; for one that does not exist, where brokers would create it."""
        known = self._known.get(topic)
        if known is not None:
            return known
        fetched = await self.fetch(topic)
        if fetched is not None:
            return fetched
        default = await self._asked(DEFAULT_TOPIC)
        if default is None:
            raise RouteMissing(topic, self.name_servers.addresses)
        derived = _derived_route(topic, default, queues_max)
        self._keep(derived)
        self._derived.add(topic)
        return derived

    async def fetch(self, topic: str) -> TopicRoute | None:
        """Ask a name server now; None if it does not know the topic."""
        fetched = await self._asked(topic)
        if fetched is not None:
            self._derived.discard(topic)
            self._keep(fetched)
        return fetched

    async def refresh_all(self, topics: Iterable[str] = ()) -> None:
        """Ask again for every topic that is known, and for `topics`. What goes wrong is logged."""
        await self.refresh({*self._known, *topics})

    async def refresh(self, topics: Iterable[str]) -> None:
        """Ask again for some topics. What goes wrong is logged."""
        for topic in topics:
            try:
                await self.fetch(topic)
            except ClientError as problem:
                log.warning("event=route_refresh_failed topic=%s reason=%r", topic, str(problem))

    def forget(self, topic: str) -> None:
        """Ask again when the topic is next used."""
        self._known.pop(topic, None)
        self._derived.discard(topic)

    async def _asked(self, topic: str) -> TopicRoute | None:
        task = self._asking.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(topic))
            self._asking[topic] = task
            task.add_done_callback(lambda _done: self._asking.pop(topic, None))
        return await asyncio.shield(task)

    async def _ask(self, topic: str) -> TopicRoute | None:
        return await self.name_servers.ask(lambda server: topic_route(self._caller, server, topic, self._seconds))

    def _keep(self, route: TopicRoute) -> None:
        before = self._known.get(route.topic)
        self._known[route.topic] = route
        if before != route and self.on_change is not None:
            self.on_change(route.topic)


def _derived_route(topic: str, default: TopicRoute, queues_max: int) -> TopicRoute:
    """The queues that brokers will make for a new topic, which begins as a copy of the default topic."""
    queues = tuple(
        QueueData(
            data.broker_name,
            read_queue_nums=min(queues_max, data.write_queue_nums),
            write_queue_nums=min(queues_max, data.write_queue_nums),
            perm=data.perm,
        )
        for data in default.queues
    )
    return msgspec.structs.replace(default, topic=topic, queues=queues, order_config="")


__all__ = ["BrokerData", "QueueData", "Routes", "TopicRoute", "parse_route"]
