"""Pulls (11, 361): messages of one queue as the log has them, and a wait where there is nothing new. The loop's thread.

The checks come in RocketMQ's order. A pull that finds nothing and may wait is held (held_pulls.py), and runs again from
its start when something arrives or its time is over.
"""

import struct
from collections.abc import Callable

import msgspec

from embermq.broker.answers import pull_code
from embermq.broker.hooks import Hooks, PullContext
from embermq.broker.members import (
    Clients,
    ConsumerFilters,
    ConsumerGroup,
    Subscription,
    SubscriptionError,
    parse_subscription,
)
from embermq.broker.reading.held_pulls import HeldPull, HeldPulls
from embermq.broker.statistics import Statistics
from embermq.broker.tables import ConsumerOffsets, GroupTable, TopicTable
from embermq.errors import ReadRefused, StoreClosed, StoreError
from embermq.model import flags
from embermq.model.message import Message
from embermq.model.names import OFFSET_MOVED_TOPIC
from embermq.model.properties import DELAY, KEYS, TAGS
from embermq.remoting import I32, I64, Call, Reply, RequestCode, ResponseCode, Row, write_json
from embermq.settings import BrokerRole, BrokerSettings
from embermq.store import MessageFilter, MessageStore, RawRead, TagFilter
from embermq.store.tables import PERM_READ, GroupConfig

# Of a record: its place in the log and its flags, and when it was stored (docs/format/commit-log.md).
_PLACE, _PLACE_AT = struct.Struct(">qi"), 28
_TIME, _TIME_AT, _IPV6_MORE = struct.Struct(">q"), 56, 12
COMMIT_OFFSET, SUSPEND, SUBSCRIPTION, CLASS_FILTER = 1, 2, 4, 8
HOLD_SECONDS_MAX = 60.0
# With more messages to look through, the properties of which are asked for, a pull is answered from a thread.
FILTERED_MAX = 64
# A pull that asks for much at once is given at most so many messages, whatever their size.
BULK_MESSAGES_MAX = 8192

# Does the first on a thread, and gives what it returned or raised to the second, on the loop.
RunOnPool = Callable[[Callable[[], RawRead], Callable[[RawRead | Exception], None]], None]


class PullHeader(msgspec.Struct, rename="camel"):
    consumer_group: str
    topic: str
    queue_id: I32
    queue_offset: I64
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: I64 = 0
    suspend_timeout_millis: I64 = 0
    subscription: str | None = None
    sub_version: I64 = 0
    expression_type: str | None = None
    ember_max_bytes: I32 = 0  # of clients that read much at once: so many bytes, however many messages that is


