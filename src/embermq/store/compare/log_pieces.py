"""The log as `verify` reads it: every record once, on several threads, compared where it is read.

The log is cut into pieces of some megabytes. A thread reads a piece, finds its first record, scans it with checksums,
and compares its records with the queues and its keys with the index; what comes back is small. The pieces are put
together in log order: each must begin where the one before it ended, in the log and in the index, or it is read again
from there. What looks like a record may lie in another one's body, and an index entry may be damaged.

Where something is wrong, and on a bad disk, reading is pread alone, so that it is an error and not a signal
(store/compare/mapped_pieces.py). One thread iterates.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np

from embermq.columns import (
    C_PHYSICAL,
    C_SIZE,
    C_STORE_TIME,
    QueueName,
    QueueSlots,
    RecordColumns,
    check_loops_for,
    new_rows,
)
from embermq.files import Files
from embermq.store.compare.entries import Numbers, QueuePieceCheck, VerifiedQueueFiles
from embermq.store.compare.keys import EntryPlace, IndexStream, KeyPart
from embermq.store.compare.mapped_pieces import mapped, mapped_records
from embermq.store.compare.sound_pieces import SoundPiece
from embermq.store.index.links import LinkFlaw, link_flaws
from embermq.store.log.file_scan import MISSING, DamagedRange, LogSegment, Scanned, next_record, scan_segments

PIECE_BYTES = 16 << 20
ROWS_MAX = 4_096
_THREADS_MAX = 4
_QUEUES_PER_PIECE = 256
_LONGER_MAX = 8


class Tally(Protocol):
    """An observer of the records of a piece, on the thread that reads it."""

    def take(self, batch: RecordColumns, numbers: Numbers, names: list[QueueName]) -> None:
        """Records, and the numbers of their queues; valid during the call."""


class CheckedPiece(NamedTuple):
    """A stretch of the log: where it begins and ends, what is in it, and what is wrong. Can be pickled."""

    start: int
    end: int
    records: int
    newest_ms: int
    damages: list[DamagedRange]
    queues: QueuePieceCheck
    keys: KeyPart
    names: list[QueueName]  # of the queue numbers in `queues`
    tally: Any = None  # of the kind the reader was given


class LogReader(Protocol):
    """Gives the pieces of a log in order; then it has `links`, by name of the index file, and all queues met."""

    links: dict[str, list[LinkFlaw]]

    @property
    def names(self) -> Iterable[QueueName]: ...

    def __iter__(self) -> Iterator[CheckedPiece]: ...


class Cut(NamedTuple):
    """Where a piece should begin and end; only the first of a file begins exactly there."""

    segment: LogSegment
    start: int
    end: int


class LogPieces:
    """Reads [start, end) of the log; `routes.names` has the names of the queue numbers met so far. `tally` makes a
    tally for each piece."""

    def __init__(
        self,
        segments: Sequence[LogSegment],
        start: int,
        end: int,
        files: Files,
        queues: VerifiedQueueFiles,
        index: IndexStream,
        *,
        tally: Callable[[], Tally] | None = None,
    ) -> None:
        self._segments, self._start, self._end, self._files = segments, start, end, files
        self._queues, self._index, self._tally = queues, index, tally
        self._routing = threading.Lock()
        self.routes = QueueSlots()
        self.links: dict[str, list[LinkFlaw]] = {}  # By name of the index file; when all was read.
        self._threads = min(os.cpu_count() or 1, _THREADS_MAX)
        # Each piece begins to read every queue anew: with many queues pieces are longer.
        self._piece_bytes = PIECE_BYTES * min(max(queues.queue_count // _QUEUES_PER_PIECE, 1), _LONGER_MAX)
        # Loading kernels takes most of a second: not for a log that is read in less.
        self._tools = check_loops_for(end - start)

    @property
    def names(self) -> Iterable[QueueName]:
        return self.routes.names

    def __iter__(self) -> Iterator[CheckedPiece]:
        with ThreadPoolExecutor(self._threads, "embermq-verify") as pool:
            links = {part.name: pool.submit(link_flaws, part) for part in self._index.parts}
            yield from self.chained(self._read_ahead(pool))
            self.links = {name: checked.result() for name, checked in links.items()}

    def _read_ahead(self, pool: ThreadPoolExecutor) -> Iterator[tuple[Cut, Callable[[], CheckedPiece | None]]]:
        waiting: deque[tuple[Cut, Future[CheckedPiece | None]]] = deque()
        cuts = self.cuts()
        try:
            while True:
                while len(waiting) <= self._threads and (cut := next(cuts, None)) is not None:
                    waiting.append((cut, pool.submit(self.read_cut, cut)))
                if not waiting:
                    break
                cut, future = waiting.popleft()
                yield cut, future.result
        finally:
            for _, future in waiting:
                future.cancel()

    def chained(self, found: Iterable[tuple[Cut, Callable[[], CheckedPiece | None]]]) -> Iterator[CheckedPiece]:
        """Pieces of all cuts, in order, each beginning where the one before it ended."""
        at, entry = self._start, self._index.place_of(self._start)
        for cut, result in found:
            if at < cut.segment.start:
                yield self.nothing(at, cut.segment.start, entry)
                at = cut.segment.start
            if at >= cut.end:
                continue  # A record, damage or a blank reaches past it.
            piece = result()
            if piece is None or (piece.start, piece.keys.start) != (at, entry):
                piece = self.read(cut.segment, at, cut.end, entry)
            yield piece
            at, entry = piece.end, piece.keys.end
        if at < self._end:
            yield self.nothing(at, self._end, entry)

    def cuts(self) -> Iterator[Cut]:
        """The log in stretches of even length, none longer than a file."""
        for segment in self._segments:
            end = min(segment.end, self._end)
            at = max(segment.start, self._start)
            while at < end:
                onward = min(at + self._piece_bytes, end)
                yield Cut(segment, at, onward)
                at = onward

    def read_cut(self, cut: Cut) -> CheckedPiece | None:
        """Any thread. None if no record begins here, as far as can be seen."""
        start: int | None = cut.start
        if cut.start not in (cut.segment.start, self._start):
            start = self._first_record(cut)
        return None if start is None else self.read(cut.segment, start, cut.end, self._index.place_of(start))

    def _first_record(self, cut: Cut) -> int | None:
        try:
            file = self._files.open(cut.segment.path, False)
        except FileNotFoundError:
            return None
        try:
            return next_record(file, cut.segment, cut.start, cut.end)
        finally:
            file.close()

    def read(self, segment: LogSegment, start: int, end: int, entry: EntryPlace) -> CheckedPiece:
        """The records that begin in [start, end) of a file. Any thread."""
        is_mixed = start < self._queues.deleted_end
        if self._tools.is_compiled and self._tally is None and not is_mixed:
            piece = self._read_sound(segment, start, end, entry)
            if piece is not None:
                return piece
        reached, records, newest_ms = start, 0, 0
        damages: list[DamagedRange] = []
        keys = KeyPart(self._index, entry, self._tools)
        tally = self._tally() if self._tally is not None else None
        with self._queues.part(self._tools) as queues:
            for scanned in self._scan(segment, start, end):
                if isinstance(scanned, DamagedRange):
                    damages.append(scanned)
                    reached = scanned.end
                    continue
                with self._routing:
                    numbers = self.routes.route(scanned).astype(np.int64)
                if is_mixed:
                    queues.take(*self._queues.living(scanned, numbers, self.routes.names), self.routes.names)
                else:
                    queues.take(scanned, numbers, self.routes.names)
                keys.take(scanned)
                if tally is not None:
                    tally.take(scanned, numbers, self.routes.names)
                reached = int(scanned.rows[-1, C_PHYSICAL] + scanned.rows[-1, C_SIZE])
                records += len(scanned)
                newest_ms = max(newest_ms, int(scanned.rows[:, C_STORE_TIME].max()))
        if reached < end:
            reached = segment.end  # A blank ended the file: what lies behind it was never written, or is old.
        return CheckedPiece(start, reached, records, newest_ms, damages, queues, keys, self.routes.names, tally)

    def _read_sound(self, segment: LogSegment, start: int, end: int, entry: EntryPlace) -> CheckedPiece | None:
        """The same in one walk; None if anything is wrong."""
        keys = KeyPart(self._index, entry, self._tools)
        with mapped(self._files, segment, start, end) as stretch, self._queues.part(self._tools) as queues:
            if stretch is None:
                return None
            walk = SoundPiece(stretch, queues, keys, self.routes, self._routing)
            reached = walk.end()
        if reached is None:
            return None
        if reached < end:
            reached = segment.end
        return CheckedPiece(start, reached, walk.records, walk.newest_ms, [], queues, keys, self.routes.names)

    def _scan(self, segment: LogSegment, start: int, end: int) -> Iterator[Scanned]:
        """Records, and ranges without one: through a map as long as all is well, and with pread from there on."""
        if self._tools.is_compiled:
            place, is_done = yield from mapped_records(self._files, segment, start, end, new_rows(ROWS_MAX))
            if is_done:
                return
            start = place
        yield from scan_segments([segment], start, end, rows_max=ROWS_MAX, files=self._files)

    def nothing(self, start: int, end: int, entry: EntryPlace) -> CheckedPiece:
        """A place without a file."""
        keys = KeyPart(self._index, entry, self._tools)
        with self._queues.part(self._tools) as queues:
            return CheckedPiece(start, end, 0, 0, [DamagedRange(start, end, MISSING)], queues, keys, self.routes.names)
