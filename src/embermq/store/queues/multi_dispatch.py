"""Records that go to several queues: INNER_MULTI_DISPATCH names them, INNER_MULTI_QUEUE_OFFSET gives the places.

The writer chose the queue offsets when it stored the record, so a derived entry's place is a fact of the log.
Off by default; pure, any thread.
"""

import re

import numpy as np

from embermq.columns import C_PROPS_AT, C_PROPS_LEN, C_QUEUE_ID, RecordColumns
from embermq.format.frame import locate_properties
from embermq.model.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET

LIGHT_PREFIX = b"%LMQ%"
_NAMES = MULTI_DISPATCH.encode()
_OFFSETS = MULTI_QUEUE_OFFSET.encode()
_MARK = re.compile(re.escape(_NAMES) + b"\x01")


class MultiDispatch:
    """`light_queues`: names that begin with %LMQ% always mean queue 0."""

    def __init__(self, *, light_queues: bool) -> None:
        self._light_queues = light_queues

    def rows_with_targets(self, batch: RecordColumns) -> list[int]:
        """Rows whose properties name further queues, ascending. Cheap when there are none."""
        starts = batch.column(C_PROPS_AT)
        ends = starts + batch.column(C_PROPS_LEN)
        data = batch.data.data
        found = []
        at, end = int(starts[0]), int(ends[-1])
        while (hit := _MARK.search(data, at, end)) is not None:
            at = hit.end()
            row = int(np.searchsorted(starts, hit.start(), "right")) - 1
            if hit.start() < ends[row]:  # otherwise it stands in a body
                found.append(row)
        return sorted(set(found))

    def targets(self, batch: RecordColumns, i: int) -> list[tuple[bytes, int, int]]:
        """Topic, queue id and queue offset of each further queue of row i; none when the lists disagree."""
        properties = batch.properties(i)
        if _NAMES not in properties:
            return []
        parts = locate_properties(properties)
        values = []
        for name in (_NAMES, _OFFSETS):
            at, length = parts.get(name, (0, 0))
            values.append([part for part in properties[at : at + length].split(b",") if part])
        names, offsets = values
        if len(names) != len(offsets) or not all(offset.isdigit() for offset in offsets):
            return []
        queue_id = int(batch.rows[i, C_QUEUE_ID])
        return [
            (name, 0 if self._light_queues and name.startswith(LIGHT_PREFIX) else queue_id, int(offset))
            for name, offset in zip(names, offsets, strict=True)
        ]
