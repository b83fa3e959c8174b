"""A server and clients over real sockets on loopback: pipelining, threads, limits, bad peers, a graceful end."""

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from embermq.errors import CallTimeout, ConnectFailed, ConnectionLost, RemotingError
from embermq.remoting import (
    Call,
    Command,
    Connector,
    FrameReader,
    Link,
    NoHeader,
    RemotingLimits,
    RemotingServer,
    Reply,
    RequestCode,
    RequestTable,
    ResponseCode,
    Row,
    encode_frame,
)

ECHO, KEEP, PUSH, THREAD, BROKEN, LARGE = 10, 11, 12, 14, 15, 17


class Topic(msgspec.Struct):
    topic: str


class Service:
    """Handlers of every kind."""

    def __init__(self) -> None:
        self.kept: list[Call[Any]] = []
        self.threads: list[str] = []
        self.pushed: list[object] = []
        self.release = threading.Event()

    def table(self) -> RequestTable:
        return RequestTable(
            [
                Row(ECHO, Topic, self.echo),
                Row(KEEP, NoHeader, self.keep),
                Row(PUSH, NoHeader, self.push),
                Row(THREAD, NoHeader, self.on_thread, blocking=True),
                Row(BROKEN, NoHeader, self.broken),
                Row(LARGE, NoHeader, lambda _call: Reply(body=bytes(1 << 20))),
            ]
        )

    def echo(self, call: Call[Topic]) -> Reply:
        return Reply(remark=call.header.topic, body=call.body)

    def keep(self, call: Call[NoHeader]) -> None:
        self.kept.append(call)

    def push(self, call: Call[NoHeader]) -> Reply:
        call.peer.call(Command(RequestCode.GET_CONSUMER_RUNNING_INFO), 5.0, self.pushed.append)
        return Reply()

    def on_thread(self, _call: Call[NoHeader]) -> Reply:
        self.release.wait(10)
        self.threads.append(threading.current_thread().name)
        return Reply(remark="done")

    def broken(self, _call: Call[NoHeader]) -> Reply:
        raise KeyError("a mistake of ours")


class Running:
    """A server on a free port, with its service."""

    def __init__(self, limits: RemotingLimits) -> None:
        self.service = Service()
        self.closed: list[str] = []
        self.server = RemotingServer(limits, self.forgotten)
        self.address, self.port = "", 0

    def forgotten(self, _link: Link, reason: str) -> None:
        self.closed.append(reason)

    async def listen(self) -> None:
        host = await self.server.listen("127.0.0.1", 0, self.service.table())
        self.address, self.port = str(host), host.port


Scenario = Callable[[Running, Connector], Awaitable[None]]


def play(scenario: Scenario, client_table: RequestTable | None = None, **limits: Any) -> Running:
    """Run a scenario against a running server, with a client beside it; both are gone afterwards."""

    async def whole() -> Running:
        running = Running(RemotingLimits(**limits))
        await running.listen()
        client = Connector(client_table)
        try:
            async with asyncio.timeout(30):
                await scenario(running, client)
        finally:
            running.service.release.set()
            await client.close()
            await running.server.stop()
        return running

    return asyncio.run(whole())


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(5000):
        if holds():
            return
        await asyncio.sleep(0.002)
    raise TimeoutError("it did not come to hold within 10 s")


def echo(topic: str, body: bytes = b"") -> Command:
    return Command(ECHO, ext={"topic": topic}, body=body)


def test_many_requests_at_once_are_answered_each() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        calls = [client.call(running.address, echo(f"t{n}", b"x" * n), 5.0) for n in range(300)]
        answers = await asyncio.gather(*calls)
        assert [(answer.remark, len(answer.body)) for answer in answers] == [(f"t{n}", n) for n in range(300)]
        assert running.server.counters.connections == 1
        assert running.server.counters.requests == 300

    running = play(scenario)
    assert running.server.counters.in_flight == 0
    assert running.server.connections == 0


