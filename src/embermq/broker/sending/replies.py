"""Replies (324, 325): the answer of a consumer to a message whose producer waits for one.

The checks are those of a send. The reply is pushed to the producer's connection (326), whose answer is the answer to
this request; and it is stored in the reply topic, unless the settings say otherwise. The loop's thread.
"""

import asyncio
import random

from embermq.broker.answers import STORED, Acknowledgements, Later
from embermq.broker.members import Clients
from embermq.broker.sending.headers import AnySendHeader, SendHeader, SendHeaderV2
from embermq.broker.sending.sends import Sends
from embermq.broker.statistics import Statistics
from embermq.broker.transactions import is_half
from embermq.clock import Clock
from embermq.errors import RemotingError, StoreError
from embermq.model import flags
from embermq.model.hosts import Host
from embermq.model.message import Message
from embermq.model.properties import decode_properties, encode_properties
from embermq.model.status import PutStatus
from embermq.remoting import MAX_FRAME_BYTES, Call, Command, Reply, RequestCode, ResponseCode, Row, ask
from embermq.store import MessageStore

REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
PUSH_SECONDS = 10.0


class ReplyForwarding:
    """Answers to consumers that reply."""

    def __init__(
        self,
        store: MessageStore,
        sends: Sends,
        clients: Clients,
        acknowledgements: Acknowledgements,
        statistics: Statistics,
        clock: Clock,
        later: Later,
    ) -> None:
        self._store, self._sends, self._clients = store, sends, clients
        self._acknowledgements, self._statistics = acknowledgements, statistics
        self._clock, self._later = clock, later

    def rows(self) -> list[Row]:
        return [
            self._later.row(code, header, self.reply, body_bytes_max=MAX_FRAME_BYTES)
            for code, header in (
                (RequestCode.SEND_REPLY_MESSAGE, SendHeader),
                (RequestCode.SEND_REPLY_MESSAGE_V2, SendHeaderV2),
            )
        ]

    async def reply(self, call: Call[AnySendHeader]) -> Reply:
        header, sends = call.header, self._sends
        objection = sends.objection(header)
        if objection is not None:
            return objection
        config = sends.topic_of(header)
        if isinstance(config, Reply):
            return config
        properties = decode_properties(header.properties.encode())
        if is_half(properties) or header.sys_flag & flags.TRANSACTION_MASK:
            return sends.refused(ResponseCode.MESSAGE_ILLEGAL, "a reply cannot be part of a transaction")
        queue_id = header.queue_id if header.queue_id >= 0 else random.randrange(max(1, config.write_queue_nums))
        problem = await self._push(call, properties, queue_id)
        code = ResponseCode.SUCCESS if problem is None else ResponseCode.SYSTEM_ERROR
        answered = sends.refused(code, problem)
        fields = dict(answered.ext or {})
        if problem is None:
            fields |= {"msgId": "0", "queueId": str(queue_id), "queueOffset": "0"}
        if sends.settings.store_replies:
            message = sends.message(call, config, (header.topic, queue_id, properties), is_reply=True)
            fields |= await self._keep(message)
        return Reply(code, problem, fields)

    async def _push(self, call: Call[AnySendHeader], properties: dict[str, str], queue_id: int) -> str | None:
        """Hand the reply to the producer that waits for it; why that failed, None if it did not."""
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{REPLY_TO_CLIENT}] is null"
        member = self._clients.producer(client_id)
        if member is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        pushed = Command(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            ext=self._push_fields(call, properties, queue_id),
            body=call.body,
        )
        try:
            answer = await ask(member.peer, pushed, PUSH_SECONDS)
        except RemotingError as problem:
            return f"push reply message to {client_id} fail: {problem}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail: its client answered {answer.code} {answer.remark or ''}"
        return None

    def _push_fields(self, call: Call[AnySendHeader], properties: dict[str, str], queue_id: int) -> dict[str, str]:
        header, now_ms = call.header, self._clock.now_ms()
        with_time = properties | {PUSH_REPLY_TIME: str(now_ms)}
        return {
            "producerGroup": header.producer_group,
            "topic": header.topic,
            "defaultTopic": header.default_topic,
            "defaultTopicQueueNums": str(header.default_topic_queue_nums),
            "queueId": str(queue_id),
            "sysFlag": str(header.sys_flag),
            "bornTimestamp": str(header.born_timestamp),
            "flag": str(header.flag),
            "properties": encode_properties(with_time).decode(),
            "reconsumeTimes": str(header.reconsume_times or 0),
            "unitMode": "true" if header.unit_mode else "false",
            "bornHost": str(call.peer.host),
            "storeHost": str(Host(*self._store.settings.store_host)),
            "storeTimestamp": str(now_ms),
        }

    async def _keep(self, message: Message) -> dict[str, str]:
        """Store the reply; the fields of the answer that say where, none if it was not stored."""
        try:
            receipt, wait_for = self._store.append_unconfirmed(message)
        except StoreError:
            return {}
        self._statistics.put(message.topic, message.queue_id, receipt.message_count, receipt.size)
        if wait_for and await self._durable(wait_for) not in STORED:
            return {}
        return {
            "msgId": receipt.message_id,
            "queueId": str(message.queue_id),
            "queueOffset": str(receipt.queue_offset),
        }

    async def _durable(self, end: int) -> PutStatus:
        done: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()

        def release(status: PutStatus, _reason: str | None) -> None:
            if not done.done():
                done.set_result(status)

        self._acknowledgements.when_durable(end, release)
        return await done
