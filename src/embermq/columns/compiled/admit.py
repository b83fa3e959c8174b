"""Judging the rows of a packed batch. Twin: plain.admit.admit_run, which states the rules."""

from typing import Any

from embermq.columns.compiled.encode import has_sound_parts, row_record_size
from embermq.columns.compiled.parts.compiling import READ_BYTES, READ_ROWS, ROWS, inlined, kernel
from embermq.columns.compiled.parts.memory import cell, set_cell
from embermq.columns.compiled.parts.property_text import has_meaning
from embermq.columns.compiled.queue_table import QueueTable, find_queue
from embermq.columns.plain import runs as r
from embermq.columns.plain.admit import RowsAdmitted
from embermq.columns.plain.runs import I32_MAX, I32_MIN, RowLimits, RowStop, RunBytes
from embermq.columns.rows import Rows, as_bytes_array

_ALL, _PLACE, _PLAIN, _ = (int(stop) for stop in RowStop)


@inlined
def _is_i32(number: int) -> bool:
    return I32_MIN <= number <= I32_MAX


@inlined
def _is_ordinary(
    rows: Any, i: int, properties: Any, body_bytes_max: int, record_bytes_max: int, store_host_bytes: int
) -> bool:
    return (
        cell(rows, i, r.R_BODY_LEN) <= body_bytes_max
        and row_record_size(rows, i, store_host_bytes) <= record_bytes_max
        and 0 <= cell(rows, i, r.R_QUEUE_ID) <= I32_MAX
        and _is_i32(cell(rows, i, r.R_FLAG))
        and _is_i32(cell(rows, i, r.R_SYS_FLAG))
        and _is_i32(cell(rows, i, r.R_RECONSUME))
        and not has_meaning(properties, cell(rows, i, r.R_PROPS_AT), cell(rows, i, r.R_PROPS_LEN))
    )


_PARTS = f"{READ_BYTES}, {READ_BYTES}, {READ_BYTES}"


@kernel(f"UniTuple(int64, 3)({_PARTS}, {ROWS}, int64, {READ_ROWS}, {READ_BYTES}, int64, int64, int64)", nogil=False)
def _admit_rows(
    bodies: Any,
    topics: Any,
    properties: Any,
    rows: Any,
    start: int,
    table: Any,
    names: Any,
    body_bytes_max: int,
    record_bytes_max: int,
    store_host_bytes: int,
) -> tuple[int, int, int]:
    total = 0
    for i in range(start, len(rows)):
        if not has_sound_parts(rows, i, bodies, topics, properties) or not _is_ordinary(
            rows, i, properties, body_bytes_max, record_bytes_max, store_host_bytes
        ):
            return i, total, _PLAIN
        topic_at, topic_len = cell(rows, i, r.R_TOPIC_AT), cell(rows, i, r.R_TOPIC_LEN)
        queue = find_queue(table, names, topics, topic_at, topic_len, cell(rows, i, r.R_QUEUE_ID))
        if queue < 0:
            return i, total, _PLACE
        set_cell(rows, i, r.R_QUEUE, queue)
        total += row_record_size(rows, i, store_host_bytes)
    return len(rows), total, _ALL


def admit_rows(parts: RunBytes, rows: Rows, start: int, places: QueueTable, limits: RowLimits) -> RowsAdmitted:
    """Judge rows[start:] and give each its queue, up to the first that is not ordinary or whose queue is unknown.

    Twin: plain.admit.admit_run. Some 15-30 ns a message."""
    assert rows.shape[1] == r.N_RUN_COLUMNS, rows.shape
    assert 0 <= start <= len(rows), (start, len(rows))
    stopped_at, total, stop = _admit_rows(
        as_bytes_array(parts.bodies),
        as_bytes_array(parts.topics),
        as_bytes_array(parts.properties),
        rows,
        start,
        *places.arrays,
        *limits,
    )
    return RowsAdmitted(stopped_at, total, RowStop(stop))