def test_what_a_handler_cannot_do_is_an_answer() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        unknown = await client.call(running.address, Command(9999), 5.0)
        assert (unknown.code, unknown.remark) == (3, "request type 9999 not supported")
        headless = await client.call(running.address, Command(ECHO), 5.0)
        assert headless.code == ResponseCode.SYSTEM_ERROR
        assert headless.remark == "SEND_MESSAGE: header field topic: is missing"
        broken = await client.call(running.address, Command(BROKEN), 5.0)
        assert broken.code == ResponseCode.SYSTEM_ERROR
        assert "failed in the server" in (broken.remark or "")
        assert (await client.call(running.address, echo("still here"), 5.0)).remark == "still here"

    play(scenario)


def test_one_way_requests_are_not_answered() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        for code in (ECHO, 9999, KEEP, THREAD):
            await client.tell(running.address, Command(code))
        running.service.release.set()
        assert (await client.call(running.address, echo("last"), 5.0)).remark == "last"
        await until(lambda: bool(running.service.kept and running.service.threads))
        running.service.kept[0].answer(Reply(0))
        assert running.server.counters.in_flight == 0

    play(scenario)


def test_a_kept_call_is_answered_later() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        waiting = asyncio.ensure_future(client.call(running.address, Command(KEEP), 5.0))
        assert (await client.call(running.address, echo("overtakes"), 5.0)).remark == "overtakes"
        assert not waiting.done()
        running.service.kept[0].answer(Reply(19))
        assert (await waiting).code == 19

    play(scenario)


def test_what_may_wait_runs_on_a_thread() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        waiting = asyncio.ensure_future(client.call(running.address, Command(THREAD), 5.0))
        assert (await client.call(running.address, echo("not held up"), 5.0)).remark == "not held up"
        running.service.release.set()
        assert (await waiting).remark == "done"
        assert running.service.threads[0].startswith("embermq-request")

    play(scenario)


def test_a_server_asks_its_client() -> None:
    table = RequestTable([Row(RequestCode.GET_CONSUMER_RUNNING_INFO, NoHeader, lambda _call: Reply(body=b"info"))])

    async def scenario(running: Running, client: Connector) -> None:
        await client.call(running.address, Command(PUSH), 5.0)
        await until(lambda: bool(running.service.pushed))
        (answer,) = running.service.pushed
        assert isinstance(answer, Command)
        assert answer.body == b"info"

    play(scenario, table)


def test_too_much_at_once_is_answered_with_busy() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        kept = [asyncio.ensure_future(client.call(running.address, Command(KEEP), 5.0)) for _ in range(4)]
        await until(lambda: len(running.service.kept) == 4)
        refused = await client.call(running.address, echo("one too many"), 5.0)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert running.server.counters.busy == 1
        for call in running.service.kept:
            call.answer(Reply())
        await asyncio.gather(*kept)
        assert (await client.call(running.address, echo("room again"), 5.0)).code == 0

    play(scenario, in_flight_per_connection=4)


def test_threads_are_bounded_too() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        calls = [asyncio.ensure_future(client.call(running.address, Command(THREAD), 5.0)) for _ in range(3)]
        await until(lambda: running.server.counters.busy == 1)
        running.service.release.set()
        answers = await asyncio.gather(*calls)
        assert sorted(answer.code for answer in answers) == [0, 0, ResponseCode.SYSTEM_BUSY]

    play(scenario, blocking_calls=2)


def test_connections_are_bounded() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        await client.call(running.address, echo("first"), 5.0)
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        assert await reader.read() == b""
        writer.close()
        assert running.server.counters.connections_refused == 1
        assert (await client.call(running.address, echo("first"), 5.0)).code == 0

    play(scenario, connections=1)


