"""Parked records as rows of a run. Twin: plain.parked.read_parked, which states the rules.

Every place and length is compared with the bytes at hand before it is used.
"""

from typing import Any

import numpy as np

from embermq.columns import rows as c
from embermq.columns.compiled.parts.compiling import READ_BYTES, READ_I64, READ_ROWS, ROWS, inlined, kernel
from embermq.columns.compiled.parts.memory import cell, set_cell, u8_at
from embermq.columns.compiled.queue_table import QueueTable, find_queue, is_same
from embermq.columns.compiled.scan import _record
from embermq.columns.plain import runs as r
from embermq.columns.plain.parked import (
    BORN_HOST_AT,
    QUEUE_ID_DIGITS_MAX,
    STORE_HOST_AT,
    ParkedIn,
    ParkedRead,
    ParkedStop,
)
from embermq.columns.plain.runs import I32_MAX, P_PHYSICAL, P_QUEUE_OFFSET, P_SIZE, RowLimits
from embermq.columns.rows import Rows, as_bytes_array, new_rows
from embermq.format.frame import FIXED_BYTES, HOST_V4_BYTES, TOPIC_BYTES_MAX
from embermq.model.flags import HOST_V6_MASK, PREPARED
from embermq.model.properties import HALF_TOPIC, REAL_QUEUE_ID, REAL_TOPIC

_ALL, _PLACE, _PLAIN, _ELSEWHERE = (int(stop) for stop in ParkedStop)
_SUM_AND_POSITION = 3
_NO_DELAYS = np.zeros(0, dtype=np.int64)
_TOPIC_NAME, _QUEUE_NAME, _HALF = (
    np.frombuffer(name.encode(), np.uint8) for name in (REAL_TOPIC + "\x01", REAL_QUEUE_ID + "\x01", HALF_TOPIC)
)


@inlined
def property_value(data: Any, at: int, end: int, name: Any) -> Any:
    """Where the last value of a property that is not empty lies, and its length; -1 for none."""
    found, length = -1, -1
    start = at
    while at <= end:
        if at == end or u8_at(data, at) == 2:
            if at - start > len(name) and is_same(data, start, name, 0, len(name)):
                found, length = start + len(name), at - start - len(name)
            start = at + 1
        at += 1
    return found, length


@inlined
def queue_number(data: Any, at: int, length: int) -> int:
    """A queue id as text; -1 if it is none."""
    if length <= 0 or length > QUEUE_ID_DIGITS_MAX:
        return -1
    number = 0
    for k in range(at, at + length):
        digit = u8_at(data, k) - 0x30
        if digit < 0 or digit > 9:
            return -1
        number = number * 10 + digit
    return number if number <= I32_MAX else -1


@inlined
def _belongs(data: Any, at: int, found: Any, queue_offset: int, topic: Any, queue_id: int, store_host: Any) -> bool:
    """Is the record in the one row of `found` the one of this place, with addresses as they should be?"""
    return (
        cell(found, 0, c.C_QUEUE_ID) == queue_id
        and cell(found, 0, c.C_QUEUE_OFFSET) == queue_offset
        and cell(found, 0, c.C_TOPIC_LEN) == len(topic)
        and is_same(data, cell(found, 0, c.C_TOPIC_AT), topic, 0, len(topic))
        and cell(found, 0, c.C_SYS_FLAG) & (HOST_V6_MASK | PREPARED) == 0
        and len(store_host) == HOST_V4_BYTES
        and is_same(data, at + STORE_HOST_AT, store_host, 0, HOST_V4_BYTES)
        and cell(found, 0, c.C_BORN_TIME) != r.BORN_NOW
    )


@inlined
def _fill(rows: Any, i: int, found: Any, at: int, topic_at: int, topic_len: int, queue_id: int) -> None:
    """Row i but for its queue."""
    set_cell(rows, i, r.R_BODY_AT, cell(found, 0, c.C_BODY_AT))
    set_cell(rows, i, r.R_BODY_LEN, cell(found, 0, c.C_BODY_LEN))
    set_cell(rows, i, r.R_TOPIC_AT, topic_at)
    set_cell(rows, i, r.R_TOPIC_LEN, topic_len)
    set_cell(rows, i, r.R_PROPS_AT, cell(found, 0, c.C_PROPS_AT))
    set_cell(rows, i, r.R_PROPS_LEN, cell(found, 0, c.C_PROPS_LEN))
    set_cell(rows, i, r.R_QUEUE_ID, queue_id)
    set_cell(rows, i, r.R_FLAG, cell(found, 0, c.C_FLAG))
    set_cell(rows, i, r.R_SYS_FLAG, cell(found, 0, c.C_SYS_FLAG))
    set_cell(rows, i, r.R_BORN_TIME, cell(found, 0, c.C_BORN_TIME))
    set_cell(rows, i, r.R_RECONSUME, cell(found, 0, c.C_RECONSUME))
    set_cell(rows, i, r.R_PREPARED, 0)
    set_cell(rows, i, r.R_HOST_AT, at + BORN_HOST_AT)
    set_cell(rows, i, r.R_HOST_LEN, HOST_V4_BYTES)


