"""A store in motion: its parts wired together, its services started and stopped.

    writer -> commit log -> flusher (durable) -> dispatcher -> queues, index, arrivals, the user's sinks
                ^ allocator (next files)            housekeeping (proofs, checkpoint, disk), retention, delayed messages

A part gets what it needs in its constructor. Services (services/wiring.py) are stopped in the order of the flow, so
that what one of them still has reaches the next, and started in the opposite order. A store opened read-only has no
services, one opened for maintenance all but the delivery of delayed messages.

What users call is in message_store.py, which holds an engine. Starting and stopping is for one thread.
"""

import logging
import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import reduce
from operator import or_

import msgspec

from embermq.errors import AppendRefused, StoreClosed, StoreError, StorePathInvalid, WriterFenced
from embermq.model.hosts import Host
from embermq.model.message import Receipt
from embermq.model.status import PutStatus
from embermq.settings import BrokerRole, FlushDisk
from embermq.store.access import Access, RunningFlag
from embermq.store.append.admission import Admission
from embermq.store.append.flush import Flusher
from embermq.store.append.internal import InternalAppends
from embermq.store.append.writer import Writer
from embermq.store.index.index_files import IndexFiles
from embermq.store.layout import directory
from embermq.store.layout.deleted_topics import load_deleted_topics
from embermq.store.layout.inventory import Inventory, save_inventory
from embermq.store.log.records import Records
from embermq.store.log.windows import Window, tail_window
from embermq.store.queues.consume_queues import ConsumeQueues
from embermq.store.queues.fetch import Fetcher
from embermq.store.queues.raw_read import RawReader
from embermq.store.recovery.parts import StoreParts
from embermq.store.services.arrivals import Arrivals
from embermq.store.services.dispatch import Dispatcher
from embermq.store.services.retention import RetentionGuard
from embermq.store.services.upkeep import PutTotals
from embermq.store.services.wiring import ServiceInputs, Services, make_services
from embermq.store.sink import Sink
from embermq.store.statistics import StoreStats

log = logging.getLogger(__name__)

# How long a read waits for messages that were appended just before it to become visible.
CATCH_UP_SECONDS = 5.0

_running: "weakref.WeakSet[Engine]" = weakref.WeakSet()  # Those that may write, in this process.


