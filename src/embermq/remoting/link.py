"""Link: one TCP connection on the asyncio loop. The loop's thread only.

All frames of a read are handed to the owner together, and what it answers meanwhile leaves in one joined write. Outside
of a read, writes of one turn of the loop are joined as well. A peer that does not read what is written to it is not
read from either, and its requests that were read wait until it does; what it was not sent is bounded.
"""

import asyncio
import ipaddress
from collections.abc import Callable
from typing import Protocol, cast

from embermq.errors import ConnectionLost
from embermq.model.hosts import Host, pack_host
from embermq.remoting.command import Command, Reply, answer
from embermq.remoting.counters import RemotingCounters
from embermq.remoting.frames import encode_frame
from embermq.remoting.limits import RemotingLimits
from embermq.remoting.session import OnAnswer, Session

NO_HOST = Host("0.0.0.0", 0)
_TLS_HANDSHAKE = 0x16
# Answers of one turn are joined up to this size: a few pulls make a lot of bytes, and a peer may not read them.
_JOIN_BYTES_MAX = 1 << 20
# No more is received at once.
_READ_BYTES = 1 << 18
# What a request takes beside its texts and its body, roughly.
_REQUEST_BYTES = 500


class ReadBuffer:
    """Where all links of a loop receive; what came is copied out of it at once. Without it, asyncio makes a bytes
    object of 256 KiB for each read and gives most of it back; where many stay, each of them costs new pages."""

    def __init__(self) -> None:
        # A view: asyncio's TLS writes to slices of it, which of a bytearray would be copies.
        self.memory = memoryview(bytearray(_READ_BYTES))

    def taken(self, size: int) -> bytes:
        return bytes(self.memory[:size])


class LinkOwner(Protocol):
    """What a link tells the server or client it belongs to."""

    limits: RemotingLimits
    counters: RemotingCounters
    read_buffer: ReadBuffer

    def opened(self, link: "Link") -> bool:
        """False: refused, the link closes."""
        ...

    def arrived(self, link: "Link", buffer: bytes) -> bool:
        """Bytes that begin with a frame; False: the link reads them itself, now. True: they are given back to its
        `read` in this turn of the loop or at the beginning of the next."""
        ...

    def received(self, link: "Link", requests: list[Command]) -> None: ...

    def crowded(self) -> None:
        """What waits on all links together is over a limit."""
        ...

    def closed(self, link: "Link", reason: str) -> None: ...


