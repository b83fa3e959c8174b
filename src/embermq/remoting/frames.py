"""Frames: how commands lie in a stream of bytes. Pure: bytes in, commands out, and back.

    at    size  field
    0        4  length of what follows: 4 + H + body
    4        1  serialization of the header: 0 JSON, 1 binary
    5        3  H, the length of the header
    8        H  header
    8+H      B  body

A splitter finds the frames in what a socket gave and keeps the unfinished rest; every length is compared with the limit
before anything is kept. A frame that cannot be read ends the connection, as in RocketMQ: behind it no frame can be
found. The commands in front of it are still good.
"""

import struct

from embermq.errors import FrameInvalid
from embermq.remoting.binary_header import decode_binary, encode_binary
from embermq.remoting.command import BINARY, JSON, Command
from embermq.remoting.json_header import decode_json, encode_json

MAX_FRAME_BYTES = 16_777_216
HEAD_BYTES = 8
_LENGTH = struct.Struct(">i")
_HEAD = struct.Struct(">iI")
_HEADER_BYTES_MASK = 0xFF_FFFF


def encode_frame(command: Command) -> bytes:
    """The bytes of a command."""
    header = encode_json(command) if command.serialization == JSON else encode_binary(command)
    assert len(header) <= _HEADER_BYTES_MASK, len(header)
    kind = command.serialization << 24 | len(header)
    return _HEAD.pack(4 + len(header) + len(command.body), kind) + header + command.body


def decode_frame(data: bytes, start: int, end: int) -> Command:
    """The command in data[start:end], which is one whole frame; FrameInvalid when it cannot be read."""
    _length, kind = _HEAD.unpack_from(data, start)
    body_at = start + HEAD_BYTES + (kind & _HEADER_BYTES_MASK)
    if body_at > end:
        raise FrameInvalid(f"the header of {kind & _HEADER_BYTES_MASK} bytes is longer than its frame")
    header = data[start + HEAD_BYTES : body_at]
    match kind >> 24:
        case 0:
            return decode_json(header, data[body_at:end])
        case 1:
            return decode_binary(header, data[body_at:end])
        case unknown:
            raise FrameInvalid(f"header serialization {unknown} is unknown; {JSON} is JSON, {BINARY} is binary")


class FrameSplitter:
    """Finds whole frames in a stream. One connection's; not for several threads."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max = max_frame_bytes
        self._rest = bytearray()
        self._wanted = 4  # bytes that must be there before it is worth looking again
        self.failure: str | None = None

    @property
    def waiting_bytes(self) -> int:
        """How much of an unfinished frame is kept."""
        return len(self._rest)

    def join(self, data: bytes) -> bytes:
        """What was kept and `data`, as one buffer; nothing as long as no frame in it can be whole."""
        if self.failure is not None:
            return b""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return b""
            data = bytes(self._rest)
            self._rest.clear()
        return data

    def end_of(self, buffer: bytes, at: int) -> int:
        """Where the frame at buffer[at] ends; 0 if it is not whole, or cannot be a frame (`failure`)."""
        self._wanted = 4
        if len(buffer) - at < 4 or self.failure is not None:
            return 0
        size: int = 4 + _LENGTH.unpack_from(buffer, at)[0]
        if not HEAD_BYTES <= size <= self._max:
            self.failure = f"a frame of {size:,} bytes cannot be: {HEAD_BYTES} to {self._max:,} are allowed"
            return 0
        if len(buffer) - at < size:
            self._wanted = size
            return 0
        return at + size

    def keep(self, buffer: bytes, at: int) -> None:
        """Keep buffer[at:] for the next `join`; nothing of a stream that cannot be read any further."""
        if at < len(buffer) and self.failure is None:
            self._rest += memoryview(buffer)[at:]

    def split(self, data: bytes) -> tuple[bytes, list[tuple[int, int]]]:
        """A buffer, and where the whole frames lie in it. `failure` says why there will be no more."""
        buffer, at, bounds = self.join(data), 0, []
        while end := self.end_of(buffer, at):
            bounds.append((at, end))
            at = end
        self.keep(buffer, at)
        return buffer, bounds


class FrameReader:
    """Commands out of a stream. One connection's; not for several threads."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._splitter = FrameSplitter(max_frame_bytes)
        self.failure: str | None = None

    @property
    def waiting_bytes(self) -> int:
        return self._splitter.waiting_bytes

    def feed(self, data: bytes) -> list[Command]:
        """The commands that `data` completes, in order. `failure` says why there will be no more."""
        commands, _at = self.read(self.join(data), 0)
        return commands

    def join(self, data: bytes) -> bytes:
        """What was kept and `data`, to be read from its beginning to its end by `read`."""
        return b"" if self.failure is not None else self._splitter.join(data)

    def read(self, buffer: bytes, at: int, most: int | None = None) -> tuple[list[Command], int]:
        """Commands from buffer[at:] and where they end: `most` of them, or all, and then the rest of it is kept."""
        commands: list[Command] = []
        if self.failure is not None:
            return commands, len(buffer)
        splitter = self._splitter
        try:
            while len(commands) != most:
                end = splitter.end_of(buffer, at)
                if not end:
                    splitter.keep(buffer, at)
                    self.failure, at = splitter.failure, len(buffer)
                    break
                commands.append(decode_frame(buffer, at, end))
                at = end
        except FrameInvalid as problem:
            self.failure, at = str(problem), len(buffer)
        return commands, at
