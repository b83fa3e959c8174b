"""Session: the protocol state of one connection, without a socket.

    requests of the peer come out of `receive`
    answers to our requests go to the callback that was given with the request
    `call` and `tell` give the bytes to send

The number of unanswered calls is bounded; a call that is too old is ended by `expire`, all of them by `end`. Not for
several threads: the thread that owns the connection calls everything.
"""

from collections.abc import Callable
from itertools import count

from embermq.errors import CallTimeout, ConnectionLost, RemotingError
from embermq.remoting.codes import request_name
from embermq.remoting.command import ONEWAY_FLAG, Command
from embermq.remoting.frames import MAX_FRAME_BYTES, FrameReader, encode_frame

Outcome = Command | RemotingError
OnAnswer = Callable[[Outcome], None]

PENDING_CALLS_MAX = 4096
_OPAQUE_MASK = 0x7FFF_FFFF


class _Pending:
    """A request of ours that was not answered yet."""

    __slots__ = ("code", "deadline", "on_answer", "seconds")

    def __init__(self, code: int, deadline: float, seconds: float, on_answer: OnAnswer) -> None:
        self.code, self.deadline, self.seconds, self.on_answer = code, deadline, seconds, on_answer


class Session:
    """One connection's frames, both ways."""

    def __init__(
        self,
        peer: str,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        first_opaque: int = 1,
        pending_max: int = PENDING_CALLS_MAX,
    ) -> None:
        self._peer, self._pending_max = peer, pending_max
        self._frames = FrameReader(max_frame_bytes)
        self._opaques = count(first_opaque)
        self._pending: dict[int, _Pending] = {}
        self._ended: RemotingError | None = None

    @property
    def failure(self) -> str | None:
        """Why the stream cannot be read any further."""
        return self._frames.failure

    @property
    def pending_calls(self) -> int:
        return len(self._pending)

    @property
    def unread_bytes(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return self._frames.waiting_bytes

    def receive(self, data: bytes) -> list[Command]:
        """The peer's requests in what arrived. Answers to ours go to their callbacks; unknown ones are ignored."""
        requests, _at = self.read(self.join(data), 0)
        return requests

    def join(self, data: bytes) -> bytes:
        """What arrived together with what waited for it, to be given to `read`; nothing if no frame is whole."""
        return self._frames.join(data)

    def read(self, buffer: bytes, at: int, most: int | None = None) -> tuple[list[Command], int]:
        """The peer's requests in buffer[at:], and where they end: in the next `most` frames, or in all of them."""
        commands, at = self._frames.read(buffer, at, most)
        if not any(command.flag & 1 for command in commands):
            return commands, at
        requests: list[Command] = []
        for command in commands:
            if not command.is_response:
                requests.append(command)
            elif (pending := self._pending.pop(command.opaque, None)) is not None:
                pending.on_answer(command)
        return requests, at

    def call(self, request: Command, now: float, seconds: float, on_answer: OnAnswer) -> bytes:
        """The bytes of a request; its outcome goes to `on_answer`, at the latest when `expire` finds it too old."""
        request.opaque = self.expect(request.code, now, seconds, on_answer)
        return encode_frame(request)

    def expect(self, code: int, now: float, seconds: float, on_answer: OnAnswer) -> int:
        """The opaque for a request that the caller encodes itself; else as `call`."""
        if self._ended is not None:
            raise ConnectionLost(self._peer, str(self._ended))
        if len(self._pending) >= self._pending_max:
            raise RemotingError(f"{self._peer} has not answered {len(self._pending):,} requests: no more are sent")
        opaque = self._free_opaque()
        self._pending[opaque] = _Pending(code, now + seconds, seconds, on_answer)
        return opaque

    def tell(self, request: Command) -> bytes:
        """The bytes of a request that wants no answer."""
        request.opaque = self._free_opaque()
        request.flag |= ONEWAY_FLAG
        return encode_frame(request)

    def expire(self, now: float) -> float | None:
        """End the calls whose time is over; the next deadline, if one is left."""
        late = [opaque for opaque, pending in self._pending.items() if pending.deadline <= now]
        for opaque in late:
            pending = self._pending.pop(opaque)
            pending.on_answer(CallTimeout(self._peer, request_name(pending.code), pending.seconds))
        return min((pending.deadline for pending in self._pending.values()), default=None)

    def end(self, reason: str) -> None:
        """The connection is gone: no call will be answered."""
        self._ended = ConnectionLost(self._peer, reason)
        pending, self._pending = self._pending, {}
        for one in pending.values():
            one.on_answer(ConnectionLost(self._peer, reason))

    def _free_opaque(self) -> int:
        while (opaque := next(self._opaques) & _OPAQUE_MASK) in self._pending:
            continue
        return opaque
