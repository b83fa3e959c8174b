"""Queues and index of a whole log in pieces of work, to be done in any order, by processes that see the same directory:

    derive_slice    any slice of the log: entries go to their final places in the queue files, keys go to a file of
                    their own, a summary comes back
    join_slices     looks at all summaries: a queue whose offsets run on without gap or repeat is finished; others
                    are irregular (damage, holes, repeats)
    derive_queues   irregular queues, by the walk and the sinks of the live dispatcher, in log order
    build_index     one index file from the keys of the slices, in log order (bulk_index.py)
    finish_queues   queue files that are complete, to the disk, and compared with what the records said

Nothing is shuffled between them. What is a record, what is damage, and where the log ends, recovery says in every
piece, so that the result is byte for byte what the live dispatcher writes. All of it lies below one directory that
no one else uses, and a piece may be done again; who may write there at the moment, writer_lock.py says.
bulk_build.py puts the pieces together.
"""

import os
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embermq.clock import SystemClock
from embermq.columns import C_PHYSICAL, RecordColumns, compiled_index_keys
from embermq.files import RealFiles, drop, populate_for_reading, remove_tree
from embermq.format.queue_entry import ENTRY_BYTES
from embermq.repair.rebuild.build import NEW, Build, QueueBytes, open_log
from embermq.repair.rebuild.bulk_checksums import added, key_checksum
from embermq.repair.rebuild.bulk_entries import QueueRun, SliceEntries, blank_before, entries_fault, queue_directory
from embermq.repair.rebuild.journal import Family, clear_work
from embermq.repair.rebuild.writer_lock import Turn
from embermq.settings import KernelUse, StoreSettings
from embermq.store.layout import CONSUME_QUEUE, CONSUME_QUEUE_EXT, in_one_queue, load_deleted_topics, was_closed_cleanly
from embermq.store.log import CommitLog, Damage, Lent, Quarantine, ScannedStep, Walker
from embermq.store.recovery import Plan, Recovery, RecoveryReport

