"""A request is a row in a table: its code, how its header is read, what answers it, and where that may run.

    table = RequestTable([Row(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader, routes.answer), ...])

The dispatch, the documentation of the codes and the test that none is missing are made from the same rows. A handler is
a function from a call with a typed header to a reply; it never touches a socket. None instead of a reply means that the
call is kept and answered later, or never if nothing is to be sent.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from embermq.errors import EmberError, HeaderInvalid
from embermq.model.hosts import Host
from embermq.remoting.codes import ResponseCode, request_name
from embermq.remoting.command import Command, Reply
from embermq.remoting.headers import decode_header

H = TypeVar("H", bound=msgspec.Struct)

log = logging.getLogger(__name__)

# Of requests that carry no messages: reading a body of 16 MiB would hold up all other clients for seconds.
BODY_BYTES_MAX = 1 << 20


class Peer(Protocol):
    """The other end of a connection, as handlers see it."""

    @property
    def host(self) -> Host: ...

    @property
    def is_open(self) -> bool: ...

    def tell(self, request: Command) -> bool:
        """Send a request that wants no answer; False if it was dropped because the peer does not read."""
        ...

    def call(self, request: Command, seconds: float, on_answer: Callable[[Any], None]) -> None:
        """Send a request; the outcome goes to `on_answer`."""
        ...

    def close(self, reason: str) -> None: ...


class Call(Generic[H]):
    """One request under way: what was asked, by which peer, and the way back."""

    __slots__ = ("_answer", "header", "peer", "request")

    def __init__(self, peer: Peer, request: Command, header: H, answer: Callable[[Command, Reply], None]) -> None:
        self.peer, self.request, self.header, self._answer = peer, request, header, answer

    @property
    def body(self) -> bytes:
        return self.request.body

    def answer(self, reply: Reply) -> None:
        """Send the reply of a call that was kept. On the loop's thread."""
        self._answer(self.request, reply)


Handler = Callable[[Call[Any]], Reply | None]


class Row(msgspec.Struct, frozen=True):
    """What is known of one request code."""

    code: int
    header: type[msgspec.Struct]
    handler: Handler
    blocking: bool = False  # may wait for a disk: runs on a thread of the pool
    note: str = ""  # what differs from RocketMQ, for the table in the documentation
    body_bytes_max: int = BODY_BYTES_MAX

    @property
    def name(self) -> str:
        return request_name(self.code)


class RequestTable:
    """The rows by code."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: dict[int, Row] = {}
        for row in rows:
            assert row.code not in self._rows, f"two rows for {row.name}"
            self._rows[row.code] = row

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def find(self, code: int) -> Row | None:
        return self._rows.get(code)


def unsupported(request: Command) -> Reply:
    """The answer to a code that has no row."""
    return Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"request type {request.code} not supported")


def body_too_large(row: Row, request: Command) -> Reply:
    """The answer to a request with more of a body than its row allows."""
    return Reply(
        ResponseCode.SYSTEM_ERROR,
        f"{row.name}: the body has {len(request.body):,} bytes, {row.body_bytes_max:,} are allowed",
    )


def run(row: Row, peer: Peer, request: Command, answer: Callable[[Command, Reply], None]) -> Reply | None:
    """The reply of a row's handler. What goes wrong in it is an answer as well: code 1 with the reason."""
    try:
        header = decode_header(row.header, request.ext)
        return row.handler(Call(peer, request, header, answer))
    except HeaderInvalid as problem:
        return Reply(ResponseCode.SYSTEM_ERROR, f"{row.name}: {problem}")
    except EmberError as problem:
        return Reply(ResponseCode.SYSTEM_ERROR, str(problem))
    except Exception:
        log.exception("event=handler_failed request=%s peer=%s", row.name, peer.host)
        return Reply(ResponseCode.SYSTEM_ERROR, f"{row.name} failed in the server; its log says why")