_ASKED = f"{READ_BYTES}, int64, {READ_BYTES}, {READ_ROWS}, {READ_BYTES}, int64, int64"


@kernel(
    f"UniTuple(int64, 3)({READ_BYTES}, int64, {READ_ROWS}, int64, {_ASKED}, {ROWS}, {ROWS}, {READ_I64})", nogil=False
)
def _read_parked(
    data: Any,
    base: int,
    places: Any,
    start: int,
    topic: Any,
    queue_id: int,
    store_host: Any,
    table: Any,
    names: Any,
    body_bytes_max: int,
    record_bytes_max: int,
    rows: Any,
    found: Any,
    delays: Any,
) -> tuple[int, int, int]:
    total = 0
    for i in range(start, len(places)):
        place, size = cell(places, i, P_PHYSICAL), cell(places, i, P_SIZE)
        if size <= 0 or place < 0:
            return i, total, _PLAIN
        if place < base or place - base > len(data) - size:
            return i, total, _ELSEWHERE
        at = place - base
        if _record(data, base, at, at + size, found, 0, delays, _SUM_AND_POSITION) != size or not _belongs(
            data, at, found, cell(places, i, P_QUEUE_OFFSET), topic, queue_id, store_host
        ):
            return i, total, _PLAIN
        properties_at = cell(found, 0, c.C_PROPS_AT)
        properties_end = properties_at + cell(found, 0, c.C_PROPS_LEN)
        topic_at, topic_len = property_value(data, properties_at, properties_end, _TOPIC_NAME)
        number_at, number_len = property_value(data, properties_at, properties_end, _QUEUE_NAME)
        real_queue = queue_number(data, number_at, number_len)
        is_named = 0 < topic_len <= TOPIC_BYTES_MAX and real_queue >= 0
        if not is_named or (topic_len == len(_HALF) and is_same(data, topic_at, _HALF, 0, topic_len)):
            return i, total, _PLAIN
        written = FIXED_BYTES + cell(found, 0, c.C_BODY_LEN) + topic_len + cell(found, 0, c.C_PROPS_LEN)
        if cell(found, 0, c.C_BODY_LEN) > body_bytes_max or written > record_bytes_max:
            return i, total, _PLAIN
        queue = find_queue(table, names, data, topic_at, topic_len, real_queue)
        _fill(rows, i, found, at, topic_at, topic_len, real_queue)
        set_cell(rows, i, r.R_QUEUE, queue)
        if queue < 0:
            return i, total, _PLACE
        total += written
    return len(places), total, _ALL


def read_parked(
    data: Any,
    base: int,
    places: Rows,
    start: int,
    parked_in: ParkedIn,
    queues: QueueTable,
    limits: RowLimits,
    rows: Rows,
) -> ParkedRead:
    """Make rows of the records at places[start:] (columns P_PHYSICAL, P_SIZE, P_QUEUE_OFFSET).

    `base` is the physical offset of data[0]. All parts of a row lie in `data`. Twin: plain.parked.read_parked."""
    assert places.shape[1] == r.N_PLACED_COLUMNS, places.shape
    assert rows.shape[1] == r.N_RUN_COLUMNS, rows.shape
    assert 0 <= start <= len(places) <= len(rows), (start, len(places), len(rows))
    stopped_at, total, stop = _read_parked(
        as_bytes_array(data),
        base,
        places,
        start,
        np.frombuffer(parked_in.topic, np.uint8),
        parked_in.queue_id,
        np.frombuffer(parked_in.store_host, np.uint8),
        *queues.arrays,
        limits.body_bytes_max,
        limits.record_bytes_max,
        rows,
        new_rows(1),
        _NO_DELAYS,
    )
    return ParkedRead(stopped_at, total, ParkedStop(stop))
