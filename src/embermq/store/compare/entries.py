"""Records against queue entries, where they are read: what each thread of `verify` does for queues.

A `QueuePart` takes the records of one piece of the log and keeps what is small: for each queue the runs of queue
offsets it met, and the records whose entries are not as they should be. Entries come through windows: a stretch of each
queue's entries lies in a pool of memory, and is read anew when a record needs another one.

`QueueFiles` is shared by the threads; a part belongs to one.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embermq.clock import SystemClock
from embermq.columns import (
    C_PHYSICAL,
    C_QUEUE_OFFSET,
    C_SIZE,
    C_STORE_TIME,
    C_TAG_CODE,
    Q_COLUMNS,
    Q_FIRST,
    Q_NEXT,
    Q_WINDOW_AT,
    Q_WINDOW_END,
    Q_WINDOW_START,
    CheckLoops,
    CheckStop,
    QueueName,
    RecordColumns,
)
from embermq.files import Files
from embermq.format.names import parse_segment_name
from embermq.format.queue_entry import ENTRY_BYTES, ENTRY_DTYPE
from embermq.store.layout.deleted_topics import load_deleted_topics
from embermq.store.queues.consume_queue import ConsumeQueue
from embermq.store.queues.consume_queues import ConsumeQueues
from embermq.store.queues.loading import QUEUE_FAMILY
from embermq.store.sink import Finding

POOL_BYTES = 12 << 20
_WINDOW_ENTRIES_MAX = 1 << 16
_WINDOW_ENTRIES_MIN = 32
_WINDOW_ENTRIES_FIRST = 2_048
_SUSPECTS_MAX = 10_000
_WRONG_MAX = 4_096

Numbers = NDArray[np.int64]


class Suspects(NamedTuple):
    """Records whose entries are not as expected, one element each."""

    offsets: Numbers
    physicals: Numbers
    sizes: Numbers
    tag_codes: Numbers
    times: Numbers

    def chosen(self, which: Any) -> "Suspects":
        return Suspects(*(column[which] for column in self))


def joined(parts: list[Suspects]) -> Suspects:
    return Suspects(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class OffsetRun(NamedTuple):
    """Queue offsets first..next that followed one another in the log; `place` is that of a record near its begin."""

    first: int
    next: int
    place: int


class VerifiedQueueFiles:
    """The queue files of a store as they lie there. Any thread, but for `load`."""

    def __init__(self, root: Path, files: Files, file_bytes: int, log_min: int, *, store: Path | None = None) -> None:
        """`store`: whose note of deleted topics counts, if the files were made aside."""
        self.root, self._files, self.file_bytes, self._log_min = root / QUEUE_FAMILY, files, file_bytes, log_min
        self._note_of = store or root
        self._deleted = self._deleted_before = load_deleted_topics(files, self._note_of)
        self.findings: list[Finding] = []
        self._loaded: ConsumeQueues | None = None
        self._is_lent = False
        self._ends: dict[QueueName, int] = {}
        self.usual_entries: dict[int, int] = {}  # By number of the queue: how many a piece of the log needs, and some.
        self._pools: list[NDArray[np.uint8]] = []
        self._free = threading.Lock()

    @classmethod
    def of_open_store(cls, queues: ConsumeQueues | None, files: Files, root: Path) -> "VerifiedQueueFiles":
        """The queues of a store that is open in this process, as they are when asked for; they are not closed here."""
        found = cls(root, files, queues.file_bytes if queues is not None else ENTRY_BYTES, 0)
        found._loaded, found._is_lent = queues, True
        return found

    def load(self) -> dict[QueueName, ConsumeQueue]:
        """The queues that are there now, but for those of deleted topics: the next start removes them."""
        self.close()
        log_min = self._log_min
        self._loaded = ConsumeQueues(
            self.root, self._files, self.file_bytes, SystemClock(), read_only=True, log_min=lambda: log_min
        )
        self.findings = self._loaded.load()
        living = [one for one in self._loaded.all() if one.max_physical > self._deleted.get(one.topic, -1)]
        found = {(queue.topic, queue.queue_id): queue for queue in living}
        self._ends = {name: self._end_of_files(queue) for name, queue in found.items()}
        return found

    def deleted_since(self) -> frozenset[str]:
        """Topics that were deleted after this was made: what the log still has of them is in no queue."""
        self._deleted = load_deleted_topics(self._files, self._note_of)
        before = self._deleted_before
        return frozenset(topic for topic, place in self._deleted.items() if before.get(topic) != place)

    def _end_of_files(self, queue: ConsumeQueue) -> int:
        """The queue offset after the last file there is, whether it can be used or not."""
        refused = [parse_segment_name(path.name) or 0 for path in queue.stale_files]
        starts = [*queue.file_starts, *(start // ENTRY_BYTES for start in refused)]
        return max(starts, default=0) + self.entries_per_file

    def matches(self, closed: dict[str, Any]) -> list[Finding]:
        """How the files differ from what the last clean close said."""
        assert self._loaded is not None
        return self._loaded.matches(closed)

    @property
    def queue_count(self) -> int:
        return len(self._loaded.all()) if self._is_lent and self._loaded is not None else len(self._ends)

    @property
    def entry_count(self) -> int:
        """How many entries there seem to be: nothing was compared for this."""
        assert self._loaded is not None
        return sum(max(queue.max_offset - queue.min_offset, 0) for queue in self._loaded.all())

    @property
    def entries_per_file(self) -> int:
        assert self._loaded is not None
        return self._loaded.file_bytes // ENTRY_BYTES

    @property
    def deleted_end(self) -> int:
        """From here on no record belongs to a topic that was deleted since."""
        return max(self._deleted.values(), default=0)

    def living(self, batch: RecordColumns, numbers: Numbers, names: list[QueueName]) -> tuple[RecordColumns, Numbers]:
        """Those records, and the numbers of their queues, that should have entries: not of a topic deleted since."""
        ends = np.array([self._deleted.get(topic, 0) for topic, _ in names], np.int64)
        is_live = batch.rows[:, C_PHYSICAL] >= ends[numbers]
        return RecordColumns(batch.data, batch.base, batch.rows[is_live]), numbers[is_live]

    def close(self) -> None:
        if self._loaded is not None and not self._is_lent:
            self._loaded.close()

    def entries(self, name: QueueName, start: int, count: int) -> NDArray[np.void]:
        """Entries of consecutive queue offsets; zeros where there are none."""
        assert self._loaded is not None
        queue = self._loaded.find(*name)
        if queue is None:
            return np.zeros(count, ENTRY_DTYPE)
        if name not in self._ends:
            self._ends[name] = self._end_of_files(queue)
        at, end = max(start, queue.low_offset), min(start + count, self._ends[name])
        if at == start and end == start + count <= queue.roll_next_file(start):
            found = queue.entries_on_disk(start, count)  # Nearly always.
            if len(found) == count:
                return found
        out: NDArray[np.void] = np.zeros(count, ENTRY_DTYPE)
        while at < end:
            found = queue.entries_on_disk(at, end - at)
            out[at - start : at - start + len(found)] = found
            at = at + len(found) if len(found) else queue.roll_next_file(at)
        return out

    @contextmanager
    def part(self, tools: CheckLoops) -> Iterator["QueuePieceCheck"]:
        """A part, with a pool lent to it."""
        with self._free:
            pool = self._pools.pop() if self._pools else None
        if pool is None:
            pool = np.zeros(POOL_BYTES, np.uint8)
        part = QueuePieceCheck(self, pool, tools)
        yield part
        part.finish()
        with self._free:
            self._pools.append(pool)


class QueuePieceCheck:
    """What one piece of the log says about the queues. One thread."""

    def __init__(self, files: VerifiedQueueFiles, pool: NDArray[np.uint8], tools: CheckLoops) -> None:
        self._files, self._check_entries = files, tools.check_entries
        self.pool = pool
        self.table: Numbers = np.zeros((0, Q_COLUMNS), np.int64)
        self._window_entries = 0
        self._wrong = np.empty(_WRONG_MAX, np.int64)
        self._run_places: dict[int, int] = {}
        self.runs: dict[int, list[OffsetRun]] = defaultdict(list)
        self.suspects: dict[int, list[Suspects]] = defaultdict(list)
        self.suspect_count = 0  # Some of them may not have been kept.

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """What it found may go to another process; it takes nothing more there."""
        return None, {"runs": self.runs, "suspects": self.suspects, "suspect_count": self.suspect_count}

    def take(self, batch: RecordColumns, numbers: Numbers, names: list[QueueName]) -> None:
        """Records of the log, and the numbers of their queues."""
        self.make_room(len(names))
        row = 0
        while row < len(batch):
            row, stop, count = self._check_entries(batch.rows, numbers, self.table, self.pool, row, self._wrong)
            if count:
                self._suspect(batch, numbers, self._wrong[:count])
            if stop == CheckStop.WINDOW:
                number = int(numbers[row])
                self.load_window(number, names[number], int(batch.rows[row, C_QUEUE_OFFSET]))
            elif stop == CheckStop.BREAK:
                self.end_run(int(numbers[row]), int(batch.rows[row, C_PHYSICAL]))

    def make_room(self, count: int) -> None:
        """Room for so many queues. Windows become smaller and are all read anew: their places in the pool move."""
        if count <= len(self.table):
            return
        grown = np.zeros((max(count, 2 * len(self.table)), Q_COLUMNS), np.int64)
        grown[: len(self.table)] = self.table
        grown[len(self.table) :, Q_FIRST] = -1
        grown[:, Q_WINDOW_START] = grown[:, Q_WINDOW_END] = -1
        self.table = grown
        self._window_entries = min(len(self.pool) // ENTRY_BYTES // len(grown), _WINDOW_ENTRIES_MAX)
        if self._window_entries < _WINDOW_ENTRIES_MIN:
            self._window_entries = _WINDOW_ENTRIES_MIN
            self.pool = np.zeros(len(grown) * _WINDOW_ENTRIES_MIN * ENTRY_BYTES, np.uint8)

    def load_window(self, number: int, name: QueueName, queue_offset: int) -> None:
        """Read entries from `queue_offset` on: as many as the piece before needed, then twice as many each time."""
        row = self.table[number]
        wanted = 2 * int(row[Q_WINDOW_END] - row[Q_WINDOW_START]) or self._files.usual_entries.get(number, 0)
        count = min(max(wanted, _WINDOW_ENTRIES_FIRST), self._window_entries)
        if not 0 <= queue_offset < 1 << 58:
            entries: NDArray[np.void] = np.zeros(count, ENTRY_DTYPE)  # An impossible offset has no entry.
        else:
            entries = self._files.entries(name, queue_offset, count)
        at = number * self._window_entries * ENTRY_BYTES
        self.pool[at : at + count * ENTRY_BYTES] = entries.view(np.uint8)
        row[Q_WINDOW_START], row[Q_WINDOW_END], row[Q_WINDOW_AT] = queue_offset, queue_offset + count, at

    def end_run(self, number: int, place: int) -> None:
        """The next record of this queue, at `place`, does not follow: a new run begins with it."""
        row = self.table[number]
        self.runs[number].append(OffsetRun(int(row[Q_FIRST]), int(row[Q_NEXT]), self._run_places.get(number, -1)))
        row[Q_FIRST] = -1
        self._run_places[number] = place

    def _suspect(self, batch: RecordColumns, numbers: Numbers, wrong: Numbers) -> None:
        self.suspect_count += len(wrong)
        rows = batch.rows[wrong]
        columns = (C_QUEUE_OFFSET, C_PHYSICAL, C_SIZE, C_TAG_CODE, C_STORE_TIME)
        every = Suspects(*(rows[:, column] for column in columns))
        for number in np.unique(numbers[wrong]).tolist():
            kept = sum(len(known.offsets) for known in self.suspects[number])
            if kept < _SUSPECTS_MAX:
                mine = np.flatnonzero(numbers[wrong] == number)[: _SUSPECTS_MAX - kept]
                self.suspects[number].append(every.chosen(mine))

    def finish(self) -> None:
        """No more records come. The pool is given back, so the table goes too."""
        for number in np.flatnonzero(self.table[:, Q_FIRST] >= 0).tolist():
            first, after = self.table[number, [Q_FIRST, Q_NEXT]].tolist()
            self._files.usual_entries[number] = (after - first) + (after - first) // 8
            self.end_run(number, -1)
        self.table = np.zeros((0, Q_COLUMNS), np.int64)
        self.pool = np.zeros(0, np.uint8)
