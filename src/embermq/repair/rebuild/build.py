"""Building queues and index aside, from a log that is only read: the walk of recovery, with other sinks' files.

Every gigabyte what was built is synced and the journal says so; a build that was killed goes on from there, as a
store recovers from its proofs. One thread; the walker scans ahead on a second one. (bulk_build.py builds the same
files in pieces, on several machines if need be.)
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from embermq.clock import Clock
from embermq.columns import C_PHYSICAL, QueueSlots, RecordColumns
from embermq.errors import StoreError
from embermq.files import Files, Segments, copy_file
from embermq.inspect import StoreShape
from embermq.repair.rebuild.journal import Family, RebuildJournal, clear_work, load_journal, save_journal
from embermq.repair.verify.store_check import Aside, VerifyReport, verify_aside
from embermq.settings import StoreSettings
from embermq.store import Sink
from embermq.store.layout import (
    COMMIT_LOG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    load_deleted_topics,
    load_state_page,
    was_closed_cleanly,
)
from embermq.store.log import CommitLog, Damage, Quarantine, Walker
from embermq.store.queues import ConsumeQueue, ConsumeQueues, settle_deleted_topics
from embermq.store.recovery import DerivedFiles, Plan, Recovery, RecoveryReport

PORTION_BYTES = 1 << 30
_HEAD_BYTES = 40  # Size, magic, checksum, queue, queue offset, place: tells one record from another.

NEW = "new"  # Below the place where a rebuild works: what is to be swapped in.

Progress = Callable[[int, int], None]
QueueBytes = tuple[bytes, int]  # A topic as records have it, and a queue id.


def open_log(root: Path, settings: StoreSettings, files: Files) -> CommitLog:
    """The log of a store, to be read only."""
    paths = settings.commit_log_paths or (root / COMMIT_LOG,)
    segments = Segments(
        list(paths),
        files,
        settings.segment_bytes,
        read_only=True,
        read_only_directories=settings.commit_log_read_only_paths,
    )
    segments.load()
    return CommitLog(segments)


@dataclass(slots=True)
class Built:
    """What building came to."""

    end: int
    records: int
    queues_state: dict[str, Any]
    index_state: dict[str, Any]
    resumed_at: int | None
    damages: list[Damage] = field(default_factory=list)
    torn_tail: list[Damage] = field(default_factory=list)


class Build:
    """Builds below `target` what the log of the store at `root` says; with `only`, of these queues alone."""

    def __init__(
        self,
        root: Path,
        target: Path,
        settings: StoreSettings,
        families: tuple[Family, ...],
        files: Files,
        clock: Clock,
        *,
        only: Collection[QueueBytes] | None = None,
    ) -> None:
        self._root, self._target, self._settings, self._families = root, target, settings, families
        self._files, self._clock, self._only = files, clock, only
        self._log = open_log(root, settings, files)
        self._deleted = load_deleted_topics(files, root)
        self._segments = self._log.segments
        self._walker = Walker(self._log, settings.delay_ms, settings.kernels)
        self.fingerprint = {
            "queue_file_bytes": settings.queue_file_bytes,
            "index": [settings.index_slots_max, settings.index_entries_max],
            "extension": [settings.queue_extension, settings.queue_extension_file_bytes],
            "multi_dispatch": [settings.multi_dispatch, settings.light_queues],
            "delays": list(settings.delay_ms),
            "deleted": sorted([topic, place] for topic, place in self._deleted.items()),
            "only": None if only is None else sorted([topic.hex(), queue_id] for topic, queue_id in only),
        }

    def close(self) -> None:
        self._walker.close()
        self._log.close()

    def log_facts(self, position: int) -> dict[str, Any]:
        """What tells this log, up to `position`, from another: where it begins, and its first and last bytes there."""
        first, last = self._raw(self._log.min_offset, _HEAD_BYTES), self._raw(max(position - 16, 0), 16)
        after = self._raw(position, 8).rstrip(b"\0")
        return {"min": self._log.min_offset, "first": first.hex(), "last": last.hex(), "after": after.hex()}

    def _raw(self, physical_offset: int, count: int) -> bytes:
        """Bytes of the log as they lie there, past its end too."""
        segment = self._segments.find(physical_offset)
        return (
            b""
            if segment is None or segment.file is None
            else segment.file.pread(count, physical_offset - segment.start)
        )

    def run(self, work: Path, progress: Progress) -> Built:
        """Build, or go on where an earlier call was; `work` has the journal."""
        return self._run(work, progress, carry=True)

    def _run(self, work: Path, progress: Progress, *, carry: bool) -> Built:
        start = self._resume_place(work)
        if start is None:
            clear_work(self._files, work)
            self._files.make_directory(self._target)
        if start is None and carry:
            self._carry_over(None if self._only is None else {names_of(one) for one in self._only})
        place = self._log.min_offset if start is None else start.position
        derived = DerivedFiles(self._target, self._settings, self._files, self._clock, read_only=False)
        queues = derived.queues(lambda: self._log.min_offset) if Family.QUEUES in self._families else None
        index = derived.index() if Family.INDEX in self._families else None
        unusable = list(queues.load()) if queues is not None else []
        if index is not None and start is not None:
            unusable += index.restore(start.index)
        if unusable:
            clear_work(self._files, work)
            # Nothing was resumed: then it is the files that were carried over, and those are damaged.
            return self._run(work, progress, carry=start is not None)
        sinks: list[Sink] = [sink for sink in (queues, index) if sink is not None]
        fed: list[Sink] = [_Only(sink, self._only) for sink in sinks] if self._only is not None else [*sinks]
        if queues is not None and self._deleted:
            fed[0] = _Deleting(fed[0], queues, self._deleted, place)
        portions = _Portions(self, work, sinks, place, progress)
        built = self._walk(queues, [*fed, portions], place)
        if index is not None:
            index.truncate_to(built.end)
        for sink in sinks:
            sink.flush()
        built.queues_state = queues.state() if queues is not None else {}
        built.index_state = index.state() if index is not None else {}
        built.resumed_at = None if start is None else place
        for sink in sinks:
            sink.close()
        return built

    def _resume_place(self, work: Path) -> RebuildJournal | None:
        """The journal of an earlier call that this one can go on with."""
        journal = load_journal(self._files, work)
        if journal is None or journal.ready or journal.slices or journal.families != list(self._families):
            return None
        same = journal.settings == self.fingerprint and journal.log == self._facts_while_building(journal.position)
        return journal if same else None

    def _facts_while_building(self, position: int) -> dict[str, Any]:
        """The log may have grown since."""
        return {**self.log_facts(position), "after": ""}

    def _walk(self, queues: ConsumeQueues | None, sinks: list[Sink], place: int) -> Built:
        quarantine = Quarantine(self._files, self._root, self._clock, read_only=True)
        recovery = Recovery(
            self._log,
            self._walker,
            sinks,
            quarantine,
            self._clock,
            check_crc=self._settings.check_crc_on_recovery,
            read_only=True,
        )
        if queues is not None:
            queues.begin_replay()
        report = RecoveryReport(was_closed_cleanly(self._files, self._root))
        end = recovery.run(Plan(place, self._proven(), None, "rebuild"), report)
        if queues is not None:
            queues.finish_replay(place, end, keep_ends=quarantine.has_filled)
            queues.correct_min(self._log.min_offset)
            settle_deleted_topics(
                self._files, self._root, queues, end, read_only=True
            )  # Deletions that the log does not reach.
        return Built(end, report.records, {}, {}, None, report.damages)

    def _proven(self) -> int | None:
        """Past this place only an unbroken row of records counts, as at a start."""
        page = load_state_page(self._files, self._root, writable=False)
        last = self._segments.last
        if page is None or last is None or not self._log.min_offset <= page.flushed <= last.end:
            return None
        return page.flushed

    def tell_tail(self, built: Built) -> None:
        """Tell what a crash left behind the last record, which the next start cuts off, from damage: the store was not
        closed, nothing follows, and what was there is not proven. `verify` calls such a store sound."""
        if was_closed_cleanly(self._files, self._root):
            return
        proven = self._proven() or 0
        while built.damages and not built.damages[-1].filled and built.damages[-1].physical_offset >= proven:
            built.torn_tail.insert(0, built.damages.pop())

    def _carry_over(self, wanted: Collection[tuple[str, int]] | None = None) -> None:
        """Queues without any record in the log keep their files: nothing else knows where they go on. All of them, or
        the wanted ones."""
        if Family.QUEUES not in self._families:
            return
        old = DerivedFiles(self._root, self._settings, self._files, self._clock, read_only=True)
        before = old.queues(lambda: self._log.min_offset)
        before.load()
        for queue in before.all():
            is_wanted = wanted is None or (queue.topic, queue.queue_id) in wanted
            if is_wanted and self._is_idle(queue):
                self._carry_files(queue)
        before.close()

    def _carry_files(self, queue: ConsumeQueue) -> None:
        """Copy the files of a queue, and of its extension, which its entries may name."""
        copies = {CONSUME_QUEUE: [queue.path_of(start) for start in sorted(queue.file_starts)]}
        if queue.extension is not None:
            copies[CONSUME_QUEUE_EXT] = queue.extension.paths()
        for family, paths in copies.items():
            if paths:
                target = self._target / family / queue.topic / str(queue.queue_id)
                self._files.make_directory(target)
                for path in paths:
                    copy_file(self._files, path, target / path.name)
                self._files.sync_directory(target)

    def _is_idle(self, queue: ConsumeQueue) -> bool:
        """Have all records of a queue left the log? Of a deleted topic there is nothing to go on with."""
        return self._deleted.get(queue.topic, -1) < queue.max_physical <= self._log.min_offset

    def compare(self, work: Path, end: int, progress: Progress) -> None:
        """Every entry and every key with its record; StoreError if they do not agree."""
        made = StoreShape.of(self._settings)
        if Family.QUEUES not in self._families:
            made = replace(made, queue_file_bytes=None)
        if Family.INDEX not in self._families:
            made = replace(made, index=None)
        aside = Aside(self._target, made)
        report = self._verified(aside, end, progress)
        # Records that contradict one another do so in any file made from them.
        wrong = [flaw for flaw in report.flaws if flaw.is_fault and flaw.can_be_mended]
        if wrong:
            raise disagreement(work, f"{wrong[0].file}: {wrong[0].fault}")

    def _verified(self, aside: Aside, end: int, progress: Progress) -> VerifyReport:
        return verify_aside(self._root, aside, end, files=self._files, progress=progress)

    def note_portion(self, work: Path, position: int, index_state: dict[str, Any]) -> None:
        """What was taken is durable up to `position`."""
        save_journal(
            self._files,
            work,
            RebuildJournal(
                families=list(self._families),
                settings=self.fingerprint,
                position=position,
                log=self._facts_while_building(position),
                index=index_state,
            ),
        )

    @property
    def bounds(self) -> tuple[int, int]:
        last = self._segments.last
        return self._log.min_offset, last.end if last is not None else 0


def disagreement(work: Path, fault: str) -> StoreError:
    """To be raised when what was built is not what the log says."""
    return StoreError(f"what was built in {work} does not agree with the log, and nothing was changed: {fault}")


def names_of(queue: QueueBytes) -> tuple[str, int]:
    """A queue by the names of its directories."""
    return queue[0].decode("utf-8", "replace"), queue[1]


class _Only:
    """Hands a sink the records of some queues."""

    def __init__(self, sink: Sink, only: Collection[QueueBytes]) -> None:
        self.name, self._sink = sink.name, sink
        self.position = sink.position
        self._wanted = QueueSlots(exact=True)
        for topic, queue_id in only:
            self._wanted.add_spelled(topic, queue_id)

    def take(self, batch: RecordColumns, end: int) -> None:
        rows = batch.rows[self._wanted.find_rows(batch) >= 0]
        self._sink.take(RecordColumns(batch.data, batch.base, rows), end)
        self.position = end

    def flush(self) -> None:
        self._sink.flush()

    def truncate_to(self, physical_offset: int) -> None:
        self._sink.truncate_to(physical_offset)

    def close(self) -> None:
        """The sink belongs to the caller."""


class _Deleting:
    """Hands a sink all records, and removes the queues of a deleted topic where the log ended then, between the same
    two records as the live dispatcher: what comes later is of the topic's new incarnation."""

    def __init__(self, sink: Sink, queues: ConsumeQueues, deleted: Mapping[str, int], position: int) -> None:
        self.name, self._sink, self._queues = sink.name, sink, queues
        self.position = position
        self._due = sorted((place, topic) for topic, place in deleted.items() if place > position)

    def take(self, batch: RecordColumns, end: int) -> None:
        while self._due and self._due[0][0] <= end:
            place, topic = self._due.pop(0)
            before = int(np.searchsorted(batch.column(C_PHYSICAL), place))
            if before:
                self._sink.take(batch.slice(0, before), place)
                batch = batch.slice(before, len(batch))
            for queue_id in self._queues.topics().get(topic, []):
                self._queues.discard(topic, queue_id)
        if len(batch):
            self._sink.take(batch, end)
        self.position = end

    def flush(self) -> None:
        self._sink.flush()

    def truncate_to(self, physical_offset: int) -> None:
        self._sink.truncate_to(physical_offset)

    def close(self) -> None:
        """The sink belongs to the caller."""


class _Portions:
    """The last sink: after each portion of the log it has the others synced, and the journal written."""

    name = "portions"

    def __init__(self, build: Build, work: Path, sinks: list[Sink], position: int, progress: Progress) -> None:
        self._build, self._work, self._sinks, self._progress = build, work, sinks, progress
        self.position = self._noted = position

    def take(self, batch: RecordColumns, end: int) -> None:
        self.position = end
        start, log_end = self._build.bounds
        self._progress(end - start, log_end - start)
        if end - self._noted >= PORTION_BYTES:
            self._note(end)

    def _note(self, end: int) -> None:
        index_state: dict[str, Any] = {}
        for sink in self._sinks:
            sink.flush()
            if sink.name == "index":
                index_state = sink.state()  # type: ignore[attr-defined]
        self._build.note_portion(self._work, end, index_state)
        self._noted = end

    def flush(self) -> None:
        """The others are flushed by their owner."""

    def truncate_to(self, physical_offset: int) -> None:
        self.position = min(self.position, physical_offset)

    def close(self) -> None:
        """Nothing is open."""
