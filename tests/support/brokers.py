"""A broker on loopback for tests: a small store, a free port, a client that speaks the protocol.

def test_something() -> None:
    async def scenario(broker: RunningBroker) -> None:
        assert (await broker.send("T", b"x")).code == 0

    play(scenario, tmp_path)
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from embermq.broker import Broker, open_store
from embermq.clock import Clock
from embermq.files import Files
from embermq.model.message import StoredMessage
from embermq.remoting import Command, Connector, RequestCode, RequestTable, bind, write_json
from embermq.replication import Replicas
from embermq.settings import BrokerSettings, StoreSettings
from embermq.store import MessageStore

SECONDS = 60.0
SCENARIO_SECONDS = 3 * SECONDS
Scenario = Callable[["RunningBroker"], Awaitable[None]]
SMALL = {
    "segment_bytes": 4 << 20,
    "queue_file_bytes": 20 * 1000,
    "index_slots_max": 1000,
    "index_entries_max": 4000,
    "prefault_bytes_max": 0,
    "listen_port": 0,
}


class RunningBroker:
    """A broker and one client connection to it."""

    def __init__(self, broker: Broker, client: Connector) -> None:
        self.broker, self.client = broker, client
        self.address = str(broker.listen[0])

    @property
    def store(self) -> MessageStore:
        return self.broker.store

    async def call(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"", **more: Any) -> Command:
        """The answer to a request; values of `ext` become texts."""
        return await self.client.call(self.address, Command(code, ext=as_texts(ext), body=body, **more), SECONDS)

    async def send(self, topic: str, body: bytes = b"x", properties: str = "", **more: Any) -> Command:
        """Send one message; one-letter names of other fields may be given."""
        return await self.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic, properties) | more, body)

    async def pull(self, topic: str, offset: int, /, *, group: str = "g", sys_flag: int = 4, **more: Any) -> Command:
        """Pull with the subscription in the request, without waiting, unless other fields are given."""
        await asyncio.to_thread(self.store.wait_for_dispatch)
        return await self.call(RequestCode.PULL_MESSAGE, pull_fields(topic, offset, group, sys_flag) | more)

    async def heartbeat(
        self,
        client_id: str = "c1",
        consumers: Sequence[dict[str, Any]] = (),
        producers: Sequence[str] = (),
        **more: Any,
    ) -> Command:
        body = {
            "clientID": client_id,
            "consumerDataSet": list(consumers),
            "producerDataSet": [{"groupName": group} for group in producers],
        }
        return await self.call(RequestCode.HEART_BEAT, None, write_json(body), **more)

    async def stored(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        """The messages of a queue."""
        found: list[StoredMessage] = []
        while more := (await asyncio.to_thread(self.store.fetch, topic, queue_id, len(found))).messages:
            found += more
        return found


def as_texts(ext: dict[str, Any] | None) -> dict[str, str] | None:
    """Fields of a request as they are sent."""
    return None if ext is None else {name: _text(value) for name, value in ext.items()}


def send_fields(topic: str, properties: str = "") -> dict[str, Any]:
    return {
        "a": "pg",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": 1_700_000_000_000,
        "h": 0,
        "i": properties,
        "j": 0,
        "k": False,
        "m": False,
    }


def pull_fields(topic: str, offset: int, group: str = "g", sys_flag: int = 4) -> dict[str, Any]:
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": sys_flag,
        "commitOffset": 0,
        "suspendTimeoutMillis": 10_000,
        "subscription": "*",
        "subVersion": 0,
    }


def subscription(topic: str, expression: str = "*", version: int = 100, kind: str = "TAG") -> dict[str, Any]:
    return {"topic": topic, "subString": expression, "subVersion": version, "expressionType": kind}


def consumer(group: str, *subscriptions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": list(subscriptions),
    } | more


@contextlib.asynccontextmanager
async def running(
    path: Path,
    *,
    store: dict[str, Any] | None = None,
    hooks: Sequence[object] = (),
    client_table: RequestTable | None = None,
    clock: Clock | None = None,
    files: Files | None = None,
    replicates: bool = False,
    **settings: Any,
) -> AsyncIterator[RunningBroker]:
    """A broker on `path`; `store` and the rest are settings by their Python names. `replicates`: slaves may follow."""
    stored = StoreSettings(**(SMALL | (store or {})))
    replicas = Replicas(stored.ha_behind_bytes_max) if replicates else None
    opened, filters = open_store(path / "store", stored, clock=clock, files=files, replicas=replicas)
    try:
        names: dict[str, Any] = {"fast_port": False, "broker_name": "b"}
        with_settings = BrokerSettings(**(names | settings))
        broker = Broker(
            with_settings, opened, clock=clock, files=files, hooks=hooks, filters=filters, replicas=replicas
        )
        await broker.start(ha=bind("127.0.0.1", 0) if replicates else None)
        client = Connector(client_table)
        try:
            yield RunningBroker(broker, client)
        finally:
            await client.close()
            await broker.stop()
    finally:
        await asyncio.to_thread(opened.close)


def play(scenario: Scenario, path: Path, **more: Any) -> None:
    """Run a scenario against a broker; both are gone afterwards."""

    async def whole() -> None:
        async with asyncio.timeout(SCENARIO_SECONDS), running(path, **more) as broker:
            await scenario(broker)

    asyncio.run(whole())


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS  # Longer than the 20 s after which clients ask for routes again.
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not come to hold within {SECONDS:g} s")
        await asyncio.sleep(0.002)


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
