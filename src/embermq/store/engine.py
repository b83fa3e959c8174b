"""A store in motion: its parts wired together, its threads started and stopped.

    writer -> commit log -> flusher (durable) -> dispatcher -> queues, index, arrivals, the user's sinks
                ^ allocator (next files)            housekeeping (proofs, checkpoint, disk), retention, delayed messages

What users call is in message_store.py, which builds on this. Starting and stopping is for one thread.
"""

import logging
import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import msgspec

from embermq.errors import AppendRefused, StoreClosed, StoreError, StorePathInvalid, WriterFenced
from embermq.files import SegmentAllocator, TransientPool
from embermq.model.hosts import Host
from embermq.model.message import Receipt
from embermq.model.properties import SCHEDULE_TOPIC
from embermq.model.status import PutStatus
from embermq.settings import BrokerRole, FlushDisk
from embermq.store.append.admission import Admission
from embermq.store.append.flush import PAGE_BYTES, Flusher
from embermq.store.append.internal import InternalAppends
from embermq.store.append.writer import Writer
from embermq.store.layout import directory
from embermq.store.layout.deleted_topics import load_deleted_topics
from embermq.store.layout.inventory import Inventory, save_inventory
from embermq.store.log.records import Records
from embermq.store.queues.fetch import Fetcher
from embermq.store.queues.raw_read import RawReader
from embermq.store.recovery.opening import StoreParts
from embermq.store.services.arrivals import Arrivals
from embermq.store.services.delayed import DelayedMessages, Parked
from embermq.store.services.disk_watch import DiskWatch
from embermq.store.services.dispatch import Dispatcher
from embermq.store.services.housekeeping import Housekeeping
from embermq.store.services.retention import Derived, Hold, Retention, RetentionGuard
from embermq.store.services.scrub import Scrub, ScrubParts
from embermq.store.services.topic_deletion import TopicDeletion
from embermq.store.sink import Sink
from embermq.store.statistics import StoreStats
from embermq.store.tables import DELAY_OFFSETS, ConfigTable

log = logging.getLogger(__name__)


_running: "weakref.WeakSet[RunningStore]" = weakref.WeakSet()  # Those that may write, in this process.


