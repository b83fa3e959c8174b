"""The log as `audit` reads it: the pieces of `verify`, read by Spark's tasks.

    driver    cuts the log into tasks of some 512 MiB, and puts what comes back together in log order, as `verify` does:
              a piece that does not begin where the one before it ended is read again, here
    worker    reads the pieces of a task one after the other, compares them with queues and index, and counts
    worker    gets all hashes of unique keys of one part, and finds those that are there twice
    worker    looks at links and slots of index files

One Spark job; its only shuffle are the hashes, and the small answers. What a worker opened it keeps for the next task.
"""

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from pyspark.sql import SparkSession

from embermq.columns import QueueName
from embermq.files import BadBlock, FaultTolerantFiles, Files, OpenFile, RealFiles
from embermq.format.index import IndexHeader, index_file_bytes
from embermq.inspect import slice_bytes
from embermq.spark.jobs.audit_duplicates import DuplicatesOfPart, find_duplicates, part_count, split
from embermq.spark.jobs.audit_tally import ALWAYS, PieceTally, TimeWindow
from embermq.spark.jobs.cluster_tasks import ProgressReport, collected, parallelism
from embermq.spark.runtime.gc_freeze import settle
from embermq.store.compare import CheckedPiece, Cut, EntryPlace, IndexStream, LogPieces, VerifiedQueueFiles
from embermq.store.index import CheckedIndexFile, LinkFlaw, link_flaws
from embermq.store.log import LogSegment

TASK_BYTES_MAX = 512 << 20  # To begin and end a task takes Spark and a worker as long as to read 32 MiB.
TASK_BYTES_MIN = 4 << 20
PIECE_BYTES = 64 << 20  # Each piece reads the entries of every queue anew, and threads need not share the pieces here.
LINK_TASK_BYTES = 64 << 20
_NOWHERE = EntryPlace(-1, -1)  # of a piece that could not be compared with the index


@dataclass(frozen=True, slots=True)
class AuditedIndexFile:
    """An index file as the driver saw it: workers believe the same header, however it grows."""

    path: Path
    header: IndexHeader
    slots_max: int
    entries_max: int


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """What every worker needs to know about the store."""

    token: str
    root: Path
    segments: tuple[LogSegment, ...]
    start: int
    end: int
    queue_file_bytes: int
    index: tuple[AuditedIndexFile, ...]
    step_ms: int
    parts: int  # of the hashes
    window: TimeWindow = ALWAYS


class LogTask(NamedTuple):
    number: int
    cuts: list[Cut]


class LinkTask(NamedTuple):
    files: list[AuditedIndexFile]


Task = LogTask | LinkTask


class LogAnswer(NamedTuple):
    """What a task found: a piece for each cut, None where none begins; their names; blocks the disk does not give."""

    number: int
    pieces: list[CheckedPiece | None]
    bad_blocks: list[BadBlock]


class LinkAnswer(NamedTuple):
    flaws: dict[str, list[LinkFlaw]]  # by the name of the file
    bad_blocks: list[BadBlock]


Answer = LogAnswer | LinkAnswer | DuplicatesOfPart


# -- driver ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SparkReading:
    """How a log is read by Spark, and what came of it besides the pieces. `make` is what `verify` asks for."""

    spark: SparkSession
    root: Path
    step_ms: int
    seen: Callable[[CheckedPiece], None]  # each piece, in the order of the log
    on_progress: ProgressReport | None = None
    duplicates: list[DuplicatesOfPart] = field(default_factory=list)
    rejected: list[tuple[int, int]] = field(default_factory=list)  # stretches that workers read from a wrong place on
    reread: set[int] = field(default_factory=set)  # places of messages with unique keys that really are there
    window: TimeWindow = ALWAYS

    def make(
        self,
        segments: Sequence[LogSegment],
        start: int,
        end: int,
        files: Files,
        queues: VerifiedQueueFiles,
        index: IndexStream,
    ) -> "SparkPieces":
        return SparkPieces(self, segments, start, end, files, queues, index)


