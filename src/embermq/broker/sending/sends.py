"""Sends (10, 310, 320): from a request to a message in the log, and back to an answer. The loop's thread.

The checks come in RocketMQ's order, and the first that objects answers. The append is made on this thread, straight
into the mapped log file; under SYNC_FLUSH the answer waits for the disk (answers/acknowledgements.py), the loop does
not. The answer to the first message of a new topic waits until the name servers know the topic
(routing/announcements.py).
"""

import asyncio
import random
import time
from collections.abc import Callable

from embermq.broker.answers import PUT_CODES, STORED, Acknowledgements, refusal_status
from embermq.broker.hooks import Hooks, Refused, SendContext
from embermq.broker.routing import Announcements
from embermq.broker.sending.headers import AnySendHeader, SendHeader, SendHeaderV2
from embermq.broker.statistics import Statistics
from embermq.broker.tables import GroupTable, TopicTable
from embermq.broker.transactions import Transactions, is_half
from embermq.clock import Clock
from embermq.errors import BatchInvalid, HeaderInvalid, MessageRejected, StoreError
from embermq.format.client_batch import decode_batch_items
from embermq.model import flags
from embermq.model.message import Message, MessageBatch, Receipt
from embermq.model.names import CLOSED_TOPICS, RETRY_PREFIX, dead_letter_topic, is_retry_topic, topic_objection
from embermq.model.properties import DELAY, TIMER_TOPIC, WAIT, decode_properties, encode_properties
from embermq.model.status import PutStatus
from embermq.remoting import MAX_FRAME_BYTES, Call, Command, Reply, RequestCode, ResponseCode, Row
from embermq.settings import BrokerRole, BrokerSettings
from embermq.store import MessageStore
from embermq.store.append import TIMER_QUEUES, has_delivery_time
from embermq.store.tables import MULTI_TAG, PERM_WRITE, TopicConfig

CLUSTER = "CLUSTER"
MSG_REGION, TRACE_ON = "MSG_REGION", "TRACE_ON"
# From this protocol version on, a client's own limit of retries replaces that of the group.
OWN_RETRY_LIMIT_VERSION = 121

Target = tuple[str, int, dict[str, str]]  # topic, queue, properties


