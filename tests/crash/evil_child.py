"""One kind of evil client against a broker: `evil_child.py ATTACK HOST PORT SIZE`.

It says `ready` when the attack is under way, and goes on until its standard input ends.
"""

import asyncio
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from embermq.remoting import BINARY, Command, encode_frame, write_json

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
TOPIC = "evil"


class Attack:
    """Where to, and how much of it."""

    def __init__(self, host: str, port: int, size: int) -> None:
        self.host, self.port, self.size = host, port, size
        self.streams: list[Stream] = []

    async def connect(self, receive_bytes: int = 0) -> Stream:
        end = socket.socket()
        if receive_bytes:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        end.setblocking(False)
        await asyncio.get_running_loop().sock_connect(end, (self.host, self.port))
        stream = await asyncio.open_connection(sock=end, limit=1 << 12)
        self.streams.append(stream)
        return stream

    async def connect_all(self, receive_bytes: int = 0) -> list[Stream]:
        return [await self.connect(receive_bytes) for _ in range(self.size)]


def frame(code: int, fields: dict[str, Any] | None = None, body: bytes = b"", **more: Any) -> bytes:
    texts = None if fields is None else {name: str(value) for name, value in fields.items()}
    return encode_frame(Command(code, ext=texts, body=body, serialization=BINARY, **more))


def send(topic: str, body: bytes, **more: Any) -> bytes:
    fields = {"a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0}
    return frame(310, fields | {"k": "false", "m": "false"}, body, **more)


def pull(topic: str, queue_id: int, offset: int, sys_flag: int) -> bytes:
    fields = {"consumerGroup": "evil", "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32}
    fields |= {"sysFlag": sys_flag, "commitOffset": 0, "suspendTimeoutMillis": 30_000}
    return frame(11, fields | {"subscription": "*", "subVersion": 0})


async def idle(attack: Attack) -> None:
    await attack.connect_all()


async def slow_loris(attack: Attack) -> None:
    """Frames that arrive byte by byte."""
    data = send(TOPIC, bytes(100_000))

    async def drip(stream: Stream) -> None:
        for byte in data:
            stream[1].write(bytes([byte]))
            await asyncio.sleep(0.1)

    for stream in await attack.connect_all():
        _background(drip(stream))


async def half_open(attack: Attack) -> None:
    """Half of a frame of 1 MiB, and then nothing more."""
    half = send(TOPIC, bytes(1 << 20))[: 1 << 19]
    for _reader, writer in await attack.connect_all():
        writer.write(half)


async def never_reading(attack: Attack) -> None:
    """Asks for messages again and again, and reads none of them."""
    reader, writer = await attack.connect()
    for _ in range(8):
        writer.write(send(TOPIC, bytes(200_000)))
        await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
    requests = pull(TOPIC, 0, 0, 4) * 200

    async def ask(stream: Stream) -> None:
        while True:
            stream[1].write(requests)
            await stream[1].drain()

    for deaf in [await attack.connect(4096) for _ in range(attack.size)]:
        deaf[1].transport.pause_reading()  # type: ignore[attr-defined]
        _background(ask(deaf))


async def connect_and_die(attack: Attack) -> None:
    """Connections that are reset at once, some in the middle of a frame."""
    half = send(TOPIC, bytes(1000))[:500]

    async def one_after_another() -> None:
        for number in count():
            end = socket.socket()
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await asyncio.get_running_loop().sock_connect(end, (attack.host, attack.port))
            if number % 2:
                end.send(half)
            end.close()
            await asyncio.sleep(0.002)

    for _ in range(attack.size):
        _background(one_after_another())


async def flood(attack: Attack) -> None:
    """Sends as fast as they are taken; no answer is read."""
    data = send(TOPIC, bytes(100)) * 200

    async def pour(stream: Stream) -> None:
        stream[0]._transport.pause_reading()  # type: ignore[attr-defined]
        while True:
            stream[1].write(data)
            await stream[1].drain()

    for stream in await attack.connect_all():
        _background(pour(stream))


async def flood_oneway(attack: Attack) -> None:
    """Sends that want no answer, as fast as they are taken."""
    data = send(TOPIC, bytes(100), flag=2) * 200

    async def pour(stream: Stream) -> None:
        while True:
            stream[1].write(data)
            await stream[1].drain()

    for stream in await attack.connect_all():
        _background(pour(stream))


async def pull_storm(attack: Attack) -> None:
    """Thousands of pulls that wait: each connection has a thousand."""
    reader, writer = await attack.connect()
    writer.write(send(TOPIC, b"x"))
    await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
    for number in range(max(1, attack.size // 1000)):
        _reader, writer = await attack.connect()
        writer.write(b"".join(pull(TOPIC, 1 + number % 3, 0, 6) for _ in range(min(1000, attack.size))))
        await writer.drain()


async def crowd(attack: Attack) -> None:
    """Heartbeats with ever new client ids and groups, and sends to ever new topics."""
    numbers = count()

    async def beat(stream: Stream) -> None:
        while True:
            names = [f"g{next(numbers)}-" + "x" * 60 for _ in range(20)]
            consumers = [
                {"groupName": name, "subscriptionDataSet": [{"topic": name, "subString": "*"}]} for name in names
            ]
            body = {"clientID": names[0], "consumerDataSet": consumers, "producerDataSet": [{"groupName": names[0]}]}
            stream[1].write(frame(34, None, write_json(body)) + send(f"t{next(numbers)}", b"x"))
            await stream[1].drain()
            await stream[0].read(1 << 12)

    for stream in await attack.connect_all():
        _background(beat(stream))


_tasks: list["asyncio.Task[Any]"] = []


def _background(work: Any) -> None:
    _tasks.append(asyncio.ensure_future(work))


ATTACKS: dict[str, Callable[[Attack], Awaitable[None]]] = {
    one.__name__: one
    for one in (
        idle,
        slow_loris,
        half_open,
        never_reading,
        connect_and_die,
        flood,
        flood_oneway,
        pull_storm,
        crowd,
    )
}


async def main(name: str, host: str, port: str, size: str) -> None:
    attack = Attack(host, int(port), int(size))  # Kept: a stream without an owner is closed.
    await ATTACKS[name](attack)
    await asyncio.sleep(0.2)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    assert attack.streams or name == "connect_and_die"


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:5]))
    except KeyboardInterrupt:
        pass