class SparkPieces(LogPieces):
    """The pieces of [start, end) of a log, read by Spark."""

    def __init__(
        self,
        reading: SparkReading,
        segments: Sequence[LogSegment],
        start: int,
        end: int,
        files: Files,
        queues: VerifiedQueueFiles,
        index: IndexStream,
    ) -> None:
        tally = partial(PieceTally, reading.step_ms, reading.window)
        super().__init__(segments, start, end, files, queues, index, tally=tally)
        self._reading = reading
        self._names: set[QueueName] = set()
        cores = parallelism(reading.spark)
        self._task_bytes = slice_bytes(end - start, cores, TASK_BYTES_MIN, TASK_BYTES_MAX)
        self._piece_bytes = max(self._piece_bytes, min(PIECE_BYTES, self._task_bytes))
        self._plan = AuditPlan(
            uuid.uuid4().hex,
            reading.root,
            tuple(segments),
            start,
            end,
            queues.file_bytes,
            tuple(AuditedIndexFile(p.file.path, p.header, p.slots_max, p.entries_max) for p in index.parts),
            reading.step_ms,
            part_count(end - start, queues.entry_count, cores),
            reading.window,
        )

    @property
    def names(self) -> Iterable[QueueName]:
        return self._names | set(self.routes.names)

    def __iter__(self) -> Iterator[CheckedPiece]:
        tasks = self._tasks()
        answers = self._run(tasks)
        found = [
            (cut, partial(_given, piece))
            for task in tasks
            if isinstance(task, LogTask)
            for cut, piece in zip(task.cuts, answers[task.number].pieces, strict=True)
        ]
        taken: set[int] = set()
        for piece in self.chained(found):
            taken.add(id(piece))
            self._reading.seen(piece)
            yield piece
        every = (piece for answer in answers.values() for piece in answer.pieces if piece is not None)
        self._reading.rejected += [(piece.start, piece.end) for piece in every if id(piece) not in taken]

    def read(self, segment: LogSegment, start: int, end: int, entry: EntryPlace) -> CheckedPiece:
        """A piece that no worker read as it should be."""
        piece = super().read(segment, start, end, entry)
        self._reading.reread.update(piece.tally.finish()["place"].tolist())
        return piece

    def _run(self, tasks: list[Task]) -> dict[int, LogAnswer]:
        plan, reading = self._plan, self._reading
        pairs = (
            reading.spark.sparkContext.parallelize(tasks, max(len(tasks), 1))
            .flatMap(partial(_do, plan))
            .partitionBy(plan.parts, int)
            .mapPartitions(partial(_gather, plan))
        )
        total = len(tasks) + plan.parts
        found: list[bytes] = collected(reading.spark, pairs, total, "auditing", reading.on_progress) if tasks else []
        by_number: dict[int, LogAnswer] = {}
        for answer in map(_answer, found):
            if isinstance(answer, DuplicatesOfPart):
                reading.duplicates.append(answer)
                continue
            if isinstance(self._files, FaultTolerantFiles):
                self._files.add(answer.bad_blocks)
            if isinstance(answer, LinkAnswer):
                self.links.update(answer.flaws)
                continue
            by_number[answer.number] = answer
            self._names.update(*(piece.names for piece in answer.pieces[-1:] if piece is not None))
        return by_number

    def _tasks(self) -> list[Task]:
        """Cuts that follow one another, even parts for all cores; and each index file."""
        logs: list[LogTask] = []
        taken = self._task_bytes
        for cut in self.cuts():
            if taken >= self._task_bytes:
                logs.append(LogTask(len(logs), []))
                taken = 0
            logs[-1].cuts.append(cut)
            taken += cut.end - cut.start
        return [*logs, *_link_tasks(self._plan.index)]


def _link_tasks(files: Iterable[AuditedIndexFile]) -> list[LinkTask]:
    """Index files, small ones together."""
    tasks: list[LinkTask] = []
    taken = LINK_TASK_BYTES
    for file in files:
        if taken >= LINK_TASK_BYTES:
            tasks.append(LinkTask([]))
            taken = 0
        tasks[-1].files.append(file)
        taken += index_file_bytes(file.slots_max, file.entries_max)
    return tasks


def _answer(data: bytes) -> Answer:
    answer: Answer = pickle.loads(data)
    return answer


def _given(piece: CheckedPiece | None) -> CheckedPiece | None:
    return piece


# -- worker ------------------------------------------------------------------------------------------------------


class _Sent(NamedTuple):
    """What a task sends on: a block of hashes, or its answer, pickled once and for all."""

    is_hashes: bool
    data: bytes


