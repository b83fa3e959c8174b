"""Requests that wait for a reply, and the replies that brokers push (326). The loop's thread only.

requester   sends with CORRELATION_ID, REPLY_TO_CLIENT (its client id) and TTL, and waits
responder   sends its reply to the cluster's reply topic (325), with the same three
broker      pushes the reply over the requester's own connection
"""

import asyncio
import logging
import uuid

import msgspec

from embermq.client.message_queue import MessageQueue
from embermq.client.received import ReceivedMessage
from embermq.errors import ClientClosed, ClientError
from embermq.model.hosts import Host, pack_host, parse_host
from embermq.model.message import Message
from embermq.model.names import reply_topic
from embermq.remoting import MAX_FRAME_BYTES, Call, Reply, RequestCode, ResponseCode, Row

log = logging.getLogger(__name__)

CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
CLUSTER = "CLUSTER"
MESSAGE_TYPE = "MSG_TYPE"
REPLY = "reply"


class PushedHeader(msgspec.Struct, rename="camel"):
    topic: str
    queue_id: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    flag: int = 0
    properties: str = ""
    reconsume_times: int = 0
    born_host: str = ""
    store_host: str = ""
    store_timestamp: int = 0


class PendingReplies:
    """The requests of one producer that were not replied to yet."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def row(self) -> Row:
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        return Row(code, PushedHeader, self.pushed, body_bytes_max=MAX_FRAME_BYTES)

    def expect(self) -> tuple[str, "asyncio.Future[ReceivedMessage]"]:
        """A new correlation id, and what will hold the reply. `forget` it when no one waits any more."""
        correlation_id = str(uuid.uuid4())
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return correlation_id, future

    def forget(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    def close(self, producer: str) -> None:
        """The producer closes: no reply can come any more."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ClientClosed(producer, "was closed while a request waited for its reply"))
        self._waiting.clear()

    def pushed(self, call: Call[PushedHeader]) -> Reply:
        reply = _received(call.header, call.body)
        correlation_id = reply.properties.get(CORRELATION_ID, "")
        future = self._waiting.pop(correlation_id, None)
        if future is None or future.done():
            log.info("event=reply_unexpected correlation_id=%s", correlation_id)
            return Reply(ResponseCode.SYSTEM_ERROR, f"no request waits for correlation id {correlation_id!r}")
        future.set_result(reply)
        return Reply()


def request_properties(correlation_id: str, client_id: str, seconds: float) -> dict[str, str]:
    return {CORRELATION_ID: correlation_id, REPLY_TO_CLIENT: client_id, TTL: str(int(seconds * 1000))}


def reply_to(request: ReceivedMessage, message: Message) -> tuple[Message, dict[str, str]]:
    """A reply as it is sent: to the reply topic of the request's cluster. ClientError if no reply is awaited."""
    asked = request.properties
    missing = [name for name in (CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT) if name not in asked]
    if missing:
        raise ClientError(
            f"message {request.message_id} of topic {request.topic!r} awaits no reply: it has no property {missing[0]}"
        )
    more = {MESSAGE_TYPE: REPLY, CORRELATION_ID: asked[CORRELATION_ID], REPLY_TO_CLIENT: asked[REPLY_TO_CLIENT]}
    if TTL in asked:
        more[TTL] = asked[TTL]
    return msgspec.structs.replace(message, topic=reply_topic(asked[CLUSTER])), more


def _received(header: PushedHeader, body: bytes) -> ReceivedMessage:
    """A pushed reply as a message: it has no place in a queue."""
    return ReceivedMessage(
        header.topic,
        MessageQueue(header.topic, "", header.queue_id),
        -1,
        -1,
        body,
        header.properties.encode(),
        header.flag,
        header.sys_flag,
        header.born_timestamp,
        _packed(header.born_host),
        header.store_timestamp,
        _packed(header.store_host),
        header.reconsume_times,
        0,
        0,
    )


def _packed(text: str) -> bytes:
    """`ip:port`, which Java writes with a slash in front; 0.0.0.0:0 for what is none."""
    try:
        return pack_host(parse_host(text.lstrip("/")))
    except ValueError:
        return pack_host(Host("0.0.0.0", 0))
