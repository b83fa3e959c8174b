"""From options and what a cluster has to ranges of offsets, and from ranges to slices. Pure; driver side.

A slice has ranges of one broker: a task talks to one broker, or to the slave that stands in for it. Slices are even by
messages; a queue that has more than its share is cut.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from embermq.columns import is_system_topic
from embermq.errors import OptionInvalid, TopicUnknown
from embermq.spark.options.read_options import ReadOptions
from embermq.spark.planning.offsets import AtTime, AtTimes, Limit, ReadableQueue, check_names, nearest_names, resolve
from embermq.spark.planning.pushdown import Pushed

# Fewer messages than this are not worth a task of their own, unless minPartitions says so.
SLICE_MESSAGES_MIN = 4_000
# What is assumed of messages of which nothing is known.
MESSAGE_BYTES = 1_024.0

TimeKey = tuple[ReadableQueue, int]  # a queue, and a time that is to be looked up in it


@dataclass(frozen=True, slots=True)
class WireRange:
    """Offsets [start, end) of one queue of one broker."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic} queue {self.queue_id} on {self.broker_name}"


@dataclass(frozen=True, slots=True)
class SliceLimits:
    """How many slices."""

    min_partitions: int | None
    max_bytes_per_partition: int
    parallelism: int


def wanted_topics(options: ReadOptions, known: Iterable[str], where: str) -> list[str]:
    """The topics of a read, of those the name servers know; TopicUnknown or OptionInvalid when there are none."""
    shown = sorted(one for one in known if options.include_system_topics or not is_system_topic(one))
    for topic in options.topics or ():
        if is_system_topic(topic) and not options.include_system_topics:
            raise OptionInvalid("topic", f"{topic} is a system topic; set includeSystemTopics=true to read it")
        if topic not in shown:
            raise TopicUnknown(topic, where, nearest_names(topic, shown))
    return [topic for topic in shown if options.wants_topic(topic)]


def check_queues(options: ReadOptions, ends: Sequence[ReadableQueue], where: str) -> None:
    """Queues and brokers that options name must be there."""
    if options.topic_pattern is not None and not ends:
        raise OptionInvalid("subscribePattern", f"matches no topic of {where}", value=options.topic_pattern)
    there = {(one.topic, one.queue_id) for one in ends}
    for topic, ids in (options.queues.by_topic or {}).items():
        if missing := sorted(queue_id for queue_id in ids if (topic, queue_id) not in there):
            listed = ", ".join(map(str, sorted(queue_id for name, queue_id in there if name == topic)))
            raise OptionInvalid("queues", f"topic {topic} has no queue {missing[0]}; its queues: {listed}")
    all_ids = {queue_id for _, queue_id in there}
    if missing := sorted((options.queues.every_topic or frozenset()) - all_ids):
        listed = ", ".join(map(str, sorted(all_ids)))
        raise OptionInvalid("queues", f"no wanted topic has a queue {missing[0]}; there is {listed}")
    for limit in (options.start, options.end):
        check_names(limit, ends, where)


def chosen_queues(options: ReadOptions, ends: Iterable[ReadableQueue]) -> list[ReadableQueue]:
    """Those of the queues that options want."""
    return [one for one in ends if options.wants_topic(one.topic) and options.queues.has(one.topic, one.queue_id)]


def times_asked(options: ReadOptions, ends: Iterable[ReadableQueue]) -> list[TimeKey]:
    """Which times have to be looked up in which queues before ranges are known."""
    return [(one, time_ms) for one in ends for limit in (options.start, options.end) for time_ms in _times(limit, one)]


def _times(limit: Limit, ends: ReadableQueue) -> list[int]:
    match limit:
        case AtTime(_, time_ms):
            return [time_ms]
        case AtTimes(_, table):
            keys = ((ends.topic, ends.broker_name, ends.queue_id), (ends.topic, None, ends.queue_id))
            return [table[key] for key in keys if key in table]
    return []


def wanted_ranges(
    options: ReadOptions,
    pushed: Pushed,
    ends: Iterable[ReadableQueue],
    offsets_at: Mapping[TimeKey, int],
    *,
    streaming: bool = False,
) -> list[WireRange]:
    """What is to be read of each queue, filters of the query taken in; queues with nothing to read are left out."""
    ranges = []
    for one in ends:
        start, end = resolve(
            options.start,
            options.end,
            one,
            offset_at=lambda time_ms, one=one: offsets_at[one, time_ms],  # type: ignore[misc]
            fail_on_data_loss=options.fail_on_data_loss,
            streaming=streaming,
        )
        start, end = max(start, pushed.queue_offsets.start), min(end, pushed.queue_offsets.end)
        named = (pushed.topics is None or one.topic in pushed.topics) and (
            pushed.queue_ids is None or one.queue_id in pushed.queue_ids
        )
        if start < end and named and not pushed.is_empty:
            ranges.append(WireRange(one.topic, one.broker_name, one.queue_id, start, end))
    return ranges


def slice_count(messages: int, message_bytes: float, limits: SliceLimits) -> int:
    """How many slices so many messages get."""
    if not messages:
        return 1
    by_bytes = -(-int(messages * message_bytes) // limits.max_bytes_per_partition)
    if by_bytes > limits.parallelism:
        by_bytes += -by_bytes % limits.parallelism  # In the last turn all cores are busy, too.
    return max(by_bytes, limits.min_partitions or 1, min(limits.parallelism, -(-messages // SLICE_MESSAGES_MIN)))


def cut_ranges(ranges: Sequence[WireRange], count: int) -> list[tuple[WireRange, ...]]:
    """About `count` slices of equally many messages, at least one for each broker, each of one broker."""
    total = sum(one.count for one in ranges)
    share = max(1, -(-total // max(1, count)))
    slices: list[tuple[WireRange, ...]] = []
    by_broker: dict[str, list[WireRange]] = {}
    for one in ranges:
        by_broker.setdefault(one.broker_name, []).append(one)
    for name in sorted(by_broker):
        slices += _cut_broker(by_broker[name], share)
    return slices


def _cut_broker(ranges: Sequence[WireRange], share: int) -> list[tuple[WireRange, ...]]:
    slices: list[tuple[WireRange, ...]] = []
    filling: list[WireRange] = []
    left = share
    for one in ranges:
        at = one.start
        while at < one.end:
            end = min(one.end, at + left)
            filling.append(WireRange(one.topic, one.broker_name, one.queue_id, at, end))
            left -= end - at
            at = end
            if not left:
                slices.append(tuple(filling))
                filling, left = [], share
    return [*slices, tuple(filling)] if filling else slices
