"""Arrivals: call listeners when queues have something new, after it can be read.

A sink like any other, placed after the consume queues. Two kinds of listeners:

    of steps      one call for each step of the dispatcher, with arrays: which queues moved, how far, tag codes and
                  store times. No object is made for a record: a call costs little more for a thousand than for one
    of messages   one call for each record, prepared and rolled-back ones too, as in RocketMQ

Listeners run on the dispatcher's thread and must return quickly. What one raises is logged, and keeps neither other
listeners nor the dispatcher from going on.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from embermq.columns import C_QUEUE_ID, C_QUEUE_OFFSET, C_STORE_TIME, C_TAG_CODE, RecordColumns
from embermq.store.queues import NO_MOVES, QueueMoves

log = logging.getLogger(__name__)


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """One message that became visible. `next_offset` is the queue offset after it."""

    topic: str
    queue_id: int
    next_offset: int
    tag_code: int
    store_timestamp: int
    property_bytes: bytes


@dataclass(frozen=True, slots=True)
class ArrivalStep:
    """What one step of the dispatcher made visible. `records` is lent for the call; all else may be kept.

    For entry e of `moved`: its tag code, its store time, and the row of its record, moved.rows[e], by which
    `properties(e)` finds what a filter asks for.
    """

    moved: QueueMoves
    tag_codes: NDArray[np.int64]
    store_times: NDArray[np.int64]  # in milliseconds
    records: RecordColumns

    def properties(self, entry: int) -> bytes:
        """The property string of an entry's record. Only during the call."""
        return self.records.properties(int(self.moved.rows[entry]))


ArrivalListener = Callable[[Arrival], None]
StepListener = Callable[[ArrivalStep], None]
_What = TypeVar("_What", Arrival, ArrivalStep)


class Arrivals:
    """The sink that announces."""

    name = "arrivals"

    def __init__(
        self,
        position: int,
        *,
        announce: bool = True,
        moved_by: Callable[[RecordColumns], QueueMoves] | None = None,
    ) -> None:
        """`moved_by` says which queues a batch of records has moved; None if there are no queues."""
        self.position = position
        self._announce, self._moved_by = announce, moved_by
        self._listeners: list[ArrivalListener] = []
        self._step_listeners: list[StepListener] = []
        self._failing: set[int] = set()  # By id. Raised at the last arrival, and that was logged.

    def listen(self, listener: ArrivalListener) -> Callable[[], None]:
        """Add a listener of messages; the answer removes it again. Any thread."""
        self._listeners = [*self._listeners, listener]

        def remove() -> None:
            self._listeners = [other for other in self._listeners if other is not listener]
            self._failing.discard(id(listener))

        return remove

    def listen_to_steps(self, listener: StepListener) -> Callable[[], None]:
        """Add a listener of steps; the answer removes it again. Any thread."""
        self._step_listeners = [*self._step_listeners, listener]

        def remove() -> None:
            self._step_listeners = [other for other in self._step_listeners if other is not listener]
            self._failing.discard(id(listener))

        return remove

    def take(self, batch: RecordColumns, end: int) -> None:
        if self._announce and len(batch):
            if self._step_listeners:
                self._announce_step(batch)
            if self._listeners:
                self._announce_each(batch)
        self.position = end

    def _announce_step(self, batch: RecordColumns) -> None:
        moved = NO_MOVES if self._moved_by is None else self._moved_by(batch)
        step = ArrivalStep(moved, batch.rows[moved.rows, C_TAG_CODE], batch.rows[moved.rows, C_STORE_TIME], batch)
        for listener in self._step_listeners:
            self._call(listener, step)

    def _announce_each(self, batch: RecordColumns) -> None:
        listeners = self._listeners
        for i, row in enumerate(batch.rows):
            arrival = Arrival(
                batch.topic(i),
                int(row[C_QUEUE_ID]),
                int(row[C_QUEUE_OFFSET]) + 1,
                int(row[C_TAG_CODE]),
                int(row[C_STORE_TIME]),
                batch.properties(i),
            )
            for listener in listeners:
                self._call(listener, arrival)

    def _call(self, listener: Callable[[_What], None], what: _What) -> None:
        try:
            listener(what)
        except Exception:
            if id(listener) not in self._failing:  # Once for any number of arrivals it fails at in a row.
                self._failing.add(id(listener))
                log.exception("arrival listener failed %s", _place(what))
        else:
            self._failing.discard(id(listener))

    def flush(self) -> None:
        """Nothing is kept."""

    def truncate_to(self, physical_offset: int) -> None:
        self.position = min(self.position, physical_offset)

    def close(self) -> None:
        self._listeners, self._step_listeners = [], []


def _place(what: Arrival | ArrivalStep) -> str:
    if isinstance(what, Arrival):
        return f"topic={what.topic} queue_id={what.queue_id}"
    return f"queues={len(what.moved.queues)}"
