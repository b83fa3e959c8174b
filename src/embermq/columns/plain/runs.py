"""A run: ordinary messages made ready to be written one behind another, as one row of numbers each.

A row points to its message's parts: body and topic in one byte string (`payload`), the property string in another
(`properties`). Both hosts of every message are the store's own, an IPv4 address with its port: 8 bytes read as one
big-endian number. `encode_run` is the plain twin of the kernel `encode_batch`.
"""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns.rows import Rows, as_view
from embermq.format.frame import BLANK_BYTES, encode, record_size
from embermq.model.flags import HOST_V6_MASK, PREPARED
from embermq.model.hosts import Host, pack_host, unpack_host

R_BODY_AT = 0  # in payload
R_BODY_LEN = 1
R_TOPIC_AT = 2  # in payload
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
N_RUN_COLUMNS = 13

BORN_NOW = -(1 << 63)  # Stands for the time of the append, which is known only when it happens.

P_PHYSICAL = 0
P_SIZE = 1
P_QUEUE_OFFSET = 2
N_PLACED_COLUMNS = 3

_HOST_NUMBER = struct.Struct(">q")


def host_number(host: Host) -> int:
    """An IPv4 host as one number."""
    packed = pack_host(host)
    assert len(packed) == _HOST_NUMBER.size, host
    number: int = _HOST_NUMBER.unpack(packed)[0]
    return number


def encode_run(
    out: Any,
    start: int,
    limit: int,
    base: int,
    payload: Any,
    properties: Any,
    rows: Rows,
    next_offsets: NDArray[np.int64],
    store_time: int,
    store_host: int,
    placed: Rows,
) -> tuple[int, int]:
    """Write the run's records into out[start:limit], as many as fit with room for a blank behind them.

    `base` is the physical offset of out[0]. Each message takes the next offset of its queue, which is advanced in
    place; prepared and rolled-back messages take 0 and advance nothing. `placed` receives physical offset, size
    and queue offset of each. Returns (messages written, position after the last)."""
    view, source, property_source = as_view(out), as_view(payload), as_view(properties)
    host = unpack_host(_HOST_NUMBER.pack(store_host))
    at = start
    for i, row in enumerate(rows.tolist()):
        body_at, body_len, topic_at, topic_len, props_at, props_len = row[:6]
        size = record_size(body_len, topic_len, props_len)
        if size + BLANK_BYTES > limit - at:
            return i, at
        has_offset = row[R_SYS_FLAG] & PREPARED == 0
        queue_offset = int(next_offsets[row[R_QUEUE]]) if has_offset else 0
        record = encode(
            physical_offset=base + at,
            queue_id=row[R_QUEUE_ID],
            queue_offset=queue_offset,
            topic=bytes(source[topic_at : topic_at + topic_len]).decode(),
            body=source[body_at : body_at + body_len],
            properties=bytes(property_source[props_at : props_at + props_len]),
            born_timestamp=store_time if row[R_BORN_TIME] == BORN_NOW else row[R_BORN_TIME],
            born_host=host,
            store_timestamp=store_time,
            store_host=host,
            flag=row[R_FLAG],
            sys_flag=row[R_SYS_FLAG] & ~HOST_V6_MASK,
            reconsume_times=row[R_RECONSUME],
            prepared_transaction_offset=row[R_PREPARED],
        )
        # Size and magic last: a record is there when they are.
        view[at + 8 : at + size] = record[8:]
        view[at : at + 8] = record[:8]
        placed[i] = (base + at, size, queue_offset)
        if has_offset:
            next_offsets[row[R_QUEUE]] += 1
        at += size
    return len(rows), at