class Sends:
    """Answers to producers."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        announcements: Announcements,
        acknowledgements: Acknowledgements,
        hooks: Hooks,
        statistics: Statistics,
        transactions: Transactions,
        clock: Clock,
    ) -> None:
        self._settings, self._store, self._topics, self._groups = settings, store, topics, groups
        self._announcements, self._transactions = announcements, transactions
        self._acknowledgements, self._hooks, self._statistics = acknowledgements, hooks, statistics
        self._clock = clock

    @property
    def settings(self) -> BrokerSettings:
        """The settings as they are now."""
        return self._settings()

    def rows(self) -> list[Row]:
        return [
            Row(RequestCode.SEND_MESSAGE, SendHeader, self.send, body_bytes_max=MAX_FRAME_BYTES),
            Row(RequestCode.SEND_MESSAGE_V2, SendHeaderV2, self.send, body_bytes_max=MAX_FRAME_BYTES),
            Row(RequestCode.SEND_BATCH_MESSAGE, SendHeaderV2, self.send, body_bytes_max=MAX_FRAME_BYTES),
        ]

    def send(self, call: Call[AnySendHeader]) -> Reply | None:
        if self._topics.find(call.header.topic) is not None:
            return self._send(call)
        return self._answer_when_announced(call)

    def _answer_when_announced(self, call: Call[AnySendHeader]) -> Reply | None:
        """Make the topic of a first message, store it, and answer when the topic was announced."""
        announced: asyncio.Future[None] | None = None

        def answer(_request: Command, reply: Reply) -> None:
            if announced is None:
                call.answer(reply)
            else:
                announced.add_done_callback(lambda _done: call.answer(reply))

        reply = self._send(Call(call.peer, call.request, call.header, answer))
        if self._topics.find(call.header.topic) is not None:
            announced = self._announcements.of_now()
        if reply is None or announced is None:
            return reply
        answer(call.request, reply)
        return None

    def _send(self, call: Call[AnySendHeader]) -> Reply | None:
        header = call.header
        objection = self.objection(header)
        if objection is not None:
            return objection
        config = self.topic_of(header)
        if isinstance(config, Reply):
            return config
        queue_id = header.queue_id if header.queue_id >= 0 else random.randrange(max(1, config.write_queue_nums))
        properties = decode_properties(header.properties.encode())
        refusal = self.transaction_objection(header, properties)
        if refusal is not None:
            return refusal
        try:
            if header.batch:
                message: Message | MessageBatch = self._batch(call, config, queue_id, properties)
            else:
                target = self._target(call, config, queue_id, properties)
                if isinstance(target, Reply):
                    return target
                message = self.message(call, config, target)
            return self._store_it(call, message, queue_id, begins_transaction=is_half(properties))
        except Refused as problem:
            return self.refused(ResponseCode.NO_PERMISSION, str(problem))
        except BatchInvalid as problem:
            return Reply(ResponseCode.SYSTEM_ERROR, str(problem))
        except StoreError as problem:
            return self.not_stored(problem)

    # -- checks ----------------------------------------------------------------------------------------------

    def takes_runs(self) -> bool:
        """Whether sends may be stored many at once: nothing wants to see each one, and nothing forbids all of them."""
        return (
            not self._hooks.on_send
            and self._store.role is not BrokerRole.SLAVE
            and not self._store.is_transient_pool_deficient
            and (not (start := self._settings().accept_sends_from_ms) or self._clock.now_ms() >= start)
        )

    def flags_at(self, topic: str, queue_id: int) -> int | None:
        """The flags that messages to a queue get beside their own; None if they cannot be stored many at once.

        It stays right as long as neither the settings nor the topics change."""
        header = SendHeader(topic=topic, queue_id=queue_id, sys_flag=0, born_timestamp=0, flag=0)
        if is_retry_topic(topic) or self._topics.find(topic) is None or self.objection(header) is not None:
            return None
        config = self.topic_of(header)
        if isinstance(config, Reply):
            return None
        return _topic_flags(config)

    def objection(self, header: AnySendHeader) -> Reply | None:
        """What forbids this send before the topic is looked at."""
        settings = self._settings()
        if self._store.role is BrokerRole.SLAVE:
            return self.refused(ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a SLAVE; send to its master")
        if settings.accept_sends_from_ms and self._clock.now_ms() < settings.accept_sends_from_ms:
            return self.refused(
                ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {settings.accept_sends_from_ms} ms"
            )
        config = self._topics.find(header.topic)
        if not settings.permission & PERM_WRITE and config is not None and config.order:
            return self.refused(
                ResponseCode.NO_PERMISSION, f"the broker[{self._store.settings.broker_ip}] sending message is forbidden"
            )
        if (why := topic_objection(header.topic)) is not None:
            return self.refused(ResponseCode.SYSTEM_ERROR, why)
        if header.topic in CLOSED_TOPICS:
            return self.refused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{header.topic}] is forbidden.")
        if self._store.is_transient_pool_deficient:
            return self.refused(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while")
        return None

    def topic_of(self, header: AnySendHeader) -> TopicConfig | Reply:
        """The topic, made if the settings allow that; its queue checked."""
        config = self._topics.find(header.topic)
        if config is None:
            config = self._topics.make_on_send(
                header.topic, header.default_topic, header.default_topic_queue_nums, unit_mode=header.unit_mode
            )
        if config is None:
            return self.refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!")
        if header.queue_id >= max(config.read_queue_nums, config.write_queue_nums):
            return self.refused(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{header.queue_id}] is illegal, topic[{header.topic}] has"
                f" {config.read_queue_nums} read and {config.write_queue_nums} write queues",
            )
        return config

    def transaction_objection(self, header: AnySendHeader, properties: dict[str, str]) -> Reply | None:
        """What forbids this message to begin a transaction, or to look as if it belonged to one."""
        begins_one = is_half(properties)
        if header.batch and (begins_one or header.sys_flag & flags.TRANSACTION_MASK):
            return self.refused(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be part of a transaction")
        if not begins_one:
            if header.sys_flag & flags.TRANSACTION_MASK:
                return self.refused(ResponseCode.MESSAGE_ILLEGAL, "the property TRAN_MSG begins a transaction, no flag")
            return None
        settings = self._settings()
        if settings.reject_transactions:
            return self.refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{settings.broker_name}] sending transaction message is forbidden",
            )
        if not self._transactions.has_room:
            most = f"{settings.undecided_max:,} transactions are undecided (emberMaxUndecidedTransactions)"
            return self.refused(ResponseCode.SYSTEM_BUSY, f"[REJECTREQUEST]system busy, start flow control: {most}")
        return None

    def _target(
        self, call: Call[AnySendHeader], config: TopicConfig, queue_id: int, properties: dict[str, str]
    ) -> Target | Reply:
        """Where a message goes: a retried one that has failed too often goes to the dead letters of its group."""
        header = call.header
        if not is_retry_topic(header.topic):
            return header.topic, queue_id, properties
        group_name = header.topic.removeprefix(RETRY_PREFIX)
        group = self._groups.find(group_name)
        if group is None:
            return self.refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group_name}"
            )
        most = group.retry_max_times
        if call.request.version >= OWN_RETRY_LIMIT_VERSION and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        if (header.reconsume_times or 0) < most:
            return header.topic, queue_id, properties
        dead_letters = self._topics.ensure(dead_letter_topic(group_name), 1)
        if dead_letters is None:
            return self.refused(ResponseCode.SYSTEM_ERROR, f"topic[{dead_letter_topic(group_name)}] cannot be made")
        return dead_letters.topic_name, 0, {name: text for name, text in properties.items() if name != DELAY}

    # -- messages --------------------------------------------------------------------------------------------

    def message(
        self, call: Call[AnySendHeader], config: TopicConfig, target: Target, *, is_reply: bool = False
    ) -> Message:
        """The message of a request, to be stored at its target. A reply does not name the cluster: it is not replied
        to."""
        header = call.header
        topic, queue_id, properties = target
        if has_delivery_time(properties):
            self._topics.ensure(TIMER_TOPIC, TIMER_QUEUES)  # RocketMQ cleans up queues of topics that are not listed.
        properties = properties if is_reply else properties | {CLUSTER: self._settings().cluster_name}
        wait = properties.get(WAIT, "true").lower() == "true"
        if not _delay_level(properties) and not is_half(properties):
            # Honoured and not kept, but by messages that are parked first.
            properties = {name: text for name, text in properties.items() if name != WAIT}
        return Message(
            topic=topic,
            body=call.body,
            encoded_properties=encode_properties(properties),
            queue_id=queue_id,
            flag=header.flag,
            sys_flag=header.sys_flag | _topic_flags(config),
            born_timestamp=header.born_timestamp,
            born_host=call.peer.host,
            reconsume_times=header.reconsume_times or 0,
            wait_for_store=wait,
        )

    def _batch(
        self, call: Call[AnySendHeader], config: TopicConfig, queue_id: int, properties: dict[str, str]
    ) -> MessageBatch:
        header = call.header
        if DELAY in properties:
            raise MessageRejected("a batch cannot be delayed")
        if len(call.body) > self._store.settings.message_bytes_max:
            raise MessageRejected(f"a batch of {len(call.body):,} bytes is larger than maxMessageSize")
        whole = self.message(call, config, (header.topic, queue_id, properties))
        items = decode_batch_items(call.body)
        if not items:
            raise BatchInvalid("the batch has no messages")
        head = Message(
            topic=whole.topic,
            encoded_properties=whole.encoded_properties,
            queue_id=queue_id,
            sys_flag=whole.sys_flag,
            born_timestamp=whole.born_timestamp,
            born_host=whole.born_host,
            reconsume_times=whole.reconsume_times,
            wait_for_store=whole.wait_for_store,
        )
        return MessageBatch(head, items)

    # -- storing and answering -------------------------------------------------------------------------------

    def _store_it(
        self, call: Call[AnySendHeader], message: Message | MessageBatch, queue_id: int, *, begins_transaction: bool
    ) -> Reply | None:
        context = self._context(call, message, queue_id) if self._hooks.on_send else None
        if context is not None:
            self._hooks.before_send(context)
        began = time.perf_counter()
        if begins_transaction:
            assert isinstance(message, Message)
            receipt, wait_for = self._transactions.prepare(message)
        else:
            receipt, wait_for = self._store.append_unconfirmed(message)
        topic = message.header.topic if isinstance(message, MessageBatch) else message.topic
        self._statistics.put(topic, queue_id, receipt.message_count, receipt.size)
        if not wait_for:
            return self._answer(receipt, PutStatus.PUT_OK, None, queue_id, context, began)

        def release(status: PutStatus, reason: str | None) -> None:
            call.answer(self._answer(receipt, status, reason, queue_id, context, began))

        self._acknowledgements.when_durable(wait_for, release)
        return None

    def _answer(
        self,
        receipt: Receipt,
        status: PutStatus,
        reason: str | None,
        queue_id: int,
        context: SendContext | None,
        began: float,
    ) -> Reply:
        reply = self.stored(receipt, status, reason, queue_id)
        if context is not None:
            context.message_id, context.queue_offset = receipt.message_id, receipt.queue_offset
            context.code, context.status = reply.code, status
            context.cost_ms = (time.perf_counter() - began) * 1000
            self._hooks.after_send(context)
        return reply

    def stored(self, receipt: Receipt, status: PutStatus, reason: str | None, queue_id: int) -> Reply:
        """The answer to a send that was put into the log, and what became of it."""
        settings = self._settings()
        fields = {MSG_REGION: settings.region, TRACE_ON: "true" if settings.trace_on else "false"}
        if status in STORED:
            fields["msgId"] = receipt.message_id
            fields["queueId"] = str(queue_id)
            fields["queueOffset"] = str(receipt.queue_offset)
        code = PUT_CODES[status]
        return Reply(code, reason if reason is not None else (None if code == 0 else str(status)), fields)

    def not_stored(self, problem: StoreError) -> Reply:
        """The answer to a send that the store refused."""
        return self.refused(PUT_CODES[refusal_status(problem)], str(problem))

    def refused(self, code: int, remark: str | None) -> Reply:
        """An answer of a check: it carries the region and the trace switch as every answer to a send does."""
        settings = self._settings()
        return Reply(code, remark, {MSG_REGION: settings.region, TRACE_ON: "true" if settings.trace_on else "false"})

    def _context(self, call: Call[AnySendHeader], message: Message | MessageBatch, queue_id: int) -> SendContext:
        header = call.header
        topic = message.header.topic if isinstance(message, MessageBatch) else message.topic
        return SendContext(
            header.producer_group,
            topic,
            queue_id,
            len(call.body),
            call.peer.host,
            header.born_timestamp,
            header.properties,
        )


def _topic_flags(config: TopicConfig) -> int:
    return flags.MULTI_TAG if config.topic_filter_type == MULTI_TAG else 0


def _delay_level(properties: dict[str, str]) -> int:
    """The delay level; HeaderInvalid when it is no number."""
    text = properties.get(DELAY)
    if text is None:
        return 0
    try:
        return int(text)
    except ValueError:
        raise HeaderInvalid("properties", f"DELAY = {text!r}: a delay level is a whole number") from None
