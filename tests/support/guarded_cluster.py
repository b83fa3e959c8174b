"""A door in front of a cluster on loopback: TLS, and signatures that are checked, as brokers with access control do.

    with guarded(cluster, account=Credentials(...), certificate=(cert, key)) as door:
        door.name_server        # what clients are told; routes they get there lead to the door as well
        door.refused            # how many requests were not let in

It reads every frame, and asks the name server or the broker behind it in its own name.
"""

import asyncio
import contextlib
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from embermq.client import Credentials
from embermq.client.credentials import signature
from embermq.remoting import Command, Connector, FrameReader, Reply, answer, encode_frame
from tests.support.clusters import Cluster

_SECONDS = 30.0
_NO_PERMISSION = 16


class Door:
    """Servers in front of others, all with the same certificate and the same account."""

    def __init__(self, account: Credentials | None, tls: ssl.SSLContext | None) -> None:
        self._account, self._tls = account, tls
        self._addresses: dict[bytes, bytes] = {}
        self.name_server = ""
        self.refused = 0

    async def open(self, cluster: Cluster, stack: contextlib.AsyncExitStack) -> None:
        connector = Connector()
        stack.push_async_callback(connector.close)
        for broker in cluster.brokers.values():
            self._addresses[broker.address.encode()] = (await self._serve(broker.address, connector, stack)).encode()
        self.name_server = await self._serve(cluster.name_server, connector, stack)

    async def _serve(self, target: str, connector: Connector, stack: contextlib.AsyncExitStack) -> str:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            frames = FrameReader()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                while data := await reader.read(65_536):
                    for request in frames.feed(data):
                        writer.write(encode_frame(await self._answer(target, connector, request)))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=self._tls)
        stack.callback(server.close)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _answer(self, target: str, connector: Connector, request: Command) -> Command:
        if self._account is not None and not self._is_signed(request, self._account):
            self.refused += 1
            return answer(request, Reply(_NO_PERMISSION, "No accessKey is configured, or the signature is wrong"))
        passed = Command(request.code, ext=request.ext, body=request.body)
        found = await connector.call(target, passed, _SECONDS)
        body = found.body
        for own, shown in self._addresses.items():
            body = body.replace(own, shown) if b"brokerAddrs" in body else body
        return answer(request, Reply(found.code, found.remark, found.ext, body))

    def _is_signed(self, request: Command, account: Credentials) -> bool:
        ext = request.ext or {}
        right = signature(ext, request.body, account.secret_key)
        return ext.get("AccessKey") == account.access_key and ext.get("Signature") == right


@contextlib.contextmanager
def guarded(
    cluster: Cluster, *, account: Credentials | None = None, certificate: tuple[Path, Path] | None = None
) -> Iterator[Door]:
    """A door on a loop and thread of its own."""
    tls = None
    if certificate is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(*certificate)
    door, is_up, stop = Door(account, tls), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with contextlib.AsyncExitStack() as stack:
            await door.open(cluster, stack)
            is_up.set()
            await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            is_up.set()
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()

    thread = threading.Thread(target=run, name="test-door")
    thread.start()
    try:
        assert is_up.wait(_SECONDS)
        assert door.name_server, "the door did not open"
        yield door
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join(_SECONDS)


def make_certificate(path: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that vouches for itself, and its key; made with openssl."""
    cert, key = path / "cert.pem", path / "key.pem"
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*words.split(), "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key
