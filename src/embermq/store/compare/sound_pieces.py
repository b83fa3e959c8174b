"""A piece of the log that is sound, compared in one walk (columns/compiled/check_log.py): what nearly every piece is.

The walk stops for what belongs to it, a queue not met before, queue or index entries that are not in memory yet; at the
first thing that is not as it should be the piece is given up, and read again step by step
(store/compare/log_pieces.py), which knows all the cases. So this way finds nothing, and says that there is nothing to
find. A piece belongs to one thread.
"""

import threading

from embermq.columns import (
    C_PHYSICAL,
    C_QUEUE_OFFSET,
    W_AT,
    W_COUNT,
    W_ENTRY,
    W_NEWEST_MS,
    W_QUEUE,
    W_RECORDS,
    W_ROW,
    W_STOP,
    CheckStop,
    QueueSlots,
    RecordColumns,
    log_check,
    new_log_check_walk,
)
from embermq.format.frame import ScanStop
from embermq.store.compare.entries import QueuePieceCheck
from embermq.store.compare.keys import KeyPart
from embermq.store.compare.mapped_pieces import MappedStretch
from embermq.store.log.file_scan import DEFAULT_DELAY_MS


class SoundPiece:
    """A walk over a stretch of the log, and what it has counted."""

    def __init__(
        self,
        stretch: MappedStretch,
        queues: QueuePieceCheck,
        keys: KeyPart,
        routes: QueueSlots,
        routing: threading.Lock,
    ) -> None:
        """`routes` belongs to all threads; who has `routing` may use it."""
        self._stretch, self._queues, self._keys = stretch, queues, keys
        self._routes, self._routing = routes, routing
        self._check = log_check(DEFAULT_DELAY_MS)
        self._walk = new_log_check_walk(stretch.start)
        with routing:
            self._lent = routes.lent()

    @property
    def records(self) -> int:
        return int(self._walk[W_RECORDS])

    @property
    def newest_ms(self) -> int:
        return int(self._walk[W_NEWEST_MS])

    def end(self) -> int | None:
        """Go to the end; answers the place of it, or None if something is not sound."""
        stretch, walk = self._stretch, self._walk
        while True:
            stop = self._go_on()
            if stop == CheckStop.DONE:
                at, code = int(walk[W_AT]), int(walk[W_STOP])
                if not stretch.lengthen(at, code):
                    outcome = stretch.outcome(at, code)
                    return outcome.place if outcome.is_done else None
                walk[W_STOP] = ScanStop.ROWS_FULL  # One record more can be seen now.
            elif not self._see_to(stop):
                return None

    def _go_on(self) -> CheckStop:
        stretch, walk = self._stretch, self._walk
        entries, index, before = self._keys.at_hand()
        walk[W_ENTRY] = before
        stop: CheckStop = self._check.go_on(
            stretch.data,
            stretch.segment.start,
            stretch.limit,
            self._lent,
            self._queues.table,
            self._queues.pool,
            entries,
            index,
            walk,
        )
        self._keys.advance(int(walk[W_ENTRY]) - before)
        return stop

    def _see_to(self, stop: CheckStop) -> bool:
        """What the walk needs to go on; False if there is no such thing."""
        if stop == CheckStop.ENTRIES_END:
            return self._keys.read_on()
        if stop == CheckStop.UNKNOWN:
            rows = self._check.rows[: int(self._walk[W_COUNT])]
            with self._routing:
                self._routes.route(RecordColumns(self._stretch.data, self._stretch.segment.start, rows))
                self._lent = self._routes.lent()
            self._queues.make_room(len(self._routes.names))
            return True
        if stop not in (CheckStop.WINDOW, CheckStop.BREAK):
            return False
        number, row = int(self._walk[W_QUEUE]), self._check.rows[int(self._walk[W_ROW])]
        if stop == CheckStop.WINDOW:
            self._queues.load_window(number, self._routes.names[number], int(row[C_QUEUE_OFFSET]))
        else:
            self._queues.end_run(number, int(row[C_PHYSICAL]))
        return True
