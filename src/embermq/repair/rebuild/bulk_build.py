"""Building queues and index aside in pieces of work that others do: many slices of the log at the same time.

    plan       slices of even length, each beginning at a record
    derive     every slice: entries at their final places, keys in files of their own (bulk.py)
    check      each slice began where the one before it ended, or it is all done again with other borders: what looks
               like a record may lie in another one's body
    complete   index files, irregular queues, queues whose records are all gone; everything synced, and read again:
               every entry and every key is what its record said when the log was read (bulk_checksums.py)
    compare    if anything was irregular: every entry and every key with its record, in a second reading of the log, in
               pieces as well (bulk_compare.py)

After every portion of slices the journal says what is done, and a build that was killed goes on from there. Queues
with an extension, and those that records enter by a property (multi dispatch), depend on the order of the whole log:
one piece of work walks it for them. One thread, which has the store's lock unless it builds beside the store.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from embermq.clock import Clock
from embermq.errors import StoreError
from embermq.files import Files, remove_tree
from embermq.format.names import index_name
from embermq.format.queue_entry import ENTRY_BYTES
from embermq.inspect import Survey, record_starts, slice_count
from embermq.repair.rebuild.build import Build, Built, Progress, disagreement
from embermq.repair.rebuild.bulk import (
    KEYS,
    Finished,
    Joined,
    LogSlice,
    OddQueues,
    Site,
    SliceSummary,
    UnsyncedDirectories,
    derive_queues,
    derive_slice,
    finish_queues,
    join_slices,
    queue_directories,
    sync_files,
)
from embermq.repair.rebuild.bulk_checksums import added
from embermq.repair.rebuild.bulk_compare import PiecesElsewhere
from embermq.repair.rebuild.bulk_entries import QueueRun
from embermq.repair.rebuild.bulk_index import BulkIndexFile, IndexBuilt, build_index, index_borders
from embermq.repair.rebuild.journal import Family, RebuildJournal, clear_work, load_journal, save_journal
from embermq.repair.rebuild.writer_lock import end_turn, take_turn
from embermq.repair.verify.store_check import Aside, VerifyReport, verify_aside
from embermq.settings import StoreSettings
from embermq.store import Finding
from embermq.store.index import stamp_after
from embermq.store.layout import CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, in_index, in_one_queue
from embermq.store.log import LogSegment, next_record
from embermq.store.queues import QueueState
from embermq.store.recovery import DerivedFiles

log = logging.getLogger(__name__)

PORTION_BYTES = 32 << 30
SLICE_BYTES_MAX = 320 << 20
SLICE_BYTES_MIN = 8 << 20
_PIECES_PER_CORE = 2  # So that no core waits long for the last one; a task of its own costs some milliseconds.
_FINISHED_TOGETHER = 64

P = TypeVar("P")
R = TypeVar("R")


class PieceWorkers(Protocol):
    """Does pieces of work, each at least once, and answers what came out, in order."""

    @property
    def cores(self) -> int: ...

    def __call__(self, function: Callable[[P], R], pieces: Sequence[P], title: str) -> list[R]: ...


class BulkBuild(Build):
    """Builds what `Build` builds, byte for byte."""

    def __init__(
        self,
        root: Path,
        target: Path,
        settings: StoreSettings,
        families: tuple[Family, ...],
        files: Files,
        clock: Clock,
        *,
        workers: PieceWorkers,
    ) -> None:
        super().__init__(root, target, settings, families, files, clock)
        self._workers = workers
        self._site: Site | None = None
        self._is_compared = False
        self._walks = Family.QUEUES in families and (settings.queue_extension or settings.multi_dispatch)

    def run(self, work: Path, progress: Progress) -> Built:
        if self._walks and Family.INDEX not in self._families:
            return super().run(work, progress)
        journal = self._slices_done(work)
        done = [] if journal is None else [msgspec.convert(one, SliceSummary) for one in journal.slices["summaries"]]
        borders = self._plan() if journal is None else list(journal.slices["borders"])
        resumed_at = None if journal is None else journal.position
        site = self._begin(work, anew=journal is None)
        while True:
            pieces = [LogSlice(number, *pair) for number, pair in enumerate(pairwise(borders))]
            summaries = self._derive(site, pieces, done, borders)
            wrong = _first_misfit(pieces, summaries)
            if wrong is None:
                break
            log.warning("slice_began_elsewhere planned=%s found=%s", wrong.planned, wrong.found)
            borders, done, resumed_at = wrong.corrected(borders), [], None
            site = self._begin(work, anew=True)
        end = summaries[-1].end if summaries else self._log.min_offset
        joined = join_slices(site, summaries)
        self._complete(site, joined, [one.keys for one in summaries])
        queues_state, index_state = self._states(joined)
        end_turn(work)
        return Built(end, joined.records, queues_state, index_state, resumed_at, joined.damages)

    # -- slices ------------------------------------------------------------------------------------------------

    def _plan(self) -> list[int]:
        """Where slices begin, and the end of the last file."""
        start, end = self.bounds
        if start == end:
            return [start]
        planned = self._planned_end(end)
        count = _slice_count(planned - start, self._workers.cores)
        return [*record_starts(start, planned, count, lambda at: self._record_start(at, planned)), end]

    def _planned_end(self, end: int) -> int:
        """About where the log ends; what lies behind it belongs to the last slice. Past what is proven only an
        unbroken row of records counts, which is for one slice to find out."""
        proven = self._proven()
        if not self._settings.commit_log_paths:
            end = max(Survey.open(self._root, files=self._files).log_end, self._log.min_offset)
        return end if proven is None else min(end, max(proven, self._log.min_offset))

    def _record_start(self, at: int, limit: int) -> int:
        """Where the first record at or after a place begins, as far as can be seen; `limit` if there is none."""
        for segment in self._segments.all:
            if segment.end > at and segment.start < limit and segment.file is not None:
                first = max(at, segment.start)
                found = next_record(segment.file, LogSegment(segment.path, segment.start, segment.size), first, limit)
                if found is not None:
                    return found
        return limit

    def _begin(self, work: Path, *, anew: bool) -> Site:
        """Keep others from writing, and have an empty place to write to, or what an earlier call has done."""
        end_turn(work)
        if anew:
            clear_work(self._files, work)
            self._files.make_directory(self._target)
        self._site = Site(
            self._root,
            work,
            self._settings,
            Family.QUEUES in self._families and not self._walks,
            Family.INDEX in self._families,
            self._proven(),
            take_turn(work),
        )
        return self._site

    def _derive(
        self, site: Site, pieces: list[LogSlice], done: list[SliceSummary], borders: list[int]
    ) -> list[SliceSummary]:
        summaries = list(done)
        for portion in _portions(pieces[len(done) :]):
            summaries += self._workers(partial(derive_slice, site), portion, "deriving")
            if len(summaries) == len(pieces) or _first_misfit(pieces, summaries) is not None:
                break
            self._workers(sync_files, self._unsynced(site), "syncing")
            self._sync_directories(site.work)
            self._note(site.work, summaries, borders)
        return summaries

    def _note(self, work: Path, summaries: list[SliceSummary], borders: list[int]) -> None:
        """What these slices left is durable."""
        position = summaries[-1].end
        slices = {"borders": borders, "summaries": [msgspec.to_builtins(one) for one in summaries]}
        save_journal(
            self._files,
            work,
            RebuildJournal(
                families=list(self._families),
                settings=self.fingerprint,
                position=position,
                log=self._facts_while_building(position),
                slices=slices,
            ),
        )

    def _slices_done(self, work: Path) -> RebuildJournal | None:
        """The journal of an earlier call that this one can go on with."""
        journal = load_journal(self._files, work)
        if journal is None or journal.ready or not journal.slices or journal.families != list(self._families):
            return None
        same = journal.settings == self.fingerprint and journal.log == self._facts_while_building(journal.position)
        same = same and "summaries" in journal.slices and journal.slices["borders"][-1] == self.bounds[1]
        return journal if same else None

    # -- what is made of all of them -----------------------------------------------------------------------------

    def _complete(self, site: Site, joined: Joined, key_counts: list[int]) -> None:
        remove_tree(self._files, site.target / INDEX, in_index)  # Of a killed call; names are times.
        idle = self._idle_queues() if site.queues else set()
        odd = [*joined.irregular]
        odd += [(run.topic, run.queue_id) for names, run in joined.queues.items() if names in idle]
        pieces: list[Any] = self._index_parts(joined.keys, tuple(key_counts))
        if odd or self._walks:
            pieces.append(OddQueues(None if self._walks else tuple(sorted(set(odd)))))
        pieces += self._finished([run for names, run in joined.queues.items() if run.is_regular and names not in idle])
        self._compare_sums(site, joined, self._workers(partial(_do, site), pieces, "completing"))
        self._is_compared = not (odd or self._walks or joined.damages)
        kept = idle - set(joined.queues)
        if kept:
            for topic, queue_id in kept:
                for family in (CONSUME_QUEUE, CONSUME_QUEUE_EXT):
                    remove_tree(self._files, site.target / family / topic / str(queue_id), in_one_queue)
            self._carry_over(kept)
        self._sync_directories(self._target)

    def _finished(self, runs: list[QueueRun]) -> list[Finished]:
        count = max(_FINISHED_TOGETHER, -(-len(runs) // (self._workers.cores * _PIECES_PER_CORE)))
        return [Finished(tuple(runs[at : at + count])) for at in range(0, len(runs), count)]

    def _compare_sums(self, site: Site, joined: Joined, results: list[IndexBuilt | list[str] | None]) -> None:
        """StoreError if what lies on the disk is not what the records said."""
        built = [one for one in results if isinstance(one, IndexBuilt)]
        faults = [f"{site.target / INDEX}: {one.fault}" for one in built if one.fault is not None]
        if added(one.key_checksum for one in built) != joined.key_checksum:
            faults.append(f"{site.work / KEYS}: these are not the keys that were found in the log")
        for one in results:
            faults += one if isinstance(one, list) else []
        if faults:
            raise disagreement(site.work, faults[0])

    def _sync_directories(self, path: Path) -> None:
        """Names of files are as durable as the files."""
        for entry in self._files.list_directory(path):
            if entry.is_directory:
                self._sync_directories(path / entry.name)
        self._files.sync_directory(path)

    def _idle_queues(self) -> set[tuple[str, int]]:
        """Queues of the store all of whose records have left the log, as far as their files know."""
        old = DerivedFiles(self._root, self._settings, self._files, self._clock, read_only=True)
        before = old.queues(lambda: self._log.min_offset)
        before.load()
        found = {(one.topic, one.queue_id) for one in before.all() if self._is_idle(one)}
        before.close()
        return found

    def _index_parts(self, keys: int, counts: tuple[int, ...]) -> list[BulkIndexFile]:
        name = index_name(self._clock.local_stamp(self._clock.now_ms()))
        parts = []
        for start, end in index_borders(keys, self._settings.index_entries_max):
            parts.append(BulkIndexFile(name, start, end, counts))
            name = index_name(stamp_after(name))
        return parts

    def _unsynced(self, site: Site) -> list[UnsyncedDirectories]:
        paths = [*queue_directories(site.target / CONSUME_QUEUE), site.work / KEYS]
        return [
            UnsyncedDirectories(tuple(paths[at : at + _FINISHED_TOGETHER]))
            for at in range(0, len(paths), _FINISHED_TOGETHER)
        ]

    def _states(self, joined: Joined) -> tuple[dict[str, Any], dict[str, Any]]:
        """What proofs can say about the new files."""
        derived = DerivedFiles(self._target, self._settings, self._files, self._clock, read_only=True)
        queues_state: dict[str, Any] = {}
        index_state: dict[str, Any] = {}
        findings: list[Finding] = []
        if Family.QUEUES in self._families:
            queues = derived.queues(lambda: self._log.min_offset)
            findings += queues.load(self._known(joined, queues.file_bytes) if self._is_compared else None)
            queues.correct_min(self._log.min_offset)
            queues_state = queues.state()
            queues.close()
        if Family.INDEX in self._families:
            index = derived.index()
            findings += index.load()
            index_state = index.state()
            index.close()
        if findings:
            first = findings[0]
            raise StoreError(f"{self._target / first.family / first.where}: just built, but {first.reason}")
        return queues_state, index_state

    def _known(self, joined: Joined, file_bytes: int) -> dict[str, Any]:
        """Queues as their records say they are: their ends need not be found."""
        per_file, rows = file_bytes // ENTRY_BYTES, []
        for (topic, queue_id), run in joined.queues.items():
            first_file = run.start - run.start % per_file
            files = -(-(run.end - first_file) // per_file)
            rows.append(QueueState(topic, queue_id, run.start, run.end, run.physical_end, first_file, files).row())
        return {"file_bytes": file_bytes, "queues": rows}

    def compare(self, work: Path, end: int, progress: Progress) -> None:
        if self._is_compared:
            progress(end - self._log.min_offset, end - self._log.min_offset)
        else:
            super().compare(work, end, progress)

    def _verified(self, aside: Aside, end: int, progress: Progress) -> VerifyReport:
        if self._site is None:
            return super()._verified(aside, end, progress)
        reader = partial(PiecesElsewhere, self._site, self._workers)
        return verify_aside(self._root, aside, end, files=self._files, progress=progress, reader=reader)


def _do(site: Site, piece: BulkIndexFile | OddQueues | Finished) -> IndexBuilt | list[str] | None:
    """Any process."""
    match piece:
        case BulkIndexFile():
            return build_index(site, piece)
        case OddQueues():
            derive_queues(site, piece)
            return None
        case Finished():
            return finish_queues(site, piece)


def _slice_count(length: int, cores: int) -> int:
    """As many for each core, unless there are fewer than cores."""
    count = slice_count(length, cores * _PIECES_PER_CORE, SLICE_BYTES_MIN, SLICE_BYTES_MAX)
    return count if count < cores else -(-count // cores) * cores


def _portions(pieces: list[LogSlice]) -> Iterator[list[LogSlice]]:
    portion: list[LogSlice] = []
    for piece in pieces:
        portion.append(piece)
        if piece.end - portion[0].start >= PORTION_BYTES:
            yield portion
            portion = []
    if portion:
        yield portion


@dataclass(frozen=True, slots=True)
class _Misfit:
    """A slice that did not begin where the one before it ended."""

    planned: int
    found: int | None  # None: the log ends before.

    def corrected(self, borders: list[int]) -> list[int]:
        *starts, end = borders
        kept = [at for at in starts if at < self.planned]
        if self.found is not None:
            kept += [self.found, *(at for at in starts if at > self.found)]
        return [*kept, end]


def _first_misfit(pieces: list[LogSlice], summaries: list[SliceSummary]) -> _Misfit | None:
    for summary, following in zip(summaries, pieces[1:], strict=False):
        if summary.ends_log:
            return _Misfit(following.start, None)
        if summary.end != following.start:
            return _Misfit(following.start, summary.end)
    return None
