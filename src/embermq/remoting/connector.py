"""Connector: connections to other servers, kept and used again. The loop's thread only.

One connection for each address, made when it is first needed and again after it was lost. A request that comes from the
other side is answered by the table, if there is one.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable

from embermq.errors import ConnectFailed, RemotingError
from embermq.remoting.command import Command
from embermq.remoting.counters import RemotingCounters
from embermq.remoting.limits import RemotingLimits
from embermq.remoting.link import Link, ReadBuffer
from embermq.remoting.request_table import Peer, RequestTable, run, unsupported
from embermq.remoting.session import Outcome

CONNECT_SECONDS = 3.0
# RocketMQ 5 does not answer the end of a TLS session, and asyncio would wait 30 s for that.
TLS_CLOSE_SECONDS = 1.0


async def ask(peer: Peer, request: Command, seconds: float) -> Command:
    """The answer of a connected peer; ConnectionLost or CallTimeout when there is none."""
    answered: asyncio.Future[Command] = asyncio.get_running_loop().create_future()

    def settle(outcome: Outcome) -> None:
        if answered.done():
            return
        if isinstance(outcome, Command):
            answered.set_result(outcome)
        else:
            answered.set_exception(outcome)

    peer.call(request, seconds, settle)
    return await answered


class Connector:
    """Calls to any address."""

    def __init__(
        self,
        table: RequestTable | None = None,
        limits: RemotingLimits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self.limits = limits or RemotingLimits()
        self.counters = RemotingCounters()
        self.read_buffer = ReadBuffer()
        self._table = table or RequestTable([])
        self._loop = asyncio.get_running_loop()
        self._links: dict[str, Link] = {}
        self._dialling: dict[str, asyncio.Task[Link]] = {}
        self._closed = False

    async def call(self, address: str, request: Command, seconds: float) -> Command:
        """The answer; ConnectFailed, ConnectionLost or CallTimeout when there is none."""
        return await ask(await self.link(address), request, seconds)

    async def tell(self, address: str, request: Command) -> bool:
        """Send a request that wants no answer; False if it was dropped because the peer does not read."""
        return (await self.link(address)).tell(request)

    def find(self, address: str) -> Link | None:
        """The open connection to an address, if there is one."""
        link = self._links.get(address)
        return link if link is not None and link.is_open else None

    async def link(self, address: str) -> Link:
        """The connection to an address, made if there is none."""
        if self._closed:
            raise ConnectFailed(address, "this side is closing")
        link = self.find(address)
        if link is not None:
            return link
        task = self._dialling.get(address)
        if task is None:
            task = self._loop.create_task(self._dial(address))
            self._dialling[address] = task
            task.add_done_callback(lambda _done: self._dialling.pop(address, None))
        return await _shielded(task)

    async def close(self) -> None:
        self._closed = True
        for task in list(self._dialling.values()):
            task.cancel()
        links = list(self._links.values())
        for link in links:
            link.close("this side closes")
        for link in links:
            await link.wait_closed()

    async def _dial(self, address: str) -> Link:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise ConnectFailed(address, "an address looks like 127.0.0.1:9876")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _transport, link = await self._loop.create_connection(
                    lambda: Link(self, self._loop),
                    host.strip("[]"),
                    int(port),
                    ssl=self._tls,
                    ssl_shutdown_timeout=TLS_CLOSE_SECONDS if self._tls is not None else None,
                )
        except TimeoutError:
            raise ConnectFailed(address, f"no answer within {CONNECT_SECONDS:g} s") from None
        except ssl.SSLError as problem:
            raise ConnectFailed(address, f"TLS: {problem.reason or problem}") from None
        except OSError as problem:
            raise ConnectFailed(address, _reason(problem)) from None
        self._links[address] = link
        return link

    # -- the owner of its links --------------------------------------------------------------------------------

    def opened(self, link: Link) -> bool:
        return True

    def arrived(self, link: Link, buffer: bytes) -> bool:
        return False

    def received(self, link: Link, requests: list[Command]) -> None:
        for request in requests:
            link.begin(request)
            row = self._table.find(request.code)
            reply = unsupported(request) if row is None else run(row, link, request, link.answer)
            if reply is not None:
                link.answer(request, reply)

    def crowded(self) -> None:
        """Peers that were called are few, and trusted with the memory of an answer."""

    def closed(self, link: Link, reason: str) -> None:
        for address, known in list(self._links.items()):
            if known is link:
                del self._links[address]


def _reason(problem: OSError) -> str:
    """asyncio's own text repeats the address in place of the system's reason; a name that does not resolve has one."""
    if problem.errno is None or isinstance(problem, socket.gaierror):
        return problem.strerror or str(problem)
    return os.strerror(problem.errno)


async def _shielded(task: "asyncio.Task[Link]") -> Link:
    """Several may wait for one connection: one that gives up does not take it from the others."""
    waiting: Awaitable[Link] = asyncio.shield(task)
    try:
        return await waiting
    except asyncio.CancelledError:
        if task.cancelled():
            raise RemotingError("the connection was not made: this side closes") from None
        raise
