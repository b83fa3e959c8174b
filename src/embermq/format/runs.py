"""A run: ordinary messages made ready to be written one behind another, as one row of numbers each.

The bytes of all messages are joined in one payload: body, topic, properties of the first, of the second, and so
on. Both hosts of every message are IPv4; each host is its 8 bytes read as one big-endian number.
`encode_run` is the plain twin of the kernel `encode_batch`.
"""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.format.columns import Rows, as_view
from embermq.format.frame import BLANK_BYTES, encode, record_size
from embermq.model.flags import HOST_V6_MASK, PREPARED
from embermq.model.hosts import Host, pack_host, unpack_host

R_BODY_LEN = 0
R_TOPIC_LEN = 1
R_PROPS_LEN = 2
R_QUEUE = 3  # index into the array of next queue offsets
R_QUEUE_ID = 4
R_FLAG = 5
R_SYS_FLAG = 6
R_BORN_TIME = 7
R_BORN_HOST = 8
R_RECONSUME = 9
R_PREPARED = 10
N_RUN_COLUMNS = 11
RUN_ROW = struct.Struct(f"={N_RUN_COLUMNS}q")  # one row, for those who build rows as bytes

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
    view, source = as_view(out), as_view(payload)
    at, taken = start, 0
    for i, row in enumerate(rows.tolist()):
        body_len, topic_len, props_len = row[:3]
        size = record_size(body_len, topic_len, props_len)
        if size + BLANK_BYTES > limit - at:
            return i, at
        topic_at, props_at = taken + body_len, taken + body_len + topic_len
        has_offset = row[R_SYS_FLAG] & PREPARED == 0
        queue_offset = int(next_offsets[row[R_QUEUE]]) if has_offset else 0
        record = encode(
            physical_offset=base + at,
            queue_id=row[R_QUEUE_ID],
            queue_offset=queue_offset,
            topic=bytes(source[topic_at:props_at]).decode(),
            body=source[taken:topic_at],
            properties=bytes(source[props_at : props_at + props_len]),
            born_timestamp=row[R_BORN_TIME],
            born_host=unpack_host(_HOST_NUMBER.pack(row[R_BORN_HOST])),
            store_timestamp=store_time,
            store_host=unpack_host(_HOST_NUMBER.pack(store_host)),
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
        taken = props_at + props_len
    return len(rows), at
