"""Transactions: half messages, the decision on them, and the broker's questions (39). The loop's thread only.

    1. a half message is stored; no consumer sees it
    2. the local transaction runs
    3. COMMIT makes the message visible, ROLLBACK drops it, UNKNOWN leaves it to the broker, which asks later
    4. the member of the group that is asked answers from what the local transaction left behind

A half message that was stored with a reservation (SendStatus) is rolled back, as in RocketMQ's clients.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from embermq.client.calls import BrokerAddress, Decision, EndTransaction, end_transaction
from embermq.client.message_queue import MessageQueue
from embermq.client.produce.core import ProducerCore
from embermq.client.produce.outgoing import Outgoing, Packer
from embermq.client.produce.queue_choice import QueueBy
from embermq.client.produce.results import SendResult, TransactionResult
from embermq.client.received import ReceivedMessage, parse_record
from embermq.errors import ClientError, MessageRejected
from embermq.model import flags
from embermq.model.ids import parse_message_id
from embermq.model.message import Message
from embermq.model.properties import DELAY
from embermq.remoting import MAX_FRAME_BYTES, Call, Command, RequestCode, Row, encode_header

log = logging.getLogger(__name__)

Verdict = Decision | bool | None
Check = Callable[[ReceivedMessage], Awaitable[Verdict]]
CHECKS_MAX = 1000  # under way; a question beyond it is dropped, and the broker asks again


class CheckHeader(msgspec.Struct, rename="camel"):
    tran_state_table_offset: int
    commit_log_offset: int
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


def decision_of(verdict: Verdict) -> Decision:
    """True commits, False rolls back, None is not known yet."""
    if isinstance(verdict, Decision):
        return verdict
    return Decision.UNKNOWN if verdict is None else Decision.COMMIT if verdict else Decision.ROLLBACK


class Checks:
    """Questions of brokers about half messages."""

    def __init__(self, group: str, check: Check) -> None:
        self._group, self._check = group, check
        self._under_way: set[asyncio.Task[None]] = set()
        self.core: ProducerCore | None = None  # set before the first connection is made

    def row(self) -> Row:
        return Row(RequestCode.CHECK_TRANSACTION_STATE, CheckHeader, self.asked, body_bytes_max=MAX_FRAME_BYTES)

    def asked(self, call: Call[CheckHeader]) -> None:
        if len(self._under_way) >= CHECKS_MAX:
            log.warning("event=transaction_check_dropped under_way=%d", len(self._under_way))
            return
        task = asyncio.get_running_loop().create_task(self._answer(call))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        """Answer what was asked already."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _answer(self, call: Call[CheckHeader]) -> None:
        header = call.header
        try:
            message = parse_record(call.body, str(call.peer.host))
            decision = decision_of(await self._check(message))
        except Exception:
            log.exception("event=transaction_check_failed message_id=%s", header.msg_id)
            return  # Not known: the broker asks again.
        if decision is Decision.UNKNOWN:
            return  # The broker would do nothing with it, and asks again anyhow.
        assert self.core is not None
        if self.core.traced_ends is not None:
            self.core.traced_ends.answered(message, header.transaction_id or "", str(call.peer.host), decision)
        ended = EndTransaction(
            self._group,
            header.tran_state_table_offset,
            header.commit_log_offset,
            decision,
            from_transaction_check=True,
            msg_id=header.msg_id or "",
            transaction_id=header.transaction_id,
        )
        request = Command(RequestCode.END_TRANSACTION, ext=encode_header(ended))
        self.core.instance.caller.sign(request)
        call.peer.tell(request)


def pack_half(message: Message, packer: Packer, group: str) -> Outgoing:
    """The half message; MessageRejected if it is delayed."""
    if message.delay_level or DELAY in message.all_properties():
        raise MessageRejected(f"topic {message.topic!r}: a delayed message cannot be part of a transaction")
    return packer.pack(message, {"TRAN_MSG": "true", "PGROUP": group}, flags.PREPARED)


async def send_half(
    core: ProducerCore, outgoing: Outgoing, by: QueueBy | MessageQueue | None, seconds: float | None
) -> SendResult:
    if core.traced_ends is not None:
        core.traced_ends.prepared(outgoing.message_id, outgoing.message)
    sent = await core.submit(outgoing, by=by, seconds=seconds)
    return msgspec.structs.replace(sent, transaction_id=sent.transaction_id or outgoing.message_id)


async def end_half(core: ProducerCore, sent: SendResult, decision: Decision) -> TransactionResult:
    """Tell the broker; where that fails it will ask."""
    master = core.instance.routes.broker(sent.queue.broker)
    is_ended = False
    if decision is not Decision.UNKNOWN and master is not None:
        is_ended = await _ended(core, master, sent, decision)
    if core.traced_ends is not None:
        core.traced_ends.ended(sent, decision, "" if master is None else master.address)
    return TransactionResult(sent, decision, is_ended)


async def _ended(core: ProducerCore, to: BrokerAddress, sent: SendResult, decision: Decision) -> bool:
    ended = EndTransaction(
        core.instance.wire(core.settings.group),
        sent.queue_offset,
        parse_message_id(sent.offset_message_id).physical_offset,
        decision,
        msg_id=sent.message_id,
        transaction_id=sent.transaction_id,
    )
    try:
        await end_transaction(core.instance.caller, to, ended, core.settings.call_timeout, sent.queue.topic)
    except ClientError as problem:
        log.warning("event=end_transaction_failed message_id=%s reason=%r", sent.message_id, str(problem))
        return False
    return True
