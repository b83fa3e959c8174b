"""DirectSends: one message at a time on the caller's own thread, over a blocking socket. Any thread.

A send that waits for its answer gains nothing from the background loop, and pays for it with switches of threads. So
the first try of such a send is made here, while no other thread does the same; a thread that finds it taken goes over
the loop. What fails here is tried again there, by the rules of Attempts. The connection carries sends and nothing else:
heartbeats, and what brokers ask their clients, stay with the loop's.
"""

import contextlib
import select
import socket
import threading
import time
from typing import NamedTuple

from embermq.client.calls import BrokerAddress, stored_of
from embermq.client.calls.send_frames import encode_send
from embermq.client.message_queue import MessageQueue
from embermq.client.produce.outgoing import Outgoing
from embermq.client.produce.results import SendResult
from embermq.client.produce.sender import Sender
from embermq.client.produce.settings import ProducerSettings
from embermq.errors import BrokerUnreachable, ClientError
from embermq.remoting import Command, FrameReader, request_name

CONNECT_SECONDS = 3.0
_READ_BYTES = 65_536


class FailedTry(NamedTuple):
    """A first try that failed: where, and why."""

    queue: MessageQueue
    to: BrokerAddress
    deadline: float
    error: ClientError


class DirectSends:
    """The blocking connections of one producer, used by one thread at a time."""

    def __init__(self, sender: Sender, settings: ProducerSettings) -> None:
        self._sender, self._settings = sender, settings
        self._turn = threading.Lock()
        self._connections: dict[str, _Connection] = {}
        self._is_closed = False

    @staticmethod
    def suits(settings: ProducerSettings) -> bool:
        """Hooks and traces belong to the loop; signatures and TLS are its business as well."""
        return not (
            settings.hooks or settings.trace or settings.credentials or settings.tls or settings.latency_faults
        ) and not (settings.retry_unless_ok or settings.namespace)

    def send(self, outgoing: Outgoing, seconds: float) -> SendResult | FailedTry | None:
        """The first try of a message; None, and nothing done, if another thread is here or the route is not known."""
        if not self._turn.acquire(blocking=False):
            return None
        try:
            place = self._sender.next_place(outgoing.wire.topic)
            if place is None or self._is_closed:
                return None
            queue, to = place
            deadline = time.monotonic() + seconds
            outgoing.wire.queue_id = queue.queue_id
            try:
                return self._tried(outgoing, queue, to, deadline)
            except ClientError as problem:
                return FailedTry(queue, to, deadline, problem)
        finally:
            self._turn.release()

    def close(self) -> None:
        """A send that is under way fails."""
        self._is_closed = True
        for connection in list(self._connections.values()):
            connection.close()

    def _tried(self, outgoing: Outgoing, queue: MessageQueue, to: BrokerAddress, deadline: float) -> SendResult:
        code, topic = outgoing.wire.command_code, outgoing.message.topic
        is_sent = False
        try:
            connection = self._connection(to.address, deadline)
            is_sent = True
            answer = connection.call(outgoing, deadline)
        except (OSError, ValueError) as problem:
            self._drop(to.address)
            reason = "no answer in time" if isinstance(problem, TimeoutError) else str(problem)
            what = request_name(code)
            raise BrokerUnreachable(to.name, to.address, what, reason, topic=topic, is_sent=is_sent) from None
        stored = stored_of(to, code, answer, topic)
        if stored.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker, stored.queue_id)
        return SendResult(
            stored.status,
            outgoing.message_id,
            stored.offset_message_id,
            queue,
            stored.queue_offset,
            stored.transaction_id,
            stored.region,
        )

    def _connection(self, address: str, deadline: float) -> "_Connection":
        known = self._connections.get(address)
        if known is not None:
            if known.is_usable():
                return known
            self._drop(address)
        made = self._connections[address] = _Connection(address, deadline)
        return made

    def _drop(self, address: str) -> None:
        gone = self._connections.pop(address, None)
        if gone is not None:
            gone.close()


class _Connection:
    """A blocking socket, one request at a time on it. OSError when it fails, ValueError when bytes are no frame."""

    def __init__(self, address: str, deadline: float) -> None:
        host, _, port = address.rpartition(":")
        seconds = max(0.001, min(CONNECT_SECONDS, deadline - time.monotonic()))
        self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout=seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._reader = FrameReader()
        self._opaque = 0

    def is_usable(self) -> bool:
        """Between two requests nothing is to be read, but for the end of the connection."""
        return not self._poll.poll(0)

    def call(self, outgoing: Outgoing, deadline: float) -> Command:
        self._opaque = (self._opaque + 1) & 0x7FFF_FFFF
        self._wait_until(deadline)
        self._socket.sendall(encode_send(outgoing.wire, self._opaque))
        while True:
            self._wait_until(deadline)
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionError("the broker closed the connection")
            for command in self._reader.feed(data):
                if command.is_response and command.opaque == self._opaque:
                    return command
            if self._reader.failure is not None:
                raise ValueError(self._reader.failure)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # Wakes a thread that waits for an answer; to close would not.
        self._socket.close()

    def _wait_until(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