@pytest.mark.parametrize(
    ("sent", "counted"),
    [
        (struct.pack(">i", 2**30), True),
        (struct.pack(">iI", 4, 9), True),
        (b"\x16\x03\x01\x02\x00", False),
        (b"GET / HTTP/1.1\r\n\r\n", True),
    ],
)
def test_a_peer_that_speaks_something_else_is_closed(sent: bytes, counted: bool) -> None:
    async def scenario(running: Running, client: Connector) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(encode_frame(echo("good")) + sent if counted else sent)
        received = await reader.read()
        writer.close()
        assert len(FrameReader().feed(received)) == (1 if counted else 0)
        assert running.server.counters.closed_invalid == (1 if counted else 0)
        assert (await client.call(running.address, echo("others"), 5.0)).code == 0

    assert play(scenario).closed


def test_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embermq.remoting.server.SWEEP_SECONDS", 0.02)

    async def scenario(running: Running, _client: Connector) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        assert await reader.read() == b""
        writer.close()
        assert running.server.counters.closed_idle == 1

    assert play(scenario, idle_seconds=0.05).closed == ["idle for 0.05 s"]


def test_a_frame_that_never_ends_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embermq.remoting.server.SWEEP_SECONDS", 0.02)

    async def scenario(running: Running, _client: Connector) -> None:
        _reader, writer = await asyncio.open_connection("127.0.0.1", running.port)

        async def drip() -> None:
            for byte in encode_frame(echo("slow", bytes(10_000))):
                writer.write(bytes([byte]))
                await asyncio.sleep(0.01)

        dripping = asyncio.ensure_future(drip())
        await until(lambda: bool(running.closed))
        dripping.cancel()
        writer.close()

    assert play(scenario, frame_seconds=0.1).closed == ["a frame was not whole after 0.1 s"]


def test_unfinished_frames_of_all_are_bounded() -> None:
    async def scenario(running: Running, _client: Connector) -> None:
        frame = encode_frame(echo("half", bytes(200_000)))
        ends = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(3)]
        for _reader, writer in ends:
            writer.write(frame[:150_000])
        await until(lambda: bool(running.closed))
        for _reader, writer in ends:
            writer.close()
        await until(lambda: running.server.connections == 0)
        assert running.server.counters.unread_bytes == 0

    assert "over emberMaxUnreadBytes" in play(scenario, unread_bytes=300_000).closed[0]


def test_a_peer_that_does_not_read_is_not_read_from_and_then_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embermq.remoting.server.SWEEP_SECONDS", 0.02)

    async def scenario(running: Running, client: Connector) -> None:
        with socket.create_connection(("127.0.0.1", running.port)) as deaf:
            deaf.setblocking(False)
            frames = encode_frame(Command(LARGE)) * 64
            await asyncio.get_running_loop().sock_sendall(deaf, frames)
            await until(lambda: bool(running.closed))
            assert (await client.call(running.address, echo("others"), 5.0)).code == 0

    running = play(scenario, write_pause_bytes=1 << 20, stalled_seconds=0.2)
    assert running.closed[0] == "the peer did not read for 0.2 s"
    assert running.server.counters.closed_stalled == 1


def test_a_peer_for_which_too_much_waits_is_closed_at_once() -> None:
    async def scenario(running: Running, _client: Connector) -> None:
        with socket.create_connection(("127.0.0.1", running.port)) as deaf:
            deaf.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(deaf, encode_frame(Command(KEEP)) * 40)
            await until(lambda: len(running.service.kept) == 40)
            for call in running.service.kept:
                call.answer(Reply(body=bytes(1 << 20)))
                await asyncio.sleep(0)
                if running.closed:
                    break
            await until(lambda: bool(running.closed))

    running = play(scenario, write_pause_bytes=1 << 20, write_limit_bytes=8 << 20)
    assert running.closed[0] == "the peer does not read, and too much waits for it"


