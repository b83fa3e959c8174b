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

    def split(self, data: bytes) -> tuple[bytes, list[tuple[int, int]]]:
        """A buffer, and where the whole frames lie in it. `failure` says why there will be no more."""
        if self.failure is not None:
            return b"", []
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return b"", []
            data = bytes(self._rest)
            self._rest.clear()
        bounds: list[tuple[int, int]] = []
        at, end, self._wanted = 0, len(data), 4
        while end - at >= 4:
            size = 4 + _LENGTH.unpack_from(data, at)[0]
            if not HEAD_BYTES <= size <= self._max:
                self.failure = f"a frame of {size:,} bytes cannot be: {HEAD_BYTES} to {self._max:,} are allowed"
                return data, bounds
            if end - at < size:
                self._wanted = size
                break
            bounds.append((at, at + size))
            at += size
        if at < end:
            self._rest += memoryview(data)[at:]
        return data, bounds


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
        if self.failure is not None:
            return []
        buffer, bounds = self._splitter.split(data)
        commands: list[Command] = []
        try:
            for start, end in bounds:
                commands.append(decode_frame(buffer, start, end))
        except FrameInvalid as problem:
            self.failure = str(problem)
        else:
            self.failure = self._splitter.failure
        return commands
