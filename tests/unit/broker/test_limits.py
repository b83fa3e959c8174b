"""Everything above the store is bounded: each limit has a setting, an answer, and a counter in the runtime info."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from embermq.remoting import BODY_BYTES_MAX, Command, Connector, RequestCode, encode_frame, parse_json, write_json
from tests.support.brokers import (
    RunningBroker,
    consumer,
    play,
    pull_fields,
    running,
    send_fields,
    subscription,
    until,
)

LONG_PULL = 7  # commit, wait, subscription in the request
NEW_TOPIC = {"topic": "New", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}


async def counted(broker: RunningBroker, name: str) -> int:
    """A counter as an administrator sees it."""
    answer = await broker.call(RequestCode.GET_BROKER_RUNTIME_INFO)
    return int(parse_json(answer.body)["table"][name])


def frame(code: int, fields: dict[str, Any] | None = None, body: bytes = b"", **more: Any) -> bytes:
    texts = None if fields is None else {name: str(value) for name, value in fields.items()}
    return encode_frame(Command(code, ext=texts, body=body, **more))


async def connected(broker: RunningBroker) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = broker.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def hold(broker: RunningBroker, client: Connector, **more: Any) -> "asyncio.Task[Command]":
    """A pull that waits for a message."""
    fields = pull_fields("T", 0, sys_flag=LONG_PULL) | {"queueId": 1} | more
    request = Command(RequestCode.PULL_MESSAGE, ext={name: str(value) for name, value in fields.items()})
    before = len(broker.broker.held)
    task = asyncio.ensure_future(client.call(broker.address, request, 30.0))
    await until(lambda: len(broker.broker.held) > before or task.done())
    return task


async def ended(*tasks: "asyncio.Task[Command]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_connections(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        _reader, writer = await connected(broker)
        reader, refused = await connected(broker)
        assert await reader.read() == b""
        assert await counted(broker, "emberRefusedConnections") == 1
        writer.close()
        refused.close()

    play(scenario, tmp_path, connections_max=2)


def test_the_size_of_a_frame(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        reader, writer = await connected(broker)
        writer.write(frame(310, send_fields("T"), bytes(5000)))
        assert await reader.read() == b""
        assert await counted(broker, "emberClosedInvalid") == 1
        writer.close()

    play(scenario, tmp_path, frame_bytes_max=4096)


@pytest.mark.parametrize(
    "limit",
    [{"requests_per_connection_max": 2}, {"requests_max": 2}, {"kept_bytes_max": 2000}],
    ids=lambda limit: next(iter(limit)),
)
def test_requests_that_wait_for_their_answer(tmp_path: Path, limit: dict[str, int]) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        held = [await hold(broker, broker.client, subscription="x" * 1000) for _ in range(2)]
        answer = await broker.send("T")
        assert (answer.code, "flow control" in (answer.remark or "")) == (2, True)
        await broker.send("T", e=1)  # Refused as well: nothing arrives for the pulls.
        broker.broker.held.release_all()
        await asyncio.gather(*held)
        assert (await broker.send("T")).code == 0
        assert await counted(broker, "emberRefusedRequests") == 2
        assert await counted(broker, "emberRequestBytesKept") < 1000, "its own request alone"

    play(scenario, tmp_path, **limit)


def test_a_closed_connection_leaves_no_requests_behind(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        other = Connector()
        held = await hold(broker, other)
        assert broker.broker.server.counters.kept_bytes > 500
        await other.close()
        await until(lambda: broker.broker.server.counters.kept_bytes == 0)
        assert len(broker.broker.held) == 0
        await ended(held)

    play(scenario, tmp_path)


def test_bodies_of_requests_without_messages(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        answer = await broker.call(RequestCode.HEART_BEAT, None, b" " * (BODY_BYTES_MAX + 1))
        assert (answer.code, "1,048,576 are allowed" in (answer.remark or "")) == (1, True)
        assert await counted(broker, "emberRefusedBodies") == 1
        assert (await broker.send("T", bytes(BODY_BYTES_MAX + 1))).code == 0

    play(scenario, tmp_path)


def test_requests_that_have_not_arrived_whole(tmp_path: Path) -> None:
    """The oldest ones are given up; a client whose frames arrive is served."""

    async def scenario(broker: RunningBroker) -> None:
        half = frame(310, send_fields("T"), bytes(200_000))[:90_000]
        ends = []
        for _ in range(4):
            ends.append(await connected(broker))
            ends[-1][1].write(half)
            await ends[-1][1].drain()
        assert await ends[0][0].read() == b""
        assert (await broker.send("T", bytes(150_000))).code == 0
        assert await counted(broker, "emberClosedCrowded") >= 1
        assert await counted(broker, "emberBytesUnread") <= 300_000
        for _reader, writer in ends:
            writer.close()

    play(scenario, tmp_path, unread_bytes_max=300_000)


async def ask_and_never_read(broker: RunningBroker, number: int) -> socket.socket:
    """Asks for a lot, on a socket that takes little."""
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.setblocking(False)
    loop = asyncio.get_running_loop()
    host, _, port = broker.address.rpartition(":")
    await loop.sock_connect(deaf, (host, int(port)))
    await loop.sock_sendall(deaf, frame(RequestCode.PULL_MESSAGE, pull_fields("T", 0)) * number)
    return deaf


Limits = dict[str, Any]


@pytest.mark.parametrize(
    ("limits", "counter"),
    [
        ({"unsent_bytes_max": 8 << 20}, "emberClosedCrowded"),
        ({"unsent_per_connection_max": 1 << 20}, "emberClosedStalled"),
    ],
    ids=["all", "one"],
)
def test_answers_that_are_not_read(tmp_path: Path, limits: Limits, counter: str) -> None:
    async def scenario(broker: RunningBroker) -> None:
        for _ in range(3):
            assert (await broker.send("T", bytes(1 << 20))).code == 0
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        deaf = [await ask_and_never_read(broker, 64) for _ in range(6)]
        server = broker.broker.server
        closed = "closed_crowded" if counter == "emberClosedCrowded" else "closed_stalled"
        await until(lambda: getattr(server.counters, closed) > 0)
        assert (await broker.pull("T", 0)).code == 0
        assert await counted(broker, counter) >= 1
        assert await counted(broker, "emberBytesUnsent") <= 12 << 20
        for one in deaf:
            one.close()
        await until(lambda: server.counters.unsent_bytes == 0)

    play(scenario, tmp_path, **limits)


def test_one_that_does_not_read_makes_no_more_answers(tmp_path: Path) -> None:
    """Its requests wait until it reads; then every one of them is answered, in order."""

    async def scenario(broker: RunningBroker) -> None:
        for _ in range(2):
            assert (await broker.send("T", bytes(1 << 20))).code == 0
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        asked = 64
        reader, writer = await connected(broker)
        fields = pull_fields("T", 0)
        writer.write(b"".join(frame(RequestCode.PULL_MESSAGE, fields, opaque=number) for number in range(asked)))
        await until(lambda: any(link.stalled_since is not None for link in broker.broker.server._links))
        assert broker.broker.server.counters.unsent_bytes < 8 << 20
        for number in range(asked):
            size = int.from_bytes(await reader.readexactly(4))
            header = (await reader.readexactly(size))[4:400]
            assert b'"opaque":%d,' % number in header
        writer.close()

    play(scenario, tmp_path)


def test_pushes_that_a_client_does_not_answer(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        _reader, writer = await connected(broker)
        beat = write_json({"clientID": "deaf", "consumerDataSet": [consumer("g", subscription("T"))]})
        writer.write(frame(RequestCode.HEART_BEAT, None, beat))
        await until(lambda: broker.broker.clients.consumers("g") is not None)
        fields = {"consumerGroup": "g", "clientId": "deaf"}
        first = asyncio.ensure_future(broker.call(RequestCode.GET_CONSUMER_RUNNING_INFO, fields))
        await asyncio.sleep(0.05)
        answer = await broker.call(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        assert answer.code == 1
        assert "no more are sent" in (answer.remark or "")
        assert await counted(broker, "emberRefusedPushes") == 1
        writer.close()
        assert (await first).code != 0

    play(scenario, tmp_path, pushes_max=1)


def test_held_pulls(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        held = await hold(broker, broker.client)
        answer = await broker.call(RequestCode.PULL_MESSAGE, pull_fields("T", 5, sys_flag=LONG_PULL) | {"queueId": 1})
        assert answer.code in (19, 21)
        other = await hold(broker, broker.client)
        assert (await other).code == 19
        assert await counted(broker, "emberRefusedHeldPulls") == 1
        await ended(held)

    play(scenario, tmp_path, held_pulls_max=1)


async def too_many_members(broker: RunningBroker) -> Command:
    return await broker.heartbeat("c", [], ["p1", "p2", "p3"])


async def too_many_subscriptions(broker: RunningBroker) -> Command:
    assert (await broker.heartbeat("c", [consumer("g", subscription("T", "a" * 500))])).code == 0
    assert (await broker.heartbeat("c", [consumer("g", subscription("T", "b" * 700, 200))])).code == 0
    return await broker.heartbeat("c", [consumer("h", subscription("T", "a" * 500))])


@pytest.mark.parametrize(
    ("beat", "limits"),
    [
        (too_many_members, {"clients_max": 2}),
        (too_many_subscriptions, {"subscription_bytes_max": 1000}),
    ],
)
def test_clients(tmp_path: Path, beat: Callable[[RunningBroker], Awaitable[Command]], limits: Limits) -> None:
    async def scenario(broker: RunningBroker) -> None:
        answer = await beat(broker)
        assert (answer.code, "emberMax" in (answer.remark or "")) == (2, True)
        assert await counted(broker, "emberRefusedClients") == 1
        await broker.client.close()
        await until(lambda: broker.broker.server.connections == 0)
        assert broker.broker.clients._subscription_bytes == 0
        broker.client = Connector()
        assert (await broker.heartbeat("d", [consumer("h", subscription("T", "a" * 500))])).code == 0

    async def whole() -> None:
        async with asyncio.timeout(180), running(tmp_path, **limits) as broker:
            await scenario(broker)
            await broker.client.close()

    asyncio.run(whole())


@pytest.mark.parametrize(
    "body",
    [
        {"clientID": "c" * 256},
        {"clientID": "c", "producerDataSet": [{"groupName": "g" * 256}]},
        {"clientID": "c", "consumerDataSet": [consumer("g" * 256)]},
    ],
)
def test_names_of_clients_are_short(tmp_path: Path, body: dict[str, Any]) -> None:
    async def scenario(broker: RunningBroker) -> None:
        answer = await broker.call(RequestCode.HEART_BEAT, None, write_json(body))
        assert (answer.code, "longer than 255 characters" in (answer.remark or "")) == (1, True)

    play(scenario, tmp_path)


def test_topics_and_groups(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        first = await broker.send("T" * 100)
        assert first.code == 0
        second = await broker.send("U")
        assert (second.code, second.remark) == (17, "topic[U] not exist, apply first please!")
        assert await counted(broker, "emberRefusedNames") == 1

    async def at_the_limit(path: Path) -> None:
        async with asyncio.timeout(180), running(path) as broker:
            broker.broker._current = broker.broker.settings.replace(names_max=len(broker.broker.topics.all()) + 1)
            await scenario(broker)

    asyncio.run(at_the_limit(tmp_path))


def test_topics_fit_into_one_registration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker with more of them could not register any more, and would leave the routes."""

    async def scenario(broker: RunningBroker) -> None:
        topics = broker.broker.topics
        weight = topics._registered_bytes
        monkeypatch.setattr("embermq.broker.tables.topics.REGISTERED_BYTES_MAX", weight + 1)
        assert (await broker.send("T" * 100)).code == 0
        assert topics._registered_bytes == weight + 350
        assert (await broker.send("U")).code == 17
        assert topics.remove("T" * 100)
        assert (await broker.send("U")).code == 0

    play(scenario, tmp_path)


