"""Arrivals: tell listeners that a queue has something new, after it can be fetched.

A sink like any other, placed after the consume queues. Listeners run on the dispatcher's thread and must
return quickly. What one raises is logged, and keeps neither other listeners nor the dispatcher from going on. Every
record is announced, prepared and rolled-back ones too, as in the reference.
"""

import logging
from collections.abc import Callable

import msgspec

from embermq.columns import C_QUEUE_ID, C_QUEUE_OFFSET, C_STORE_TIME, C_TAG_CODE, RecordColumns

log = logging.getLogger(__name__)


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """One message that became visible. `next_offset` is the queue offset after it."""

    topic: str
    queue_id: int
    next_offset: int
    tag_code: int
    store_timestamp: int
    property_bytes: bytes


ArrivalListener = Callable[[Arrival], None]


class Arrivals:
    """The sink that announces."""

    name = "arrivals"

    def __init__(self, position: int, *, announce: bool = True) -> None:
        self.position = position
        self._announce = announce
        self._listeners: list[ArrivalListener] = []
        self._failing: set[int] = set()  # By id. Raised at the last arrival, and that was logged.

    def listen(self, listener: ArrivalListener) -> Callable[[], None]:
        """Add a listener; the answer removes it again. Any thread."""
        self._listeners = [*self._listeners, listener]

        def remove() -> None:
            self._listeners = [other for other in self._listeners if other is not listener]
            self._failing.discard(id(listener))

        return remove

    def take(self, batch: RecordColumns, end: int) -> None:
        listeners = self._listeners
        if listeners and self._announce:
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
                    self._tell(listener, arrival)
        self.position = end

    def _tell(self, listener: ArrivalListener, arrival: Arrival) -> None:
        try:
            listener(arrival)
        except Exception:
            if id(listener) not in self._failing:  # Once for any number of arrivals it fails at in a row.
                self._failing.add(id(listener))
                log.exception("arrival listener failed topic=%s queue_id=%d", arrival.topic, arrival.queue_id)
        else:
            self._failing.discard(id(listener))

    def flush(self) -> None:
        """Nothing is kept."""

    def truncate_to(self, physical_offset: int) -> None:
        self.position = min(self.position, physical_offset)

    def close(self) -> None:
        self._listeners = []
