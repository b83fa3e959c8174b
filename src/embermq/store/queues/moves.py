"""Queues that moved: what one dispatch step brought to which queues, as arrays.

One element for each queue, and one for each entry, sorted by queue: entries [starts[q], starts[q + 1]) are those of
queue q, in log order. A record that stands in several queues (multi dispatch) has an entry in each. Prepared and
rolled-back messages have none.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
