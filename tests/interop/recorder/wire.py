"""Steps, and the player that takes them: JSON frames made by hand, sent over plain sockets, nothing of our own codec.

A step goes out on a named connection, which is opened when it is first used. While the player waits for the answer, it
reads all connections: requests that the broker sends to its clients are noted for the connection they came on, and
answered with what the step says.
"""

import json
import select
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.interop.recorder import binary

ANSWER_SECONDS = 20.0
DISPATCH_SECONDS = 180.0  # Where the kernels are not compiled yet, the first large message has them compiled.
QUIET_SECONDS = 0.3
_LENGTHS = struct.Struct(">ii")
ONEWAY = 2


@dataclass(frozen=True)
class OffsetOf:
    """The physical offset of the message that an earlier step stored."""

    step: str
    more: int = 0


@dataclass(frozen=True)
class IdOf:
    """The offset id of the message that an earlier step stored."""

    step: str


@dataclass(frozen=True)
class Step:
    """One request. Values of `ext` go out as they are: texts, numbers, booleans, or what an earlier step stored."""

    name: str
    code: int
    ext: Mapping[str, Any] | None = None
    body: bytes = b""
    connection: str = "a"
    version: int = 409
    language: str = "JAVA"
    flag: int = 0
    header: Mapping[str, Any] = field(default_factory=dict)  # members of the header that are to be otherwise
    wait_for_answer: bool = True
    again_while: Sequence[int] = ()  # codes that mean: not dispatched yet
    is_quiet: bool = False  # the broker does not answer, as is known
    client_answers: Mapping[int, tuple[int, bytes]] = field(default_factory=dict)  # to requests of the broker
    closes: bool = False  # close the connection instead of sending
    is_binary: bool = False
    after_header: bytes = b""  # bytes that a client adds to the JSON


@dataclass(frozen=True)
class Frame:
    """A frame of the broker."""

    header: dict[str, Any]
    body: bytes
    is_binary: bool

    @property
    def is_response(self) -> bool:
        return bool(self.header.get("flag", 0) & 1)


def frame_bytes(header: Mapping[str, Any], body: bytes, *, is_binary: bool = False, after_header: bytes = b"") -> bytes:
    text = binary.write_header(header) if is_binary else json.dumps(header).encode() + after_header
    return _LENGTHS.pack(4 + len(text) + len(body), len(text) | is_binary << 24) + text + body


class Connection:
    """A socket, and what was read from it in part."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        self.port = int(self.socket.getsockname()[1])
        self._pending = b""

    def read(self) -> Iterator[Frame]:
        """The frames that a read completes."""
        self._pending += self.socket.recv(1 << 20)
        while len(self._pending) >= _LENGTHS.size:
            size, header_size = _LENGTHS.unpack_from(self._pending)
            if len(self._pending) < 4 + size:
                return
            header_end, is_binary = _LENGTHS.size + (header_size & 0xFFFFFF), bool(header_size >> 24)
            text = self._pending[_LENGTHS.size : header_end]
            header = binary.read_header(text) if is_binary else json.loads(text)
            yield Frame(header, self._pending[header_end : 4 + size], is_binary)
            self._pending = self._pending[4 + size :]


class Player:
    """Takes steps against one broker, in order."""

    def __init__(self, port: int) -> None:
        self._port, self._opaque = port, 0
        self.connections: dict[str, Connection] = {}
        self.client_ports: dict[str, int] = {}
        self.answers: dict[str, Frame | None] = {}
        self.pushed: dict[str, list[Frame]] = {}  # by connection, in order

    def play(self, steps: Sequence[Step], quiet_seconds: float = QUIET_SECONDS) -> None:
        """Take the steps, and wait a little for what the broker asks its clients after the last one."""
        for step in steps:
            assert step.name not in self.answers, f"two steps have the name {step.name!r}"
            self.answers[step.name] = self._take(step)
        self._read_all({}, quiet_seconds, None)

    def serve(self, client_answers: Mapping[int, tuple[int, bytes]], seconds: float) -> None:
        """Answer what the broker asks its clients, for a while."""
        self._read_all(client_answers, seconds, None)

    def close(self) -> None:
        for connection in self.connections.values():
            connection.socket.close()
        self.connections.clear()

    def _take(self, step: Step) -> Frame | None:
        if step.closes:
            self._read_all(step.client_answers, QUIET_SECONDS, None)
            self.connections.pop(step.connection).socket.close()
            self._read_all({}, QUIET_SECONDS, None)  # A broker may notice it a moment later.
            return None
        deadline = time.monotonic() + DISPATCH_SECONDS
        while True:
            answer = self._ask(step)
            if answer is None or answer.header["code"] not in step.again_while or time.monotonic() > deadline:
                return answer
            time.sleep(0.02)

    def _ask(self, step: Step) -> Frame | None:
        connection = self._connection(step.connection)
        self._opaque += 1
        header: dict[str, Any] = {
            "code": step.code,
            "flag": step.flag,
            "language": step.language,
            "opaque": self._opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": step.version,
        }
        if step.ext is not None:
            header["extFields"] = {name: self._value(value) for name, value in step.ext.items()}
        whole = header | dict(step.header)
        frame = frame_bytes(whole, step.body, is_binary=step.is_binary, after_header=step.after_header)
        connection.socket.sendall(frame)
        if not step.wait_for_answer or step.flag & ONEWAY:
            return None
        seconds = 1.0 if step.is_quiet else ANSWER_SECONDS
        return self._read_all(step.client_answers, seconds, self._opaque)

    def _connection(self, name: str) -> Connection:
        if name not in self.connections:
            made = Connection(self._port)
            self.connections[name] = made
            assert name not in self.client_ports, f"connection {name} is used after its end"
            self.client_ports[name] = made.port
        return self.connections[name]

    def _value(self, value: Any) -> Any:
        if isinstance(value, OffsetOf):
            return str(int(self._message_id(value.step)[-16:], 16) + value.more)
        if isinstance(value, IdOf):
            return self._message_id(value.step)
        return value

    def _message_id(self, step: str) -> str:
        answer = self.answers[step]
        assert answer is not None, step
        return str(answer.header["extFields"]["msgId"]).partition(",")[0]

    def _read_all(
        self, client_answers: Mapping[int, tuple[int, bytes]], seconds: float, opaque: int | None
    ) -> Frame | None:
        """Read until the answer is there, or time is over."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            by_socket = {one.socket: (name, one) for name, one in self.connections.items()}
            for ready in select.select(list(by_socket), [], [], left)[0]:
                name, connection = by_socket[ready]
                found = None
                for one in connection.read():
                    if not one.is_response:
                        self._take_push(name, connection, one, client_answers)
                    elif one.header["opaque"] == opaque:
                        found = one
                if found is not None:
                    return found
        return None

    def _take_push(
        self, name: str, connection: Connection, frame: Frame, client_answers: Mapping[int, tuple[int, bytes]]
    ) -> None:
        self.pushed.setdefault(name, []).append(frame)
        if frame.header["flag"] & ONEWAY or frame.header["code"] not in client_answers:
            return
        code, body = client_answers[frame.header["code"]]
        header = {"code": code, "flag": 1, "language": "JAVA", "opaque": frame.header["opaque"], "version": 409}
        connection.socket.sendall(frame_bytes(header, body))


@contextmanager
def playing(port: int) -> Iterator[Player]:
    player = Player(port)
    try:
        yield player
    finally:
        player.close()
