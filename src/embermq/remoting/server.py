"""RemotingServer: listeners, connections and the way from a request to its row. The loop's thread only.

Handlers that may wait for a disk run on a small pool of threads; everything else runs on the loop, one request after
another; after a millisecond the turn goes to the next connection. Where a limit is reached, the request is answered
with SYSTEM_BUSY. Idle connections, peers that do not read and frames that never end are swept.

`stop` lets what is under way be answered: no connection is accepted, nothing more is read, and after `shutdown_seconds`
at most every connection is closed. A request that was not read is repeated by its client elsewhere.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from embermq.errors import RemotingError
from embermq.model.hosts import Host
from embermq.remoting.codes import ResponseCode
from embermq.remoting.command import Command, Reply
from embermq.remoting.counters import RemotingCounters
from embermq.remoting.frame_runs import FrameRuns, RunTaker
from embermq.remoting.limits import RemotingLimits
from embermq.remoting.link import Link, ReadBuffer
from embermq.remoting.request_table import RequestTable, Row, body_too_large, run, unsupported

log = logging.getLogger(__name__)

T = TypeVar("T")
OnClosed = Callable[[Link, str], None]
BLOCKING_THREADS = 4
BACKLOG = 1024
SWEEP_SECONDS = 1.0
CLOSE_SECONDS = 1.0
_RELIEVED = 0.75  # of a limit, after connections were closed over it


class RemotingServer:
    """Answers requests by a table, on any number of listeners."""

    def __init__(self, limits: RemotingLimits | None = None, on_closed: OnClosed | None = None) -> None:
        self.limits = limits or RemotingLimits()
        self.counters = RemotingCounters()
        self.read_buffer = ReadBuffer()
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._links: set[Link] = set()
        self._servers: list[asyncio.Server] = []
        self._pool = ThreadPoolExecutor(BLOCKING_THREADS, thread_name_prefix="embermq-request")
        self._blocking_calls = 0
        self._sweeper: asyncio.TimerHandle | None = None

    # -- life ------------------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int, table: RequestTable) -> Host:
        """Accept connections at an address; the address with its real port. RemotingError when it cannot be had."""
        return await self.accept(bind(host, port), table)

    async def accept(self, bound: socket.socket, table: RequestTable, runs: RunTaker | None = None) -> Host:
        """Accept connections on a socket that `bind` gave. `runs`: answers many requests at once, where it can."""
        entrance = _Entrance(self, table, None if runs is None else FrameRuns(self._loop, runs))
        server = await self._loop.create_server(lambda: Link(entrance, self._loop), sock=bound, backlog=BACKLOG)
        self._servers.append(server)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        address = server.sockets[0].getsockname()
        return Host(address[0], address[1])

    def new_link(self, table: RequestTable) -> Link:
        """A link for a transport that was made elsewhere."""
        return Link(_Entrance(self, table, None), self._loop)

    async def stop(self) -> None:
        """Answer what is under way, then close everything."""
        for server in self._servers:
            server.close()
        links = list(self._links)
        await _all_within(self.limits.shutdown_seconds, [link.drain() for link in links])
        for link in links:
            link.close("the server stops")
        await _all_within(CLOSE_SECONDS, [link.wait_closed() for link in links])
        for link in links:
            link.abort("the server stops")
        await _all_within(CLOSE_SECONDS, [link.wait_closed() for link in links])
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def drop_connections(self, reason: str) -> None:
        """Close every connection at once; what waits for its peer is dropped."""
        for link in list(self._links):
            link.abort(reason)

    def abort(self, reason: str) -> None:
        """Close everything at once; nothing that is under way is answered."""
        for server in self._servers:
            server.close()
        self.drop_connections(reason)
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def connections(self) -> int:
        return len(self._links)

    # -- requests --------------------------------------------------------------------------------------------

    def serve(self, link: Link, table: RequestTable, request: Command) -> None:
        """Answer one request, now or later."""
        self.counters.requests += 1
        link.begin(request)
        row = table.find(request.code)
        if row is None:
            self.counters.unsupported += 1
            link.answer(request, unsupported(request))
        elif link.in_flight > self.limits.in_flight_per_connection or self.counters.in_flight > self.limits.in_flight:
            self._refuse(link, request, "too many requests are waiting for their answer")
        elif self.counters.kept_bytes > self.limits.kept_bytes:
            self._refuse(link, request, "requests that wait for their answer are over emberMaxKeptBytes")
        elif len(request.body) > row.body_bytes_max:
            self.counters.bodies_refused += 1
            link.answer(request, body_too_large(row, request))
        elif row.blocking:
            self._serve_on_pool(link, row, request)
        elif (reply := run(row, link, request, link.answer)) is not None:
            link.answer(request, reply)
        else:
            link.keep(request)

    def _serve_on_pool(self, link: Link, row: Row, request: Command) -> None:
        if self._blocking_calls >= self.limits.blocking_calls:
            self._refuse(link, request, f"too many requests wait for a thread, {row.name} among them")
            return
        self._blocking_calls += 1
        link.keep(request)

        def work() -> None:
            reply = run(row, link, request, link.answer)
            self._loop.call_soon_threadsafe(finish, reply)

        def finish(reply: Reply | None) -> None:
            self._blocking_calls -= 1
            if reply is not None:
                link.answer(request, reply)

        self._pool.submit(work)

    def run_on_pool(self, work: Callable[[], T], then: Callable[[T | Exception], None]) -> None:
        """Do `work` on a thread of the pool; what it returned or raised goes to `then`, on the loop's thread."""

        def run_it() -> None:
            try:
                outcome: T | Exception = work()
            except Exception as problem:
                outcome = problem
            self._loop.call_soon_threadsafe(then, outcome)

        self._pool.submit(run_it)

    def _refuse(self, link: Link, request: Command, why: str) -> None:
        self.counters.busy += 1
        link.answer(request, Reply(ResponseCode.SYSTEM_BUSY, f"[REJECTREQUEST]system busy, start flow control: {why}"))

    # -- connections -----------------------------------------------------------------------------------------

    def admit(self, link: Link) -> bool:
        if len(self._links) >= self.limits.connections:
            self.counters.connections_refused += 1
            return False
        self._links.add(link)
        self.counters.connections_accepted += 1
        self.counters.connections = len(self._links)
        return True

    def forget(self, link: Link, reason: str) -> None:
        if link in self._links:
            self._links.remove(link)
            self.counters.connections = len(self._links)
            log.debug("event=connection_closed peer=%s reason=%r", link.host, reason)
            if self._on_closed is not None:
                self._on_closed(link, reason)

    def relieve(self) -> None:
        """Bring what waits on all connections under its limits again: close those whose part is the oldest.

        A frame that is sent and an answer that is read are complete within milliseconds.
        """
        links = [link for link in self._links if link.is_open]
        for link in links:
            link.look_at_unsent()
        self._close_oldest(
            [(link.unread_since, link.unread_bytes, link) for link in links],
            self.limits.unread_bytes,
            "unfinished frames of all connections are over emberMaxUnreadBytes",
        )
        self._close_oldest(
            [(link.unsent_since, link.unsent_bytes, link) for link in links],
            self.limits.unsent_bytes,
            "answers that were not read are over emberMaxUnsentBytes",
        )

    def _close_oldest(self, parts: list[tuple[float | None, int, Link]], limit: int, reason: str) -> None:
        left = sum(size for _since, size, _link in parts)
        if left <= limit:
            return
        for _since, size, link in sorted(parts, key=lambda part: part[0] or self._loop.time()):
            if left <= limit * _RELIEVED:
                return
            if size:
                left -= size
                self.counters.closed_crowded += 1
                log.warning("event=connection_closed peer=%s reason=%r", link.host.address, reason)
                link.abort(reason)

    def _sweep(self) -> None:
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        now, limits = self._loop.time(), self.limits
        for link in list(self._links):
            link.look_at_unsent()
            if link.stalled_since is not None and now - link.stalled_since > limits.stalled_seconds:
                self.counters.closed_stalled += 1
                link.abort(f"the peer did not read for {limits.stalled_seconds:g} s")
            elif now - link.active_at > limits.idle_seconds:
                self.counters.closed_idle += 1
                link.close(f"idle for {limits.idle_seconds:g} s")
            elif link.unread_since is not None and now - link.unread_since > limits.frame_seconds:
                self.counters.closed_idle += 1
                link.close(f"a frame was not whole after {limits.frame_seconds:g} s")


