"""Topics that were deleted and used again: of a queue, only what came after the deletion.

The log keeps the records of both incarnations, under the same queue offsets. Reading by entries meets the newer ones
alone; reading the log in order, or where an index points to, meets both, and then the place tells them apart. Made on
the driver, used by tasks; one thread.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from embermq.columns import C_PHYSICAL, C_TOPIC_AT, C_TOPIC_LEN, RecordColumns, Selection


@dataclass(frozen=True, slots=True)
class SelectionOfIncarnations(Selection):
    """A selection, some of whose topics have older records that are in no queue any more."""

    begins: Mapping[str, int] = field(default_factory=dict)  # topic -> where in the log its newest incarnation begins

    def without_old(self, records: RecordColumns, keep: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """The chosen rows (None: all) but those of incarnations that ended."""
        places = records.column(C_PHYSICAL)
        if not len(records) or places[0] >= max(self.begins.values()):  # In log order.
            return keep
        kept = np.arange(len(records), dtype=np.int64) if keep is None else keep
        for topic, begin in self.begins.items():
            if len(kept) and places[kept[0]] < begin:
                early = places[kept] < begin
                early[early] = _have_topic(records, kept[early], topic.encode())
                kept = kept[~early]
        return kept


def newest_lives(selection: Selection, deleted: Mapping[str, int]) -> Selection:
    """The selection, for a store in which these topics were deleted with the log ending there."""
    wanted = deleted if selection.queues is None else {topic for topic, _ in selection.queues}
    begins = {topic: place for topic, place in deleted.items() if topic in wanted}
    if not begins:
        return selection
    return SelectionOfIncarnations(
        **{one.name: getattr(selection, one.name) for one in fields(selection)}, begins=begins
    )


def _have_topic(records: RecordColumns, rows: NDArray[np.int64], topic: bytes) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = records.column(C_TOPIC_LEN)[rows] == len(topic)
    places = records.column(C_TOPIC_AT)[rows[found]][:, None] + np.arange(len(topic))
    found[found] = (records.data[places] == np.frombuffer(topic, np.uint8)).all(axis=1)
    return found
