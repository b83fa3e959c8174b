"""Retention: old log files go by RocketMQ's rules (retention_rules.py), and what is derived from them follows.

One look, in this order, so that a crash between any two steps leaves a store that opens and has everything
that is still in its log:

    look at the disks          refuse appends, or take them again
    prove                      queues, index and delivered messages are durable past what is about to go
    keep offsets               of queues whose last message is about to go (kept_offsets.py)
    delete log files           oldest first, never the last; each deletion is durable before the next
    let queue, index files go  out of the books first, then out of the proofs, then off the disk

A file stays as long as it is needed: the dispatcher, a delayed message that was not delivered yet, derived
files that are not durable, the archive guard. Consumers are not asked, as in RocketMQ. A reader in the
middle of a file keeps what it has mapped, and its file keeps the space: until it is let go, or for
destroyMapedFileIntervalForcibly, no further file is deleted by force, because that would not show on the disk yet.

`look` is all of it, without sleeps but for the pauses the settings name; `start` runs it on a thread of its own,
the first time after a minute. `delete_expired` may come from any thread; looks take turns.
"""

import errno
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from embermq.clock import Clock
from embermq.columns import C_STORE_TIME
from embermq.errors import StoreError
from embermq.files import Bell, Files, Segment, WorkThread
from embermq.settings import StoreSettings
from embermq.store.index.index_files import IndexFiles
from embermq.store.layout.kept_offsets import NextOffset, load_kept_offsets, save_kept_offsets
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.file_scan import DamagedRange, LogSegment, scan_segments
from embermq.store.log.records import Records
from embermq.store.queues.consume_queues import ConsumeQueues
from embermq.store.services.disk_watch import DiskWatch
from embermq.store.services.housekeeping import Housekeeping
from embermq.store.services.retention_rules import DiskSeen, Verdict, is_expired, judge, last_change_ms

log = logging.getLogger(__name__)

FIRST_LOOK_SECONDS = 60.0
FILES_PER_LOOK = 10


@dataclass(frozen=True, slots=True)
class OldSegment:
    """A log file that is to go, as the archive guard sees it. The records in it are complete and never change."""

    store: Path  # the directory of the store, of which the log may lie elsewhere
    path: Path
    start: int  # physical offsets, half-open
    end: int
    last_change_ms: int
    expired: bool  # False: it goes before its time, because the disk is too full
    is_disk_full: bool = False  # more than emberDiskCleanPercent is used: the file goes whatever its age


class RetentionGuard(Protocol):
    """May this log file go? False: not yet. Asked on the retention thread; what it raises counts as no. One with an
    attribute `who` is called by that name where it holds a file."""

    def __call__(self, old: OldSegment, /) -> bool: ...


class Cleaned(msgspec.Struct, frozen=True):
    """What went, and who kept the next log file from going; None if nothing did."""

    segments: int = 0
    log_bytes: int = 0
    queue_files: int = 0
    index_files: int = 0
    held_by: str | None = None

    def plus(self, other: "Cleaned") -> "Cleaned":
        return Cleaned(
            self.segments + other.segments,
            self.log_bytes + other.log_bytes,
            self.queue_files + other.queue_files,
            self.index_files + other.index_files,
            other.held_by,
        )


@dataclass(frozen=True, slots=True)
class Hold:
    """A holder, who needs the log from a position on; None: none of it."""

    who: str
    position: Callable[[], int | None]


@dataclass(frozen=True, slots=True)
class Derived:
    """What follows the log when it shrinks."""

    queues: ConsumeQueues | None
    index: IndexFiles | None
    housekeeping: Housekeeping
    next_offsets: Callable[[], dict[tuple[str, int], int]]