class Engine:
    """The parts of an open store, and its services if it may write."""

    def __init__(
        self,
        parts: StoreParts,
        sinks: Sequence[Sink],
        retention_guard: RetentionGuard | None = None,
        *,
        delivers: bool = True,
        replicated: bool = False,
    ) -> None:
        """With `delivers=False` delayed messages stay parked, and hold their log files. `replicated`: the log is sent
        to slaves by the one that opened the store."""
        self.parts, self.path, self.settings, self.clock = parts, parts.root, parts.settings, parts.clock
        self.log, self.queues, self.index = parts.log, parts.queues, parts.index
        self.read_only = parts.read_only
        self.access = Access(self.path, read_only=self.read_only)
        self._is_closing = self._lets_go = self._has_let_go = False
        self.sync = self.settings.flush is FlushDisk.SYNC
        self.records = Records(self.log)
        self.fetcher = Fetcher(self.log, self.records, self.settings, self._topic_begin, lambda: self.role)
        self.raw_reader = RawReader(self.log, self.fetcher, self.settings)
        moved_by = self.queues.moved_by if self.queues is not None else None
        self.arrivals = Arrivals(parts.end, announce=self.settings.long_polling, moved_by=moved_by)
        self._user_sinks = list(sinks)
        self._retention_guard = retention_guard
        self._delivers, self._replicated = delivers, replicated
        self._growth: tuple[Callable[[], None], ...] = ()  # Replaced as a whole: read without a lock.
        self.confirm_offset = -1  # Queues and index do not pass it; -1: no such place.
        self.dispatcher = self._make_dispatcher()
        self._flusher = None if self.read_only else self._make_flusher()
        self.stats = StoreStats(self.clock, lambda: self.writer.counters)
        self.writer = self._make_writer(self._flusher)
        self.writer.adopt_offsets(parts.next_offsets)
        confirm = self.confirm if self.sync else lambda receipts, wait, began: receipts
        nudge = self._flusher.nudge if self.sync and self._flusher is not None else None
        self.internal = InternalAppends(
            self.writer, confirm, self.clock, nudge, lambda: self.sync or self.promises_replica, self._log_tail
        )
        self.put_totals = PutTotals(self.queues, parts.next_offsets) if self.queues is not None else None
        self._services: Services | None = None

    @property
    def services(self) -> Services:
        """Of a store that may write."""
        assert self._services is not None, "opened read-only"
        return self._services

    @property
    def role(self) -> BrokerRole:
        """What the store is in a replicated group now."""
        return self.settings.role if self._services is None else self._services.roles.role

    @property
    def running_flags(self) -> RunningFlag:
        """What there is against reading and writing now (access.py)."""
        fence, flusher, failed = self.parts.fence, self._flusher, self.dispatcher.failed_sinks
        sync_failed = flusher is not None and not isinstance(flusher.failure, WriterFenced | None)
        of = self._services
        queues_wait = of is not None and of.housekeeping.cannot_write_queues
        present = {
            RunningFlag.NOT_READABLE: not self.access.is_readable,
            RunningFlag.NOT_WRITEABLE: not self.access.is_writable or sync_failed,
            RunningFlag.WRITE_LOGICS_QUEUE_ERROR: ConsumeQueues.name in failed or queues_wait,
            RunningFlag.WRITE_INDEX_FILE_ERROR: IndexFiles.name in failed,
            RunningFlag.DISK_FULL: of is not None and of.disk.refusal is not None,
            RunningFlag.FENCED: fence is not None and not fence.is_ours,
        }
        return reduce(or_, (flag for flag, is_set in present.items() if is_set), RunningFlag(0))

    def _make_dispatcher(self) -> Dispatcher:
        parts = self.parts
        derived: list[Sink] = [sink for sink in (self.queues, self.index) if sink is not None]
        return Dispatcher(
            self.log,
            parts.walker,
            [*derived, self.arrivals, *self._user_sinks],
            (parts.end, parts.last_store_timestamp),
            parts.tail_mark,
            self.dispatch_end,
            on_start=None if parts.pinning is None else parts.pinning.join,
        )

    def _make_writer(self, flusher: Flusher | None) -> Writer:
        settings, wake = self.settings, self.dispatcher.wake if self.sync else self._wake_all
        return Writer(
            self.log,
            Admission(settings, self.log.segments.segment_bytes, Host(*settings.store_host), self.clock),
            self.clock,
            busy_ms_max=settings.page_cache_busy_ms,
            kernels=settings.kernels,
            light_queues_max=settings.light_queues_max if settings.light_queues else 0,
            fence=self.parts.fence,
            wake_dispatch=wake if flusher is None else flusher.after_append(wake),
            record_put=None if self.sync else self.stats.record_put,  # With the wait for the disk: `confirm`.
        )

    # -- starting --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the services of a store that may write; give the lock back if that fails."""
        if self.read_only:
            return
        try:
            self._services = self._make_services()
            self._claim_state_page()
            if self.role is not BrokerRole.SLAVE:
                for one in self.services.delivering:
                    one.load()
            self.services.housekeeping.make_durable()
        except OSError as problem:
            self._let_go()
            raise StorePathInvalid(self.path, f"cannot be written: {problem.strerror or problem}") from problem
        except BaseException:
            self._let_go()
            raise
        _running.add(self)
        try:
            for service in reversed(self.services.in_order_of_flow(delivers=self._delivers)):
                service.start()
        except BaseException:  # No thread could be started, or a signal came.
            self.close()
            raise

    def _make_services(self) -> Services:
        assert self._flusher is not None
        return make_services(
            ServiceInputs(
                self.parts,
                self.writer,
                self._flusher,
                self.dispatcher,
                self.records,
                self.internal,
                self.stats,
                self.flush_log,
                self.visible_end,
                self._retention_guard,
                self._delivers,
                self._replicated,
            )
        )

    def _make_flusher(self) -> Flusher:
        assert self.parts.fence is not None
        return Flusher(
            self.log,
            self.settings,
            self.clock,
            pooled=self.settings.transient_pool_active,
            on_progress=self._note_progress,
            on_failure=self._note_failure,
            confirm=self.parts.fence.check,
            pinning=self.parts.pinning,
        )

    def _claim_state_page(self) -> None:
        parts = self.parts
        assert parts.page is not None
        assert parts.fence is not None
        parts.fence.check()
        parts.page.flushed = parts.end
        parts.page.sync_flush = int(self.sync)
        parts.page.log_only = int(self.queues is None)
        parts.page.boot = parts.files.boot()
        self.log.flushed_timestamp = parts.last_store_timestamp

    # -- stopping --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop taking messages, make everything durable, and leave the directory. Closing twice is fine.

        StoreError if something derived could not be made durable; the log is, and the next open derives it. Where a
        signal handler raises meanwhile, the threads still end and the lock is given back; another call does the rest.
        """
        if self._is_closing or self._has_let_go:
            return
        is_stopped = self.read_only or self._lets_go  # Interrupted earlier, when the lock may have been gone.
        try:
            self._is_closing = True
            self.access.close()
            if not is_stopped:
                _running.discard(self)
                self.writer.refuse(StoreClosed(self.path))
                self._stop_services()
                is_stopped = True
                self._settle()
        except WriterFenced as fenced:
            raise StoreError(f"{self.path} was not closed cleanly: {fenced.reason}") from fenced
        except OSError as problem:
            reason = problem.strerror or str(problem)
            raise StoreError(f"{self.path} was not closed cleanly ({reason}); the next open recovers it") from problem
        finally:
            try:
                if not is_stopped:
                    with suppress(OSError, StoreError):  # Raised by the first try already.
                        self._stop_services()
            finally:
                try:
                    self._let_go()
                finally:
                    self._is_closing = False

    def leave_to_parent(self) -> None:
        """In a process that was forked from the one that opened the store: threads and lock stayed there."""
        self._has_let_go = True
        self.access.close("was opened by the process this one was forked from; open it here, or after the fork")
        self.writer.abandon(StoreClosed(self.path, self.access.closed_why))

    def _stop_services(self) -> None:
        """Each of them, whatever another one raises."""
        with ExitStack() as steps:
            for service in reversed(self.services.in_order_of_flow(delivers=self._delivers)):
                steps.callback(_stop_surely, service.stop)

    def _settle(self) -> None:
        """Sync the derived files and, if nothing is left undone, say that this was a clean close."""
        self.services.housekeeping.look_for_other_writer()
        self.check_fence()
        self.services.housekeeping.make_durable(closing=True)
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
        self.services.scrub.settle()
        complete = self.services.flusher.failure is None and not self.dispatcher.failed_sinks
        if complete and self.log.flushed_offset == self.log.wrote_offset == self.dispatcher.position:
            self._save_inventory()
            directory.mark_closed(self.parts.files, self.path)

    def _let_go(self) -> None:
        """Close files and give the lock back, whatever happened before."""
        self._lets_go = True
        self.access.close()
        for sink in self._user_sinks:
            try:
                sink.close()
            except Exception:
                log.exception("sink not closed name=%s", sink.name)
        self.parts.close()
        self._has_let_go = True

    def _save_inventory(self) -> None:
        parts = self.parts
        checkpoint = directory.checkpoint_times(parts.files, parts.root)
        inventory = Inventory(
            log_min=self.log.min_offset,
            log_max=self.log.wrote_offset,
            tail_mark=max(self.dispatcher.tail_mark.position, self.log.min_offset),
            segment_bytes=self.log.segments.segment_bytes,
            checkpoint=checkpoint,
            dispatch="none" if self.queues is None else "live",
            queues=self.queues.state() if self.queues is not None else {},
            index=self.index.state() if self.index is not None else {},
            next_offsets=[(*key, after) for key, after in sorted(self.services.roles.next_offsets().items())],
        )
        save_inventory(parts.files, parts.root, inventory)

    # -- what the flusher reports ----------------------------------------------------------------------------

    def _note_progress(self, flushed_offset: int) -> None:
        """Called by the flusher: everything below is durable."""
        assert self.parts.page is not None
        self.parts.page.flushed = flushed_offset
        self._wake_all()

    def _note_failure(self, failure: AppendRefused) -> None:
        """Called by the flusher: a sync failed, so nothing more may be acknowledged."""
        self.writer.refuse(failure)
        parts = self.parts
        assert parts.page is not None
        assert parts.fence is not None
        if parts.fence.is_ours:
            parts.page.boot = 0  # The kernel may have dropped what it could not write.

    # -- replicas ----------------------------------------------------------------------------------------------

    @property
    def promises_replica(self) -> bool:
        """Whether an acknowledgement has to wait for a slave, by the one that sends the log there."""
        return self._replicated and self.role is BrokerRole.SYNC_MASTER

    def on_growth(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` when there may be more to read of the log; the answer ends it again."""
        self._growth = (*self._growth, listener)

        def end() -> None:
            self._growth = tuple(other for other in self._growth if other is not listener)

        return end

    def _wake_all(self) -> None:
        """After an append, or under SYNC_FLUSH after a sync."""
        self.dispatcher.wake()
        for listener in self._growth:
            listener()

    # -- what the parts need of each other ---------------------------------------------------------------------

    def visible_end(self) -> int:
        """Nothing past this may be shown: under SYNC_FLUSH a crash could still take it back."""
        return self.log.flushed_offset if self.sync and not self.read_only else self.log.readable_offset

    def _log_tail(self, most: int) -> Window | None:
        """The last bytes of the log that may be shown and lie in memory, at most so many."""
        return tail_window(self.log, self.visible_end(), most) if self.access.is_readable else None

    def dispatch_end(self) -> int:
        """How far queues and index may follow the log: not any further once they are the files of another writer."""
        fence = self.parts.fence
        if fence is not None and not fence.is_ours:
            return self.dispatcher.position
        end, confirmed = self.visible_end(), self.confirm_offset
        return end if confirmed < 0 else min(end, confirmed)

    def catch_up(self) -> None:
        """Let the dispatcher reach what is readable now: the appender wants to see it."""
        end = self.dispatch_end()
        if not self.read_only and self.dispatcher.position < end:
            self.dispatcher.wait_for(end, CATCH_UP_SECONDS)

    def _topic_begin(self, topic: str) -> int:
        """Where in the log a topic began again after it was deleted; 0 if it never was."""
        return load_deleted_topics(self.parts.files, self.path).get(topic, 0)

    def check_fence(self) -> None:
        """WriterFenced if another process has the store."""
        if self.parts.fence is not None:
            self.parts.fence.check()

    def flush_log(self) -> int:
        self.services.flusher.wait(self.log.wrote_offset)
        self.check_fence()
        return self.log.flushed_offset

    def confirm(self, receipts: Sequence[Receipt], wait: bool, began: float) -> Sequence[Receipt]:
        """Under SYNC_FLUSH: wait until the newest of `receipts` is durable, if the sender cares. Then the put that
        began at `began` is over, and its time is recorded."""
        newest = receipts[-1]
        if not wait:
            self.services.flusher.nudge()
        elif not self.services.flusher.wait(newest.physical_offset + newest.size):
            late = PutStatus.FLUSH_DISK_TIMEOUT
            receipts = [msgspec.structs.replace(receipt, status=late) for receipt in receipts]
        messages = newest.message_count if len(receipts) == 1 else len(receipts)
        self.stats.record_put(self.clock.monotonic() - began, messages)
        return receipts


def _stop_surely(stop: Callable[[], None]) -> None:
    """Stop a service. What a signal handler raised may have ended the wait for its thread: wait again."""
    try:
        stop()
    except BaseException:
        with suppress(OSError, StoreError):
            stop()
        raise


def _leave_to_parent() -> None:
    for engine in list(_running):
        engine.leave_to_parent()
    _running.clear()


if hasattr(os, "register_at_fork"):  # Where processes can fork.
    os.register_at_fork(after_in_child=_leave_to_parent)