class Pulls:
    """Answers to consumers."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        clients: Clients,
        filters: ConsumerFilters,
        held: HeldPulls,
        hooks: Hooks,
        statistics: Statistics,
        now: Callable[[], float],
        now_ms: Callable[[], int],
        run_on_pool: RunOnPool,
    ) -> None:
        self._settings, self._store, self._topics, self._groups = settings, store, topics, groups
        self._offsets, self._clients, self._held, self._hooks = offsets, clients, held, hooks
        self._statistics, self._now, self._now_ms = statistics, now, now_ms
        self._filters, self._run_on_pool = filters, run_on_pool

    def rows(self) -> list[Row]:
        return [
            Row(RequestCode.PULL_MESSAGE, PullHeader, self.pull),
            Row(RequestCode.LITE_PULL_MESSAGE, PullHeader, self.pull, note="of 5.x clients; as PULL_MESSAGE"),
        ]

    def pull(self, call: Call[PullHeader]) -> Reply | None:
        return self._run(call, is_first=True)

    def _run(self, call: Call[PullHeader], *, is_first: bool) -> Reply | None:
        header = call.header
        group = self._group_of(header)
        if isinstance(group, Reply):
            return group
        objection = self._topic_objection(header)
        if objection is not None:
            return objection
        subscription = self._subscription(header, group)
        if isinstance(subscription, Reply):
            return subscription
        is_inline = bool(header.sys_flag & SUBSCRIPTION)
        wanted = self._filters.wanted(subscription, header.consumer_group, header.sub_version, is_inline=is_inline)
        if isinstance(wanted, Reply):
            return wanted
        began = self._now()

        count, bulk_bytes = max(0, header.max_msg_nums), self._bulk_bytes(header)
        if bulk_bytes is not None:
            count = min(count, BULK_MESSAGES_MAX)

        def read() -> RawRead:
            return self._store.read_raw(
                header.topic,
                header.queue_id,
                header.queue_offset,
                count,
                bulk_bytes,
                filter=wanted,
                is_bulk=bulk_bytes is not None,
            )

        if self._is_cold(header) or self._is_long(header, wanted):
            self._run_on_pool(
                read, lambda outcome: self._finish_cold(call, group, wanted, outcome, began, is_first=is_first)
            )
            return None
        try:
            return self._finish(call, group, wanted, read(), began, is_first=is_first)
        except (ReadRefused, StoreClosed) as problem:
            return Reply(ResponseCode.SYSTEM_ERROR, f"store getMessage return null: {problem}", {})

    def _bulk_bytes(self, header: PullHeader) -> int | None:
        """How much a client that reads much at once is given; None where it is given what others are."""
        most = min(header.ember_max_bytes, self._settings().bulk_pull_bytes_max)
        return most if most > 0 else None

    def _is_cold(self, header: PullHeader) -> bool:
        """Whether the messages have probably left memory: reading them would hold up the loop."""
        return self._store.check_in_disk_by_consume_offset(
            header.topic, header.queue_id, header.queue_offset, wait=False
        )

    def _is_long(self, header: PullHeader, wanted: MessageFilter | None) -> bool:
        """Whether the properties of many messages will be asked for before some of them match."""
        if wanted is None or isinstance(wanted, TagFilter):
            return False
        return self._store.max_offset(header.topic, header.queue_id, wait=False) - header.queue_offset > FILTERED_MAX

    def _finish_cold(
        self,
        call: Call[PullHeader],
        group: GroupConfig,
        wanted: MessageFilter | None,
        outcome: RawRead | Exception,
        began: float,
        *,
        is_first: bool,
    ) -> None:
        if isinstance(outcome, Exception):
            reply: Reply | None = Reply(ResponseCode.SYSTEM_ERROR, f"store getMessage return null: {outcome}", {})
        else:
            reply = self._finish(call, group, wanted, outcome, began, is_first=is_first)
        if reply is not None:
            call.answer(reply)

    def _finish(
        self,
        call: Call[PullHeader],
        group: GroupConfig,
        wanted: MessageFilter | None,
        read: RawRead,
        began: float,
        *,
        is_first: bool,
    ) -> Reply | None:
        """The answer to what was read; None if the pull is held."""
        header = call.header
        code = self._code(read, header)
        if is_first and header.sys_flag & COMMIT_OFFSET and self._store.role is not BrokerRole.SLAVE:
            self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        if code == ResponseCode.PULL_NOT_FOUND and is_first and header.sys_flag & SUSPEND:
            pull = HeldPull(
                call.peer,
                header.queue_offset,
                wanted,
                self._now() + self._hold_seconds(header),
                lambda: self._resume(call),
            )
            if self._held.hold(header.topic, header.queue_id, pull):
                return None
        if code == ResponseCode.PULL_OFFSET_MOVED:
            self._note_moved(header, read)
        if read.count:
            self._count(header, read, began)
        return self._answer(call, group, read, code)

    def _code(self, read: RawRead, header: PullHeader) -> ResponseCode:
        """A slave serves reads where slaveReadEnable says so, and unless offsetCheckInSlave does, calls no offset
        wrong: it may be behind its master."""
        code = pull_code(read.status, header.queue_offset)
        if self._store.role is not BrokerRole.SLAVE:
            return code
        moved = code == ResponseCode.PULL_OFFSET_MOVED and not self._store.settings.check_offset_in_slave
        return ResponseCode.PULL_RETRY_IMMEDIATELY if moved or not self._settings().slave_read else code

    def _count(self, header: PullHeader, read: RawRead, began: float) -> None:
        latency_ms = int((self._now() - began) * 1000)
        series = self._statistics.got(
            header.topic, header.consumer_group, header.queue_id, read.count, len(read.data), latency_ms
        )
        if read.next_offset >= read.max_offset:
            series.behind_bytes = series.behind_ms = 0
            return
        place, sys_flag = _PLACE.unpack_from(read.data, _PLACE_AT)
        (stored_ms,) = _TIME.unpack_from(read.data, _TIME_AT + (_IPV6_MORE if sys_flag & flags.BORN_HOST_V6 else 0))
        series.behind_bytes = max(0, self._store.max_physical - place)
        series.behind_ms = max(0, self._now_ms() - stored_ms)

    def _resume(self, call: Call[PullHeader]) -> None:
        """Run a held pull again: whatever comes out is its answer."""
        if not call.peer.is_open:
            call.answer(Reply())  # Nothing is sent: it ends the request.
            return
        try:
            reply = self._run(call, is_first=False)
        except StoreError as problem:
            reply = Reply(ResponseCode.SYSTEM_ERROR, str(problem))
        if reply is not None:  # None: it is being read from the disk.
            call.answer(reply)

    # -- checks ----------------------------------------------------------------------------------------------

    def _group_of(self, header: PullHeader) -> GroupConfig | Reply:
        if not self._settings().permission & PERM_READ:
            return _refused(
                ResponseCode.NO_PERMISSION, f"the broker[{self._store.settings.broker_ip}] pulling message is forbidden"
            )
        group = self._groups.find(header.consumer_group)
        if group is None:
            return _refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist",
            )
        if not group.consume_enable:
            return _refused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}")
        return group

    def _topic_objection(self, header: PullHeader) -> Reply | None:
        topic = self._topics.find(header.topic)
        if topic is None:
            return _refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!")
        if not topic.is_readable:
            return _refused(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            return _refused(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{topic.read_queue_nums}]",
            )
        return None

    def _subscription(self, header: PullHeader, group: GroupConfig) -> Subscription | Reply:
        if header.sys_flag & SUBSCRIPTION:
            try:
                found = parse_subscription(header.topic, header.subscription, header.expression_type)
            except SubscriptionError as problem:
                return _refused(
                    ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {problem}"
                )
        else:
            registered = self._registered(header, group, self._clients.consumers(header.consumer_group))
            if isinstance(registered, Reply):
                return registered
            found = registered
        return found

    def _registered(self, header: PullHeader, config: GroupConfig, group: ConsumerGroup | None) -> Subscription | Reply:
        if group is None:
            return _refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        if not config.consume_broadcast_enable and group.model == "BROADCASTING":
            return _refused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
            )
        found = group.subscriptions.get(header.topic)
        if found is None:
            return _refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
        if found.version < header.sub_version:
            return _refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return found

    # -- answers ---------------------------------------------------------------------------------------------

    def _answer(self, call: Call[PullHeader], group: GroupConfig, read: RawRead, code: ResponseCode) -> Reply:
        header = call.header
        suggested = 0
        if self._settings().slave_read:
            suggested = group.which_broker_when_consume_slowly if read.suggest_slave else group.broker_id
        if self._hooks.on_pull:
            self._hooks.after_pull(
                PullContext(
                    header.consumer_group,
                    header.topic,
                    header.queue_id,
                    header.queue_offset,
                    read.next_offset,
                    call.peer.host,
                    code,
                    read.status,
                    read.count,
                    len(read.data),
                )
            )
        fields = {
            "suggestWhichBrokerId": str(suggested),
            "nextBeginOffset": str(read.next_offset),
            "minOffset": str(read.min_offset),
            "maxOffset": str(read.max_offset),
        }
        body = bytes(read.data) if code == ResponseCode.SUCCESS else b""
        return Reply(code, str(read.status), fields, body)

    def _hold_seconds(self, header: PullHeader) -> float:
        asked = header.suspend_timeout_millis
        if not self._store.settings.long_polling:
            asked = self._settings().short_polling_ms
        return min(max(0, asked) / 1000, HOLD_SECONDS_MAX)

    def _note_moved(self, header: PullHeader, read: RawRead) -> None:
        """Leave a note for administrators: a consumer asked for an offset that is not there."""
        if self._store.role is BrokerRole.SLAVE:
            return
        event = {
            "consumerGroup": header.consumer_group,
            "messageQueue": {
                "brokerName": self._settings().broker_name,
                "queueId": header.queue_id,
                "topic": header.topic,
            },
            "offsetNew": read.next_offset,
            "offsetRequest": header.queue_offset,
        }
        names = {TAGS: header.consumer_group, KEYS: header.consumer_group, DELAY: "0"}
        try:
            self._store.append_unconfirmed(
                Message(topic=OFFSET_MOVED_TOPIC, body=write_json(event), properties=names, wait_for_store=False)
            )
        except StoreError:
            pass  # A note only; the consumer gets its answer.


def _refused(code: int, remark: str) -> Reply:
    return Reply(code, remark, {})