class RunningStore:
    """The parts of an open store, and their threads if it may write."""

    def __init__(self, parts: StoreParts, sinks: Sequence[Sink], retention_guard: RetentionGuard | None = None) -> None:
        """Use `open`."""
        self.path, self.settings, self.recovery = parts.root, parts.settings, parts.report
        self._parts, self._clock, self._log = parts, parts.clock, parts.log
        self._queues, self._index = parts.queues, parts.index
        self._closed, self._closed_why = False, "is closed"
        self._is_closing = self._has_let_go = False
        self._read_only = parts.read_only
        self._sync = self.settings.flush is FlushDisk.SYNC
        self._records = Records(self._log)
        self._fetcher = Fetcher(self._log, self._records, self.settings, self._life_begin)
        self._raw_reader = RawReader(self._log, self._fetcher, self.settings)
        self._arrivals = Arrivals(parts.end, announce=self.settings.long_polling)
        self._user_sinks = list(sinks)
        self._retention_guard = retention_guard
        self._wire()

    def _wire(self) -> None:
        parts, commit_log = self._parts, self._log
        store_host = Host(*self.settings.store_host)
        admission = Admission(self.settings, commit_log.segments.segment_bytes, store_host)
        light_queues_max = self.settings.light_queues_max if self.settings.light_queues else 0
        self._writer = Writer(
            commit_log,
            admission,
            self._clock,
            busy_ms_max=self.settings.page_cache_busy_ms,
            kernels=self.settings.kernels,
            light_queues_max=light_queues_max,
            fence=parts.fence,
        )
        self._writer.adopt_offsets(parts.next_offsets)
        self._internal = InternalAppends(self._writer, self._confirm if self._sync else lambda receipts, wait: receipts)
        self._stats = StoreStats(self._clock, lambda: self._writer.counters)
        self._writer.record_slow_put = self._stats.record_slow_put
        derived: list[Sink] = [sink for sink in (self._queues, self._index) if sink is not None]
        sinks = [*derived, self._arrivals, *self._user_sinks]
        taken = (parts.end, parts.last_store_timestamp)
        self._dispatcher = Dispatcher(commit_log, parts.walker, sinks, taken, parts.tail_mark, self._dispatch_end)

    def _start(self) -> None:
        """Start the threads of a store that may write; give the lock back if that fails."""
        if self._read_only:
            return
        try:
            self._prepare_to_run()
            self._housekeeping.make_durable()
        except OSError as problem:
            self._let_go()
            raise StorePathInvalid(self.path, f"cannot be written: {problem.strerror or problem}") from problem
        except BaseException:
            self._let_go()
            raise
        _running.add(self)
        try:
            self._start_threads()
        except BaseException:  # No thread could be started, or a signal came.
            self.close()
            raise

    def _prepare_to_run(self) -> None:
        parts, settings = self._parts, self.settings
        assert parts.page is not None
        assert parts.fence is not None
        assert parts.lock is not None
        pooled = settings.transient_pool_active
        pool = TransientPool(settings.transient_pool_buffers, self._log.segments.segment_bytes) if pooled else None
        self._allocator = SegmentAllocator(
            self._log.segments,
            pool=pool,
            needs_buffer=pooled and settings.transient_pool_fail_fast,
            synced_often=self._sync,
            populate=None if settings.prefault_bytes_max else "none",
            warm_whole_file=settings.warm_segments,
            warm_sync_bytes=settings.warm_flush_pages * PAGE_BYTES if self._sync else 0,
            lock_in_memory=settings.warm_segments or settings.memory_lock,
            clock=self._clock,
        )
        self._log.segments.allocator = self._allocator
        self._flusher = Flusher(
            self._log,
            settings,
            self._clock,
            pooled=pooled,
            on_progress=self._note_progress,
            on_failure=self._note_failure,
            confirm=parts.fence.check,
        )
        if self._flusher.core is not None:
            self._dispatcher.on_start = self._flusher.core.join
            parts.walker.on_second_thread = self._flusher.core.leave
        disk = DiskWatch(
            parts.files,
            self._log.segments.directories,
            self.path / directory.CONSUME_QUEUE,
            settings,
            self._writer.refuse_while_full,
        )
        self._housekeeping = Housekeeping(
            self.path,
            parts.files,
            settings,
            self._log,
            disk,
            self._dispatcher,
            self._queues,
            self._index,
            parts.page,
            self._stats,
            parts.lock,
            parts.fence,
        )
        self._housekeeping.refuse = self._writer.refuse
        self._writer.wake_dispatch = self._flusher.after_append(self._dispatcher.wake)
        if settings.role is BrokerRole.SLAVE:
            self._writer.refuse(AppendRefused("this store is a SLAVE; append to its master"))
        self._delayed = self._make_delayed()
        self._retention = self._make_retention(disk)
        self._topic_deletion = self._make_topic_deletion()
        self._scrub = Scrub(
            ScrubParts(
                self.path,
                parts.files,
                self._clock,
                self._log,
                self._queues,
                self._index,
                self._housekeeping,
                self._visible_end,
            ),
            settings,
        )
        parts.fence.check()
        parts.page.flushed = parts.end
        parts.page.sync_flush = int(self._sync)
        parts.page.log_only = int(self._queues is None)
        parts.page.boot = parts.files.boot()
        self._log.flushed_timestamp = parts.last_store_timestamp
        if self._delayed is not None:
            self._delayed.load()

    def _start_threads(self) -> None:
        self._allocator.start()
        self._flusher.start()
        self._dispatcher.start()
        self._housekeeping.start()
        if self._delayed is not None:
            self._delayed.start()
        self._retention.start()
        self._scrub.start()

    def _make_delayed(self) -> DelayedMessages | None:
        settings, queues = self.settings, self._queues
        if queues is None or settings.role is BrokerRole.SLAVE or not settings.delayed_delivery:
            return None

        def bounds(queue_id: int) -> tuple[int, int] | None:
            queue = queues.find(SCHEDULE_TOPIC, queue_id)
            return None if queue is None else (queue.min_offset, queue.max_offset)

        def entries(queue_id: int, start: int) -> Any:
            queue = queues.find(SCHEDULE_TOPIC, queue_id)
            assert queue is not None
            return queue.entries(start, 1024)

        parked = Parked(lambda: queues.ids_of(SCHEDULE_TOPIC), bounds, entries, self._records.at)
        progress = ConfigTable(self._parts.files, self.path, DELAY_OFFSETS, self._clock)
        return DelayedMessages(
            parked,
            lambda message: self._internal.append(message, although_full=True),
            self._flush_log,
            progress,
            delay_ms=settings.delay_ms,
            clock=self._clock,
            persist_interval_ms=settings.delay_offset_interval_ms,
        )

    def _make_retention(self, disk: DiskWatch) -> Retention:
        parts = self._parts
        holds = [Hold("the dispatcher", lambda: self._dispatcher.position)]
        if self._delayed is not None:
            holds.append(Hold("a delayed message that is not delivered yet", self._delayed.first_parked))
        derived = Derived(self._queues, self._index, self._housekeeping, self._writer.next_offsets)
        return Retention(
            self.path,
            parts.files,
            self.settings,
            self._clock,
            self._log,
            disk,
            derived,
            holds,
            self._flush_log,
            self._retention_guard,
        )

    def _make_topic_deletion(self) -> TopicDeletion | None:
        if self._queues is None:
            return None
        return TopicDeletion(
            self.path,
            self._parts.files,
            self._log,
            self._writer,
            self._dispatcher,
            self._queues,
            self._housekeeping,
            self._retention,
            self._flush_log,
        )

    def close(self) -> None:
        """Stop taking messages, make everything durable, and leave the directory. Closing twice is fine.

        StoreError if something derived could not be made durable; the log is, and the next open derives it. Where a
        signal handler raises meanwhile, the threads still end and the lock is given back; another call does the rest.
        """
        if self._is_closing or self._has_let_go:
            return
        self._closed = self._is_closing = True
        try:
            if not self._read_only:
                _running.discard(self)
                self._writer.refuse(StoreClosed(self.path))
                self._stop_threads()
                self._settle()
        except WriterFenced as fenced:
            raise StoreError(f"{self.path} was not closed cleanly: {fenced.reason}") from fenced
        except OSError as problem:
            reason = problem.strerror or str(problem)
            raise StoreError(f"{self.path} was not closed cleanly ({reason}); the next open recovers it") from problem
        finally:
            try:
                self._let_go()
            finally:
                self._is_closing = False

    def leave_to_parent(self) -> None:
        """In a process that was forked from the one that opened the store: threads and lock stayed there."""
        self._closed = self._has_let_go = True
        self._closed_why = "was opened by the process this one was forked from; open it here, or after the fork"
        self._writer.abandon(StoreClosed(self.path, self._closed_why))

    def _stop_threads(self) -> None:
        """In the order of the flow: what feeds others stops first. Each of them, whatever another one raises."""
        stops = [self._retention.stop, self._flusher.stop, self._dispatcher.stop, self._housekeeping.stop]
        if self._delayed is not None:
            stops.insert(1, self._delayed.stop)
        stops.insert(0, self._scrub.stop)
        with ExitStack() as steps:
            for stop in reversed([*stops, self._allocator.close]):
                steps.callback(_stop_surely, stop)

    def _settle(self) -> None:
        """Sync the derived files and, if nothing is left undone, say that this was a clean close."""
        self._housekeeping.look_for_other_writer()
        self._check_fence()
        self._housekeeping.make_durable(closing=True)
        for sink in self._user_sinks:
            try:
                sink.flush()
            except OSError:
                raise
            except Exception as problem:
                log.exception("sink not flushed name=%s", sink.name)
                raise StoreError(
                    f"{self.path} was not closed cleanly (sink {sink.name}: {problem}); the next open recovers it"
                ) from problem
        self._scrub.settle()
        complete = self._flusher.failure is None and not self._dispatcher.failed_sinks
        if complete and self._log.flushed_offset == self._log.wrote_offset == self._dispatcher.position:
            self._save_inventory()
            directory.mark_closed(self._parts.files, self.path)

    def _let_go(self) -> None:
        """Close files and give the lock back, whatever happened before."""
        for sink in self._user_sinks:
            try:
                sink.close()
            except Exception:
                log.exception("sink not closed name=%s", sink.name)
        self._parts.close()
        self._has_let_go = True

    def _save_inventory(self) -> None:
        parts = self._parts
        checkpoint = directory.checkpoint_times(parts.files, parts.root)
        inventory = Inventory(
            log_min=self._log.min_offset,
            log_max=self._log.wrote_offset,
            tail_mark=max(self._dispatcher.tail_mark.position, self._log.min_offset),
            segment_bytes=self._log.segments.segment_bytes,
            checkpoint=checkpoint,
            dispatch="none" if self._queues is None else "live",
            queues=self._queues.state() if self._queues is not None else {},
            index=self._index.state() if self._index is not None else {},
            next_offsets=[(*key, after) for key, after in sorted(self._writer.next_offsets().items())],
        )
        save_inventory(parts.files, parts.root, inventory)

    # -- what the flusher tells ------------------------------------------------------------------------------

    def _note_progress(self, flushed_offset: int) -> None:
        """Called by the flusher: everything below is durable."""
        assert self._parts.page is not None
        self._parts.page.flushed = flushed_offset
        self._dispatcher.wake()

    def _note_failure(self, failure: AppendRefused) -> None:
        """Called by the flusher: a sync failed, so nothing more may be acknowledged."""
        self._writer.refuse(failure)
        parts = self._parts
        assert parts.page is not None
        assert parts.fence is not None
        if parts.fence.is_ours:
            parts.page.boot = 0  # The kernel may have dropped what it could not write.

    # -- what the parts need of each other ---------------------------------------------------------------------

    def _visible_end(self) -> int:
        """Nobody may be shown anything past this: under SYNC_FLUSH a crash could still take it back."""
        return self._log.flushed_offset if self._sync and not self._read_only else self._log.readable_offset

    def _dispatch_end(self) -> int:
        """How far queues and index may follow the log: not any further once they are the files of another writer."""
        fence = self._parts.fence
        return self._visible_end() if fence is None or fence.is_ours else self._dispatcher.position

    def _life_begin(self, topic: str) -> int:
        """Where in the log a topic began again after it was deleted; 0 if it never was."""
        return load_deleted_topics(self._parts.files, self.path).get(topic, 0)

    def _check_fence(self) -> None:
        """WriterFenced if another process has the store."""
        if self._parts.fence is not None:
            self._parts.fence.check()

    def _flush_log(self) -> int:
        self._flusher.wait(self._log.wrote_offset)
        self._check_fence()
        return self._log.flushed_offset

    def _confirm(self, receipts: Sequence[Receipt], wait: bool) -> Sequence[Receipt]:
        """Under SYNC_FLUSH: wait until the newest of `receipts` is durable, if the sender cares."""
        if not wait:
            self._flusher.nudge()
            return receipts
        newest = receipts[-1]
        if self._flusher.wait(newest.physical_offset + newest.size):
            return receipts
        return [msgspec.structs.replace(receipt, status=PutStatus.FLUSH_DISK_TIMEOUT) for receipt in receipts]


def _stop_surely(stop: Callable[[], None]) -> None:
    """Stop a service. What a signal handler raised may have ended the wait for its thread: wait again."""
    try:
        stop()
    except BaseException:
        with suppress(OSError, StoreError):
            stop()
        raise


def _leave_to_parent() -> None:
    for store in list(_running):
        store.leave_to_parent()
    _running.clear()


if hasattr(os, "register_at_fork"):  # Where processes can fork.
    os.register_at_fork(after_in_child=_leave_to_parent)
