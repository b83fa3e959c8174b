"""Salvage: every whole record of a damaged log, in a new store that we and the reference open.

    find      the log files that hold records, by their content (salvage_files.py)
    copy      them as they are, to a new directory; bad blocks of the disk become zeros
    recover   the new store: damaged ranges are put into its quarantine/ and closed by fillers, so that everything
              behind them stays in its place; queues and index are made from what is whole
    report    what was lost, by place in the log and by queue

What is whole stays what it was: physical offset, message id, queue, queue offset, bytes. So consumers' progress, which
is taken along, stays right. Queue offsets that were given once are not given again, as far as queue files know them.
The old store is only read: no lock, not even if somebody has it open. The new one appears when it is complete.
One thread.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from embermq.clock import Clock, SystemClock
from embermq.errors import StoreError, StorePathInvalid
from embermq.files.files import Files, OpenFile, RealFiles
from embermq.files.patient import BadBlock, PatientFiles
from embermq.files.trees import copy_file, remove_tree
from embermq.format.names import segment_name
from embermq.settings import StoreSettings
from embermq.store import directory
from embermq.store.damage import Damage
from embermq.store.message_store import MessageStore
from embermq.store.opening import DerivedFiles
from embermq.store.retention_offsets import load_kept_offsets, raised, save_kept_offsets
from embermq.store.salvage_files import Placed, Refused, place_files
from embermq.store.verify import verify

REPORT = "embermq.salvage.json"
_COPY_BYTES = 1 << 20

Progress = Callable[[str, int, int], None]  # What is being done, bytes done, and of all.


class LostRange(msgspec.Struct, frozen=True):
    """A part of the log without a whole record."""

    physical_offset: int
    length: int
    reason: str
    kept_in: str | None  # In the new store: the bytes as they were.


class LostMessages(msgspec.Struct, frozen=True):
    """Queue offsets first..end of a queue whose records are gone."""

    topic: str
    queue_id: int
    first: int
    end: int


@dataclass(slots=True)
class Salvaged:
    """What was saved, and what was not."""

    path: Path
    target: Path
    segments: int = 0
    log_min: int = 0
    log_end: int = 0
    records: int = 0
    queues: int = 0
    lost_ranges: list[LostRange] = field(default_factory=list)
    lost_messages: list[LostMessages] = field(default_factory=list)
    bad_blocks: list[BadBlock] = field(default_factory=list)
    moved: list[Placed] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    config_files: list[str] = field(default_factory=list)
    config_faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Was anything lost that a whole store would have had?"""
        return not (self.lost_ranges or self.lost_messages or self.bad_blocks or self.config_faults)

    @property
    def lost_bytes(self) -> int:
        return sum(lost.length for lost in self.lost_ranges)

    @property
    def lost_count(self) -> int:
        """Messages that queues show to be missing; of a lost end of the log nobody knows."""
        return sum(lost.end - lost.first for lost in self.lost_messages)


def salvage(
    path: str | Path, into: str | Path, settings: StoreSettings | None = None, *, files: Files | None = None,
    clock: Clock | None = None, progress: Progress | None = None,
) -> Salvaged:  # fmt: skip
    """Save what is whole of the store at `path` into a new one at `into`.

    StorePathInvalid if there is no store, or if `into` exists already. `settings` must have the sizes of its files.
    """
    root, target = (Path(one).expanduser().absolute() for one in (path, into))
    disk, settings = files or RealFiles(), settings or StoreSettings()
    directory.check_directory(disk, root, read_only=True, has_log_elsewhere=bool(settings.commit_log_paths))
    if disk.exists(target):
        raise StorePathInvalid(target, "exists already; name a directory that does not")
    if not disk.exists(target.parent):
        raise StorePathInvalid(target.parent, "there is no such directory to put it in")
    work = _Salvage(root, target, settings, disk, clock or SystemClock(), progress or _no_progress)
    try:
        return work.run()
    except OSError as problem:
        remove_tree(disk, work.partial)
        where = Path(str(problem.filename or root))
        raise StoreError(f"{where}: {problem.strerror or problem}; {target} was not made") from problem


def _no_progress(what: str, done: int, total: int) -> None:
    """Nobody looks."""