def test_queue_locks(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        queues = [{"topic": "T", "brokerName": "b", "queueId": number} for number in range(3)]
        body = write_json({"clientId": "c", "consumerGroup": "g", "mqSet": queues})
        answer = await broker.call(RequestCode.LOCK_BATCH_MQ, None, body)
        assert len(parse_json(answer.body)["lockOKMQSet"]) == 2
        assert await counted(broker, "emberRefusedQueueLocks") == 1

    play(scenario, tmp_path, clients_max=2)


def test_offsets(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        for group, code in (("g", 0), ("h", 1)):
            fields = {"consumerGroup": group, "topic": "T", "queueId": 0, "commitOffset": 5}
            assert (await broker.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == code
        assert await counted(broker, "emberRefusedOffsets") == 1

    play(scenario, tmp_path, offsets_max=1)


@pytest.mark.parametrize(
    ("limit", "waits_in", "code", "fields"),
    [
        ("blocking_requests_max", "document", RequestCode.GET_ALL_TOPIC_CONFIG, None),
        ("late_requests_max", "save", RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC),
    ],
    ids=["blocking", "late"],
)
def test_requests_that_wait_for_a_disk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    waits_in: str,
    code: int,
    fields: dict[str, Any] | None,
) -> None:
    async def scenario(broker: RunningBroker) -> None:
        begun, goes_on = threading.Event(), threading.Event()
        real = getattr(broker.broker.topics, waits_in)

        def wait() -> Any:
            begun.set()
            assert goes_on.wait(30)
            return real()

        monkeypatch.setattr(broker.broker.topics, waits_in, wait)
        first = asyncio.ensure_future(broker.call(code, fields))
        await until(begun.is_set)
        try:
            assert (await broker.call(code, fields)).code == 2
        finally:
            goes_on.set()
        assert (await first).code == 0
        assert (await broker.call(code, fields)).code == 0
        assert await counted(broker, "emberRefusedRequests") == 1

    play(scenario, tmp_path, **{limit: 1})


@pytest.mark.slow(seconds=3)
def test_idle_connections(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        reader, writer = await connected(broker)
        assert await reader.read() == b""
        writer.close()
        assert await counted(broker, "emberClosedIdle") >= 1

    play(scenario, tmp_path, idle_seconds=1)