def is_all_before(files: Files, segment: LogSegment, before_ms: int, next_ms: int | None) -> bool:
    """Were all messages of a log file stored before a time? It is read for that: a clock may have been set back in
    the middle of it. A file without any is as old as the next one's first message, stored at `next_ms`."""
    is_empty = True
    for scanned in scan_segments([segment], segment.start, segment.end, check_crc=False, files=files):
        if not isinstance(scanned, DamagedRange):
            is_empty = False
            if int(scanned.column(C_STORE_TIME).max()) >= before_ms:
                return False
    return not is_empty or (next_ms is not None and next_ms < before_ms)


class Retention:
    """Deletes the old files of one store."""

    def __init__(
        self,
        root: Path,
        files: Files,
        settings: StoreSettings,
        clock: Clock,
        commit_log: CommitLog,
        disk: DiskWatch,
        derived: Derived,
        holds: Sequence[Hold],
        flush_log: Callable[[], int],
        guard: RetentionGuard | None = None,
    ) -> None:
        self._root, self._files, self._settings, self._clock = root, files, settings, clock
        self._log, self._records, self._disk, self._derived = commit_log, Records(commit_log), disk, derived
        self._holds, self._flush_log, self._guard = holds, flush_log, guard
        self._one_at_a_time = threading.Lock()
        self._stopping, self._wake = False, Bell()
        self._thread = WorkThread(self._run, "embermq-retention")
        self._held_by: str | None = None
        self._told_held_by: str | None = None
        self._hung: list[tuple[Segment, float]] = []  # deleted and still looked at, since when
        self._hung_told_at = 0.0
        self._cleaned_min = -1  # where the log began when derived files were last cleaned

    # -- the thread ----------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a look that is under way ends after its current file."""
        self._stopping = True
        self._wake.ring()
        self._thread.join()
        with self._one_at_a_time:  # Another thread may have asked.
            pass

    def _run(self) -> None:
        pause_s = FIRST_LOOK_SECONDS
        while not self._paused(pause_s):
            pause_s = self._settings.clean_interval_ms / 1000
            try:
                self.look()
            except (OSError, StoreError) as problem:
                log.error("retention failed error=%s", problem)
            except Exception:  # A mistake of ours; the next look may do without it.
                log.exception("retention failed")

    def delete_expired(self, before_ms: int | None = None) -> Cleaned:
        """Delete what is expired now, whatever the hour; or files all of whose messages are older than `before_ms`."""
        total = Cleaned()
        while True:
            cleaned = self.look(asked=True, before_ms=before_ms)
            total = total.plus(cleaned)
            if not cleaned.segments or self._stopping:
                return total

    def forget_topic(self, topic: str) -> None:
        """A deleted topic does not go on where it was."""
        with self._one_at_a_time:
            kept = load_kept_offsets(self._files, self._root)
            left = [one for one in kept if one[0] != topic]
            if left != kept:
                save_kept_offsets(self._files, self._root, left)

    # -- one look ------------------------------------------------------------------------------------------

    def look(self, *, asked: bool = False, before_ms: int | None = None) -> Cleaned:
        """Delete what may go now, at most FILES_PER_LOOK log files. OSError or StoreError if something fails."""
        with self._one_at_a_time:
            self._disk.check()
            self._held_by = None
            self._look_at_hung()
            deleted = self._forget_missing()
            deleted += self._delete_old(asked, before_ms)
            queue_files, index_files = self._clean_derived()
            if deleted:
                self._disk.check()
            self._tell_held()
            log_bytes = sum(segment.size for segment in deleted)
            return Cleaned(len(deleted), log_bytes, queue_files, index_files, self._held_by)

    def _verdict(self, asked: bool) -> Verdict:
        use = self._disk.look()
        hour = int(self._clock.local_stamp(self._clock.now_ms())[8:10])
        return judge(DiskSeen(hour, use.log_used, use.queues_used, asked), self._settings)

    def _delete_old(self, asked: bool, before_ms: int | None) -> list[Segment]:
        """Delete the oldest log files that may go; those."""
        deleted: list[Segment] = []
        limit: int | None = None
        verdict = self._verdict(asked)
        for segment in self._log.segments.all[:-1][:FILES_PER_LOOK]:
            if verdict.reason is None:
                break
            old = self._as_old(segment, before_ms, verdict)
            if not old.expired and not self._may_force(verdict):
                break
            if limit is None:
                limit = self._free_until()
            if not self._is_free(old, limit):
                break
            self._keep_offsets(segment.end)
            self._log.segments.delete_first()
            deleted.append(segment)
            self._note_deleted(segment, old, verdict)
            if self._paused(self._settings.delete_segment_pause_ms / 1000):
                break
            verdict = self._verdict(asked)  # Not one file more than is needed.
        return deleted

    def _as_old(self, segment: Segment, before_ms: int | None, verdict: Verdict) -> OldSegment:
        next_ms = self._next_ms(segment)
        changed_ms = last_change_ms(segment.mtime_ms(), next_ms, self._clock.now_ms())
        expired = is_expired(changed_ms, self._clock.now_ms(), self._settings)
        if before_ms is not None:
            place = LogSegment(segment.path, segment.start, segment.size)
            expired = is_all_before(self._files, place, before_ms, next_ms)
        return OldSegment(self._root, segment.path, segment.start, segment.end, changed_ms, expired, verdict.forced)

    def _next_ms(self, segment: Segment) -> int | None:
        """When its last message was stored, or a little later: the next file's first one came right after it."""
        following = self._log.segments.after(segment)
        frame = self._records.frame_at(following.start) if following is not None else None
        return None if frame is None else frame.store_timestamp

    def _may_force(self, verdict: Verdict) -> bool:
        if not verdict.forced:
            return False
        since = self._clock.monotonic() - self._settings.destroy_interval_ms / 1000
        young = [segment for segment, at in self._hung if at > since and segment.is_lent]
        if young:
            self._held_by = f"a reader of {young[0].path.name}, deleted, whose space is not free yet"
        return not young

    def _paused(self, seconds: float) -> bool:
        """Wait a little; True if the store is being closed."""
        self._wake.wait(seconds)
        if self._stopping:
            self._wake.ring()  # Another thread may be waiting too.
        return self._stopping

    # -- who needs the log -------------------------------------------------------------------------------------

    def _free_until(self) -> int:
        """Below this the log is not needed. The names of those who need what follows are noted."""
        housekeeping, last = self._derived.housekeeping, self._log.segments.last
        if last is not None and housekeeping.durable_position < last.start:
            housekeeping.make_durable()
        positions = [(position, hold.who) for hold in self._holds if (position := hold.position()) is not None]
        # A holder that has passed may rely on something newer in the log, such as a message delivered from a parked
        # one.
        positions.append((self._flush_log(), "the flush of the log"))
        if self._derived.queues is not None or self._derived.index is not None:
            positions.append((housekeeping.durable_position, "queues and index, which are not durable so far"))
        limit, self._held_by = min(positions)
        return limit

    def _is_free(self, old: OldSegment, limit: int) -> bool:
        """May this file go? Leaves who holds it in `_held_by`."""
        if old.end > limit:
            return False
        self._held_by = self._refusal_of_guard(old)
        if self._held_by is None:
            self._held_by = self._refusal_of_directory(old.path)
        return self._held_by is None

    def _refusal_of_guard(self, old: OldSegment) -> str | None:
        if self._guard is None:
            return None
        who = str(getattr(self._guard, "who", "the archive guard"))
        try:
            return None if self._guard(old) else who
        except Exception:  # Foreign code; whatever goes wrong in it, it did not say yes.
            log.exception("retention guard failed path=%s", old.path)
            return f"{who}, which failed"

    def _refusal_of_directory(self, path: Path) -> str | None:
        if path.parent in self._log.segments.directories:
            return None
        return f"{path.parent}, which is read and never written (readOnlyCommitLogStorePaths)"

    def _tell_held(self) -> None:
        """Once for each reason."""
        if self._held_by != self._told_held_by and self._held_by is not None:
            first = self._log.segments.first
            log.warning("log file kept path=%s by=%s", first.path if first is not None else "", self._held_by)
        self._told_held_by = self._held_by

    # -- deleting ----------------------------------------------------------------------------------------------

    def _forget_missing(self) -> list[Segment]:
        """Log files that were deleted by hand, oldest first, leave the set. That the newest one is there
        shows that the directory is, too."""
        gone: list[Segment] = []
        segments = self._log.segments
        while (segment := segments.first) is not None and self._is_deleted_by_hand(segment):
            if segment.end > self._free_until():
                break
            self._held_by = None
            self._keep_offsets(segment.end)
            segments.delete_first()
            log.warning("log file was deleted by hand path=%s", segment.path)
            gone.append(segment)
        return gone

    def _is_deleted_by_hand(self, segment: Segment) -> bool:
        last = self._log.segments.last
        if last is None or last is segment:
            return False
        return not self._files.exists(segment.path) and self._files.exists(last.path)

    def _keep_offsets(self, log_min: int) -> None:
        """Write down where queues go on that have no message at or after `log_min`."""
        queues = self._derived.queues
        kept: list[NextOffset] = []
        for (topic, queue_id), next_offset in self._derived.next_offsets().items():
            queue = queues.find(topic, queue_id) if queues is not None else None
            if next_offset and (queue is None or queue.max_physical <= log_min):
                kept.append((topic, queue_id, next_offset))
        if sorted(kept) == load_kept_offsets(self._files, self._root):
            return
        try:
            save_kept_offsets(self._files, self._root, kept)
        except OSError as problem:
            if problem.errno != errno.ENOSPC or queues is None:
                raise
            # The queue files, which are durable, know it as well; and there will be no room before something goes.
            log.warning("offsets not kept for lack of space queues=%d", len(kept))

    def _note_deleted(self, segment: Segment, old: OldSegment, verdict: Verdict) -> None:
        age_hours = (self._clock.now_ms() - old.last_change_ms) / 3_600_000
        level = logging.INFO if old.expired else logging.WARNING
        kind = "expired" if old.expired else "before its time"
        log.log(
            level,
            "log file deleted path=%s bytes=%d age_hours=%.1f kind=%s reason=%s",
            segment.path,
            segment.size,
            age_hours,
            kind,
            verdict.reason,
        )
        if segment.is_lent:
            now = self._clock.monotonic()
            self._hung_told_at = self._hung_told_at if self._hung else now
            self._hung.append((segment, now))

    def _look_at_hung(self) -> None:
        """Forget deleted files that are not read any more; now and then tell of the others."""
        self._hung = [(segment, at) for segment, at in self._hung if segment.is_lent]
        now = self._clock.monotonic()
        if self._hung and now - self._hung_told_at >= self._settings.redelete_interval_ms / 1000:
            self._hung_told_at = now
            for segment, at in self._hung:
                log.warning("deleted log file is still being read path=%s seconds=%.0f", segment.path, now - at)

    def _clean_derived(self) -> tuple[int, int]:
        """Delete queue and index files of records that have left the log; how many of each."""
        log_min, derived = self._log.min_offset, self._derived
        if log_min == self._cleaned_min:
            return 0, 0
        queues = derived.queues.all() if derived.queues is not None else []
        for queue in queues:
            queue.let_go_before(log_min)
        shrinking = [queue for queue in queues if queue.let_go]
        index = derived.index
        if index is not None:
            index.let_go_before(log_min)
        index_files = len(index.let_go) if index is not None else 0
        if shrinking or index_files:
            # The proofs must not miss what is about to go, or a start after a crash would make everything again.
            derived.housekeeping.make_durable()
        queue_files = 0
        for queue in shrinking:
            queue_files += queue.remove_let_go()
            self._paused(self._settings.delete_queue_pause_ms / 1000)
        if index is not None:
            index.remove_let_go()
        self._cleaned_min = log_min
        return queue_files, index_files
