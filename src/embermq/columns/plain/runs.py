"""A run: messages made ready to be written one behind another, as one row of numbers each.

A row points to its message's parts in three byte strings (`RunBytes`), two of which may be the same one. The born host
is in its packed form, 8 bytes (IPv4) or 20 (IPv6) with the port; without one, the message gets the store's own host.
Rows may share parts: a hundred messages of one client need its host only once.

`encode_run` is the plain twin of the kernel `encode_batch`.
"""

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embermq.columns.rows import Rows, as_view
from embermq.format.frame import (
    BLANK_BYTES,
    HOST_V6_BYTES,
    body_crc,
    host_flags,
    put_record,
    record_size,
)
from embermq.model.flags import BORN_HOST_V6, PREPARED, STORE_HOST_V6

R_BODY_AT = 0  # in bodies
R_BODY_LEN = 1
R_TOPIC_AT = 2  # in topics
R_TOPIC_LEN = 3
R_PROPS_AT = 4  # in properties
R_PROPS_LEN = 5
R_QUEUE = 6  # index into the array of next queue offsets
R_QUEUE_ID = 7
R_FLAG = 8
R_SYS_FLAG = 9
R_BORN_TIME = 10
R_RECONSUME = 11
R_PREPARED = 12
R_HOST_AT = 13  # of the born host, in properties
R_HOST_LEN = 14  # 8, 20, or 0 for the store's own host
N_RUN_COLUMNS = 15

BORN_NOW = -(1 << 63)  # Stands for the time of the append, which is known only when it happens.

P_PHYSICAL = 0
P_SIZE = 1
P_QUEUE_OFFSET = 2
N_PLACED_COLUMNS = 3


I32_MIN, I32_MAX, I64_MAX = -(1 << 31), (1 << 31) - 1, (1 << 63) - 1


class RowStop(IntEnum):
    """Why making or judging rows stopped."""

    ALL = 0  # All rows are done.
    PLACE = 1  # The next message goes to a queue that was not made yet.
    PLAIN = 2  # The next message is not ordinary.
    FULL = 3  # There is no room for the bytes of the next message.


class RowLimits(NamedTuple):
    """What a store allows, and the length of its own packed host."""

    body_bytes_max: int
    record_bytes_max: int
    store_host_bytes: int


class RunBytes(NamedTuple):
    """The bytes that rows point into: anything with a buffer."""

    bodies: Any
    topics: Any
    properties: Any


def new_run_rows(count: int) -> Rows:
    """Rows in which everything is zero but the born time, which is that of the append."""
    rows = np.zeros((count, N_RUN_COLUMNS), np.int64)
    rows[:, R_BORN_TIME] = BORN_NOW
    return rows


def run_record_size(row: list[int], store_host_bytes: int) -> int:
    """Bytes of the record of a row."""
    born_v6 = (row[R_HOST_LEN] or store_host_bytes) == HOST_V6_BYTES
    v6_hosts = BORN_HOST_V6 * born_v6 | STORE_HOST_V6 * (store_host_bytes == HOST_V6_BYTES)
    return record_size(row[R_BODY_LEN], row[R_TOPIC_LEN], row[R_PROPS_LEN], v6_hosts)


def encode_run(
    out: Any,
    start: int,
    limit: int,
    base: int,
    parts: RunBytes,
    rows: Rows,
    next_offsets: NDArray[np.int64],
    store_time: int,
    store_host: bytes,
    placed: Rows,
) -> tuple[int, int]:
    """Write the run's records into out[start:limit], as many as fit with room for a blank behind them.

    `base` is the physical offset of out[0]. Each message takes the next offset of its queue, which is advanced in
    place; prepared and rolled-back messages take 0 and advance nothing. `store_host` is in its packed form. `placed`
    receives physical offset, size and queue offset of each. Returns (messages written, position after the last)."""
    view, bodies, topics, properties = (as_view(data) for data in (out, *parts))
    at = start
    for i, row in enumerate(rows.tolist()):
        body_at, body_len, topic_at, topic_len, props_at, props_len = row[:6]
        size = run_record_size(row, len(store_host))
        if size + BLANK_BYTES > limit - at:
            return i, at
        has_offset = row[R_SYS_FLAG] & PREPARED == 0
        queue_offset = int(next_offsets[row[R_QUEUE]]) if has_offset else 0
        body = bodies[body_at : body_at + body_len]
        born_host = bytes(properties[row[R_HOST_AT] :][: row[R_HOST_LEN]]) or store_host
        put_record(
            view,
            at,
            size,
            body_crc(body),
            body,
            bytes((topic_len, *topics[topic_at : topic_at + topic_len])),
            bytes(properties[props_at : props_at + props_len]),
            row[R_QUEUE_ID],
            queue_offset,
            base + at,
            store_time if row[R_BORN_TIME] == BORN_NOW else row[R_BORN_TIME],
            born_host,
            store_time,
            store_host,
            row[R_FLAG],
            host_flags(row[R_SYS_FLAG], born_host, store_host),
            row[R_RECONSUME],
            row[R_PREPARED],
        )
        placed[i] = (base + at, size, queue_offset)
        if has_offset:
            next_offsets[row[R_QUEUE]] += 1
        at += size
    return len(rows), at
