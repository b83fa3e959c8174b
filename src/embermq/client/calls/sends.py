"""Sends (310), batches (320) and replies (325): a message in the form it has on the wire, and where it was stored."""

from enum import StrEnum, unique

import msgspec

from embermq.client.calls.caller import BrokerAddress, Caller
from embermq.client.calls.refusals import refused
from embermq.errors import AnswerInvalid
from embermq.model.names import DEFAULT_TOPIC
from embermq.remoting import Command, RequestCode, ResponseCode, request_name

DEFAULT_QUEUES = 4


@unique
class SendStatus(StrEnum):
    """SEND_OK, or stored with a reservation: in memory and not on the disk, or not yet on a slave, in time."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


STATUSES: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class WireMessage(msgspec.Struct):
    """A message as a send carries it: names with their namespace, body compressed, properties as one text."""

    group: str
    topic: str
    body: bytes
    properties: str = ""
    queue_id: int = -1  # the broker chooses
    sys_flag: int = 0
    flag: int = 0
    born_timestamp: int = 0
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    is_batch: bool = False
    default_topic: str = DEFAULT_TOPIC
    default_queues: int = DEFAULT_QUEUES

    def fields(self) -> dict[str, str]:
        """The header of 310, 320 and 325."""
        ext = {
            "a": self.group,
            "b": self.topic,
            "c": self.default_topic,
            "d": str(self.default_queues),
            "e": str(self.queue_id),
            "f": str(self.sys_flag),
            "g": str(self.born_timestamp),
            "h": str(self.flag),
            "i": self.properties,
            "j": str(self.reconsume_times),
            "k": "false",
            "m": "true" if self.is_batch else "false",
        }
        if self.max_reconsume_times is not None:
            ext["l"] = str(self.max_reconsume_times)
        return ext

    @property
    def command_code(self) -> RequestCode:
        return RequestCode.SEND_BATCH_MESSAGE if self.is_batch else RequestCode.SEND_MESSAGE_V2

    def command(self) -> Command:
        return Command(self.command_code, ext=self.fields(), body=self.body)


class Stored(msgspec.Struct, frozen=True):
    """Where a broker stored a message. Of a batch: the first queue offset, all ids with commas between them."""

    status: SendStatus
    offset_message_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None = None
    region: str = ""
    is_traced: bool = True  # False: the broker wants no trace of it


async def send(caller: Caller, to: BrokerAddress, message: WireMessage, seconds: float) -> Stored:
    """Store a message or a batch; RequestRefused, BrokerUnreachable."""
    return await _sent(caller, to, message.command(), message.topic, seconds)


async def send_oneway(caller: Caller, to: BrokerAddress, message: WireMessage) -> None:
    """Send without asking what became of it."""
    await caller.tell(to, message.command(), topic=message.topic)


async def send_reply(caller: Caller, to: BrokerAddress, message: WireMessage, seconds: float) -> Stored:
    """Send a reply to the client that waits for it, through the broker to which that client is connected."""
    request = Command(RequestCode.SEND_REPLY_MESSAGE_V2, ext=message.fields(), body=message.body)
    return await _sent(caller, to, request, message.topic, seconds)


def stored_of(to: BrokerAddress, code: int, answer: Command, topic: str) -> Stored:
    """What a broker answered to a send; RequestRefused when it did not store it."""
    status = STATUSES.get(answer.code)
    if status is None:
        raise refused(to, code, answer, topic=topic)
    ext = answer.ext or {}
    try:  # Not by a typed header: producers spend a good part of their time here.
        return Stored(
            status,
            ext["msgId"],
            int(ext["queueId"]),
            int(ext["queueOffset"]),
            ext.get("transactionId"),
            ext.get("MSG_REGION", ""),
            ext.get("TRACE_ON") != "false",
        )
    except (KeyError, ValueError) as problem:
        raise AnswerInvalid(request_name(code), str(to), f"{problem!r} in its header {ext}") from None


async def _sent(caller: Caller, to: BrokerAddress, request: Command, topic: str, seconds: float) -> Stored:
    return stored_of(to, request.code, await caller.call(to, request, seconds, topic=topic), topic)