def bind(host: str, port: int) -> socket.socket:
    """A socket that has an address, before anything else is done; port 0 takes a free one. RemotingError when the
    address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as problem:
        bound.close()
        reason = problem.strerror or str(problem)
        raise RemotingError(f"cannot listen on {Host(host, port)}: {reason}") from None
    bound.setblocking(False)
    return bound


class _Entrance:
    """The owner of the links of one listener: they share the server and have the listener's table."""

    def __init__(self, server: RemotingServer, table: RequestTable, runs: FrameRuns | None) -> None:
        self._server, self._table, self._runs = server, table, runs
        self.limits, self.counters, self.read_buffer = server.limits, server.counters, server.read_buffer

    def opened(self, link: Link) -> bool:
        return self._server.admit(link)

    def arrived(self, link: Link, buffer: bytes) -> bool:
        return self._runs is not None and self._runs.take(link, buffer)

    def received(self, link: Link, requests: list[Command]) -> None:
        now = self._server.now
        until = now() + self.limits.turn_seconds
        for number, request in enumerate(requests, 1):
            self._server.serve(link, self._table, request)
            if number < len(requests) and (link.stalled_since is not None or now() > until):
                link.hold_back(requests[number:])
                return

    def crowded(self) -> None:
        self._server.relieve()

    def closed(self, link: Link, reason: str) -> None:
        self._server.forget(link, reason)


async def _all_within(seconds: float, waits: list[Coroutine[Any, Any, None]]) -> None:
    """Wait for all, and no longer than `seconds`."""
    if waits:
        _done, late = await asyncio.wait([asyncio.ensure_future(wait) for wait in waits], timeout=seconds)
        for task in late:
            task.cancel()