KEYS = "keys"
KEY_ROW_BYTES = 24
ODD = "odd"
RECORDS_KEPT_MAX = 1 << 20
_SYNCS_AT_ONCE = 8
_WINDOW_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Site:
    """Where the pieces are at work, and by which rules: all that a process must know."""

    root: Path
    work: Path
    settings: StoreSettings
    queues: bool
    index: bool
    proven: int | None  # Bytes of the log below are known to have been durable; None: not proven.
    turn: Turn

    @property
    def target(self) -> Path:
        return self.work / NEW

    @property
    def queue_file_bytes(self) -> int:
        return -(-self.settings.queue_file_bytes // ENTRY_BYTES) * ENTRY_BYTES

    def keys_path(self, number: int) -> Path:
        return self.work / KEYS / f"{number:08d}"


# -- one slice ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogSlice:
    """The records that begin in [start, end); a record begins at `start`, as far as can be seen."""

    number: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SliceSummary:
    """What became of one slice."""

    number: int
    start: int
    end: int  # Where the next slice's first record begins, or the log ends.
    ends_log: bool
    records: int
    keys: int
    key_checksum: int
    runs: tuple[QueueRun, ...]
    damages: tuple[Damage, ...]


class _Passed(Exception):
    """The first record that is not of the slice any more."""

    def __init__(self, physical_offset: int) -> None:
        super().__init__(physical_offset)
        self.physical_offset = physical_offset


class _SliceSink:
    """Takes the records of a slice, and ends the walk behind them. After so many it writes what they need, so that
    its memory does not depend on the length of the slice."""

    name = "slice"

    def __init__(self, site: Site, piece: LogSlice) -> None:
        self._site, self._piece = site, piece
        self.position = self.records = self._kept = 0
        self.entries = SliceEntries(load_deleted_topics(RealFiles(), site.root)) if site.queues else None
        self._index_keys = compiled_index_keys() if site.index else None
        self._keys: list[NDArray[np.int64]] = []
        self.keys = self.key_checksum = 0  # of those written

    def take(self, batch: RecordColumns, end: int) -> None:
        beyond: int | None = None
        if end > self._piece.end:
            places = batch.column(C_PHYSICAL)
            count = int(np.searchsorted(places, self._piece.end))
            beyond = int(places[count]) if count < len(batch) else None
            batch = batch.slice(0, count)
        if len(batch):
            self.records += len(batch)
            self._kept += len(batch)
            if self.entries is not None:
                self.entries.take(batch)
            if self._index_keys is not None:
                self._keys.append(self._index_keys(batch))
        self.position = end
        if beyond is not None:
            raise _Passed(beyond)
        if self._kept >= RECORDS_KEPT_MAX:
            self.write()

    def write(self) -> None:
        """Write what was taken."""
        keys = np.concatenate(self._keys) if self._keys else np.empty((0, 3), np.int64)
        self._keys.clear()
        self._kept = 0
        with self._site.turn.writing():
            if len(keys):
                _write_keys(self._site.keys_path(self._piece.number), keys, self.keys)
            if self.entries is not None:
                self.entries.write(self._site.target / CONSUME_QUEUE, self._site.queue_file_bytes)
        self.keys += len(keys)
        self.key_checksum = added((self.key_checksum, key_checksum(keys)))

    def flush(self) -> None:
        """What was taken is written by its owner."""

    def truncate_to(self, physical_offset: int) -> None:
        """A log that is only read is not cut."""

    def close(self) -> None:
        """Nothing is open."""


class _OneThread(Walker):
    """A piece of work has one core. Pages are read in some megabytes at a time, and let go behind."""

    def __init__(self, log: CommitLog, site: Site, piece: LogSlice) -> None:
        super().__init__(log, site.settings.delay_ms, KernelUse.ALWAYS)
        self._piece = piece
        self._held: Lent | None = None  # Keeps the map of a segment from one step to the next.
        self._ready = 0  # Pages of it up to here were read in.

    def _scan(self, lent: Lent, check_crc: bool) -> ScannedStep:
        if self._held is None or self._held.base != lent.base:
            self._let_go()
            self._held, self._ready = lent, lent.start
        end = min(lent.end, self._piece.end - lent.base)
        if self._ready < min(lent.start + _WINDOW_BYTES // 2, end):
            # Not all at once: the last file of a log is mostly hole, and memory stays flat.
            drop(lent.data.data, self._held.start, lent.start)
            onward = min(max(self._ready, lent.start) + _WINDOW_BYTES, end)
            populate_for_reading(lent.data.data, max(self._ready, lent.start), onward)
            self._ready = onward
        return super()._scan(lent, check_crc)

    def _scan_ahead(self, lent: Lent, check_crc: bool) -> None:
        """Others are at work on the other cores."""

    def _let_go(self) -> None:
        if self._held is not None:
            drop(self._held.data.data, self._held.start, self._held.end)
            self._held = None

    def close(self) -> None:
        self._let_go()
        super().close()


def derive_slice(site: Site, piece: LogSlice) -> SliceSummary:
    """Derive what the records of a slice are in need of."""
    files, clock = RealFiles(), SystemClock()
    log = open_log(site.root, site.settings, files)
    sink, walker = _SliceSink(site, piece), _OneThread(log, site, piece)
    quarantine = Quarantine(files, site.root, clock, read_only=True)
    recovery = Recovery(
        log, walker, [sink], quarantine, clock, check_crc=site.settings.check_crc_on_recovery, read_only=True
    )
    report = RecoveryReport(was_closed_cleanly(files, site.root))
    ends_log = True
    try:
        end = recovery.run(Plan(piece.start, site.proven, None, "rebuild"), report)
    except _Passed as passed:
        end, ends_log = passed.physical_offset, False
    finally:
        walker.close()
        log.close()
    sink.write()
    runs = () if sink.entries is None else tuple(sink.entries.runs.values())
    return SliceSummary(
        piece.number,
        piece.start,
        end,
        ends_log,
        sink.records,
        sink.keys,
        sink.key_checksum,
        runs,
        tuple(quarantine.damages),
    )


def _write_keys(path: Path, keys: NDArray[np.int64], first: int) -> None:
    """Nothing is cut: another task may be doing the same, and others read already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        data, at = keys.view(np.uint8).reshape(-1).data, first * KEY_ROW_BYTES
        while data:
            written = os.pwrite(handle, data, at)
            data, at = data[written:], at + written
    except OSError as problem:
        problem.filename = str(path)
        raise
    finally:
        os.close(handle)


# -- all slices --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Joined:
    """All slices together."""

    records: int = 0
    keys: int = 0
    key_checksum: int = 0
    queues: dict[tuple[str, int], QueueRun] = field(default_factory=dict)  # by the names of directories
    irregular: list[QueueBytes] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)


def join_slices(site: Site, summaries: Iterable[SliceSummary]) -> Joined:
    """Find out which queues are finished, and fill what lies before their first entry. Summaries in log order."""
    joined = Joined()
    topics: dict[tuple[str, int], set[QueueBytes]] = {}
    for summary in summaries:
        joined.records += summary.records
        joined.keys += summary.keys
        joined.key_checksum = added((joined.key_checksum, summary.key_checksum))
        joined.damages += summary.damages
        for run in summary.runs:
            topics.setdefault(run.names, set()).add((run.topic, run.queue_id))
            before = joined.queues.get(run.names)
            joined.queues[run.names] = run if before is None else before.then(run)
    for names, run in sorted(joined.queues.items()):
        if run.is_regular:
            blank_before(queue_directory(site.target / CONSUME_QUEUE, run), run.start, site.queue_file_bytes)
        else:
            joined.irregular += sorted(topics[names])
    return joined


@dataclass(frozen=True, slots=True)
class OddQueues:
    """Queues that are derived by the walk; None: all there are."""

    wanted: tuple[QueueBytes, ...] | None


def derive_queues(site: Site, odd: OddQueues) -> None:
    """Derive queues by the dispatcher's own rules, from the whole log, and put them in place of what is there."""
    aside = site.work / f"{ODD}-{secrets.token_hex(4)}"
    files = RealFiles()
    with site.turn.writing():
        build = Build(site.root, aside / NEW, site.settings, (Family.QUEUES,), files, SystemClock(), only=odd.wanted)
        try:
            build.run(aside, lambda done, total: None)
        finally:
            build.close()
        for family in (CONSUME_QUEUE, CONSUME_QUEUE_EXT):
            for queue in queue_directories(aside / NEW / family):
                _put_in_place(files, queue, site.target / family / queue.parent.name / queue.name)
        clear_work(files, aside)


def queue_directories(root: Path) -> Iterator[Path]:
    """The directories of all queues there are."""
    for topic in sorted(root.iterdir()) if root.is_dir() else ():
        yield from sorted(topic.iterdir())


def _put_in_place(files: RealFiles, source: Path, target: Path) -> None:
    remove_tree(files, target, in_one_queue)
    files.make_directory(target.parent)
    files.rename(source, target)
    files.sync_directory(target.parent)


@dataclass(frozen=True, slots=True)
class UnsyncedDirectories:
    """Directories whose files were written and not synced."""

    directories: tuple[Path, ...]


def sync_files(unsynced: UnsyncedDirectories) -> None:
    """Write what these directories hold to the disk; those that are gone by now are not ours. Several at a
    time: a disk writes them in one go."""
    with ThreadPoolExecutor(_SYNCS_AT_ONCE, "embermq-sync") as pool:
        list(pool.map(_sync_directory, unsynced.directories))


def _sync_directory(path: Path) -> None:
    try:
        for name in [*sorted(os.listdir(path)), "."]:
            handle = os.open(path / name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    except FileNotFoundError:
        return


@dataclass(frozen=True, slots=True)
class Finished:
    """Queues all of whose entries are written, each as one run."""

    runs: tuple[QueueRun, ...]


def finish_queues(site: Site, finished: Finished) -> list[str]:
    """Sync them, and compare what lies there with what the records said. The faults that were found."""
    root = site.target / CONSUME_QUEUE
    paths = [queue_directory(root, run) for run in finished.runs]
    with ThreadPoolExecutor(1, "embermq-sync") as pool:
        synced = pool.submit(sync_files, UnsyncedDirectories(tuple(paths)))
        found = [
            entries_fault(path, run, site.queue_file_bytes) for path, run in zip(paths, finished.runs, strict=True)
        ]
        synced.result()
    return [f"{path}: {fault}" for path, fault in zip(paths, found, strict=True) if fault is not None]