def test_stopping_answers_what_is_under_way() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        kept = asyncio.ensure_future(client.call(running.address, Command(KEEP), 5.0))
        await until(lambda: bool(running.service.kept))
        stopping = asyncio.ensure_future(running.server.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done()
        with pytest.raises(ConnectFailed):
            await Connector().call(running.address, echo("new"), 1.0)
        running.service.kept[0].answer(Reply(7))
        assert (await kept).code == 7
        await stopping

    play(scenario)


def test_stopping_does_not_wait_for_ever() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        kept = asyncio.ensure_future(client.call(running.address, Command(KEEP), 5.0))
        await until(lambda: bool(running.service.kept))
        await running.server.stop()
        with pytest.raises(ConnectionLost):
            await kept

    play(scenario, shutdown_seconds=0.1)


def test_a_port_in_use_is_said_plainly() -> None:
    async def scenario(running: Running, _client: Connector) -> None:
        with pytest.raises(RemotingError, match=rf"cannot listen on 127\.0\.0\.1:{running.port}: .*in use"):
            await running.server.listen("127.0.0.1", running.port, running.service.table())

    play(scenario)


def test_ipv6() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        try:
            host = await running.server.listen("::1", 0, running.service.table())
        except RemotingError as problem:
            pytest.skip(f"no IPv6 loopback here: {problem}")
        assert (await client.call(str(host), echo("six"), 5.0)).remark == "six"

    play(scenario)


# -- the calling side ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:", ":9876", "127.0.0.1:99999"])
def test_an_address_that_is_none(address: str) -> None:
    async def scenario(_running: Running, client: Connector) -> None:
        with pytest.raises(ConnectFailed, match="looks like"):
            await client.call(address, echo("x"), 1.0)

    play(scenario)


def test_a_call_times_out_and_the_connection_stays() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        with pytest.raises(CallTimeout):
            await client.call(running.address, Command(KEEP), 0.05)
        assert (await client.call(running.address, echo("next"), 5.0)).remark == "next"
        assert running.server.counters.connections_accepted == 1

    play(scenario, shutdown_seconds=0.1)


def test_a_call_with_less_patience_than_the_one_before_it_does_not_wait_for_that() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        patient = asyncio.ensure_future(client.call(running.address, Command(KEEP), 3600.0))
        await until(lambda: bool(running.service.kept))
        with pytest.raises(CallTimeout):
            await client.call(running.address, Command(KEEP), 0.05)
        assert not patient.done()
        patient.cancel()

    play(scenario, shutdown_seconds=0.1)


def test_dropped_connections_get_no_answer_and_can_be_made_again() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        kept = asyncio.ensure_future(client.call(running.address, Command(KEEP), 5.0))
        await until(lambda: bool(running.service.kept))
        running.server.drop_connections("by the test")
        with pytest.raises(ConnectionLost):
            await kept
        assert (await client.call(running.address, echo("again"), 5.0)).remark == "again"

    play(scenario)


def test_an_aborted_server_answers_and_accepts_nothing() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        kept = asyncio.ensure_future(client.call(running.address, Command(KEEP), 5.0))
        await until(lambda: bool(running.service.kept))
        running.server.abort("by the test")
        with pytest.raises(ConnectionLost):
            await kept
        with pytest.raises(ConnectFailed):
            await client.call(running.address, echo("again"), 5.0)
        assert running.server.connections == 0

    play(scenario)


def test_a_lost_connection_is_made_again() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        link = await client.link(running.address)
        kept = asyncio.ensure_future(client.call(running.address, Command(KEEP), 5.0))
        await until(lambda: bool(running.service.kept))
        link.abort("by the test")
        with pytest.raises(ConnectionLost, match="by the test"):
            await kept
        assert (await client.call(running.address, echo("again"), 5.0)).remark == "again"
        assert running.server.counters.connections_accepted == 2

    play(scenario)


def test_calls_that_come_together_share_one_connection() -> None:
    async def scenario(running: Running, client: Connector) -> None:
        first = asyncio.ensure_future(client.link(running.address))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(*(client.call(running.address, echo("x"), 5.0) for _ in range(5)))
        assert running.server.counters.connections_accepted == 1

    play(scenario)