class _Opened(NamedTuple):
    """What a worker has open for an audit."""

    token: str
    files: FaultTolerantFiles
    queues: VerifiedQueueFiles
    pieces: LogPieces
    without_index: LogPieces


_opened: _Opened | None = None


def _open(plan: AuditPlan) -> _Opened:
    global _opened  # One audit at a time; what it opened serves all its tasks.
    if _opened is not None and _opened.token == plan.token:
        return _opened
    if _opened is not None:
        _opened.queues.close()
    patient = FaultTolerantFiles(RealFiles())
    files = patient.as_files
    queues = VerifiedQueueFiles(plan.root, files, plan.queue_file_bytes, plan.start)
    queues.load()
    tally = partial(PieceTally, plan.step_ms, plan.window)
    pieces, without_index = (
        LogPieces(plan.segments, plan.start, plan.end, files, queues, stream, tally=tally)
        for stream in (IndexStream([_part(file, files) for file in plan.index]), IndexStream([]))
    )
    _opened = _Opened(plan.token, patient, queues, pieces, without_index)
    return _opened


def _part(index: AuditedIndexFile, files: Files) -> CheckedIndexFile:
    file = cast(OpenFile, _LaterFile(index.path, files))
    return CheckedIndexFile(index.path.name, file, index.header, index.slots_max, index.entries_max)


class _LaterFile:
    """A file that is opened when something is read from it: a worker needs few of many."""

    def __init__(self, path: Path, files: Files) -> None:
        self.path, self._files = path, files
        self._file: OpenFile | None = None

    def pread(self, count: int, at: int) -> bytes:
        if self._file is None:
            self._file = self._files.open(self.path, False)
        return self._file.pread(count, at)


def _do(plan: AuditPlan, task: Task) -> Iterator[tuple[int, _Sent]]:
    """One task: blocks of hashes for their parts, and its answer, which any part passes on."""
    opened = _open(plan)
    if isinstance(task, LinkTask):
        flaws = {file.path.name: _link_flaws(file, opened.files.as_files) for file in task.files}
        yield 0, _Sent(False, pickle.dumps(LinkAnswer(flaws, opened.files.bad_blocks)))
        return
    keys = []
    pieces: list[CheckedPiece | None] = []
    for piece in _read(opened, task.cuts):
        pieces.append(piece)
        if piece is not None:
            keys.append(piece.tally.finish())
    if keys:
        yield from ((part, _Sent(True, block)) for part, block in split(np.concatenate(keys), plan.parts))
    yield task.number % plan.parts, _Sent(False, pickle.dumps(LogAnswer(task.number, pieces, opened.files.bad_blocks)))
    settle()


def _link_flaws(file: AuditedIndexFile, files: Files) -> list[LinkFlaw]:
    try:
        return link_flaws(_part(file, files))
    except FileNotFoundError:
        return []  # Retention took it.


def _read(opened: _Opened, cuts: list[Cut]) -> Iterator[CheckedPiece | None]:
    """A piece for each cut; but for the first, each goes on where the one before it ended."""
    before: CheckedPiece | None = None
    for cut in cuts:
        if before is not None and before.end >= cut.end:
            yield None  # A record, damage or a blank reaches past it.
            continue
        piece = _read_one(opened, cut, before)
        yield piece
        before = piece


def _read_one(opened: _Opened, cut: Cut, before: CheckedPiece | None) -> CheckedPiece | None:
    try:
        return _from(opened.pieces, cut, before)
    except FileNotFoundError:
        # An index file went with the log it was about. The driver still has it, and compares; here it is counted.
        piece = _from(opened.without_index, cut, before)
        if piece is not None:
            piece.keys.start = _NOWHERE
        return piece


def _from(pieces: LogPieces, cut: Cut, before: CheckedPiece | None) -> CheckedPiece | None:
    if before is None or before.keys.start == _NOWHERE:
        return pieces.read_cut(cut)
    return pieces.read(cut.segment, max(before.end, cut.segment.start), cut.end, before.keys.end)


def _gather(plan: AuditPlan, pairs: Iterable[tuple[int, _Sent]]) -> Iterator[bytes]:
    """All that came for one part: hashes, and answers, which go on as they are."""
    blocks = []
    for _, sent in pairs:
        if sent.is_hashes:
            blocks.append(sent.data)
        else:
            yield sent.data
    if blocks:
        yield pickle.dumps(find_duplicates(blocks, plan.segments, RealFiles()))
    settle()
