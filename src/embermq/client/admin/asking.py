"""Asking: questions of an administrator to name servers and brokers. The loop's thread only.

    name_server         one name server, the next one if it does not answer
    every_name_server   all of them: they do not talk to each other
    broker              one broker
    reachable           several: the answers of those that answer, and which do not

An answer with another code than 0 is an error of its kind (RequestRefused), unless the code is expected: then it is
part of the answer. What an administrator asks may take a broker longer than the calls of a client: 5 s, and 15 s where
it looks at every queue.
"""

import difflib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from embermq.client.admin.bodies import document
from embermq.client.calls import BrokerAddress, Caller, body_of, cluster_route, refused, topic_route
from embermq.client.message_queue import MessageQueue
from embermq.client.name_servers import NameServers
from embermq.client.topic_route import ClusterRoute, TopicRoute
from embermq.errors import BrokerUnreachable, NameUnknown, RequestRefused, RouteMissing
from embermq.remoting import Command, RequestCode

ASK_SECONDS, LONG_SECONDS = 5.0, 15.0

T = TypeVar("T")
Header = Mapping[str, object]


class Answer(NamedTuple):
    """What came back, with what is needed to say what is wrong with it."""

    to: BrokerAddress
    request: Command
    command: Command
    topic: str
    group: str

    @property
    def code(self) -> int:
        return self.command.code

    @property
    def ext(self) -> Mapping[str, str]:
        return self.command.ext or {}

    def read(self, parse: Callable[[Mapping[str, Any]], T]) -> T:
        """The body, by a function that raises ValueError for what it cannot read; AnswerInvalid then."""
        return body_of(self.to, self.request.code, self.command, lambda body: parse(document(body)))

    def refusal(self) -> RequestRefused:
        return refused(self.to, self.request.code, self.command, topic=self.topic, group=self.group)


class Asking:
    """Questions to a cluster."""

    def __init__(self, caller: Caller, name_servers: NameServers) -> None:
        self.caller, self._name_servers = caller, name_servers
        self._addresses: dict[str, str] = {}

    @property
    def name_servers(self) -> tuple[str, ...]:
        return self._name_servers.addresses

    # -- name servers ----------------------------------------------------------------------------------------

    async def name_server(
        self, code: RequestCode, header: Header | None = None, *, expected: Collection[int] = ()
    ) -> Answer:
        """The answer of the first name server that gives one; NameServersUnreachable."""
        return await self._name_servers.ask(lambda to: self._ask(to, code, header, b"", ASK_SECONDS, expected))

    async def every_name_server(
        self, code: RequestCode, header: Header | None = None, *, body: bytes = b""
    ) -> list[Answer]:
        """A change that every name server must know; the first that does not answer is an error."""
        return [
            await self._ask(BrokerAddress("", address), code, header, body, ASK_SECONDS, ())
            for address in self.name_servers
        ]

    async def cluster(self) -> ClusterRoute:
        """All brokers by name and cluster."""
        return await self._name_servers.ask(lambda to: cluster_route(self.caller, to, ASK_SECONDS))

    async def route(self, topic: str) -> TopicRoute:
        """The brokers of a topic; RouteMissing, with the nearest name there is."""
        found = await self._name_servers.ask(lambda to: topic_route(self.caller, to, topic, ASK_SECONDS))
        if found is not None:
            return found
        answer = await self.name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        known = answer.read(lambda body: [str(name) for name in body.get("topicList") or ()])
        near = difflib.get_close_matches(topic, known, n=1)
        raise RouteMissing(topic, self.name_servers, f"did you mean {near[0]}?" if near else "")

    # -- brokers ---------------------------------------------------------------------------------------------

    async def places(self, cluster: str = "") -> list[BrokerAddress]:
        """The masters of a cluster, or of all, by name; NameUnknown if there is no such cluster."""
        route = await self.cluster()
        names: Collection[str] = route.broker_addr_table
        if cluster:
            names = route.cluster_addr_table[known("cluster", cluster, route.cluster_addr_table)]
        masters = {name: route.broker_addr_table[name].master for name in names if name in route.broker_addr_table}
        found = [BrokerAddress(name, address) for name, address in sorted(masters.items()) if address is not None]
        if not found:
            raise NameUnknown("broker", "", (), "the name servers know no master; check that brokers run and register")
        return found

    async def place(self, broker: str) -> BrokerAddress:
        """A broker by name, or by its address, whether the name server knows that or not."""
        if ":" in broker:
            for data in (await self.cluster()).broker_addr_table.values():
                if broker in data.broker_addrs.values():
                    return BrokerAddress(data.broker_name, broker)
            return BrokerAddress("", broker)
        table = (await self.cluster()).broker_addr_table
        data = table[known("broker", broker, table)]
        return BrokerAddress(broker, data.address() or "")

    async def topic_places(self, topic: str, cluster: str = "") -> list[BrokerAddress]:
        """The masters that have a topic, of a cluster if it is named; RouteMissing."""
        route = await self.route(topic)
        brokers = sorted(route.brokers.values(), key=lambda data: data.broker_name)
        return [
            BrokerAddress(data.broker_name, data.master)
            for data in brokers
            if data.master is not None and cluster in ("", data.cluster)
        ]

    async def queue_place(self, queue: MessageQueue) -> BrokerAddress:
        """The broker of a queue; the master, if it has one. Asked of the name server once (forget_places)."""
        if queue.broker not in self._addresses:
            table = (await self.cluster()).broker_addr_table
            self._addresses = {name: data.address() or "" for name, data in table.items()}
        return BrokerAddress(queue.broker, self._addresses[known("broker", queue.broker, self._addresses)])

    def forget_places(self) -> None:
        """Ask for the addresses of brokers again when one is next needed: one may have come back elsewhere."""
        self._addresses = {}

    async def broker(
        self,
        to: BrokerAddress,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes = b"",
        group: str = "",
        is_long: bool = False,
        expected: Collection[int] = (),
    ) -> Answer:
        """The answer of a broker; RequestRefused, BrokerUnreachable. `group`: for errors, if the header names none."""
        return await self._ask(to, code, header, body, LONG_SECONDS if is_long else ASK_SECONDS, expected, group)

    async def reachable(
        self, places: Iterable[BrokerAddress], ask: Callable[[BrokerAddress], Awaitable[T]]
    ) -> tuple[list[T], list[BrokerUnreachable]]:
        """The answers of the brokers that answer, and the others; BrokerUnreachable if none does."""
        answers: list[T] = []
        silent: list[BrokerUnreachable] = []
        for place in places:
            try:
                answers.append(await ask(place))
            except BrokerUnreachable as problem:
                silent.append(problem)
        if silent and not answers:
            raise silent[0]
        return answers, silent

    async def _ask(
        self,
        to: BrokerAddress,
        code: RequestCode,
        header: Header | None,
        body: bytes,
        seconds: float,
        expected: Collection[int],
        group: str = "",
    ) -> Answer:
        ext = {name: _text(value) for name, value in (header or {}).items()}
        topic, group = ext.get("topic", ""), ext.get("consumerGroup") or ext.get("group") or group
        request = Command(code, ext=ext or None, body=body)
        command = await self.caller.call(to, request, seconds, topic=topic, group=group)
        answer = Answer(to, request, command, topic, group)
        if command.code != 0 and command.code not in expected:
            raise answer.refusal()
        return answer


def known(kind: str, name: str, names: Collection[str]) -> str:
    """The name itself, if it is among these; NameUnknown, with the nearest, if not."""
    if name not in names:
        raise NameUnknown(kind, name, difflib.get_close_matches(name, list(names), n=1))
    return name


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