class Link(asyncio.BufferedProtocol):
    """One connection, and the protocol state that goes with it."""

    def __init__(self, owner: LinkOwner, loop: asyncio.AbstractEventLoop) -> None:
        self._owner, self._loop = owner, loop
        self._limits, self._counters, self._buffer = owner.limits, owner.counters, owner.read_buffer
        self._session = Session("?", owner.limits.frame_bytes)
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._held_back: list[Command] = []  # requests that wait until the peer reads
        self._kept: dict[int, int] = {}  # bytes of requests that wait for their answer, by the id of the request
        self._in_turn = self._flush_is_due = self._is_draining = False
        self._unread_before = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reason = ""
        self._failure: str | None = None  # why nothing more can be read
        self._transport: asyncio.Transport | None = None
        self._is_drained: asyncio.Event | None = None
        self._is_gone = asyncio.Event()
        self.host, self.packed_host = NO_HOST, pack_host(NO_HOST)
        self.in_flight = 0  # requests of the peer that were not answered yet
        self.unknown_reads = 0  # for frame_runs.py: so many reads are not offered to a taker of runs
        self.active_at = loop.time()
        self.unread_since: float | None = None  # an unfinished frame began to arrive
        self.stalled_since: float | None = None  # the peer does not read
        self.unsent_since: float | None = None  # the peer has something left to read
        self.unsent_bytes = 0

    # -- what the transport says ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # Not by isinstance: uvloop's are no subclass.
        self._transport = transport
        self.host = _host_of(transport.get_extra_info("peername"))
        self.packed_host = pack_host(self.host)
        self._session = Session(str(self.host), self._limits.frame_bytes, pending_max=self._limits.pending_calls)
        transport.set_write_buffer_limits(high=self._limits.write_pause_bytes)
        if not self._owner.opened(self):
            self.close("the limit of connections is reached")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer.memory

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(self._buffer.taken(nbytes))

    def data_received(self, data: bytes) -> None:
        self.active_at = self._loop.time()
        self._counters.received_bytes += len(data)
        if self.unread_since is None and data[0] == _TLS_HANDSHAKE and not self._session.unread_bytes:
            self.close("TLS is not supported: the peer began with a TLS handshake")
            return
        self._unread_before = self._session.unread_bytes
        buffer = self._session.join(data)
        if not buffer:
            self._account_unread(self._unread_before)
        elif not self._owner.arrived(self, buffer):
            self.read(buffer, 0)

    def read(self, buffer: bytes, at: int, most: int | None = None) -> int:
        """Hand the requests in buffer[at:], or in its next `most` frames, to the owner; where they end."""
        requests, at = self._session.read(buffer, at, most)
        if requests:
            self._serve(requests)
        if most is None:
            self._account_unread(self._unread_before)
            if self._session.failure is not None:
                self._counters.closed_invalid += 1
                self._failure = self._session.failure
                self._close_if_served()
        return at

    def read_nothing(self) -> None:
        """All of a buffer was taken by the owner: nothing of it is left to be read or kept."""
        if self._unread_before:
            self._account_unread(self._unread_before)

    def begin_turn(self) -> None:
        """Keep what is written until `end_turn`."""
        self._in_turn = True

    def end_turn(self) -> None:
        self._in_turn = False
        if self._out:
            self._flush()

    def _serve(self, requests: list[Command]) -> None:
        if self._held_back:
            self._held_back += requests
            return
        was_in_turn, self._in_turn = self._in_turn, True
        try:
            self._owner.received(self, requests)
        finally:
            self._in_turn = was_in_turn
        if self._out and not was_in_turn:
            self._flush()

    def _account_unread(self, before: int) -> None:
        now = self._session.unread_bytes
        self._counters.unread_bytes += now - before
        if not now:
            self.unread_since = None
        elif self.unread_since is None or now < before:
            self.unread_since = self.active_at
        if now and self._counters.unread_bytes > self._limits.unread_bytes:
            self._owner.crowded()

    def pause_writing(self) -> None:
        self.stalled_since = self._loop.time()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.stalled_since = None
        self._go_on()

    def _go_on(self) -> None:
        """With the requests that were held back; then read on."""
        if self._held_back and self.is_open and self.stalled_since is None:
            requests, self._held_back = self._held_back, []
            self._serve(requests)
        self._close_if_served()
        if self._may_read() and self._transport is not None:
            self._transport.resume_reading()

    def _close_if_served(self) -> None:
        """Close a connection that cannot be read any further, after the requests in front of that place."""
        if self._failure is not None and not self._held_back:
            self.close(self._failure)

    def _may_read(self) -> bool:
        return self.is_open and self.stalled_since is None and not self._held_back and not self._is_draining

    def eof_received(self) -> bool:
        self._reason = self._reason or "the peer closed it"
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        reason = self._reason or (f"{exc}" if exc is not None else "the peer closed it")
        self._counters.unread_bytes -= self._session.unread_bytes
        self._counters.in_flight -= self.in_flight
        self.in_flight = 0
        self._transport = None
        self._counters.unsent_bytes -= self.unsent_bytes
        self.unsent_bytes = self._out_bytes = 0
        self._held_back.clear()
        self._out.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._session.end(reason)
        self._is_gone.set()
        if self._is_drained is not None:
            self._is_drained.set()
        self._owner.closed(self, reason)

    # -- what the owner and its handlers ask ---------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def unread_bytes(self) -> int:
        """Of a frame that is not whole yet."""
        return self._session.unread_bytes

    def begin(self, request: Command) -> None:
        """A request is under way until `answer`."""
        if not request.is_oneway:
            self.in_flight += 1
            self._counters.in_flight += 1

    def keep(self, request: Command) -> None:
        """A request is not answered at once: its bytes count until `answer`."""
        texts = sum(len(name) + len(text) for name, text in request.ext.items()) if request.ext else 0
        self._kept[id(request)] = size = _REQUEST_BYTES + texts + len(request.body)
        self._counters.kept_bytes += size

    def hold_back(self, requests: list[Command]) -> None:
        """Hand these requests to the owner again: at the next turn of the loop, or when the peer has read what waits
        for it. Nothing more is read meanwhile."""
        self._held_back += requests
        if self.stalled_since is None and self._transport is not None:
            self._transport.pause_reading()
            self._loop.call_soon(self._go_on)

    def answer(self, request: Command, reply: Reply) -> None:
        """Send the response to a request, unless it wants none or the connection is gone."""
        if self._kept:
            self._counters.kept_bytes -= self._kept.pop(id(request), 0)
        if request.is_oneway or self._transport is None:
            return
        self.in_flight -= 1
        self._counters.in_flight -= 1
        if self._is_drained is not None and not self.in_flight:
            self._is_drained.set()
        self._write(encode_frame(answer(request, reply)))

    def has_room_for(self, count: int) -> bool:
        """Whether so many requests may be begun at once: no limit would refuse or hold back one of them."""
        return (
            not self._held_back
            and self.stalled_since is None
            and self.in_flight + count <= self._limits.in_flight_per_connection
            and self._counters.in_flight + count <= self._limits.in_flight
            and self._counters.kept_bytes <= self._limits.kept_bytes
        )

    def begin_run(self, count: int, oneway: int = 0) -> None:
        """So many requests that want an answer are under way until `answer_run`; so many others want none."""
        self.in_flight += count
        self._counters.in_flight += count
        self._counters.requests += count + oneway

    def answer_run(self, count: int, frames: bytes) -> None:
        """Send the responses to so many requests, which are frames already."""
        if self._transport is None:
            return
        self.in_flight -= count
        self._counters.in_flight -= count
        if self._is_drained is not None and not self.in_flight:
            self._is_drained.set()
        self._write(frames)

    def tell(self, request: Command) -> bool:
        """Send a request that wants no answer; False, and nothing sent, if the peer is gone or does not read."""
        if not self.is_open or self.stalled_since is not None:
            self._counters.pushes_dropped += 1
            return False
        self._write(self._session.tell(request))
        return True

    def call(self, request: Command, seconds: float, on_answer: OnAnswer) -> None:
        """Send a request; its outcome goes to `on_answer` on the loop's thread, at the latest after `seconds`."""
        if not self.is_open:
            raise ConnectionLost(str(self.host), self._reason or "it is closed")
        if self._session.pending_calls >= self._limits.pending_calls:
            self._counters.pushes_dropped += 1
        now = self._loop.time()
        self._write(self._session.call(request, now, seconds, on_answer))
        self._expire_at(now + seconds)

    def call_encoded(self, code: int, encode: Callable[[int], bytes], seconds: float, on_answer: OnAnswer) -> None:
        """The same for a request that `encode` makes a frame of, given its opaque."""
        if not self.is_open:
            raise ConnectionLost(str(self.host), self._reason or "it is closed")
        now = self._loop.time()
        self._write(encode(self._session.expect(code, now, seconds, on_answer)))
        self._expire_at(now + seconds)

    def _expire_at(self, deadline: float) -> None:
        if self._timer is not None and self._timer.when() > deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._expire)

    def close(self, reason: str) -> None:
        """Send what is waiting, then close."""
        if self._transport is not None:
            self._reason = self._reason or reason
            self._flush()
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once; what is waiting is dropped."""
        if self._transport is not None:
            self._reason = self._reason or reason
            self._transport.abort()

    async def drain(self) -> None:
        """Read nothing more, and wait until every request that was read is answered."""
        self._is_draining = True
        if self._transport is not None and self.stalled_since is None:
            self._transport.pause_reading()
        if self.in_flight and self._transport is not None:
            self._is_drained = asyncio.Event()
            await self._is_drained.wait()

    async def wait_closed(self) -> None:
        await self._is_gone.wait()

    def _write(self, frame: bytes) -> None:
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes > _JOIN_BYTES_MAX:
            self._flush()
        elif not self._in_turn and not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._transport is None or not self._out:
            return
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        self._out_bytes = 0
        self.active_at = self._loop.time()
        self._counters.sent_bytes += len(data)
        self._transport.write(data)
        unsent = self._transport.get_write_buffer_size()
        if not unsent and not self.unsent_bytes:
            return
        self._account_unsent(unsent)
        if self.stalled_since is not None and unsent > self._limits.write_limit_bytes:
            self._counters.closed_stalled += 1
            self.abort("the peer does not read, and too much waits for it")
        elif self._counters.unsent_bytes > self._limits.unsent_bytes:
            self._owner.crowded()

    def look_at_unsent(self) -> None:
        """Note how much the peer has left to read by now."""
        if self.unsent_bytes and self._transport is not None:
            self._account_unsent(self._transport.get_write_buffer_size())

    def _account_unsent(self, now: int) -> None:
        self._counters.unsent_bytes += now - self.unsent_bytes
        self.unsent_bytes = now
        if not now:
            self.unsent_since = None
        elif self.unsent_since is None:
            self.unsent_since = self._loop.time()

    def _expire(self) -> None:
        self._timer = None
        if (deadline := self._session.expire(self._loop.time())) is not None:
            self._timer = self._loop.call_at(deadline, self._expire)


def _host_of(peername: object) -> Host:
    """The peer's address; an IPv4 address that came through an IPv6 socket is an IPv4 address."""
    if not isinstance(peername, tuple):
        return NO_HOST
    address = ipaddress.ip_address(str(peername[0]).partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return Host(str(mapped or address), int(peername[1]))
