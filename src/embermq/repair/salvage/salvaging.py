"""Salvage: every whole record of a damaged log, in a new store that we and RocketMQ open.

    find      the log files that hold records, by their content (log_files.py)
    copy      them as they are, to a new directory; bad blocks of the disk become zeros
    recover   the new store: damaged ranges are put into its quarantine/ and closed by fillers, so that everything
              behind them stays in its place; queues and index are made from what is whole
    report    what was lost, by place in the log and by queue

What counts as lost: ranges of the log that hold no whole record and should, log files without any (as they were in
quarantine/, unless they are zeros), the end of the log if it was proven to go further (lost_end.py), and messages
that queues of the old store know there. The rest of an append that a crash tore off was never confirmed, and is none.

What is whole stays what it was: physical offset, message id, queue, queue offset, bytes. So consumers' progress, which
is taken along, stays right. Queue offsets that were given once are not given again, as far as queue files know them.
The old store is only read: no lock, even if it is open. The new one appears when it is complete; until
then it is NEW.partial, with a mark in it by which the next call knows that it may be removed. One thread.
"""

import errno
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from embermq.clock import Clock, SystemClock
from embermq.errors import StoreError, StorePathInvalid
from embermq.files import (
    FaultTolerantFiles,
    Files,
    OpenFile,
    Ours,
    PathKind,
    RealFiles,
    copy_file,
    foreign_in,
    remove_tree,
)
from embermq.format.names import segment_name
from embermq.inspect import Watched, is_about_missing_file, newest_end, proven_end, queue_entries_of
from embermq.repair.salvage.log_files import Placed, RefusedFile, place_files
from embermq.repair.salvage.report import LostMessages, LostRange, Salvaged, parts_outside
from embermq.repair.verify.store_check import verify
from embermq.settings import StoreSettings
from embermq.store import MessageStore
from embermq.store.layout import (
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    QUARANTINE,
    check_directory,
    in_new_store,
    load_kept_offsets,
    mark_running,
    raised_offsets,
    save_kept_offsets,
    was_closed_cleanly,
)
from embermq.store.layout import DELETED_TOPICS_FILE as DELETED_TOPICS
from embermq.store.log import Damage, Quarantine
from embermq.store.queues import ConsumeQueue, ConsumeQueues
from embermq.store.recovery import DerivedFiles
from embermq.store.tables import config_files

REPORT = "embermq.salvage.json"
MARK = "embermq.salvage.partial"  # In a directory that is not complete, and ours to remove.
_COPY_BYTES = 1 << 20
_STEP_ENTRIES = 100_000
_LOST_END = "the log ends here, and once went further"
_TRIES_MAX = 5
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)

Progress = Callable[[str, int, int], None]  # What is being done, bytes done, and of all.


