"""Bytes that no honest client sends, and a way to send them to a server.

Each entry has a name and what the server may do: CLOSED, the stream cannot be read any further; ANSWERED, a whole frame
with something odd in it; SILENT, nothing whole has arrived.
"""

import asyncio
import struct
from enum import Enum
from typing import NamedTuple

from embermq.remoting import MAX_FRAME_BYTES, Command, FrameReader, encode_frame

ANSWER_SECONDS = 30.0
SILENCE_SECONDS = 0.05


class Outcome(Enum):
    CLOSED = "closed"
    ANSWERED = "answered"
    SILENT = "silent"


class Nasty(NamedTuple):
    name: str
    data: bytes
    outcome: Outcome


def framed(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def _binary(remark: bytes = b"\0\0\0\0", fields: bytes = b"\0\0\0\0", code: int = 105) -> bytes:
    return framed(struct.pack(">hBhii", code, 0, 409, 7, 0) + remark + fields, kind=1)


def _json(text: bytes, body: bytes = b"") -> bytes:
    return framed(text, body)


_DEEP = 100_000
_GOOD = encode_frame(Command(105, 1, ext={"topic": "T"}))
_FIELDS = b",".join(b'"%d":"x"' % number for number in range(10_000))
_LOCK = b'{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"T","brokerName":"b","queueId":1e999}]}'
CLOSED, ANSWERED, SILENT = Outcome.CLOSED, Outcome.ANSWERED, Outcome.SILENT

NASTY: tuple[Nasty, ...] = (
    # lengths
    Nasty("length 0", struct.pack(">i", 0) + bytes(100), CLOSED),
    Nasty("length 3", struct.pack(">i", 3) + bytes(100), CLOSED),
    Nasty("length -1", struct.pack(">i", -1), CLOSED),
    Nasty("smallest length", struct.pack(">i", -(2**31)), CLOSED),
    Nasty("largest length", struct.pack(">i", 2**31 - 1), CLOSED),
    Nasty("16 MiB and one byte", struct.pack(">i", MAX_FRAME_BYTES - 3), CLOSED),
    Nasty("16 MiB announced", struct.pack(">iI", MAX_FRAME_BYTES - 4, 10) + bytes(1000), SILENT),
    Nasty("header longer than its frame", struct.pack(">iI", 10, 7) + bytes(6), CLOSED),
    Nasty("header of 16 MiB in a small frame", struct.pack(">iI", 10, 0xFF_FFFF) + bytes(6), CLOSED),
    Nasty("no header", struct.pack(">iI", 4, 0), CLOSED),
    Nasty("half a frame", _GOOD[:20], SILENT),
    Nasty("one byte", b"\0", SILENT),
    Nasty("unknown serialization", framed(b"{}", kind=7), CLOSED),
    Nasty("negative serialization", framed(b"{}", kind=255), CLOSED),
    Nasty("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", CLOSED),
    Nasty("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50), CLOSED),
    Nasty("noise", bytes(range(128, 256)) * 8, CLOSED),
    # JSON headers
    Nasty("JSON null", _json(b"null"), CLOSED),
    Nasty("JSON list", _json(b"[]"), CLOSED),
    Nasty("JSON cut off", _json(b'{"code":105,'), CLOSED),
    Nasty("JSON with bad UTF-8 in a field", _json(b'{"code":105,"extFields":{"topic":"\xff\xfe"}}'), CLOSED),
    Nasty("the same beside a number", _json(b'{"code":105,"extFields":{"a":1,"topic":"\xff\xfe"}}'), CLOSED),
    Nasty("the same inside an object", _json(b'{"code":105,"extFields":{"a":{"b":"\xff"}}}'), CLOSED),
    Nasty("half a surrogate pair", _json(b'{"code":105,"extFields":{"a":1,"topic":"\\ud800"}}'), CLOSED),
    Nasty("deep JSON", _json(b'{"code":105,"x":' + b"[" * _DEEP), CLOSED),
    Nasty("deep JSON in extFields", _json(b'{"code":105,"extFields":{"a":' + b'{"b":' * _DEEP), CLOSED),
    Nasty("deep JSON that ends", _json(b'{"code":105,"x":' + b"[" * 500 + b"]" * 500 + b"}"), ANSWERED),
    Nasty("code of 40 digits", _json(b'{"code":%s}' % (b"9" * 40)), CLOSED),
    Nasty("opaque above 32 bits", _json(b'{"code":105,"opaque":4294967296}'), CLOSED),
    Nasty("code that is infinite", _json(b'{"code":1e999}'), CLOSED),
    Nasty("code of no request", _json(b'{"code":-2147483648}'), ANSWERED),
    Nasty("extFields of numbers", _json(b'{"code":105,"extFields":{"topic":1,"x":null,"y":true,"z":[1]}}'), ANSWERED),
    Nasty("ten thousand fields", _json(b'{"code":105,"extFields":{%s}}' % _FIELDS), ANSWERED),
    Nasty("a topic of a megabyte", _json(b'{"code":105,"extFields":{"topic":"%s"}}' % (b"x" * (1 << 20))), ANSWERED),
    Nasty("a language of no kind", _json(b'{"code":105,"language":99999999999999999999}'), ANSWERED),
    Nasty("white space", _json(b"  " * 1000 + b'{"code":105}' + b"\n" * 1000), ANSWERED),
    # binary headers
    Nasty("binary header of one byte", framed(b"\0", kind=1), CLOSED),
    Nasty("remark beyond the header", _binary(remark=struct.pack(">i", 1000)), CLOSED),
    Nasty("remark of negative length", _binary(remark=struct.pack(">i", -1)), CLOSED),
    Nasty("fields beyond the header", _binary(fields=struct.pack(">i", 2**31 - 1)), CLOSED),
    Nasty("fields of negative length", _binary(fields=struct.pack(">i", -5)), CLOSED),
    Nasty("name beyond the fields", _binary(fields=struct.pack(">ih", 2, 32767)), CLOSED),
    Nasty("name of negative length", _binary(fields=struct.pack(">ih", 2, -1)), CLOSED),
    Nasty("value beyond the fields", _binary(fields=struct.pack(">ih1si", 7, 1, b"a", 9)), CLOSED),
    Nasty("name with bad UTF-8", _binary(fields=struct.pack(">ih1si1s", 8, 1, b"\xff", 1, b"x")), CLOSED),
    Nasty("remark with bad UTF-8", _binary(remark=struct.pack(">i", 2) + b"\xc3\x28"), CLOSED),
    Nasty("no fields where some are needed", _binary(), ANSWERED),
    Nasty("code of no binary request", _binary(code=-32768), ANSWERED),
    # bodies
    Nasty("heartbeat of nothing", _json(b'{"code":34}'), ANSWERED),
    Nasty("heartbeat of bad UTF-8", _json(b'{"code":34}', b'{"clientID":"\xff"}'), ANSWERED),
    Nasty("heartbeat of half a surrogate pair", _json(b'{"code":34}', b'{"clientID":"\\ud800"}'), ANSWERED),
    Nasty("heartbeat, deep", _json(b'{"code":34}', b'{"clientID":' * _DEEP), ANSWERED),
    Nasty("heartbeat, deep and strange", _json(b'{"code":34}', b"{a:" * _DEEP), ANSWERED),
    Nasty("heartbeat of a long list", _json(b'{"code":34}', b"{a:[" + b"1," * 500_000 + b"1]}"), ANSWERED),
    Nasty("heartbeat of 2 MiB", _json(b'{"code":34}', b" " * (2 << 20)), ANSWERED),
    Nasty("lock of infinite queues", _json(b'{"code":41}', _LOCK), ANSWERED),
    Nasty("registration of noise", _json(b'{"code":103,"extFields":{"compressed":"true"}}', b"x" * 99), ANSWERED),
    Nasty("response to no request", _json(b'{"code":0,"flag":1,"opaque":12345}'), SILENT),
    Nasty("one-way nonsense", _json(b'{"code":34,"flag":2}', b"\xff"), SILENT),
    Nasty("good, then noise", _GOOD + b"\xff" * 40, CLOSED),
)


async def send_nasty(host: str, port: int, data: bytes, silence_seconds: float = SILENCE_SECONDS) -> Outcome:
    """What a server does on a connection of its own when it gets these bytes; after an answer, within this time."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(data)
        frames, seconds = FrameReader(), ANSWER_SECONDS
        answered = False
        while True:
            try:
                piece = await asyncio.wait_for(reader.read(1 << 16), seconds)
            except TimeoutError:
                return Outcome.ANSWERED if answered else Outcome.SILENT
            except ConnectionError:
                return Outcome.CLOSED
            if not piece:
                return Outcome.CLOSED
            answered = answered or any(command.is_response for command in frames.feed(piece))
            assert frames.failure is None, frames.failure
            seconds = silence_seconds
    finally:
        writer.close()


async def check_nasty(host: str, port: int) -> None:
    """Every one of them, several at a time; those that end in silence are waited for a little."""

    async def one(nasty: Nasty) -> None:
        if nasty.outcome is Outcome.SILENT:
            _reader, writer = await asyncio.open_connection(host, port)
            writer.write(nasty.data)
            await writer.drain()
            writer.close()
            return
        silence_seconds = ANSWER_SECONDS if nasty.outcome is CLOSED else SILENCE_SECONDS
        found = await send_nasty(host, port, nasty.data, silence_seconds)
        assert found is nasty.outcome, (nasty.name, found)

    for at in range(0, len(NASTY), 8):
        await asyncio.gather(*map(one, NASTY[at : at + 8]))
