"""Walking the log, record by record: rows of many records, and the next record behind damage.

The plain forms of compiled/scan.py: same arguments, same answers.
"""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns.rows import N_COLUMNS, Rows, as_view
from embermq.format.frame import (
    MESSAGE_MAGIC,
    End,
    Padding,
    RecordParts,
    ScanStop,
    Torn,
    locate_properties,
    measure,
    tag_code,
)

_RESYNC_BYTES = 1 << 20
_PLACE = struct.Struct(">q")


def scan_rows(
    data: Any,
    base: int,
    start: int,
    end: int,
    rows_out: Rows,
    delay_ms: NDArray[np.int64],
    check_crc: bool,
    check_position: bool,
) -> tuple[int, int, int]:
    """Walk records from data[start] to data[end], one row each. Returns (rows filled, position of the stop,
    ScanStop or TornReason code). `base` is the physical offset of data[0]."""
    view = as_view(data)
    assert 0 <= start <= end <= len(view), (start, end, len(view))
    count, at = 0, start
    while at < end:
        if count == len(rows_out):
            return count, at, ScanStop.ROWS_FULL
        parts = measure(view, at, end, base + at if check_position else None, check_crc)
        match parts:
            case RecordParts():
                rows_out[count] = _row(view, base, at, parts, delay_ms)
                count += 1
                at += parts.head[0]
            case Padding():
                return count, at, ScanStop.BLANK
            case End():
                return count, at, ScanStop.NOTHING
            case Torn(_, reason):
                return count, at, reason
    return count, at, ScanStop.BUFFER_END


def _row(view: memoryview, base: int, at: int, parts: RecordParts, delay_ms: Any) -> tuple[int, ...]:
    """The columns of one record, in the order of rows.py."""
    (
        size,
        _magic,
        _crc,
        queue_id,
        flag,
        queue_offset,
        stored,
        sys_flag,
        born,
        _born_host,
        store,
        _store_host,
        reconsume,
        prepared,
        body_len,
    ) = parts.head
    properties_at, properties_len = parts.properties_at, parts.properties_len
    topic = bytes(view[parts.topic_at : parts.topic_at + parts.topic_len])
    properties = bytes(view[properties_at : properties_at + properties_len])
    found = locate_properties(properties)
    keys_at, keys_len = found.get(b"KEYS", (-1 - properties_at, -1))
    uniq_at, uniq_len = found.get(b"UNIQ_KEY", (-1 - properties_at, -1))
    tags_at, tags_len = found.get(b"TAGS", (-1 - properties_at, -1))
    delay_at, delay_len = found.get(b"DELAY", (-1, -1))
    due_at, due_len = found.get(b"TIMER_OUT_MS", (-1, -1))
    tags = None if tags_len < 0 else properties[tags_at : tags_at + tags_len]
    delay = None if delay_len < 0 else properties[delay_at : delay_at + delay_len]
    due = None if due_len < 0 else properties[due_at : due_at + due_len]
    row = (
        base + at,
        size,
        queue_id,
        queue_offset,
        tag_code(topic, tags, delay, store, delay_ms, due),
        store,
        sys_flag,
        parts.body_at,
        body_len,
        parts.topic_at,
        parts.topic_len,
        properties_at,
        properties_len,
        properties_at + keys_at,
        keys_len,
        properties_at + uniq_at,
        uniq_len,
        properties_at + tags_at,
        tags_len,
        born,
        flag,
        reconsume,
        prepared,
        stored,
    )
    assert len(row) == N_COLUMNS
    return row


def resync(data: Any, base: int, start: int, end: int) -> int:
    """The first position >= start of a record that passes every check, checksum and place included, or -1."""
    view = as_view(data)
    stem = MESSAGE_MAGIC.to_bytes(4, "big", signed=True)[:3]
    # Piece by piece: the next record is mostly near, and a log file large.
    for piece in range(start, end, _RESYNC_BYTES):
        raw = bytes(view[piece : min(piece + _RESYNC_BYTES + 6, end)])
        found = raw.find(stem, 4)
        while found >= 0:
            at = piece + found - 4
            # The place first: every record of a log file that lies in the place of another has the magic.
            is_of_place = at + 36 <= end and _PLACE.unpack_from(view, at + 28)[0] == base + at
            if is_of_place and isinstance(measure(view, at, end, base + at, True), RecordParts):
                return at
            found = raw.find(stem, found + 1)
    return -1
