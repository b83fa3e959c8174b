"""Frames over TLS, on both sides: longer than the records of TLS, and several in one turn."""

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest

from embermq.remoting import Command, Connector, RemotingServer, Reply, RequestTable, Row
from embermq.remoting.headers import NoHeader
from tests.support.guarded_cluster import make_certificate

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")


def test_long_and_many_frames_come_whole(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    inside = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    inside.load_cert_chain(cert, key)
    bodies = [bytes([n]) * size for n, size in enumerate([0, 1, 100, 16_384, 16_385, 70_000, 300_000, 1_000_000])]

    async def run() -> None:
        server = RemotingServer()
        table = RequestTable([Row(1, NoHeader, lambda call: Reply(body=call.body[::-1]))])
        listening = await asyncio.get_running_loop().create_server(
            lambda: server.new_link(table), "127.0.0.1", 0, ssl=inside
        )
        connector = Connector(tls=ssl.create_default_context(cafile=str(cert)))
        address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        answers = await asyncio.gather(*(connector.call(address, Command(1, body=body), 20.0) for body in bodies * 3))
        assert [answer.body for answer in answers] == [body[::-1] for body in bodies * 3]
        listening.close()
        await connector.close()
        await server.stop()

    asyncio.run(run())
