"""Housekeeping: what has to happen now and then, in one thread.

Every second: statistics are sampled, pending queue entries written out; is the log file in use still there, and is the
store still ours alone (fence.py)? Every
minute or when asked (`make_durable`): queues and index are synced, then, and only then, the state page and the
checkpoint say so. Every ten seconds: how full is the disk? What that means is in disk_watch.py.

A start after a crash derives again what was not written out, or not synced, and a second can be half a gigabyte. So
the queues wake this thread when they have many entries, and what there is much of is written out, or synced, before its
time.

Each family's proof is written after that family's own sync, so none proves another.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from embermq.errors import AppendRefused, WriterFenced
from embermq.files import Bell, Files, Lock, WorkThread
from embermq.format.checkpoint import Checkpoint, encode_checkpoint
from embermq.settings import StoreSettings
from embermq.store.index.index_files import IndexFiles
from embermq.store.index.proof import prove_index
from embermq.store.layout.directory import CHECKPOINT
from embermq.store.layout.fence import Fence
from embermq.store.layout.state_page import StatePage
from embermq.store.log.commit_log import CommitLog
from embermq.store.queues.consume_queues import ConsumeQueues
from embermq.store.services.disk_watch import DiskWatch
from embermq.store.services.dispatch import Dispatcher
from embermq.store.statistics import StoreStats

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
# How much log a power cut may leave to be derived again, beside what comes in a second. With many queues it is more:
# a sync of each of their files is to be shared by many messages.
UNPROVEN_BYTES = 256 << 20
UNPROVEN_BYTES_PER_FILE = 1 << 20
UNPROVEN_BYTES_MAX = 1 << 30
DISK_CHECK_TICKS = 10


class Housekeeping:
    """The thread, and the two jobs that others may ask for as well."""

    def __init__(
        self,
        root: Path,
        files: Files,
        settings: StoreSettings,
        commit_log: CommitLog,
        disk: DiskWatch,
        dispatcher: Dispatcher,
        queues: ConsumeQueues | None,
        index: IndexFiles | None,
        page: StatePage,
        stats: StoreStats,
        lock: Lock,
        fence: Fence,
        refuse: Callable[[AppendRefused], None],
    ) -> None:
        self._root, self._files, self._log, self._disk = root, files, commit_log, disk
        self._dispatcher, self._page, self._stats = dispatcher, page, stats
        self._lock, self._fence, self._refuse = lock, fence, refuse
        self._queues, self._index = queues, index
        self._write_out_ticks = max(1, settings.queue_flush_interval_ms // 1000)
        self._durable_ticks = max(1, settings.queue_flush_thorough_interval_ms // 1000)
        self._stopping = False
        self._wake = Bell()
        self._one_at_a_time = threading.Lock()
        self._numbers = threading.Lock()  # Of the page: one of them is two stores, and others may look in between.
        self._thread = WorkThread(self._run, "embermq-housekeeping")
        self._durable_offset = self._derived_offset  # When it was last tried.
        if queues is not None:
            queues.when_many_pending(self._wake.ring)
        self._index_durable = 0
        self._is_fenced = False
        self._failing: dict[str, str] = {}  # job -> its last error
        self.checkpoint = Checkpoint()

    def start(self) -> None:
        self._try(self.check_disk)
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._wake.ring()
        self._thread.join()

    def _run(self) -> None:
        tick, due = 0, time.monotonic() + TICK_SECONDS
        while not self._stopping:
            self._wake.wait(due - time.monotonic())
            if time.monotonic() >= due:
                tick, due = tick + 1, time.monotonic() + TICK_SECONDS
                self._tick(tick)
            elif self._queues is not None and self._queues.has_many_pending:
                self._try(self.write_out)
            if self._is_too_much_unproven():
                self._try(self.make_durable)

    def _tick(self, tick: int) -> None:
        self._stats.sample()
        self._try(self.check_writer)
        if not self._fence.is_ours:
            return  # The files are those of another writer.
        self._try(self.check_log)
        if tick % DISK_CHECK_TICKS == 0:
            self._try(self.check_disk)
        if tick % self._write_out_ticks == 0:
            self._try(self.write_out)
        if tick % self._durable_ticks == 0:
            self._try(self.make_durable)

    def _try(self, job: Callable[[], object]) -> None:
        """Do one of the jobs. What a full disk does to one must not keep the others from being done."""
        try:
            job()
        except Exception as problem:
            if self._failing.get(job.__name__) != str(problem):  # Once, and not every second.
                is_mistake = not isinstance(problem, OSError)
                log.error("housekeeping failed job=%s error=%s", job.__name__, problem, exc_info=is_mistake)
            self._failing[job.__name__] = str(problem)
        else:
            self._failing.pop(job.__name__, None)

    @property
    def cannot_write_queues(self) -> bool:
        """Whether the last try to write pending queue entries failed; they wait in memory for the next one."""
        return self.write_out.__name__ in self._failing and self._fence.is_ours

    def _is_too_much_unproven(self) -> bool:
        return self._derived_offset - self._durable_offset > unproven_bytes_max(self._unsynced_files)

    @property
    def _derived_offset(self) -> int:
        """Queues and index have the records below this."""
        positions = [sink.position for sink in (self._queues, self._index) if sink is not None]
        return min(positions, default=0)

    @property
    def _unsynced_files(self) -> int:
        return 0 if self._queues is None else self._queues.unsynced_files

    @property
    def durable_position(self) -> int:
        """What is derived from records below this is durable."""
        positions = [self._page.queues_durable] if self._queues is not None else []
        positions += [self._index_durable] if self._index is not None else []
        return min(positions, default=self._dispatcher.position)

    def write_out(self) -> None:
        """Put pending queue entries into their files, where other processes can see them."""
        queues = self._queues
        self._fence.check()
        if queues is not None:
            position = queues.position
            with self._losing_trust():
                queues.write_out()
            with self._changing_page():
                self._page.queues_written = position
                self._page.queue_files = _file_count(queues)
                self._page.tail_mark = self._dispatcher.tail_mark.position
        if self._index is not None:
            with self._changing_page():
                self._page.index_files = self._index.count

    def make_durable(self, *, closing: bool = False) -> None:
        """Sync what is derived, then say so. OSError if a sync fails; nothing is said then."""
        with self._one_at_a_time, self._losing_trust():
            self._fence.check()
            self._durable_offset = self._derived_offset
            log_ms = max(self._log.flushed_timestamp, self.checkpoint.log_ms)
            queues_ms = self._flush_queues(self._queues) if self._queues is not None else 0
            index_ms = self._flush_index(self._index, closing) if self._index is not None else 0
            self.checkpoint = Checkpoint(log_ms, queues_ms, index_ms)
            with self._changing_page():
                self._page.index_files = self._index.count if self._index is not None else 0
                self._page.tail_mark = self._dispatcher.tail_mark.position
            self._page.sync()
            self._write_checkpoint(hold_back=self._index is not None and not closing)

    @contextmanager
    def _losing_trust(self) -> Iterator[None]:
        """After an error only what was synced counts: the kernel may have dropped what it could not write."""
        try:
            yield
        except OSError:
            if self._fence.is_ours:
                self._page.boot = 0
            raise

    @contextmanager
    def _changing_page(self) -> Iterator[None]:
        """A moment to store some numbers of the page. WriterFenced if it is the page of another writer by now."""
        with self._numbers:
            self._fence.check()
            yield

    def _write_checkpoint(self, *, hold_back: bool) -> None:
        """The times RocketMQ starts from. Ours starts from the proofs and never reads them.

        After a crash RocketMQ drops every index file that is not full, and indexes again only from
        where it starts to recover. So a running store holds all times back to what full index files have.
        """
        shown = self.checkpoint
        if hold_back:
            known = shown.index_ms
            shown = Checkpoint(min(shown.log_ms, known), min(shown.queues_ms, known), known)
        self._files.replace_file(self._root / CHECKPOINT, encode_checkpoint(shown))

    def _flush_queues(self, queues: ConsumeQueues) -> int:
        """Store time up to which the queues are durable now.

        The queues' own position counts: the dispatcher goes on without a sink that has failed.
        """
        timestamp = self._dispatcher.taken[1]
        position = queues.position
        if queues.name in self._dispatcher.failed_sinks:
            timestamp = self.checkpoint.queues_ms
        queues.flush()
        page = self._page
        with self._changing_page():
            page.queues_written = page.queues_durable = position
            page.queue_files = _file_count(queues)
        return timestamp

    def check_writer(self) -> None:
        """Refuse appends, for good, once another process may be writing."""
        refusal = self.look_for_other_writer()
        if refusal is not None and not self._is_fenced:
            self._is_fenced = True
            log.error("no longer the writer of the store reason=%s", refusal)
            self._refuse(refusal)

    def look_for_other_writer(self) -> WriterFenced | None:
        """Is the lock lost, or the token of another writer in the page? What that means for appends."""
        problem = self._lock.problem()
        if problem is not None:
            self._fence.give_up(f"{self._lock.path} {problem}")
        self._fence.check_page()
        return self._fence.refusal

    def check_log(self) -> None:
        """Refuse appends, for good, once the log file in use was deleted: what is appended to it will be in no file."""
        active = self._log.active
        if active is None or self._files.exists(active.path) or self._log.active is not active:
            return
        self._refuse(
            AppendRefused(
                f"{active.path} was deleted while it is written to: no more appends; what it holds is lost when this"
                f" process ends, unless it is copied back from /proc/{os.getpid()}/fd first"
            )
        )

    def check_disk(self) -> None:
        """Refuse appends while a disk is too full, and take them again when there is room."""
        self._disk.check()

    def _flush_index(self, index: IndexFiles, closing: bool) -> int:
        """Store time up to which the index will not change any more."""
        proof = prove_index(self._files, self._root, index, closing=closing)
        self._index_durable = proof.position
        return proof.full_until_ms


def unproven_bytes_max(unsynced_files: int) -> int:
    """Behind how much log queues and index are synced before their time, when that takes so many syncs."""
    return min(max(UNPROVEN_BYTES, unsynced_files * UNPROVEN_BYTES_PER_FILE), UNPROVEN_BYTES_MAX)


def _file_count(queues: ConsumeQueues) -> int:
    """How many queue files there are. A start that finds fewer derives all of them again, so this is kept
    current: a file that is missing must not be made up for by one that came since."""
    return sum(len(queue.file_starts) for queue in queues.all())
