"""Brokers fed with bytes: a connection whose other end is a list, so that what is answered can be compared.

with FedBroker(tmp_path / "a", kernels=KernelUse.NEVER) as broker:
    broker.feed([b"..."])       # bytes of one connection each
"""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from embermq.broker import Broker
from embermq.remoting import Link, Piece
from embermq.settings import BrokerSettings, KernelUse, StoreSettings
from embermq.store import MessageStore
from embermq.testing import ManualClock
from tests.support.brokers import SMALL, until

SECONDS = 60.0


class ListTransport(asyncio.Transport):
    """Keeps what is written to it."""

    def __init__(self, port: int) -> None:
        super().__init__({"peername": ("127.0.0.1", port)})
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


def _is_served(link: Link) -> Callable[[], bool]:
    """A connection is served for a moment at a time, and goes on in a later turn of the loop."""
    return lambda: not link.is_open or link.has_room_for(0)


class FedBroker:
    """A broker on a loop of its own that stands still between two feeds."""

    def __init__(
        self,
        place: Path,
        kernels: KernelUse,
        *,
        hooks: tuple[object, ...] = (),
        broker: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """`broker` are settings of the broker, `more` those of its store."""
        self._loop = asyncio.new_event_loop()
        self._settings = BrokerSettings(fast_port=False, **(broker or {}))
        settings = StoreSettings(**{**SMALL, **more, "kernels": kernels})
        self.store = MessageStore.open(place, settings, clock=ManualClock())
        self.broker = self._loop.run_until_complete(self._started(hooks))

    async def _started(self, hooks: tuple[object, ...]) -> Broker:
        broker = Broker(self._settings, self.store, clock=ManualClock(), hooks=hooks)
        await broker.start()
        return broker

    def connect(self, port: int) -> tuple[Link, ListTransport]:
        transport = ListTransport(port)
        link = self.broker.server.new_link(self.broker.table)
        link.connection_made(transport)
        return link, transport

    def feed(self, datas: list[bytes], *, by_runs: bool) -> list[tuple[bytes, bool]]:
        """Give bytes to as many new connections; what each was answered, and whether it was closed."""
        return self._loop.run_until_complete(self._fed(datas, by_runs))

    async def _fed(self, datas: list[bytes], by_runs: bool) -> list[tuple[bytes, bool]]:
        random.seed(7)  # Queues are drawn by lot where a producer leaves it to the broker.
        ends = [self.connect(4000 + number) for number in range(len(datas))]
        pieces = [Piece(link, data) for (link, _transport), data in zip(ends, datas, strict=True)]
        if by_runs:
            assert self.broker.runs.is_ready(1)
            self.broker.runs.take(pieces)
        async with asyncio.timeout(SECONDS):
            for piece in pieces:
                piece.link.read(piece.buffer, piece.at)
                await until(_is_served(piece.link))
            for link, _transport in ends:
                await link.drain()
        await asyncio.sleep(0)  # What was answered outside of a read is written in the next turn.
        for link, _transport in ends:
            link.connection_lost(None)
        return [(b"".join(transport.written), transport.closed) for _link, transport in ends]

    def log_bytes(self) -> bytes:
        """The log up to its end."""
        files = sorted((self.store.path / "commitlog").iterdir())
        return b"".join(path.read_bytes() for path in files)[: self.store.max_physical]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run_until_complete(self.broker.stop())
        self.store.close()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
