"""A TCP relay between two processes that can be cut or made to stand still, on a loop and thread of its own."""

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class CutLink:
    """Relays 127.0.0.1:`port` to `target`. Any thread."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._flows: set[asyncio.StreamWriter] = set()
        self._opened = threading.Event()
        self._may_flow: asyncio.Event | None = None
        self._is_blocked = False
        self.port = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._opened.wait(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def cut(self) -> None:
        """Close every connection; the next one is relayed again."""
        self._soon(self._cut)

    def stall(self, is_stalled: bool) -> None:
        """Let nothing through, or go on."""
        assert self._may_flow is not None
        self._soon(self._may_flow.clear if is_stalled else self._may_flow.set)

    def block(self, is_blocked: bool) -> None:
        """Close every connection and let no new one through, or let them through again."""
        self._is_blocked = is_blocked
        if is_blocked:
            self._soon(self._cut)

    def _cut(self) -> None:
        for writer in self._flows:
            writer.transport.abort()

    def _soon(self, do: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(do)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(self._listen())
        self._opened.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.01))
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        self._may_flow = asyncio.Event()
        self._may_flow.set()
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            above, to_above = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, to_above}
        if self._is_blocked:
            for end in both:
                end.transport.abort()
            return
        self._flows |= both
        try:
            await asyncio.gather(self._pump(reader, to_above), self._pump(above, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._flows -= both
            for end in both:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._may_flow is not None
        while data := await reader.read(1 << 16):
            await self._may_flow.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionError("ended")