class _Salvage:
    """One call."""

    def __init__(
        self, root: Path, target: Path, settings: StoreSettings, files: Files, clock: Clock, progress: Progress
    ) -> None:
        self._root, self._settings, self._clock, self._progress = root, settings, clock, progress
        self._files = files
        self._patient = PatientFiles(files)
        self.partial = target.with_name(target.name + ".partial")
        self._report = Salvaged(root, target)
        self._began = time.monotonic()

    def run(self) -> Salvaged:
        remove_tree(self._files, self.partial)
        self._copy_log()
        self._copy_config()
        self._keep_offsets()
        self._recover()
        self._count_losses()
        self._finish()
        return self._report

    # -- copying -----------------------------------------------------------------------------------------------

    def _copy_log(self) -> None:
        report, settings = self._report, self._settings
        paths = [*settings.commit_log_paths] or [self._root / directory.COMMIT_LOG]
        paths += settings.commit_log_read_only_paths
        placed, report.refused = place_files(self._patient.as_files, paths, settings.segment_bytes)
        report.moved = [one for one in placed if one.is_renamed]
        report.segments = len(placed)
        log = self.partial / directory.COMMIT_LOG
        self._files.make_directory(log)
        total = sum(one.size for one in placed)
        done = 0
        for one in placed:
            # The last one will be written to through a map: a full disk must be an error now and not a signal then.
            target = self._files.create(
                log / segment_name(one.start), settings.segment_bytes, fallocate=one is placed[-1]
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
        report.bad_blocks = [block for block in self._patient.bad_blocks if block.path in {one.path for one in placed}]

    def _copy(self, source: OpenFile, target: OpenFile, size: int, done: int, total: int) -> None:
        for at in range(0, size, _COPY_BYTES):
            data = source.pread(min(_COPY_BYTES, size - at), at)
            if data.strip(b"\0"):
                target.pwrite(data, at)
            self._progress("copying", done + at + len(data), total)

    def _copy_config(self) -> None:
        """Consumers' progress and the rest of what a broker keeps, as it is."""
        source, target = self._root / directory.CONFIG, self.partial / directory.CONFIG
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
                self._report.config_faults.append(f"{entry.name}: {problem.strerror or problem}")
        self._files.sync_directory(target)

    def _keep_offsets(self) -> None:
        """Queues go on after all they ever had, also after what was lost: consumers may have seen it."""
        old = DerivedFiles(self._root, self._settings, self._patient.as_files, self._clock, read_only=True)
        queues = old.queues(lambda: 0)
        queues.load()
        ends = [(queue.topic, queue.queue_id, queue.max_offset) for queue in queues.all()]
        queues.close()
        kept = raised(ends, load_kept_offsets(self._files, self._root))
        if kept:
            save_kept_offsets(self._files, self.partial, kept)

    # -- the new store -----------------------------------------------------------------------------------------

    def _recover(self) -> None:
        if not directory.was_closed_cleanly(self._files, self._root):
            directory.mark_running(self._files, self.partial)
        self._progress("recovering", 0, 1)
        # Nothing is delivered or deleted here: whoever opens the store later does that.
        settings = self._settings.replace(
            commit_log_paths=(), commit_log_read_only_paths=(), delayed_delivery=False, plugins=()
        )
        with MessageStore.open(self.partial, settings, files=self._files, clock=self._clock) as store:
            report = self._report
            report.log_min, report.log_end = store.min_physical, store.max_physical
            report.records = store.recovery.records
            report.queues = sum(len(queue_ids) for queue_ids in store.topics().values())
            report.lost_ranges = [_lost(damage) for damage in store.recovery.damages]

    def _count_losses(self) -> None:
        """Which queue offsets have no record, as the new store shows."""
        found = verify(
            self.partial, files=self._files, progress=lambda done, total: self._progress("comparing", done, total)
        )
        wrong = [flaw for flaw in found.flaws if flaw.is_fault and flaw.family != directory.CONFIG]
        if wrong:
            fault = f"{wrong[0].file}: {wrong[0].fault}"
            raise StoreError(f"the new store, which is left in {self.partial}, is not sound: {fault}")
        for flaw in found.flaws:
            if flaw.family == directory.CONSUME_QUEUE and flaw.queue_offset is not None:
                topic, queue_id = flaw.file.split("/")[1:3]
                first = flaw.queue_offset
                self._report.lost_messages.append(LostMessages(topic, int(queue_id), first, first + flaw.count))

    def _finish(self) -> None:
        report = self._report
        report.seconds = time.monotonic() - self._began
        document = {
            "salvaged_from": str(report.path), "segments": report.segments, "records": report.records,
            "log": [report.log_min, report.log_end], "lost_ranges": report.lost_ranges,
            "lost_messages": report.lost_messages, "config_faults": report.config_faults,
            "bad_blocks": [[str(block.path), block.at] for block in report.bad_blocks],
            "moved": [[str(one.path), one.start] for one in report.moved],
            "refused": [[str(one.path), one.reason] for one in report.refused],
        }  # fmt: skip
        self._files.replace_file(self.partial / REPORT, msgspec.json.format(msgspec.json.encode(document), indent=1))
        self._files.rename(self.partial, report.target)
        self._files.sync_directory(report.target.parent)


def _lost(damage: Damage) -> LostRange:
    return LostRange(damage.physical_offset, damage.length, damage.reason, damage.kept_in)
