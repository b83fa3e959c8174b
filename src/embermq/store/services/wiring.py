"""The services of a store that may write: made once, each with what it needs, and listed in the order of the flow.

    scrub, retention, delayed messages, timers -> flusher -> dispatcher -> housekeeping -> allocator

What feeds others comes first: services stop in this order, so that what one of them still has reaches the next, and
start in the opposite one. The engine makes, starts and stops them, on one thread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from embermq.files import SegmentAllocator, TransientPool
from embermq.model.properties import SCHEDULE_TOPIC, TIMER_TOPIC
from embermq.settings import BrokerRole, FlushDisk
from embermq.store.append.flush import PAGE_BYTES, Flusher
from embermq.store.append.internal import InternalAppends
from embermq.store.append.raw import RawAppends
from embermq.store.append.writer import Writer
from embermq.store.layout import directory
from embermq.store.log.records import Records
from embermq.store.recovery.parts import StoreParts
from embermq.store.services.delayed import DelayedMessages, Parked
from embermq.store.services.disk_watch import DiskWatch
from embermq.store.services.dispatch import Dispatcher
from embermq.store.services.housekeeping import Housekeeping
from embermq.store.services.retention import Derived, Hold, Retention, RetentionGuard
from embermq.store.services.roles import Roles
from embermq.store.services.scrub import Scrub, ScrubParts
from embermq.store.services.timers import Timers, TimerTopic
from embermq.store.services.topic_deletion import TopicDeletion
from embermq.store.statistics import StoreStats
from embermq.store.tables import DELAY_OFFSETS, TIMER_OFFSETS, ConfigTable

# Entries of the timer topic that are read at once.
TIMER_ENTRIES_READ = 65_536
# A message of the timer topic is not stored again before this.
TIMER_KEEP_MS_MIN = 600_000


class Service(NamedTuple):
    """Something with a thread of its own."""

    start: Callable[[], None]
    stop: Callable[[], None]


@dataclass(frozen=True, slots=True)
class ServiceInputs:
    """What the services are made of: the parts of the store, and a few calls to the engine."""

    parts: StoreParts
    writer: Writer
    flusher: Flusher
    dispatcher: Dispatcher
    records: Records
    internal: InternalAppends
    stats: StoreStats
    flush_log: Callable[[], int]
    visible_end: Callable[[], int]
    retention_guard: RetentionGuard | None
    delivers: bool  # whether delayed messages are delivered while the store is a master
    replicated: bool = False  # whether the one that opened the store waits for slaves


@dataclass(frozen=True, slots=True)
class Services:
    """What a store that may write has beside its log, queues and index."""

    allocator: SegmentAllocator
    flusher: Flusher
    dispatcher: Dispatcher
    housekeeping: Housekeeping
    disk: DiskWatch
    delayed: DelayedMessages | None
    timers: Timers | None
    raw: RawAppends
    roles: Roles
    retention: Retention
    topic_deletion: TopicDeletion | None
    scrub: Scrub

    @property
    def delivering(self) -> list[DelayedMessages | Timers]:
        """What delivers parked messages."""
        return [one for one in (self.delayed, self.timers) if one is not None]

    def in_order_of_flow(self, *, delivers: bool) -> list[Service]:
        """What feeds others first; parked messages only where they are delivered now."""
        is_delivering = delivers and self.roles.role is not BrokerRole.SLAVE
        delivering = self.delivering if is_delivering else []
        return [
            Service(self.scrub.start, self.scrub.stop),
            Service(self.retention.start, self.retention.stop),
            *(Service(one.start, one.stop) for one in delivering),
            Service(self.flusher.start, self.flusher.stop),
            Service(self.dispatcher.start, self.dispatcher.stop),
            Service(self.housekeeping.start, self.housekeeping.stop),
            Service(self.allocator.start, self.allocator.close),
        ]


def make_services(inputs: ServiceInputs) -> Services:
    """All of them; none is started."""
    parts, writer = inputs.parts, inputs.writer
    allocator = _make_allocator(parts)
    parts.log.segments.make_ahead_with(allocator)
    disk = DiskWatch(
        parts.files,
        parts.log.segments.directories,
        parts.root / directory.CONSUME_QUEUE,
        parts.settings,
        writer.refuse_while_full,
    )
    housekeeping = _make_housekeeping(inputs, disk)
    delayed, timers = _make_delayed(inputs), _make_timers(inputs)
    delivering = [one for one in (delayed, timers) if one is not None]
    raw = RawAppends(writer, parts.log, parts.settings.kernels)
    roles = _make_roles(inputs, raw, delivering)
    retention = _make_retention(inputs, disk, housekeeping, delivering, roles)
    return Services(
        allocator,
        inputs.flusher,
        inputs.dispatcher,
        housekeeping,
        disk,
        delayed,
        timers,
        raw,
        roles,
        retention,
        _make_topic_deletion(inputs, housekeeping, retention),
        _make_scrub(inputs, housekeeping),
    )


def _make_allocator(parts: StoreParts) -> SegmentAllocator:
    settings, segments = parts.settings, parts.log.segments
    syncs = settings.flush is FlushDisk.SYNC
    pooled = settings.transient_pool_active
    pool = TransientPool(settings.transient_pool_buffers, segments.segment_bytes) if pooled else None
    return SegmentAllocator(
        segments,
        pool=pool,
        needs_buffer=pooled and settings.transient_pool_fail_fast,
        synced_often=syncs,
        populate=None if settings.prefault_bytes_max else "none",
        warm_whole_file=settings.warm_segments,
        warm_sync_bytes=settings.warm_flush_pages * PAGE_BYTES if syncs else 0,
        lock_in_memory=settings.warm_segments or settings.memory_lock,
        clock=parts.clock,
    )


def _make_housekeeping(inputs: ServiceInputs, disk: DiskWatch) -> Housekeeping:
    parts = inputs.parts
    assert parts.page is not None
    assert parts.lock is not None
    assert parts.fence is not None
    return Housekeeping(
        parts.root,
        parts.files,
        parts.settings,
        parts.log,
        disk,
        inputs.dispatcher,
        parts.queues,
        parts.index,
        parts.page,
        inputs.stats,
        parts.lock,
        parts.fence,
        inputs.writer.refuse,
    )


def _make_scrub(inputs: ServiceInputs, housekeeping: Housekeeping) -> Scrub:
    parts = inputs.parts
    compared = ScrubParts(
        parts.root,
        parts.files,
        parts.clock,
        parts.log,
        parts.queues,
        parts.index,
        housekeeping,
        inputs.visible_end,
    )
    return Scrub(compared, parts.settings)


def _make_roles(inputs: ServiceInputs, raw: RawAppends, delivering: list[DelayedMessages | Timers]) -> Roles:
    parts = inputs.parts
    return Roles(
        parts.root,
        parts.files,
        parts.settings,
        parts.log,
        inputs.writer,
        raw,
        inputs.dispatcher,
        parts.queues,
        inputs.flush_log,
        delivering if inputs.delivers else [],
        replicated=inputs.replicated,
    )


def _make_delayed(inputs: ServiceInputs) -> DelayedMessages | None:
    """Works while the store is a master."""
    parts = inputs.parts
    settings, queues = parts.settings, parts.queues
    if queues is None or not settings.delayed_delivery:
        return None

    def bounds(queue_id: int) -> tuple[int, int] | None:
        queue = queues.find(SCHEDULE_TOPIC, queue_id)
        return None if queue is None else (queue.min_offset, queue.max_offset)

    def entries(queue_id: int, start: int) -> Any:
        queue = queues.find(SCHEDULE_TOPIC, queue_id)
        assert queue is not None
        return queue.entries(start, 4096)

    parked = Parked(lambda: queues.ids_of(SCHEDULE_TOPIC), bounds, entries, inputs.records.at)
    progress = ConfigTable(parts.files, parts.root, DELAY_OFFSETS, parts.clock)
    return DelayedMessages(
        parked,
        inputs.internal.append_together,
        inputs.flush_log,
        progress,
        delay_ms=settings.delay_ms,
        log_file_bytes=parts.log.segments.segment_bytes,
        clock=parts.clock,
        persist_interval_ms=settings.delay_offset_interval_ms,
        append_parked=inputs.internal.append_parked,
    )


def _make_timers(inputs: ServiceInputs) -> Timers | None:
    """Works while the store is a master."""
    parts = inputs.parts
    settings, queues = parts.settings, parts.queues
    if queues is None or not settings.delayed_delivery:
        return None

    def bounds(queue_id: int) -> tuple[int, int] | None:
        queue = queues.find(TIMER_TOPIC, queue_id)
        return None if queue is None else (queue.min_offset, queue.max_offset)

    def entries(queue_id: int, start: int) -> Any:
        queue = queues.find(TIMER_TOPIC, queue_id)
        assert queue is not None
        return queue.entries(start, TIMER_ENTRIES_READ)

    return Timers(
        TimerTopic(bounds, entries, inputs.records.at),
        inputs.internal.append_together,
        inputs.flush_log,
        ConfigTable(parts.files, parts.root, TIMER_OFFSETS, parts.clock),
        log_file_bytes=parts.log.segments.segment_bytes,
        clock=parts.clock,
        keep_ms=max(TIMER_KEEP_MS_MIN, settings.retention_hours * 3_600_000 // 2),
        persist_interval_ms=settings.timer_persist_interval_ms,
        append_parked=inputs.internal.append_parked,
    )


def _make_retention(
    inputs: ServiceInputs,
    disk: DiskWatch,
    housekeeping: Housekeeping,
    delivering: list[DelayedMessages | Timers],
    roles: Roles,
) -> Retention:
    parts = inputs.parts

    def first_parked() -> int | None:
        if roles.role is BrokerRole.SLAVE:
            return None
        places = [one.first_parked() for one in delivering]
        return min((place for place in places if place is not None), default=None)

    holds = [
        Hold("the dispatcher", lambda: inputs.dispatcher.position),
        Hold("a delayed message that is not delivered yet", first_parked),
    ]
    return Retention(
        parts.root,
        parts.files,
        parts.settings,
        parts.clock,
        parts.log,
        disk,
        Derived(parts.queues, parts.index, housekeeping, roles.next_offsets),
        holds,
        inputs.flush_log,
        inputs.retention_guard,
    )


def _make_topic_deletion(
    inputs: ServiceInputs, housekeeping: Housekeeping, retention: Retention
) -> TopicDeletion | None:
    parts = inputs.parts
    if parts.queues is None:
        return None
    return TopicDeletion(
        parts.root,
        parts.files,
        parts.log,
        inputs.writer,
        inputs.dispatcher,
        parts.queues,
        housekeeping,
        retention,
        inputs.flush_log,
    )
