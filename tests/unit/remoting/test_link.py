"""A connection takes the transport of any event loop."""

import asyncio
from typing import Any, cast

from embermq.remoting import Command, RemotingServer, Reply, RequestTable, Row, encode_frame
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
