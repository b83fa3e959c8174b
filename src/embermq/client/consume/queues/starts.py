"""Where a group begins to consume a queue that it has no offset for. Pure.

    policy      stored offset   none, retry topic   none, other topic
    LAST        that            0                   the end of the queue
    FIRST       that            0                   0
    TIMESTAMP   that            the end             the first message stored at that time or later

A broker answers an offset of 0 for a young queue whose first message it still has in memory, so that a new group loses
nothing of a new topic under LAST either; the policy applies to queues that are older.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from embermq.errors import OptionInvalid
from embermq.model.names import is_retry_topic

DEFAULT_BACK_MS = 30 * 60 * 1000
_STAMP = "%Y%m%d%H%M%S"


class ConsumeFrom(Enum):
    """By RocketMQ's names, which heartbeats carry."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class At:
    """A known offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtEnd:
    """The offset that the next message will get."""


@dataclass(frozen=True, slots=True)
class StartAtTime:
    """The first message stored at this time or later."""

    timestamp_ms: int


Start = At | AtEnd | StartAtTime


def start_of(policy: ConsumeFrom, topic: str, stored: int | None, timestamp_ms: int) -> Start:
    """Where to begin; `stored` is None where the group has no offset for the queue."""
    if stored is not None and stored >= 0:
        return At(stored)
    match policy:
        case ConsumeFrom.FIRST:
            return At(0)
        case ConsumeFrom.LAST:
            return At(0) if is_retry_topic(topic) else AtEnd()
        case ConsumeFrom.TIMESTAMP:
            return AtEnd() if is_retry_topic(topic) else StartAtTime(timestamp_ms)


def parse_consume_from(given: "ConsumeFrom | str") -> ConsumeFrom:
    """A policy by its name: `last`, `first`, `timestamp`, or RocketMQ's."""
    if isinstance(given, ConsumeFrom):
        return given
    for policy in ConsumeFrom:
        if given.upper() in (policy.name, policy.value):
            return policy
    names = ", ".join(policy.name.lower() for policy in ConsumeFrom)
    raise OptionInvalid("consume_from", f"one of {names} is expected", value=given)


def parse_timestamp(given: "str | int | datetime | None", now_ms: int) -> int:
    """Milliseconds of a time: those themselves, a datetime, or RocketMQ's 14 digits yyyyMMddHHmmss in local time.
    None: half an hour ago."""
    if given is None:
        return now_ms - DEFAULT_BACK_MS
    if isinstance(given, datetime):
        return int(given.timestamp() * 1000)
    if isinstance(given, int):
        return given
    try:
        return int(datetime.strptime(given, _STAMP).timestamp() * 1000)
    except ValueError:
        reason = "14 digits yyyyMMddHHmmss, a datetime, or milliseconds since 1970 are expected"
        raise OptionInvalid("consume_timestamp", reason, value=given) from None
