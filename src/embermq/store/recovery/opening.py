"""Opening a store: from a directory to parts that agree with each other.

    check the path -> take the lock -> claim the page -> load files -> plan -> walk -> settle -> parts

`MessageStore` starts the threads; nothing runs yet when this is done. What fails here raises one error
that names the place, and leaves the directory unlocked.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from embermq.clock import Clock
from embermq.errors import StorePathInvalid
from embermq.files import Files, Lock, Segments
from embermq.settings import BrokerRole, FlushDisk, StoreSettings
from embermq.store.append.cpu_pinning import CpuPinning
from embermq.store.index.index_files import IndexFiles
from embermq.store.index.log_search import KeySearch
from embermq.store.index.proof import IndexProof, drop_index_proof, load_index_proof
from embermq.store.layout import directory
from embermq.store.layout.deleted_topics import load_deleted_topics
from embermq.store.layout.deleted_topics import within as deleted_topics_within
from embermq.store.layout.fence import Fence, FencedFiles, claim, renew_page
from embermq.store.layout.inventory import Inventory, load_inventory
from embermq.store.layout.kept_offsets import load_kept_offsets, raised_offsets
from embermq.store.layout.misplaced import clear_misplaced, refuse_misplaced_log
from embermq.store.layout.state_page import StatePage
from embermq.store.layout.state_view import PageNumbers, PageReader
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.damage import Quarantine
from embermq.store.log.walk import Walker, WalkStep
from embermq.store.queues.consume_queues import settle_deleted_topics
from embermq.store.queues.extension import BitMapFor
from embermq.store.queues.loading import Written
from embermq.store.queues.multi_dispatch import MultiDispatch
from embermq.store.queues.next_offsets import NextOffsets
from embermq.store.recovery.parts import DerivedFiles, StoreParts, release
from embermq.store.recovery.plan import FilesSeen, IndexPlan, Proofs, make_plan
from embermq.store.recovery.reading import LookAgain, Reading, Sound
from embermq.store.recovery.replay import Plan, Recovery, RecoveryReport, stands_at_record
from embermq.store.sink import Sink

log = logging.getLogger(__name__)

_LOOKS_MAX = 4


@dataclass(frozen=True, slots=True)
class OpeningDecision:
    """What an opening decides before it changes anything: where to walk from, and what becomes of derived files."""

    plan: Plan
    index_plan: IndexPlan
    findings: list[str]


def open_parts(
    root: Path,
    settings: StoreSettings,
    files: Files,
    clock: Clock,
    *,
    read_only: bool,
    derive: bool,
    bit_map_for: BitMapFor | None = None,
) -> StoreParts:
    """Everything up to the point where threads start."""
    elsewhere = bool(settings.commit_log_paths)
    directory.check_directory(files, root, read_only=read_only, has_log_elsewhere=elsewhere)
    claimed: _Claimed | None = None
    lock = None if read_only else directory.take_directory(files, root)

    def begin() -> _Opening:
        return _Opening(root, settings, files, clock, claimed, derive, bit_map_for)

    try:
        claimed = None if lock is None else _Claimed(lock, *claim(files, root))
        return _open_to_read(begin) if read_only else begin().run()
    except OSError as problem:
        release(claimed or lock)
        where = problem.filename or root
        raise StorePathInvalid(Path(str(where)), problem.strerror or str(problem)) from problem
    except BaseException:
        release(claimed or lock)
        raise


def _open_to_read(begin: Callable[[], "_Opening"]) -> StoreParts:
    """Open beside a writer. If files went or came between two looks, look again; at last believe only the log."""
    for looks_left in reversed(range(_LOOKS_MAX)):
        try:
            opening = begin()
            try:
                return opening.run(believe_derived=looks_left > 0)
            except BaseException:
                opening.close()
                raise
        except (LookAgain, FileNotFoundError) as problem:
            if not looks_left:
                raise
            log.info("looking again reason=%s", problem)
    raise AssertionError("unreachable")


def decide_opening(root: Path, settings: StoreSettings, files: Files, clock: Clock) -> OpeningDecision:
    """What `open_parts` would decide for writing, now. Takes no lock, writes nothing; StorePathInvalid as there."""
    elsewhere = bool(settings.commit_log_paths)
    directory.check_directory(files, root, read_only=True, has_log_elsewhere=elsewhere)
    try:
        opening = _Opening(root, settings, files, clock, None, True, None)
        try:
            return opening.decide()
        finally:
            opening.close()
    except OSError as problem:
        where = problem.filename or root
        raise StorePathInvalid(Path(str(where)), problem.strerror or str(problem)) from problem


@dataclass(frozen=True, slots=True)
class _Claimed:
    """What an opening for writing has before it begins: the lock, and its token in the state page."""

    lock: Lock
    fence: Fence
    page: StatePage | None  # If it can be believed.

    def release(self) -> None:
        self.fence.release()
        self.lock.release()


class _Opening:
    """One opening; its steps share these parts."""

    def __init__(
        self,
        root: Path,
        settings: StoreSettings,
        files: Files,
        clock: Clock,
        claimed: _Claimed | None,
        derive: bool,
        bit_map_for: BitMapFor | None,
    ) -> None:
        self.root, self.settings, self.clock, self.claimed = root, settings, clock, claimed
        self.files = files if claimed is None else FencedFiles(files, claimed.fence).as_files
        self.read_only = claimed is None
        self.derive, self.bit_map_for = derive, bit_map_for
        self.clean = directory.was_closed_cleanly(files, root)
        self.report = RecoveryReport(self.clean)
        # What vouches for files is read before them: a running writer says last what it has done.
        self.numbers = PageReader(root, files).read() if self.read_only else None
        self.index_proof = load_index_proof(files, root) if settings.index and derive else None
        self.segments = self._load_segments()
        self.report.findings += clear_misplaced(files, root, read_only=self.read_only)
        self.log = CommitLog(self.segments)
        derived = DerivedFiles(
            root,
            settings,
            self.files,
            clock,
            read_only=self.read_only,
            check_writer=claimed.fence.check if claimed is not None else None,
        )
        self.queues = derived.queues(lambda: self.log.min_offset, bit_map_for) if derive else None
        pins = settings.waiters_share_core and settings.flush is FlushDisk.SYNC and not self.read_only
        self.pinning = CpuPinning() if pins else None
        self.walker = Walker(
            self.log,
            settings.delay_ms,
            settings.kernels,
            look_ahead=self.queues.look_ahead if self.queues is not None else None,
            on_second_thread=self.pinning.leave if self.pinning is not None else None,
        )
        self.index = derived.index() if derive and settings.index else None
        multi = MultiDispatch(light_queues=settings.light_queues) if settings.multi_dispatch else None
        self.next_offsets = NextOffsets(load_deleted_topics(files, root), multi)
        self.quarantine = Quarantine(self.files, root, clock, read_only=self.read_only)
        self._is_indexed_again = False

    # -- loading ---------------------------------------------------------------------------------------------

    def _load_segments(self) -> Segments:
        paths = self.settings.commit_log_paths or (self.root / directory.COMMIT_LOG,)
        segments = Segments(
            list(paths),
            self.files,
            self.settings.segment_bytes,
            read_only=self.read_only,
            read_only_directories=self.settings.commit_log_read_only_paths,
            is_too_full=self._is_too_full,
        )
        if not self.read_only:
            directory.make_targets(self.files, self.root)
            for path in (*paths, self.root / directory.CONSUME_QUEUE):
                self.files.make_directory(path)
        self.log_findings = segments.load()
        if not self.read_only:
            refuse_misplaced_log(self.files, segments)
        self.report.findings += [f"{one.path}: {one.fault}; {one.remedy}" for one in self.log_findings]
        return segments

    def _is_too_full(self, path: Path) -> bool:
        """Of several log directories, full ones get no new files."""
        return self.files.usage(path).used_ratio > self.settings.disk_clean_percent / 100

    # -- the steps -------------------------------------------------------------------------------------------

    def run(self, *, believe_derived: bool = True) -> StoreParts:
        """The whole opening. For a reader: LookAgain if files do not fit together, as long as it may believe them."""
        inventory = load_inventory(self.files, self.root) if self.clean else None
        claimed = self.claimed
        page = claimed.page if claimed is not None else None
        proof = self._adopt_index_proof()
        numbers = self.numbers if self.read_only else page
        seen = self._look(inventory, numbers)
        flushed = numbers.flushed if numbers is not None else 0
        reading = Reading(self.files, self.root, self.log, self.numbers)
        if claimed is None:
            plan = reading.plan(
                seen,
                self.sound,
                inventory,
                self.queues,
                self.index,
                proof,
                lambda *facts: self._decide(*facts)[0],
                lambda numbers: self._proofs(numbers, proof),
                believe_queues=believe_derived,
            )
        else:
            plan, index_plan = self._decide(seen, inventory, self._proofs(page, proof))
            directory.mark_running(self.files, self.root)
            page = page or renew_page(self.files, self.root, claimed.fence)
            plan = self._prepare_derived(plan, index_plan, page, proof)
        queues_durable = page.queues_durable if page is not None else 0
        end, recovery = self._walk(plan, queues_durable)
        if self.read_only and believe_derived and not self.clean:
            reading.check_unchanged(self.queues)
        self._tell_of_lost_end(end, flushed, inventory)
        if not self.derive and plan.expected_end is not None and inventory is not None:
            self.next_offsets.adopt(inventory.next_offsets)
        for path, aside in self.queues.aside if self.queues is not None else ():
            self.report.findings.append(f"{path}: in the way; put aside as {aside}")
        return StoreParts(
            self.root,
            self.settings,
            self.files,
            self.clock,
            claimed.lock if claimed is not None else None,
            claimed.fence if claimed is not None else None,
            self.log,
            self.walker,
            self.queues,
            self.index,
            page,
            self.report,
            end,
            recovery.last_store_timestamp,
            recovery.tail_mark,
            self._all_next_offsets(),
            self.pinning,
        )

    def decide(self) -> OpeningDecision:
        """What `run` would decide if it might write. Of an opening that does not: nothing is changed."""
        assert self.read_only
        inventory = load_inventory(self.files, self.root) if self.clean else None
        proof = self._adopt_index_proof()
        seen = replace(self._look(inventory, self.numbers), read_only=False)
        proofs = self._proofs(self.numbers, proof)
        return OpeningDecision(*self._decide(seen, inventory, proofs), self.report.findings)

    def _adopt_index_proof(self) -> IndexProof | None:
        """What vouches for the index; its checksums are for the files that are loaded next."""
        if self.index is None:
            return None
        proof = self.index_proof
        if proof is not None:
            self.index.adopt_checksums(proof.checksums, proof.state, closed=self.clean)
        self.index.search_log = KeySearch(self.files, self.log).places
        return proof

    def close(self) -> None:
        """Let the files go, of an opening that came to nothing or only decided."""
        for part in (self.queues, self.index, self.walker, self.log):
            if part is not None:
                part.close()

    def _decide(self, seen: FilesSeen, inventory: Inventory | None, proofs: Proofs | None) -> tuple[Plan, IndexPlan]:
        """Where to begin to walk; the proofs must fit the log to be believed."""
        plan, index_plan = make_plan(seen, inventory, proofs)
        written = plan.proven if plan.proven is not None else 0
        if plan.walk_from != seen.log_min and not stands_at_record(self.log, plan.walk_from, written):
            return Plan(seen.log_min, None, None, "the proofs do not fit the log"), IndexPlan.REBUILD
        return plan, index_plan

    def _look(self, inventory: Inventory | None, page: StatePage | PageNumbers | None) -> FilesSeen:
        """Load the derived files and compare them with what the last clean close left."""
        findings: list[str] = []
        differences: list[str] = []
        queues, index = self.queues, self.index
        if queues is not None:
            known = inventory.queues if inventory is not None else None
            findings += _texts(queues.load(known, self._entries_written(page)))
            differences += _texts(queues.matches(inventory.queues)) if inventory is not None else []
        queues_sound, index_sound = not findings and not differences, True
        if index is not None:
            of_index = _texts(index.load())
            differs = _texts(index.matches(inventory.index)) if inventory is not None else []
            index_sound = not of_index and not differs
            findings, differences = findings + of_index, differences + differs
        if inventory is not None:
            differences += self._other_differences(inventory)
        self.report.findings += findings + differences
        self.sound = Sound(queues_sound, index_sound)
        last = self.segments.last
        return FilesSeen(
            clean=self.clean,
            log_min=self.log.min_offset,
            log_capacity_end=last.end if last is not None else 0,
            log_files_sound=not self.log_findings,
            queue_files=sum(len(queue.file_starts) for queue in queues.all()) if queues is not None else 0,
            index_files=index.count if index is not None else 0,
            derived_findings=len(findings),
            inventory_findings=len(differences),
            read_only=self.read_only,
        )

    def _entries_written(self, page: StatePage | PageNumbers | None) -> Written:
        """Which entries must be there, unless something happened to them."""
        last = self.segments.last
        if page is None or last is None:
            return Written()
        as_written = self.clean or self._only_process_died(page)
        return Written(page.queues_written if as_written else page.queues_durable, last.end)

    def _only_process_died(self, page: StatePage | PageNumbers) -> bool:
        """The machine has not stopped since the store was open: everything that was written is there."""
        return page.boot != 0 and page.boot == self.files.boot()

    def _is_as_written(self, index: IndexFiles, proof: IndexProof, page: StatePage | PageNumbers) -> bool:
        """Are all index files there that the process had when it died, those since the last sync too?"""
        return self._only_process_died(page) and index.count >= page.index_files and proof.is_behind(index.state())

    def _proofs(self, page: StatePage | PageNumbers | None, index: IndexProof | None) -> Proofs | None:
        if page is None or (self.index is not None and index is None):
            return None
        queues = page.queues_durable if self.queues is not None else 0
        index_position = index.position if index is not None else queues
        written = page.flushed
        if self._only_process_died(page):
            queues = page.queues_written if self.queues is not None else 0
            written = max(written, queues)
            if self.index is not None and index is not None and self._is_as_written(self.index, index, page):
                index_position = max(index_position, self.index.position)
        index_files = index.file_count if index is not None else 0
        queue_files = page.queue_files if self.queues is not None else 0
        return Proofs(page.flushed, written, queues, index_position, queue_files, index_files, page.tail_mark)

    def _other_differences(self, inventory: Inventory) -> list[str]:
        differences = []
        if directory.checkpoint_times(self.files, self.root) != inventory.checkpoint:
            differences.append("checkpoint: changed since the store was closed here")
        if self.log.min_offset != inventory.log_min:
            differences.append(f"commitlog: begins at {self.log.min_offset}, not at {inventory.log_min}")
        if self.derive and inventory.dispatch == "none":
            differences.append("consumequeue: the store was last open without dispatch")
        return differences

    def _prepare_derived(self, plan: Plan, index_plan: IndexPlan, page: StatePage, proof: IndexProof | None) -> Plan:
        """Cut the index to its proof, or drop it; withdraw proofs for what is about to be made again."""
        if self.index is not None and index_plan is IndexPlan.RESTORE:
            assert proof is not None
            as_written = self._is_as_written(self.index, proof, page)
            findings = self.index.restore(self.index.state() if as_written else proof.state)
            if findings:
                self.report.findings += _texts(findings)
                index_plan = IndexPlan.REBUILD
                plan = replace(plan, walk_from=self.log.min_offset)
        if index_plan is IndexPlan.REBUILD:
            page.queues_written = page.queues_durable = 0
            page.sync()
            drop_index_proof(self.files, self.root)
            if self.index is not None:
                self.index.destroy_all()
        page.boot = 0  # Until recovery is through, only what was synced counts.
        return plan

    def _walk(self, plan: Plan, queues_durable: int) -> tuple[int, Recovery]:
        sinks: list[Sink] = [sink for sink in (self.queues, self.index) if sink is not None]
        if not self.derive:
            sinks.append(self.next_offsets)
        recovery = Recovery(
            self.log,
            self.walker,
            sinks,
            self.quarantine,
            self.clock,
            check_crc=self.settings.check_crc_on_recovery,
            read_only=self.read_only,
            is_replica=self.settings.role is BrokerRole.SLAVE,
            on_damage=partial(self._index_again, plan.walk_from),
        )
        if self.queues is not None:
            self.queues.begin_replay(plan.walk_from, load_deleted_topics(self.files, self.root))
        end = recovery.run(plan, self.report)
        if self.queues is not None:
            self.queues.finish_replay(plan.walk_from, end, keep_ends=self.quarantine.has_filled)
            self.queues.touch_since(queues_durable)
            self.queues.correct_min(self.log.min_offset, as_closed=plan.expected_end is not None)
            settle_deleted_topics(self.files, self.root, self.queues, end, read_only=self.read_only)
        else:
            deleted_topics_within(self.files, self.root, end, read_only=self.read_only)
        if self.index is not None and not self.read_only:
            self.index.truncate_to(end)
        self.log.adopt_end(end)
        return end, recovery

    def _index_again(self, start: int, damaged: int) -> None:
        """Damage was met behind `start`, where the walk began. The index forgets all that it had of the walked log, so
        that no entry leads to a lost record, or to one whose keys are damaged: no checksum covers them. It is given
        what was walked so far again; the rest of the walk follows. One that is not in use now loses its proof, and is
        made again when it is."""
        if self.read_only or self._is_indexed_again:
            return  # A reader's look-ups compare each entry with its record.
        self._is_indexed_again = True
        drop_index_proof(self.files, self.root)
        if self.index is None:
            return
        self.index.truncate_to(start)
        step = WalkStep(start, None)
        while step.at < damaged:
            before = step.at
            step = self.walker.step(before, damaged, self.index.take, check_crc=False)
            if step.at <= before:
                break

    def _tell_of_lost_end(self, end: int, flushed: int, inventory: Inventory | None) -> None:
        """The log once went further than it does: whole files are gone from its end, or it is another log."""
        if end >= flushed or any(
            damage.physical_offset + damage.length >= flushed for damage in self.quarantine.damages
        ):
            return
        if inventory is not None and inventory.log_max == flushed:
            self.quarantine.note(end, flushed - end, "log files missing at the end", "the log ends here")
        else:
            self.report.findings.append(f"commitlog: ends at {end}, and the state page speaks of {flushed}")

    def _all_next_offsets(self) -> list[tuple[str, int, int]]:
        if self.queues is None:
            known = self.next_offsets.all()
        else:
            known = [(queue.topic, queue.queue_id, queue.max_offset) for queue in self.queues.all()]
        return raised_offsets(known, load_kept_offsets(self.files, self.root))


def _texts(findings: Sequence[object]) -> list[str]:
    return [str(finding) for finding in findings]