def salvage(
    path: str | Path,
    into: str | Path,
    settings: StoreSettings | None = None,
    *,
    files: Files | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Salvaged:
    """Save what is whole of the store at `path` into a new one at `into`.

    StorePathInvalid if there is no store or it may not be read, or if `into` exists already. `settings` must have the
    sizes of its files.
    """
    root, target = (Path(one).expanduser().absolute() for one in (path, into))
    disk, settings = files or RealFiles(), settings or StoreSettings()
    check_directory(disk, root, read_only=True, has_log_elsewhere=bool(settings.commit_log_paths))
    if disk.kind(target) is not None:
        raise StorePathInvalid(target, "exists already; name a directory that does not")
    if disk.real_path(target).is_relative_to(disk.real_path(root)):
        raise StorePathInvalid(target, f"lies in {root}, which is only read; name another place")
    if not disk.exists(target.parent):
        raise StorePathInvalid(target.parent, "there is no such directory to put it in")
    watched = Watched(disk, root)
    for left in reversed(range(_TRIES_MAX)):
        work = _Salvage(root, target, settings, disk, clock or SystemClock(), progress or _no_progress)
        try:
            return work.run()
        except OSError as problem:
            work.give_up()
            if left and is_about_missing_file(problem) and watched.look():
                continue  # The open store removed files: begin again with what is there now.
            where = Path(str(problem.filename or root))
            if problem.errno in _NOT_ALLOWED:
                raise StorePathInvalid(where, f"{problem.strerror}; {target} was not made") from problem
            raise StoreError(f"{where}: {problem.strerror or problem}; {target} was not made") from problem
    raise AssertionError("unreachable")


def _no_progress(what: str, done: int, total: int) -> None:
    """Ignore progress."""


class _Salvage:
    """One call."""

    def __init__(
        self, root: Path, target: Path, settings: StoreSettings, files: Files, clock: Clock, progress: Progress
    ) -> None:
        self._root, self._settings, self._clock, self._progress = root, settings, clock, progress
        self._files = files
        self._patient = FaultTolerantFiles(files)
        self.partial = target.with_name(target.name + ".partial")
        self._is_ours = False  # May `partial` be removed?
        self._report = Salvaged(root, target)
        self._placed: list[Placed] = []
        self._once = 0  # How far the log once went, as far as a state file, queue or index file proves.
        self._began = time.monotonic()

    def run(self) -> Salvaged:
        self._check_partial()
        old = self._queues_below(self._root)
        try:
            # Before the log: a store that is open goes on.
            self._once = proven_end(self._patient.as_files, self._root, lambda: newest_end(old.all()))
            self._find_log()
            self._begin()
            self._copy_log()
            self._copy_config()
            self._keep_offsets(old)
            self._recover()
            self._check()
            self._count_messages(old)
        finally:
            old.close()
        self._finish()
        return self._report

    def give_up(self) -> None:
        """Leave nothing behind that is ours."""
        if self._is_ours:
            remove_tree(self._files, self.partial, self._ours())

    def _ours(self) -> Ours:
        config = self._root / CONFIG
        names = {entry.name for entry in self._files.list_directory(config)} if self._files.exists(config) else set()
        return in_new_store(names)

    def _check_partial(self) -> None:
        """What an earlier call left may go, and nothing else."""
        files, partial = self._files, self.partial
        kind = files.kind(partial)
        if kind is None:
            return
        names = {entry.name for entry in files.list_directory(partial)} if kind is PathKind.DIRECTORY else set()
        if kind is not PathKind.DIRECTORY or (names and MARK not in names):
            raise StorePathInvalid(partial, "is in the way, and no rest of a salvage; move it, or name another place")
        if foreign := foreign_in(files, partial, self._ours()):
            raise StorePathInvalid(foreign[0], "was not left by a salvage; move it away, or name another place")

    def _queues_below(self, root: Path) -> ConsumeQueues:
        made = DerivedFiles(root, self._settings, self._patient.as_files, self._clock, read_only=True)
        queues = made.queues(lambda: 0)
        queues.load()
        return queues

    # -- copying -----------------------------------------------------------------------------------------------

    def _find_log(self) -> None:
        report, settings = self._report, self._settings
        paths = [*settings.commit_log_paths] or [self._root / COMMIT_LOG]
        paths += settings.commit_log_read_only_paths
        self._placed, report.refused = place_files(self._patient.as_files, paths, settings.segment_bytes)
        report.moved = [one for one in self._placed if one.is_renamed]
        report.segments, report.segment_bytes = len(self._placed), settings.segment_bytes

    def _begin(self) -> None:
        remove_tree(self._files, self.partial, self._ours())
        self._is_ours = True
        self._files.make_directory(self.partial)
        self._files.create(self.partial / MARK, 0, fallocate=False).close()

    def _copy_log(self) -> None:
        report, placed = self._report, self._placed
        log = self.partial / COMMIT_LOG
        self._files.make_directory(log)
        total = sum(one.size for one in placed)
        done = 0
        for one in placed:
            # The last one will be written to through a map: a full disk must be an error now and not a signal then.
            target = self._files.create(
                log / segment_name(one.start), self._settings.segment_bytes, fallocate=one is placed[-1]
            )
            source = self._patient.as_files.open(one.path, False)
            try:
                self._copy(source, target, one.size, done, total)
                target.sync()
            finally:
                source.close()
                target.close()
            done += one.size
        self._files.sync_directory(log)
        counting = {one.path for one in placed} | {one.path for one in report.refused if one.start is not None}
        report.bad_blocks = [block for block in self._patient.bad_blocks if block.path in counting]

    def _copy(self, source: OpenFile, target: OpenFile, size: int, done: int, total: int) -> None:
        for at in range(0, size, _COPY_BYTES):
            data = source.pread(min(_COPY_BYTES, size - at), at)
            if data.strip(b"\0"):
                target.pwrite(data, at)
            self._progress("copying", done + at + len(data), total)

    def _copy_config(self) -> None:
        """Consumers' progress and the rest of what a broker keeps, as it is."""
        source, target = self._root / CONFIG, self.partial / CONFIG
        if not self._files.exists(source):
            return
        self._files.make_directory(target)
        for entry in self._files.list_directory(source):
            if not entry.is_file:
                continue
            try:
                copy_file(self._files, source / entry.name, target / entry.name)
                self._report.config_files.append(entry.name)
            except OSError as problem:
                if self._files.exists(target / entry.name):
                    self._files.remove(target / entry.name)
                self._report.config_faults.append(f"{entry.name}: not taken along: {problem.strerror or problem}")
        self._files.sync_directory(target)
        for one in config_files(self._files, self.partial):
            if one.fault is not None:
                self._report.config_faults.append(f"{one.name}: taken along as it is: {one.fault}")

    def _keep_offsets(self, old: ConsumeQueues) -> None:
        """Queues go on after all they ever had, also after what was lost: consumers may have seen it. Topics that were
        deleted stay deleted."""
        ends = [(queue.topic, queue.queue_id, queue.max_offset) for queue in old.all()]
        kept = raised_offsets(ends, load_kept_offsets(self._files, self._root))
        if kept:
            save_kept_offsets(self._files, self.partial, kept)
        if self._files.exists(self._root / DELETED_TOPICS):
            copy_file(self._patient.as_files, self._root / DELETED_TOPICS, self.partial / DELETED_TOPICS)

    # -- the new store -----------------------------------------------------------------------------------------

    def _recover(self) -> None:
        if not was_closed_cleanly(self._files, self._root):
            mark_running(self._files, self.partial)
        self._progress("recovering", 0, 1)
        # Nothing is appended, delivered or deleted here: that is for the next one who opens the store.
        settings = self._settings.replace(
            commit_log_paths=(),
            commit_log_read_only_paths=(),
            delayed_delivery=False,
            plugins=(),
            allow_unreplicated=True,
        )
        with MessageStore.open(self.partial, settings, files=self._files, clock=self._clock) as store:
            report = self._report
            report.log_min, report.log_end = store.min_physical, store.max_physical
            report.records = store.recovery.records
            report.queues = sum(len(queue_ids) for queue_ids in store.topics().values())
            self._tell_ranges([*store.recovery.damages])

    def _tell_ranges(self, damages: list[Damage]) -> None:
        """Which parts of the log are lost: reported by recovery, by files that were not taken along, and by the end."""
        report, end = self._report, self._report.log_end
        files = [self._lost_file(one) for one in report.refused if self._is_lost(one)]
        reported = [_lost(damage) for damage in damages]
        report.torn = [one for one in reported if one.physical_offset >= max(end, self._once)]
        reported = [self._to_the_end(one) for one in reported if one not in report.torn]
        found = [part for one in reported for part in parts_outside(one, files)] + files
        if self._once > end:
            found += parts_outside(LostRange(end, self._once - end, _LOST_END, None), found)
        report.lost_ranges = sorted(found, key=lambda one: one.physical_offset)

    def _to_the_end(self, lost: LostRange) -> LostRange:
        """Recovery cuts up to the end of a file; behind the end that the log once had there was nothing to lose."""
        if lost.physical_offset < self._report.log_end:
            return lost
        return msgspec.structs.replace(lost, length=min(lost.length, self._once - lost.physical_offset))

    def _is_lost(self, one: RefusedFile) -> bool:
        """Should the file hold records? One of zeros behind the end was only made ahead."""
        return one.start is not None and (one.has_bytes or one.start < max(self._report.log_end, self._once))

    def _lost_file(self, one: RefusedFile) -> LostRange:
        assert one.start is not None
        size = self._settings.segment_bytes
        if one.start >= self._report.log_end:
            size = min(size, max(one.size, self._once - one.start))
        if not one.has_bytes:
            return LostRange(one.start, size, one.reason, None)
        name = f"{QUARANTINE}/{segment_name(one.start)}-{one.size}.bad"
        self._files.make_directory(self.partial / QUARANTINE)
        copy_file(self._patient.as_files, one.path, self.partial / name)
        self._files.sync_directory(self.partial / QUARANTINE)
        quarantine = Quarantine(self._files, self.partial, self._clock, read_only=False)
        quarantine.note(one.start, size, one.reason, "not taken along", kept_in=name)
        return LostRange(one.start, size, one.reason, name)

    def _check(self) -> None:
        """Is the new store sound, and which queue offsets between others have no record?"""
        found = verify(
            self.partial, files=self._files, progress=lambda done, total: self._progress("comparing", done, total)
        )
        report, faults = self._report, [flaw for flaw in found.flaws if flaw.is_fault]
        wrong = [flaw for flaw in faults if flaw.family != CONFIG and flaw.can_be_mended]
        if wrong:
            fault = f"{wrong[0].file}: {wrong[0].fault}"
            raise StoreError(f"the new store, which is left in {self.partial}, is not sound: {fault}")
        report.strays = [f"{flaw.file}: {flaw.fault}" for flaw in faults if not flaw.can_be_mended]
        for flaw in found.flaws:
            if flaw.family == CONSUME_QUEUE and flaw.queue_offset is not None and not flaw.is_fault:
                topic, queue_id = flaw.file.split("/")[1:3]
                first = flaw.queue_offset
                report.lost_messages.append(LostMessages(topic, int(queue_id), first, first + flaw.count))

    def _count_messages(self, old: ConsumeQueues) -> None:
        """Messages before and behind those of the new queues: entries of the old ones that lead to what is lost."""
        new = self._queues_below(self.partial)
        for queue in old.all():
            here = new.find(queue.topic, queue.queue_id)
            low, end = queue.min_offset, queue.max_offset
            outside = [(low, end)]
            if here is not None and here.has_entries():
                outside = [(low, min(here.min_offset, end)), (max(here.max_offset, low), end)]
            for start, stop in outside:
                self._report.lost_messages += self._lost_of(queue, start, stop)
        new.close()
        self._report.lost_messages.sort(key=lambda lost: (lost.topic, lost.queue_id, lost.first))

    def _lost_of(self, queue: ConsumeQueue, start: int, end: int) -> Iterator[LostMessages]:
        """Runs of queue offsets in [start, end) whose entries lead to a lost range."""
        for at in range(start, end, _STEP_ENTRIES):
            entries = queue_entries_of(queue, at, min(at + _STEP_ENTRIES, end))
            places = entries["physical_offset"].astype(np.int64)
            is_lost = np.zeros(len(entries), np.bool_)
            for lost in self._report.lost_ranges:
                is_lost |= (places >= lost.physical_offset) & (places < lost.end)
            edges = np.flatnonzero(np.diff(is_lost, prepend=False, append=False)).tolist()
            for first, after in zip(edges[::2], edges[1::2], strict=True):
                yield LostMessages(queue.topic, queue.queue_id, at + first, at + after)

    def _finish(self) -> None:
        report = self._report
        report.seconds = time.monotonic() - self._began
        document = {
            "salvaged_from": str(report.path),
            "segments": report.segments,
            "records": report.records,
            "log": [report.log_min, report.log_end],
            "lost_ranges": report.lost_ranges,
            "lost_messages": report.lost_messages,
            "strays": report.strays,
            "torn": report.torn,
            "config_faults": report.config_faults,
            "bad_blocks": [[str(block.path), block.at] for block in report.bad_blocks],
            "moved": [[str(one.path), one.start] for one in report.moved],
            "refused": [[str(one.path), one.reason] for one in report.refused],
        }
        self._files.replace_file(self.partial / REPORT, msgspec.json.format(msgspec.json.encode(document), indent=1))
        self._files.remove(self.partial / MARK)
        self._files.rename(self.partial, report.target)
        self._files.sync_directory(report.target.parent)


def _lost(damage: Damage) -> LostRange:
    return LostRange(damage.physical_offset, damage.length, damage.reason, damage.kept_in)
