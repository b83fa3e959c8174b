"""TLS on the client's side: a broker behind a TLS proxy."""

import asyncio
import shutil
import socket
import ssl
import threading
from pathlib import Path

import pytest

from embermq.client.calls import BrokerAddress, Caller, WireMessage, send
from embermq.errors import BrokerUnreachable, CallTimeout
from embermq.remoting import Command, Connector
from tests.support.brokers import RunningBroker, play
from tests.support.guarded_cluster import make_certificate

MESSAGE = WireMessage("g", "T", b"x", queue_id=0)


async def proxy(target: str, context: ssl.SSLContext) -> asyncio.Server:
    host, _, port = target.rpartition(":")

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(carry(reader, inner_writer), carry(inner_reader, writer), return_exceptions=True)

    return await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_sends_go_through_tls_and_strangers_are_refused(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)

    async def scenario(broker: RunningBroker) -> None:
        server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server_side.load_cert_chain(cert, key)
        server = await proxy(broker.address, server_side)
        to = BrokerAddress("b", f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        trusting = Connector(tls=ssl.create_default_context(cafile=str(cert)))
        doubting, plain = Connector(tls=ssl.create_default_context()), Connector()
        try:
            assert (await send(Caller(trusting), to, MESSAGE, 10.0)).queue_offset == 0
            with pytest.raises(BrokerUnreachable, match=r"TLS.*CERTIFICATE_VERIFY_FAILED"):
                await send(Caller(doubting), to, MESSAGE, 10.0)
            with pytest.raises(BrokerUnreachable):
                await send(Caller(plain), to, MESSAGE, 1.0)
        finally:
            for connector in (trusting, doubting, plain):
                await connector.close()
            server.close()

    play(scenario, tmp_path / "broker")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_closing_does_not_wait_for_a_peer_that_leaves_the_session_open(tmp_path: Path) -> None:
    """RocketMQ 5 does not answer the end of a session; asyncio by itself waits 30 s for that."""
    cert, key = make_certificate(tmp_path)
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(cert, key)
    is_over = threading.Event()

    def hold(listening: socket.socket) -> None:
        accepted, _ = listening.accept()
        with server_side.wrap_socket(accepted, server_side=True):
            is_over.wait(60)

    async def scenario(address: str) -> None:
        connector = Connector(tls=ssl.create_default_context(cafile=str(cert)))
        with pytest.raises(CallTimeout):
            await connector.call(address, Command(105), 2.0)
        async with asyncio.timeout(20):
            await connector.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        holder = threading.Thread(target=hold, args=(listening,))
        holder.start()
        try:
            asyncio.run(scenario(f"127.0.0.1:{listening.getsockname()[1]}"))
        finally:
            is_over.set()
            holder.join()
