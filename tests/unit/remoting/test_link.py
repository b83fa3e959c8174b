"""A connection: the transports it takes, and how it ends behind bytes that are no frame."""

import asyncio
from typing import Any, cast

from embermq.remoting import Command, RemotingLimits, RemotingServer, Reply, RequestTable, Row, encode_frame
from embermq.remoting.headers import NoHeader
from tests.support.fed_links import ListTransport


class ForeignTransport:
    """Does what a transport does, and is no subclass of asyncio's: as uvloop's."""

    def __init__(self) -> None:
        self.inner = ListTransport(1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_a_transport_need_not_be_a_subclass() -> None:
    async def run() -> None:
        server, table = RemotingServer(), RequestTable([Row(1, NoHeader, lambda call: Reply())])
        transport, link = ForeignTransport(), server.new_link(table)
        link.connection_made(cast(asyncio.BaseTransport, transport))
        link.data_received(encode_frame(Command(1, 5)))
        assert b'"opaque":5' in b"".join(transport.inner.written)
        await server.stop()

    asyncio.run(run())


def test_requests_in_front_of_bytes_that_are_no_frame_are_answered_over_several_turns() -> None:
    async def run() -> None:
        server = RemotingServer(RemotingLimits(turn_seconds=0.0))
        table = RequestTable([Row(1, NoHeader, lambda call: Reply())])
        transport, link = ListTransport(1), server.new_link(table)
        link.connection_made(transport)
        link.data_received(b"".join(encode_frame(Command(1, opaque)) for opaque in range(5)) + b"\xff" * 8)
        closed = [transport.closed]  # One request was served in this turn.
        for _ in range(20):
            await asyncio.sleep(0)
        assert b"".join(transport.written).count(b'"opaque":') == 5
        assert [*closed, transport.closed] == [False, True]
        assert server.counters.closed_invalid == 1
        await server.stop()

    asyncio.run(run())
