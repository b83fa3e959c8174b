"""Judging rows that others have made: may these messages be written as they are?

Rows of a packed batch come from outside (a parser of frames, a caller's columns), so nothing in them is trusted: each
part has to lie in its bytes, each number has to fit its field, no limit may be broken. A row passes if it is
*ordinary*: all that is right, its queue is known, and no property of it means anything to the store. What does not
pass goes the plain way one by one, which parks delayed messages and says what is wrong with one that cannot be stored.

`admit_run` is the plain twin of the kernel `admit_rows`.
"""

from collections.abc import Callable
from typing import NamedTuple

from embermq.columns.plain import runs as r
from embermq.columns.plain.runs import I32_MAX, I32_MIN, RowLimits, RowStop, RunBytes
from embermq.columns.rows import Rows, as_view
from embermq.format.frame import HOST_V4_BYTES, HOST_V6_BYTES, PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX
from embermq.model.properties import has_meaning_to_store


class RowsAdmitted(NamedTuple):
    """How far a call came: the row it stopped at, the bytes of the records before it, and why it stopped.

    PLACE: the row goes to a queue that is not known yet. PLAIN: it is not ordinary."""

    stopped_at: int
    record_bytes: int
    stop: RowStop


def admit_run(
    parts: RunBytes, rows: Rows, start: int, find_place: Callable[[bytes, int], int], limits: RowLimits
) -> RowsAdmitted:
    """Judge rows[start:] and give each its queue, up to the first that is not ordinary or whose queue is unknown."""
    total = 0
    for i in range(start, len(rows)):
        row = rows[i].tolist()
        if not has_sound_parts(row, parts) or not _is_ordinary(row, parts, limits):
            return RowsAdmitted(i, total, RowStop.PLAIN)
        topic = bytes(as_view(parts.topics)[row[r.R_TOPIC_AT] :][: row[r.R_TOPIC_LEN]])
        queue = find_place(topic, row[r.R_QUEUE_ID])
        if queue < 0:
            return RowsAdmitted(i, total, RowStop.PLACE)
        rows[i, r.R_QUEUE] = queue
        total += r.run_record_size(row, limits.store_host_bytes)
    return RowsAdmitted(len(rows), total, RowStop.ALL)


def has_sound_parts(row: list[int], parts: RunBytes) -> bool:
    """Do all parts of a row lie in their bytes, and are they no longer than a record can say?"""
    bodies, topics, properties = (len(as_view(data)) for data in parts)
    return (
        _is_inside(row[r.R_BODY_AT], row[r.R_BODY_LEN], bodies, bodies)
        and _is_inside(row[r.R_TOPIC_AT], row[r.R_TOPIC_LEN], TOPIC_BYTES_MAX, topics)
        and _is_inside(row[r.R_PROPS_AT], row[r.R_PROPS_LEN], PROPERTIES_BYTES_MAX, properties)
        and row[r.R_TOPIC_LEN] > 0
        and row[r.R_HOST_LEN] in (0, HOST_V4_BYTES, HOST_V6_BYTES)
        and (row[r.R_HOST_LEN] == 0 or _is_inside(row[r.R_HOST_AT], row[r.R_HOST_LEN], HOST_V6_BYTES, properties))
    )


def _is_ordinary(row: list[int], parts: RunBytes, limits: RowLimits) -> bool:
    text = bytes(as_view(parts.properties)[row[r.R_PROPS_AT] :][: row[r.R_PROPS_LEN]])
    return (
        row[r.R_BODY_LEN] <= limits.body_bytes_max
        and r.run_record_size(row, limits.store_host_bytes) <= limits.record_bytes_max
        and 0 <= row[r.R_QUEUE_ID] <= I32_MAX
        and all(I32_MIN <= row[column] <= I32_MAX for column in (r.R_FLAG, r.R_SYS_FLAG, r.R_RECONSUME))
        and not has_meaning_to_store(text)
    )


def _is_inside(at: int, length: int, longest: int, size: int) -> bool:
    return 0 <= length <= longest and 0 <= at <= size - length
