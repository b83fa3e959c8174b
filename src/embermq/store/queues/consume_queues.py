"""All consume queues of a store: the sink that derives them from the log.

A taken record becomes a row of the pending list (`entry_intake`, `pending_entries`); rows are written out
together, grouped by queue (`entry_files`), when there are many or the oldest is a second old. A start after a
crash needs none of them: the log has everything, and walking it again gives each entry the same place.

`take`, `truncate_to` and the replay are for the thread that walks the log. `write_out`, `flush`, `discard` and
`delete_before` may come from another thread at any time. `find`, `topics`, `next_offset` are for any thread.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from embermq.clock import Clock
from embermq.columns import RecordColumns
from embermq.files import Files, FoundName, OpenFiles, names_of
from embermq.format.names import parse_queue_id
from embermq.format.queue_entry import ENTRY_BYTES
from embermq.format.queue_extension import is_address
from embermq.store.layout.deleted_topics import within
from embermq.store.layout.directory import QUARANTINE
from embermq.store.queues.consume_queue import ConsumeQueue, is_valid
from embermq.store.queues.entry_files import EntryFiles
from embermq.store.queues.entry_intake import EntryIntake, QueueExpired
from embermq.store.queues.extension import EXTENSION_FAMILY, ExtensionSettings
from embermq.store.queues.loading import QUEUE_FAMILY, QueueEnds, QueueLoader, QueueState, Written, compare
from embermq.store.queues.moves import QueueMoves, queues_moved
from embermq.store.queues.multi_dispatch import MultiDispatch
from embermq.store.queues.pending_entries import Entries, PendingEntries, PendingView
from embermq.store.queues.queue_state import SharedQueueState
from embermq.store.queues.queue_table import Queues
from embermq.store.queues.replay_check import ReplayCheck
from embermq.store.queues.replay_end import ReplayEnd, is_of_ended_life
from embermq.store.sink import Finding

log = logging.getLogger(__name__)

PENDING_ROWS_MAX = 512 * 1024
# How many entries are many: enough for each file to share a write among them.
PENDING_ROWS_MANY = 64 * 1024
PENDING_ROWS_PER_QUEUE = 64
# Housekeeping writes out every second. Longer than that it may be busy with syncs, and then the taker writes.
PENDING_AGE_MAX_S = 1.5
_NONE: Mapping[str, int] = {}


NOTHING_KNOWN = Written()


class ConsumeQueues:
    """The consume queues below `root`; a Sink."""

    name = QUEUE_FAMILY

    def __init__(
        self,
        root: Path,
        files: Files,
        file_bytes: int,
        clock: Clock,
        *,
        extension: ExtensionSettings | None = None,
        read_only: bool = False,
        log_min: Callable[[], int] = lambda: 0,
        multi_dispatch: MultiDispatch | None = None,
        check_writer: Callable[[], None] | None = None,
    ) -> None:
        """`check_writer` raises an OSError when nothing may be written any more."""
        entries_per_file = -(-file_bytes // ENTRY_BYTES)
        self.root = root
        self.file_bytes = entries_per_file * ENTRY_BYTES
        self.position = 0
        self._files = files
        self._clock = clock
        self._check_writer = check_writer
        self._has_extension = extension is not None
        self._open = OpenFiles(files, read_only=read_only, quarantine=root.parent / QUARANTINE)
        self._books = SharedQueueState(entries_per_file, self._open, read_only=read_only, log_min=log_min)
        self._queues = Queues(root, self._books, extension)
        self._ends = QueueEnds()  # From a loading until the replay after it is finished.
        self._entry_files = EntryFiles(self._books, self._queues.by_slot)
        self._intake = EntryIntake(self._books, self._queues, extension, multi_dispatch)
        self._pending_since: float | None = None
        self.lacking: list[str] = []  # Queues whose files lacked records from before the last replay began.
        self._on_many_pending: Callable[[], None] = _ignore

    # Looking

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None when it has no message."""
        return self._queues.queues.get((topic, queue_id))

    def all(self) -> list[ConsumeQueue]:
        return list(self._queues.queues.values())

    def topics(self) -> dict[str, list[int]]:
        """Queue ids by topic."""
        found: dict[str, list[int]] = {}
        for topic, queue_id in sorted(self._queues.queues):
            found.setdefault(topic, []).append(queue_id)
        return found

    def ids_of(self, topic: str) -> list[int]:
        """The queue ids of one topic, in order. Costs what the topic has, however many queues the store has."""
        return self._queues.ids_of(topic)

    def kept_entries(self, queue: ConsumeQueue, start: int, end: int) -> bytes | None:
        """Entries [start, end) as they were found by the last loading, if all of them were kept then."""
        kept = self._ends.kept.get(queue.slot)
        if kept is None or start < kept.start or end > queue.max_offset:
            return None
        return kept.data[(start - kept.start) * ENTRY_BYTES : (end - kept.start) * ENTRY_BYTES]

    def is_blank_behind(self, queue: ConsumeQueue) -> bool:
        """Is it known from the last loading that nothing lies behind the last entry of a queue?"""
        return queue.slot in self._ends.blank_behind

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset of the next message; 0 for a queue that does not exist."""
        queue = self.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    @property
    def max_physical(self) -> int:
        """End of the newest record any queue knows, or -1."""
        books = self._books
        with books.lock:
            return int(books.max_physical[: books.slot_count].max(initial=-1))

    @property
    def has_many_pending(self) -> bool:
        """Are there enough to be written out before their time?"""
        books = self._books
        return books.pending.count >= max(PENDING_ROWS_MANY, PENDING_ROWS_PER_QUEUE * books.slot_count)

    @property
    def aside(self) -> list[tuple[Path, Path]]:
        """What was in the place of a queue file or directory, and the name that it was given."""
        return self._open.aside

    @property
    def unsynced_files(self) -> int:
        """How many files hold entries that were written and not synced."""
        return self._open.unsynced_count

    # Taking and writing

    def take(self, batch: RecordColumns, end: int) -> None:
        if self._is_due(len(batch)):
            self.write_out()
        while True:
            try:
                with self._books.change:
                    if len(batch):
                        if self._pending_since is None:
                            self._pending_since = self._clock.monotonic()
                        self._intake.take(batch)
                    self.position = end
                if self.has_many_pending:
                    self._on_many_pending()
                return
            except QueueExpired as expired:
                # Here, without the change lock: this needs the disk lock before it.
                log.info("queue_restarts queue=%r queue_offset=%d", expired.queue, expired.queue_offset)
                with self._books.disk, self._books.change:
                    self._remove(expired.queue)
                    self._intake.begin(expired.queue.slot, expired.queue_offset)

    def _is_due(self, more: int) -> bool:
        since = self._pending_since
        if since is None:
            return False
        if self._books.pending.count + more > PENDING_ROWS_MAX:
            return True
        if self._books.replaying:
            return False  # No reader waits for files yet, and most of what a replay takes is in them already.
        return self._clock.monotonic() - since >= PENDING_AGE_MAX_S

    def when_many_pending(self, call: Callable[[], None]) -> None:
        """`call` is called, by the thread that takes records, when enough entries wait to be written out."""
        self._on_many_pending = call

    def look_ahead(self, batch: RecordColumns) -> None:
        """Find out, off the taking thread, which queues a batch goes to. Optional; any thread."""
        self._queues.look_ahead(batch)

    def moved_by(self, batch: RecordColumns) -> QueueMoves:
        """Which queues the records of a batch, which was taken, belong to, and how far these queues go now."""
        return queues_moved(batch, self._books, self._intake, self._queues.by_slot)

    def write_out(self) -> None:
        """Write all pending entries to their files. On OSError they stay pending, readable and to be retried.

        Records can be taken meanwhile; those are not waited for.
        """
        books = self._books
        with books.disk:
            if books.read_only or not books.pending:
                return
            if self._check_writer is not None:
                self._check_writer()
            with books.change:
                if self._has_extension:
                    for queue in self._queues.by_slot:
                        assert queue.extension is not None
                        queue.extension.set_aside()
                with books.lock:
                    books.leaving, books.pending = books.pending, PendingEntries()
                self._pending_since = None
            leaving = books.leaving.view()
            written = None
            try:
                if self._has_extension:
                    for queue in list(self._queues.by_slot):
                        assert queue.extension is not None
                        queue.extension.write_out()
                written = self._entry_files.write(leaving, self._ends.kept if books.replaying else None)
            finally:
                if written is None:
                    self._take_back(leaving)
            with books.lock:
                books.leaving = None
                slots, ends = written
                books.written[slots] = np.maximum(books.written[slots], ends)

    def _take_back(self, leaving: PendingView) -> None:
        """Put entries that could not be written before those taken since."""
        books = self._books
        with books.change, books.lock:
            newer = books.pending.view()
            books.pending, books.leaving = PendingEntries(), None
            books.pending.append_all(leaving)
            books.pending.append_all(newer)
            self._pending_since = self._clock.monotonic()

    def mend(self, queue: ConsumeQueue, queue_offset: int, entries: Entries) -> bool:
        """Write entries of one file again that were found to be wrong; False if the queue, or the file, is gone."""
        books = self._books
        with books.disk:
            start = queue_offset - queue_offset % books.entries_per_file
            if self.find(queue.topic, queue.queue_id) is not queue or start not in queue.file_starts:
                return False
            if queue_offset + len(entries) > books.written[queue.slot]:
                return False  # Still to be written out.
            if self._check_writer is not None:
                self._check_writer()
            queue.write(queue_offset, entries)
            return True

    def flush(self) -> None:
        if not self._books.read_only:
            self.write_out()
            self._open.sync()

    def close(self) -> None:
        """Write and sync what is left, then let the files go."""
        try:
            self.flush()
        finally:
            self._entry_files.let_go()
            self._open.close()

    # Cutting and deleting

    def truncate_to(self, physical_offset: int) -> None:
        with self._books.disk, self._books.change:
            for queue in self.all():
                if not queue.truncate_to(physical_offset):
                    self._remove(queue)
            self.position = min(self.position, physical_offset)

    def correct_min(self, log_min: int, *, as_closed: bool = False) -> None:
        """Set every queue's minimum to its first record still in the log. `as_closed`: the log begins where it did when
        the store was closed, so a queue that is as it was then has the right one."""
        for queue in self.all():
            if self._has_extension or not self._has_right_min(queue, log_min, as_closed):
                queue.correct_min(log_min)
        self._ends.clear()

    def _has_right_min(self, queue: ConsumeQueue, log_min: int, as_closed: bool) -> bool:
        known = self._ends.as_known.get(queue.slot) if as_closed else None
        if known is not None:
            return queue.min_offset == known.min_offset
        first = self._ends.first_physical.get(queue.slot, -1)
        return first >= log_min and queue.min_offset == min(queue.file_starts, default=-1)

    def touch_since(self, physical_offset: int) -> None:
        """Sync, with the next flush, the files that have entries of records from here on: the process that wrote them
        may not have."""
        if self._books.read_only:
            return
        with self._books.disk:
            for queue in self.all():
                if queue.max_physical > physical_offset:
                    self._touch_since(queue, physical_offset)

    def _touch_since(self, queue: ConsumeQueue, physical_offset: int) -> None:
        starts = sorted(queue.file_starts)
        while starts:
            start = starts.pop()
            self._open.touch(queue.path_of(start))
            first = queue.peek(start) if starts else None
            if first is not None and is_valid(first) and first[0] < physical_offset:
                break

    def delete_before(self, log_min: int) -> int:
        """Delete queue files whose records have all left the log; answers how many."""
        return sum(queue.delete_before(log_min) for queue in self.all())

    def discard(self, topic: str, queue_id: int) -> None:
        """Remove a queue with its files; fine if there is none. A later message begins it anew."""
        with self._books.disk, self._books.change:
            queue = self._queues.find_slot(topic, queue_id)
            if queue is not None:
                self._remove(queue)

    def discard_where(self, is_unused: Callable[[ConsumeQueue], bool]) -> list[tuple[str, int]]:
        """Remove the queues that are unused, by a question that is asked while nothing is added to them; which ones."""
        removed: list[tuple[str, int]] = []
        with self._books.disk, self._books.change:
            for queue in self.all():
                if is_unused(queue):
                    self._remove(queue)
                    removed.append((queue.topic, queue.queue_id))
        return removed

    def _remove(self, queue: ConsumeQueue) -> None:
        with self._books.disk, self._books.change:
            self._queues.hide(queue)
            self._ends.forget(queue.slot)
            queue.destroy()

    def destroy_all(self) -> None:
        with self._books.disk, self._books.change:
            for queue in self._queues.by_slot:
                self._remove(queue)
            self.position = 0

    # Recovery

    def begin_replay(self, walk_start: int = 0, deleted: Mapping[str, int] = _NONE) -> None:
        """From now on entries are overwritten at their places. Files that load refused are removed here: drop
        whatever vouches for the queues first, or a crash in the middle goes unnoticed.

        The log will be walked from `walk_start` on. `deleted`: topics that were deleted, and where the log ended then.
        Their older records get no entries: damage may have taken the record of queue offset 0 by which a walk would see
        that the topic began again.
        """
        books = self._books
        with books.disk, books.change:
            assert not books.replaying
            self.write_out()
            books.forget_walk()
            with books.lock:
                books.replaying, books.ordered = True, False
            if not books.read_only:
                for queue in self._queues.by_slot:
                    queue.remove_stale_files()
                    for path in queue.extension.misplaced if queue.extension is not None else ():
                        self._open.remove(path)  # Which puts a directory aside.
            self._intake.begin_walk(deleted)
            for queue in self.all() if deleted else ():
                if is_of_ended_life(queue, deleted.get(queue.topic, 0), walk_start):
                    self._remove(queue)

    def finish_replay(self, walk_start: int, log_end: int, *, keep_ends: bool = False) -> None:
        """The log was walked from `walk_start` to its end: entries of records there that were not met go.

        With `keep_ends` they stay: records in the middle were lost to damage, and offsets that were given once
        must not be given again, or a consumer would skip the new messages.
        """
        books = self._books
        with books.disk, books.change:
            assert books.replaying
            self._intake.finish_walk()
            end_of_unmet = log_end if keep_ends else min(walk_start, log_end)
            end = ReplayEnd(books, walk_start, end_of_unmet, log_end if keep_ends else 0)
            unsettled = self._unsettled(walk_start, end_of_unmet)
            self.lacking = [repr(queue) for queue in unsettled if end.lacks_records(queue)]
            for queue in unsettled:
                if not end.settle(queue):
                    self._remove(queue)
            books.forget_walk()
            self.write_out()
            with books.lock:
                books.replaying, books.ordered = False, not books.pending
            self.position = log_end

    def _unsettled(self, walk_start: int, end_of_unmet: int) -> list[ConsumeQueue]:
        """The queues that are not in their files as the walk has met them. Of the others nothing is left to write."""
        books, queues = self._books, self.all()
        settled = np.zeros(books.slot_count, np.bool_)
        if not self._has_extension:  # Its entries are written out together with those of the queues.
            check = ReplayCheck(books, self._files, self._ends, self._entry_files.rewritten)
            settled = check.settled(queues, walk_start, end_of_unmet)
        if not books.read_only:  # A reader keeps what it has taken: its files may be deleted by the writer.
            with books.lock:
                books.pending = books.pending.without(settled)
            if not books.pending:
                self._pending_since = None
        self._ends.kept.clear()
        self._entry_files.rewritten.clear()
        return [queue for queue in queues if not settled[queue.slot]]

    # Loading

    def load(self, state: Any = None, written: Written = NOTHING_KNOWN) -> list[Finding]:
        """Find the queues on disk and say what is wrong with them. Changes nothing on disk.

        `state` is what state() gave at a clean close: queues that still look like it need no scan, those
        that do not are reported.
        """
        known = QueueState.parse(state, self.file_bytes) or {}
        findings: list[Finding] = []
        with self._books.disk, self._books.change:
            self._ends.clear()
            loader = QueueLoader(self._books, self._files, written, self._ends)
            for topic in names_of(self._files, str(self.root)):
                if topic.is_directory:
                    findings += self._load_topic(topic, known, loader)
            self._queues.show(queue.slot for queue in self._queues.by_slot if self._books.born[queue.slot])
            self.position = max(self.max_physical, 0)
            for row in known.values():
                if self._queues.find_slot(row.topic, row.queue_id) is None:
                    findings.append(Finding(QUEUE_FAMILY, row.where, "is missing", 0))
        return findings

    def _load_topic(
        self, found: FoundName, known: dict[tuple[str, int], QueueState], loader: QueueLoader
    ) -> list[Finding]:
        findings = []
        topic = found.name
        directory = f"{self.root}/{topic}"
        for entry in names_of(self._files, directory):
            queue_id = parse_queue_id(entry.name)
            if not entry.is_directory or queue_id is None:
                continue
            queue = self._queues.by_slot[self._queues.slot_named(topic, queue_id)]
            findings += loader.load(queue, f"{directory}/{entry.name}", known.get((topic, queue_id)))
            if (found.is_link or entry.is_link) and not self._books.read_only:
                loader.check_linked(queue)
            if queue.extension is not None:
                findings += self._load_extension(queue)
        return findings

    def _load_extension(self, queue: ConsumeQueue) -> list[Finding]:
        extension = queue.extension
        assert extension is not None
        extension.load(self._files)
        if extension.misplaced:
            where = f"{queue.topic}/{queue.queue_id}/{extension.misplaced[0].name}"
            return [Finding(EXTENSION_FAMILY, where, "is a directory where a file should be", 0)]
        entry = queue.peek(queue.max_offset - 1)
        if entry is None or not is_address(entry[2]) or extension.vouch_for(entry[2]):
            return []
        where = f"{queue.topic}/{queue.queue_id}"
        return [Finding(EXTENSION_FAMILY, where, "the newest queue entry names no extension entry", 0)]

    def state(self) -> dict[str, Any]:
        """What a start can compare the directory with; take it after flush()."""
        with self._books.disk, self._books.change:
            return {"file_bytes": self.file_bytes, "queues": sorted(QueueState.of(queue).row() for queue in self.all())}

    def matches(self, state: Any) -> list[Finding]:
        """How the directory differs from a state(): names, lengths, and the newest entry of each file."""
        known = QueueState.parse(state, self.file_bytes)
        if known is None:
            return [Finding(QUEUE_FAMILY, "", "the recorded state cannot be read", 0)]
        findings = []
        for row in known.values():
            queue = self._queues.find_slot(row.topic, row.queue_id)
            if queue is None or self._ends.as_known.get(queue.slot) != row:  # Otherwise loading has just compared it.
                findings += compare(row, self.root, self._files, self._open, self.file_bytes)
        for key in sorted(set(self._queues.queues) - known.keys()):
            findings.append(Finding(QUEUE_FAMILY, f"{key[0]}/{key[1]}", "is not in the recorded state", 0))
        return findings


def _ignore() -> None:
    """Only the taker writes out."""


def settle_deleted_topics(files: Files, root: Path, queues: ConsumeQueues, log_end: int, *, read_only: bool) -> None:
    """Remove the queues of deleted topics that a walk, or a copy of old files, has brought back."""
    deleted = within(files, root, log_end, read_only=read_only)
    for queue in queues.all() if deleted else ():
        if queue.max_physical <= deleted.get(queue.topic, -1):
            queues.discard(queue.topic, queue.queue_id)
