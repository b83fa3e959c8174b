"""Queues that moved: what one dispatch step brought to which queues, as arrays.

One element for each queue, and one for each entry, sorted by queue: entries [starts[q], starts[q + 1]) are those of
queue q, in log order. A record that stands in several queues (multi dispatch) has an entry in each. Prepared and
rolled-back messages have none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from embermq.columns import RecordColumns
from embermq.store.queues.consume_queue import ConsumeQueue
from embermq.store.queues.entry_intake import FEW_ROWS_WITH_KERNEL, Columns, EntryIntake
from embermq.store.queues.pending_entries import order_by_slot
from embermq.store.queues.queue_state import SharedQueueState

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class QueueMoves:
    """Which queues moved and how far."""

    queues: tuple[tuple[str, int], ...]  # topic and queue id
    from_offsets: Numbers  # for each queue: the queue offset of its first entry of this step
    to_offsets: Numbers  # for each queue: the one after its newest entry; everything below can be read
    starts: Numbers  # for each queue: its first entry; and the number of entries
    queue_offsets: Numbers  # for each entry
    rows: Numbers  # for each entry: the row of its record


NO_MOVES = QueueMoves(
    (),
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.zeros(1, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.int64),
)


def queues_moved(
    batch: RecordColumns, books: SharedQueueState, intake: EntryIntake, by_slot: Sequence[ConsumeQueue]
) -> QueueMoves:
    """Which queues the records of a batch, which was taken, belong to, and how far these queues go now."""
    if len(batch) < FEW_ROWS_WITH_KERNEL:
        return _moved_by_few(batch, books, intake, by_slot)
    with books.change:
        columns: Columns = intake.place_columns(batch)
        order = order_by_slot(columns[0], books.slot_count)
        slots, offsets, rows = (column[order] for column in columns)
        is_first = np.ones(len(slots), np.bool_)
        np.not_equal(slots[1:], slots[:-1], out=is_first[1:])
        starts = np.flatnonzero(is_first)
        moved = slots[starts]
        with books.lock:
            to_offsets = books.next[moved]
        queues = [by_slot[slot] for slot in moved.tolist()]
    names = tuple((queue.topic, queue.queue_id) for queue in queues)
    return QueueMoves(names, offsets[starts], to_offsets, np.append(starts, len(slots)), offsets, rows)


def _moved_by_few(
    batch: RecordColumns, books: SharedQueueState, intake: EntryIntake, by_slot: Sequence[ConsumeQueue]
) -> QueueMoves:
    """The same without arrays on the way: of a few records, making each of them would be most of the time."""
    with books.change:
        places = sorted(intake.places(batch), key=itemgetter(0))
        starts = [at for at, place in enumerate(places) if not at or place[0] != places[at - 1][0]]
        queues = [by_slot[places[at][0]] for at in starts]
        with books.lock:
            to_offsets = [int(books.next[places[at][0]]) for at in starts]
    numbers = [[places[at][1] for at in starts], to_offsets, [*starts, len(places)]]
    from_offsets, reached, ends = (np.array(column, np.int64) for column in numbers)
    offsets, rows = (np.array([place[column] for place in places], np.int64) for column in (1, 2))
    names = tuple((queue.topic, queue.queue_id) for queue in queues)
    return QueueMoves(names, from_offsets, reached, ends, offsets, rows)
