"""Pulls (11): messages of one queue from an offset on, as stored bytes (embermq.client.received reads them)."""

from enum import StrEnum, unique

import msgspec

from embermq.client.calls.caller import BrokerAddress, Caller, fields_of
from embermq.client.calls.refusals import refused
from embermq.remoting import Command, RequestCode, ResponseCode

_COMMIT, _SUSPEND, _SUBSCRIPTION, _LITE = 1, 2, 4, 16
BATCH_MAX = 32


@unique
class PullStatus(StrEnum):
    FOUND = "FOUND"
    NO_NEW = "NO_NEW_MSG"  # at the end of the queue
    NO_MATCH = "NO_MATCHED_MSG"  # messages were looked at, none passed the filter: go on at next_offset
    OFFSET_MOVED = "OFFSET_ILLEGAL"  # outside of the queue: go on at next_offset


STATUSES: dict[int, PullStatus] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCH,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_MOVED,
}


class Pull(msgspec.Struct, frozen=True):
    """What to pull. Without `expression`, the broker uses what the group has registered by heartbeat."""

    group: str
    topic: str
    queue_id: int
    offset: int
    max_count: int = BATCH_MAX
    hold_ms: int = 0  # how long the broker may wait for the next message; 0: it answers at once
    expression: str | None = None
    kind: str = "TAG"
    version: int = 0  # of the subscription
    commit_offset: int | None = None  # committed for the group by the way
    is_lite: bool = False
    max_bytes: int | None = None  # 5.x
    bulk_bytes: int | None = None  # EmberMQ: so many bytes, not the broker's usual few messages; others ignore it

    def command(self) -> Command:
        sys_flag = (_COMMIT if self.commit_offset is not None else 0) | (_SUSPEND if self.hold_ms > 0 else 0)
        sys_flag |= (_SUBSCRIPTION if self.expression is not None else 0) | (_LITE if self.is_lite else 0)
        ext = {
            "consumerGroup": self.group,
            "topic": self.topic,
            "queueId": str(self.queue_id),
            "queueOffset": str(self.offset),
            "maxMsgNums": str(self.max_count),
            "sysFlag": str(sys_flag),
            "commitOffset": str(self.commit_offset or 0),
            "suspendTimeoutMillis": str(self.hold_ms),
            "subVersion": str(self.version),
            "expressionType": self.kind,
        }
        if self.expression is not None:
            ext["subscription"] = self.expression
        if self.max_bytes is not None:
            ext["maxMsgBytes"] = str(self.max_bytes)
        if self.bulk_bytes is not None:
            ext["emberMaxBytes"] = str(self.bulk_bytes)
        return Command(RequestCode.PULL_MESSAGE, ext=ext)


class Pulled(msgspec.Struct, frozen=True):
    """What a pull answered. `records`: stored records, one behind another."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    records: bytes


class _PullAnswer(msgspec.Struct, rename="camel"):
    next_begin_offset: int
    min_offset: int = 0
    max_offset: int = 0
    suggest_which_broker_id: int = 0


async def pull(caller: Caller, to: BrokerAddress, wanted: Pull, seconds: float) -> Pulled:
    """One pull, with an answer within `seconds` beyond the hold; RequestRefused, BrokerUnreachable."""
    answer = await caller.call(
        to, wanted.command(), seconds + wanted.hold_ms / 1000, topic=wanted.topic, group=wanted.group
    )
    status = STATUSES.get(answer.code)
    if status is None:
        raise refused(to, RequestCode.PULL_MESSAGE, answer, topic=wanted.topic, group=wanted.group)
    fields = fields_of(to, RequestCode.PULL_MESSAGE, answer, _PullAnswer)
    return Pulled(
        status,
        fields.next_begin_offset,
        fields.min_offset,
        fields.max_offset,
        fields.suggest_which_broker_id,
        answer.body if status is PullStatus.FOUND else b"",
    )
