"""Is a store sound? Log, queues, extension, index, checkpoint, config and proofs, each compared with the others.

    full    every record with its checksum; every entry and every index entry against its record and vice versa
    fast    names, lengths, headers, and the order of entries; the log itself is not read but for single records

A fault is what the next start would not repair by itself. Reads only: no lock, works on a directory that is being
written, ours or RocketMQ's, of whatever file sizes. What is only on its way there is no fault: of a live store
nothing is compared past where its log ended at the beginning, and what disagrees is looked at again. If files went
meanwhile (retention, a deleted topic, a rebuild), only what a second look finds as well is a fault (`changes.py`).

Memory stays flat over any length of log. One thread calls; a few more read.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embermq.errors import StorePathInvalid
from embermq.files import FaultTolerantFiles, Files, RealFiles, entries_of
from embermq.inspect import IndexShape, StoreShape, Survey, Watched, found_shape, is_about_missing_file
from embermq.repair.verify.findings import Flaw, Remedies, Severity
from embermq.repair.verify.index import EVERYTHING, IndexCheck
from embermq.repair.verify.queues import Bounds, QueueCheck
from embermq.repair.verify.single_records import SingleRecords
from embermq.repair.verify.state_files import StateCheck
from embermq.settings import StoreSettings
from embermq.store.compare import IndexStream, LogPieces, LogReader, VerifiedQueueFiles
from embermq.store.index import load_index_proof
from embermq.store.layout import COMMIT_LOG, INDEX, load_inventory, lock_holder, was_closed_cleanly
from embermq.store.log import FILLER_TOPIC, DamagedRange, LogSegment, repaired_ranges, segment_at
from embermq.store.queues import EXTENSION_FAMILY, QUEUE_FAMILY

LOOK_AGAIN_SECONDS = 10.0
_LOOKS_MAX = 6
_PAUSE_SECONDS = 0.25
_USUAL = StoreSettings()

Progress = Callable[[int, int], None]  # Bytes of log done, and of all.
# Who reads the log: of these files, from here to there, compared with these queues and this index.
MakeReader = Callable[[Sequence[LogSegment], int, int, Files, VerifiedQueueFiles, IndexStream], LogReader]


@dataclass(slots=True)
class VerifyReport:
    """What was looked at, and what was found."""

    path: Path
    is_fast: bool
    is_live: bool
    is_clean: bool
    log_min: int = 0
    log_end: int = 0
    segments: int = 0
    records: int = 0
    queues: int = 0
    queue_entries: int = 0
    index_entries: int = 0
    pending_entries: int = 0  # Records that the next start, or the running writer, has still to put into queues
    pending_keys: int = 0  # or into the index.
    seconds: float = 0.0
    flaws: list[Flaw] = field(default_factory=list)
    meanwhile: list[str] = field(default_factory=list)  # What went while this ran: no damage.

    @property
    def faults(self) -> int:
        return sum(1 for flaw in self.flaws if flaw.is_fault)

    @property
    def faulty_places(self) -> int:
        """A finding may stand for many places."""
        return sum(flaw.count for flaw in self.flaws if flaw.is_fault)

    @property
    def is_sound(self) -> bool:
        return self.faults == 0


def verify(
    path: str | Path,
    *,
    fast: bool = False,
    files: Files | None = None,
    progress: Progress | None = None,
    reader: MakeReader = LogPieces,
) -> VerifyReport:
    """Look at the store at `path`. StorePathInvalid if there is none. `reader` reads the log, here or elsewhere; it is
    made once for each look."""
    root, disk = Path(path), files or RealFiles()
    began, watched = time.monotonic(), Watched(disk, root)

    def look() -> VerifyReport:
        return _Verification(root, disk, progress or _no_progress, reader=reader).run(fast=fast)

    report = _looked(look, watched)
    report.meanwhile, report.seconds = watched.changes, time.monotonic() - began
    return report


def _looked(look: Callable[[], VerifyReport], watched: Watched) -> VerifyReport:
    """One look; or more, where what was found may be due to files that went meanwhile. What is wrong with the store is
    found by each of them at the same place."""
    before: set[tuple[object, ...]] | None = None
    for left in reversed(range(_LOOKS_MAX)):
        try:
            report = look()
        except (FileNotFoundError, NotADirectoryError, StorePathInvalid) as problem:
            if left and is_about_missing_file(problem) and watched.look():
                continue
            if isinstance(problem, StorePathInvalid):
                raise
            raise StorePathInvalid(Path(str(problem.filename or watched.root)), problem.strerror or "") from problem
        has_changed = watched.look() or report.is_live
        if before is not None:
            report.flaws = [flaw for flaw in report.flaws if not flaw.is_fault or flaw.place in before]
            return report
        if report.is_sound or not has_changed:
            return report
        before = {flaw.place for flaw in report.flaws}
    raise AssertionError("unreachable")


@dataclass(frozen=True, slots=True)
class Aside:
    """Queues and index that were made aside, complete and at rest; of what was not made the shape is None."""

    root: Path
    shape: StoreShape


def verify_aside(
    path: Path,
    aside: Aside,
    end: int,
    *,
    files: Files,
    progress: Progress | None = None,
    reader: MakeReader = LogPieces,
) -> VerifyReport:
    """Compare what was made aside with the log of the store at `path` up to `end`: all must be there."""
    return _Verification(path, files, progress or _no_progress, aside, reader=reader).run_aside(aside, end)


def _no_progress(done: int, total: int) -> None:
    """Ignore progress."""


class _Verification:
    """One look; its parts share what is known about the store."""

    def __init__(
        self,
        root: Path,
        files: Files,
        progress: Progress,
        aside: Aside | None = None,
        *,
        reader: MakeReader = LogPieces,
    ) -> None:
        self._root, self._progress, self._reader = root, progress, reader
        self._patient = FaultTolerantFiles(files)
        self._files = self._patient.as_files
        self._survey = Survey.open(root, files=files)
        self._remedies = Remedies(root)
        self._is_clean = aside is not None or was_closed_cleanly(files, root)
        self._shape = found_shape(self._files, root) if aside is None else aside.shape
        self._has_queues = aside is not None or self._shape.queue_file_bytes is not None
        self._is_live = not self._is_clean and lock_holder(root) is not None
        self._began = time.monotonic()
        self._frames = SingleRecords(self._survey, self._files)
        self._newest_ms: int | None = None

    def run(self, *, fast: bool) -> VerifyReport:
        survey = self._survey
        report = VerifyReport(
            self._root, fast, self._is_live, self._is_clean, survey.log_min, survey.log_end, len(survey.segments)
        )
        queues = self._queue_check(self._root)
        index = self._index_check(self._root, self._index_shape())
        if fast:
            inventory = load_inventory(self._files, self._root) if self._is_clean else None
            closed = inventory.queues if inventory is not None else None
            report.flaws += queues.check_structure(survey.log_min, closed, self._repaired())
            report.flaws += index.check_structure(survey.log_end)
            report.flaws += self._segment_starts()
        else:
            self._read_log(report, queues, index, survey.log_end)
        state = StateCheck(
            self._root,
            self._files,
            self._remedies,
            is_clean=self._is_clean,
            is_live=self._is_live,
            segment_bytes=self._shape.segment_bytes or 0,
        )
        report.flaws += state.flaws(survey.log_end, self._newest_ms, queues.ends())
        report.flaws += self._bad_blocks()
        report.flaws += self._tail()
        report.queues, report.queue_entries, report.index_entries = queues.queue_count, queues.entries, index.entries
        report.pending_entries, report.pending_keys = queues.pending, index.pending
        report.flaws.sort(key=lambda flaw: (not flaw.is_fault, flaw.family, flaw.file, flaw.physical_offset or 0))
        report.seconds = time.monotonic() - self._began
        queues.close()
        self._frames.close()
        return report

    def run_aside(self, aside: Aside, end: int) -> VerifyReport:
        survey = self._survey
        report = VerifyReport(self._root, False, False, True, survey.log_min, end, len(survey.segments))
        queues = self._queue_check(aside.root)
        index = self._index_check(aside.root, aside.shape.index)
        self._read_log(report, queues, index, end)
        made = {
            QUEUE_FAMILY: aside.shape.queue_file_bytes,
            EXTENSION_FAMILY: aside.shape.queue_file_bytes,
            INDEX: aside.shape.index,
        }
        report.flaws = [flaw for flaw in report.flaws if made.get(flaw.family) is not None]
        report.queues, report.queue_entries, report.index_entries = queues.queue_count, queues.entries, index.entries
        report.seconds = time.monotonic() - self._began
        queues.close()
        self._frames.close()
        return report

    def _index_check(self, root: Path, shape: IndexShape | None) -> IndexCheck:
        return IndexCheck(
            root,
            self._files,
            shape,
            self._frames.at,
            self._remedies,
            believed=self._index_believed(),
            is_live=self._is_live,
        )

    def _index_shape(self) -> IndexShape | None:
        """Slots and entries of an index file: what was written down, what the content of one fits, or, if that is
        damaged, the usual one of its length."""
        path, proof = self._root / INDEX, load_index_proof(self._files, self._root)
        sizes = {entry.size for entry in entries_of(self._files, path) if entry.is_file}
        if proof is not None:
            written = IndexShape(int(proof.state.get("slots_max", 0)), int(proof.state.get("entries_max", 0)))
            if written.file_bytes in sizes:
                return written
        return self._shape.index or (StoreShape.of(_USUAL).index if sizes else None)

    # -- what a start would believe ----------------------------------------------------------------------------

    def _queue_check(self, root: Path) -> QueueCheck:
        survey, file_bytes = self._survey, self._shape.queue_file_bytes or _USUAL.queue_file_bytes
        bounds = Bounds(survey.log_min, survey.log_end, self._queues_believed(), self._is_live)
        return QueueCheck(root, self._files, file_bytes, bounds, self._frames.at, self._remedies, store=self._root)

    def _queues_believed(self) -> int:
        """Entries of all records below this place are believed to be there, by a start or by those who read now."""
        if self._is_clean:
            return EVERYTHING if self._has_queues else 0  # Of a log alone a start makes all of them.
        page = self._survey.state_page
        if page is not None:
            return page.queues_written if page.boot != 0 and page.boot == self._files.boot() else page.queues_durable
        return self._survey.newest_entry_end() if self._is_live else 0

    def _index_believed(self) -> int | None:
        if self._is_clean:
            return EVERYTHING
        page = self._survey.state_page
        if self._is_live or (page is not None and page.boot != 0 and page.boot == self._files.boot()):
            return None  # As far as its newest entry.
        proof = load_index_proof(self._files, self._root) if page is not None else None
        return proof.position if proof is not None else 0

    # -- the full form -----------------------------------------------------------------------------------------

    def _read_log(self, report: VerifyReport, queues: QueueCheck, index: IndexCheck, end: int) -> None:
        survey = self._survey
        start = survey.log_min
        pieces = self._reader(survey.segments, start, end, self._files, queues.files, index.stream)
        damages: list[DamagedRange] = []
        newest_ms = 0
        for piece in pieces:
            damages += piece.damages
            report.records += piece.records
            newest_ms = max(newest_ms, piece.newest_ms)
            queues.merge(piece.queues, piece.names)
            index.merge(piece.keys)
            self._progress(min(piece.end, end) - start, end - start)
        self._newest_ms = newest_ms or None
        if self._is_live:
            self._wait_for_writer(queues)
        survey.refresh()
        damages = [one for one in _merged(damages) if one.start >= survey.log_min]  # Retention may have been faster.
        report.flaws += [self._damage_flaw(damage) for damage in damages]
        report.flaws += queues.finish(survey.log_min, [*damages, *self._repaired()])
        report.flaws += index.finish(survey.log_min, end, damages, pieces.links)
        if any(FILLER_TOPIC.startswith(topic) for topic, _ in pieces.names):
            report.flaws.append(self._filler_note())

    def _repaired(self) -> list[DamagedRange]:
        """Ranges that fillers close. Queues that end with records lost there keep these offsets, and their entries."""
        return [DamagedRange(start, end, "repaired") for start, end in repaired_ranges(self._files, self._root)]

    def _wait_for_writer(self, queues: QueueCheck) -> None:
        """Entries of the newest records may be on their way to the disk."""
        deadline = time.monotonic() + LOOK_AGAIN_SECONDS
        while queues.look_again() and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)

    def _damage_flaw(self, damage: DamagedRange) -> Flaw:
        segment = segment_at(self._survey.segments, damage.start)
        name = segment.path.name if segment is not None else f"{damage.start:020d}"
        at = damage.start - segment.start if segment is not None else 0
        return Flaw(
            severity=Severity.FAULT,
            family=COMMIT_LOG,
            file=f"{COMMIT_LOG}/{name}",
            fault=f"{damage.reason}: {damage.end - damage.start} bytes hold no whole record",
            remedy=self._remedies.salvage,
            physical_offset=damage.start,
            byte_offset=at,
        )

    def _filler_note(self) -> Flaw:
        return Flaw(
            severity=Severity.NOTE,
            family=COMMIT_LOG,
            file=COMMIT_LOG,
            fault=f"records of topic {FILLER_TOPIC} stand where damage was: what was there is lost",
            remedy=self._remedies.nothing,
        )

    # -- the fast form and the rest ----------------------------------------------------------------------------

    def _segment_starts(self) -> Iterator[Flaw]:
        """Each file of the log begins with a record or a blank, right behind the file before it."""
        expected = self._survey.log_min
        for segment in self._survey.segments:
            if segment.start >= self._survey.log_end:
                break
            if segment.start > expected:
                yield self._damage_flaw(DamagedRange(expected, segment.start, "log file missing"))
            if not self._begins_well(segment):
                yield self._damage_flaw(
                    DamagedRange(segment.start, segment.start, "the file does not begin with a record")
                )
            expected = segment.end

    def _begins_well(self, segment: LogSegment) -> bool:
        return self._frames.at(segment.start) is not None or self._frames.is_blank(segment.start)

    def _bad_blocks(self) -> Iterator[Flaw]:
        by_path: dict[Path, list[int]] = {}
        for block in self._patient.bad_blocks:
            by_path.setdefault(block.path, []).append(block.at)
        for path, places in by_path.items():
            file = str(path.relative_to(self._root)) if path.is_relative_to(self._root) else str(path)
            yield Flaw(
                severity=Severity.FAULT,
                family=file.split("/")[0],
                file=file,
                remedy=self._remedies.salvage,
                fault=f"the disk cannot read {len(places)} blocks of 4096 bytes",
                byte_offset=min(places),
                count=len(places),
            )

    def _tail(self) -> Iterator[Flaw]:
        """Bytes behind the end of a log that is not written: torn off by a crash, or old."""
        end = self._survey.log_end
        if self._is_live or self._frames.is_nothing(end):
            return
        segment = segment_at(self._survey.segments, end)
        assert segment is not None
        yield Flaw(
            severity=Severity.NOTE,
            family=COMMIT_LOG,
            file=f"{COMMIT_LOG}/{segment.path.name}",
            fault="after the last record there are bytes that are not a record: an incomplete append, or older data",
            remedy=self._remedies.nothing if self._is_clean else self._remedies.start,
            physical_offset=end,
            byte_offset=end - segment.start,
        )


def _merged(damages: list[DamagedRange]) -> list[DamagedRange]:
    """Damage that was met in several pieces, as one."""
    found: list[DamagedRange] = []
    for one in damages:
        if found and found[-1].end == one.start:
            found[-1] = DamagedRange(found[-1].start, one.end, found[-1].reason)
        else:
            found.append(one)
    return found
