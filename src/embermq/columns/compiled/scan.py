"""Walking the commit log: records to rows, and finding the next record after damage.

Twins: format.frame.scan_rows and format.frame.resync. Every length is compared with the bytes at hand before
it is used, so foreign bytes can only end a walk.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns import rows as c
from embermq.columns.compiled.parts.compiling import READ_BYTES, READ_I64, ROWS, inlined, kernel
from embermq.columns.compiled.parts.crc import crc32_at
from embermq.columns.compiled.parts.memory import i8_at, i16_at, i32_at, i64_at, set_cell, u8_at
from embermq.columns.compiled.parts.text import hash_text, signed32
from embermq.columns.rows import N_COLUMNS, Rows, as_bytes_array, new_rows
from embermq.format.frame import (
    BLANK_MAGIC,
    DUE_DIGITS_MAX,
    FIXED_BYTES,
    HOST_V6_EXTRA,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    ScanStop,
    TornReason,
)

_ROWS_FULL, _BUFFER_END, _BLANK, _NOTHING = (int(stop) for stop in ScanStop)
_BAD_MAGIC = int(TornReason.BAD_MAGIC)
_BAD_SIZE = int(TornReason.BAD_SIZE)
_BAD_POSITION = int(TornReason.BAD_POSITION)
_BAD_LENGTHS = int(TornReason.BAD_LENGTHS)
_BAD_TOPIC = int(TornReason.BAD_TOPIC)
_BAD_PROPERTIES = int(TornReason.BAD_PROPERTIES)
_BAD_CRC = int(TornReason.BAD_CRC)

# Names of properties, as the numbers they are when loaded at once.
_TAGS = int.from_bytes(b"TAGS", "big")
_KEYS = int.from_bytes(b"KEYS", "big")
_DELA = int.from_bytes(b"DELA", "big")
_UNIQ_KEY = int.from_bytes(b"UNIQ_KEY", "big")
_TIMER_OU, _T_MS = int.from_bytes(b"TIMER_OU", "big"), int.from_bytes(b"T_MS", "big")
_SCHEDULE = tuple(int.from_bytes(SCHEDULE_TOPIC[at : at + 8], "big") for at in (0, 8, 11))
_SCHEDULE_1, _SCHEDULE_2, _SCHEDULE_3 = _SCHEDULE
_SCHEDULE_BYTES = len(SCHEDULE_TOPIC)
_TIMER_1, _TIMER_2, _TIMER_3 = (int.from_bytes(TIMER_TOPIC[at : at + 8], "big") for at in (0, 8, 11))
assert _SCHEDULE_BYTES == len(TIMER_TOPIC) == 19
_TOP_BITS = 0x8080_8080_8080_8080 - (1 << 64)
_MAGIC_STARTS = 0xDADA_DADA_DADA_DADA - (1 << 64)
_NO_DELAYS = np.zeros(0, dtype=np.int64)


@inlined
def _has_byte_below_3(word: int) -> bool:
    """Whether one of eight bytes is 0, 1 or 2: subtracting 3 from it borrows into its top bit."""
    return (word - 0x0303_0303_0303_0303) & ~word & _TOP_BITS != 0


@inlined
def _delay_level(data: Any, at: int, length: int) -> int:
    """DELAY as a number; 0 when it is none or does not fit 32 bits."""
    end = at + length
    first = u8_at(data, at)
    sign = 1
    if first == 0x2B or first == 0x2D:
        at += 1
        sign = 1 if first == 0x2B else -1
    level = 0
    if at == end:
        return 0
    while at < end:
        digit = u8_at(data, at) - 0x30
        if digit < 0 or digit > 9:
            return 0
        level = min(level * 10 + digit, 1 << 40)
        at += 1
    return sign * level if level < 1 << 31 else 0


@inlined
def _properties(data: Any, at: int, end: int, rows: Any, i: int) -> Any:
    """Finds KEYS, UNIQ_KEY and TAGS into row i. Returns (whole, delay_at, delay_len, due_at, due_len, tags_at,
    tags_len), and whole is false when a pair holds a NUL and no separator."""
    due_at = due_len = delay_at = delay_len = tags_at = tags_len = keys_at = keys_len = uniq_at = uniq_len = -1
    start = at
    separator = -1
    has_nul = False
    while at <= end:
        if end - at >= 8 and not _has_byte_below_3(i64_at(data, at)):
            at += 8
            continue
        byte = 2 if at == end else u8_at(data, at)
        if byte > 2:
            at += 1
            continue
        if byte == 1:
            separator = at if separator < 0 else separator
        elif byte == 0:
            has_nul = True
        else:
            if separator < 0 and has_nul:
                return False, -1, -1, -1, -1, -1, -1
            if start < separator < at - 1:
                name_len = separator - start
                value_at = separator + 1
                if name_len == 4:
                    name = i32_at(data, start)
                    if name == _TAGS:
                        tags_at, tags_len = value_at, at - value_at
                    elif name == _KEYS:
                        keys_at, keys_len = value_at, at - value_at
                elif name_len == 8:
                    if i64_at(data, start) == _UNIQ_KEY:
                        uniq_at, uniq_len = value_at, at - value_at
                elif name_len == 5 and i32_at(data, start) == _DELA and u8_at(data, start + 4) == 0x59:
                    delay_at, delay_len = value_at, at - value_at
                elif name_len == 12 and i64_at(data, start) == _TIMER_OU and i32_at(data, start + 8) == _T_MS:
                    due_at, due_len = value_at, at - value_at
            start = at + 1
            separator = -1
            has_nul = False
        at += 1
    set_cell(rows, i, c.C_KEYS_AT, keys_at)
    set_cell(rows, i, c.C_KEYS_LEN, keys_len)
    set_cell(rows, i, c.C_UNIQ_AT, uniq_at)
    set_cell(rows, i, c.C_UNIQ_LEN, uniq_len)
    set_cell(rows, i, c.C_TAGS_AT, tags_at)
    set_cell(rows, i, c.C_TAGS_LEN, tags_len)
    return True, delay_at, delay_len, due_at, due_len, tags_at, tags_len


@inlined
def _parked_level(data: Any, topic_at: int, delay_at: int, delay_len: int, levels: int) -> int:
    """Delay level of a record whose topic has the length of the schedule topic; <= 0 when not parked."""
    if (
        i64_at(data, topic_at) != _SCHEDULE_1
        or i64_at(data, topic_at + 8) != _SCHEDULE_2
        or i64_at(data, topic_at + 11) != _SCHEDULE_3
    ):
        return 0
    return min(_delay_level(data, delay_at, delay_len), levels)


@inlined
def _timer_due_ms(data: Any, topic_at: int, due_at: int, due_len: int) -> int:
    """When a record whose topic has the length of the timer topic is due; 0 when it is not parked there."""
    if (
        due_len > DUE_DIGITS_MAX
        or i64_at(data, topic_at) != _TIMER_1
        or i64_at(data, topic_at + 8) != _TIMER_2
        or i64_at(data, topic_at + 11) != _TIMER_3
    ):
        return 0
    due_ms = 0
    for at in range(due_at, due_at + due_len):
        digit = u8_at(data, at) - 0x30
        if digit < 0 or digit > 9:
            return 0
        due_ms = due_ms * 10 + digit
    return due_ms


@inlined
def _record(data: Any, base: int, at: int, end: int, rows: Any, i: int, delay_ms: Any, checks: int) -> int:
    """Checks the record at `at` as format.frame does and fills row i. Returns its size, or minus a stop code.
    checks: 1 the checksum, 2 the position."""
    if end - at < 8:
        return -_NOTHING
    size: int = i32_at(data, at)
    magic = i32_at(data, at + 4)
    topic_head = 1
    if magic != MESSAGE_MAGIC:
        if magic == BLANK_MAGIC:
            return -_BLANK
        if magic != MESSAGE_MAGIC_V2:
            return -_NOTHING if size == 0 and magic == 0 else -_BAD_MAGIC
        topic_head = 2
    if size < FIXED_BYTES - 1 + topic_head or size > end - at:
        return -_BAD_SIZE
    end = at + size
    sys_flag = i32_at(data, at + 36)
    store_at = at + 56 + HOST_V6_EXTRA * (sys_flag >> 4 & 1)
    after_hosts = store_at + 16 + HOST_V6_EXTRA * (sys_flag >> 5 & 1)
    body_at = after_hosts + 16
    if body_at + topic_head + 2 > end:
        return -_BAD_LENGTHS
    stored = i64_at(data, at + 28)
    if checks & 2 and stored != base + at:
        return -_BAD_POSITION
    body_len = i32_at(data, body_at - 4)
    if body_len < 0 or body_len > end - body_at - topic_head - 2:
        return -_BAD_LENGTHS
    topic_at = body_at + body_len + topic_head
    topic_len = i8_at(data, topic_at - 1) if topic_head == 1 else i16_at(data, topic_at - 2)
    if topic_len <= 0:
        return -_BAD_TOPIC
    properties_at = topic_at + topic_len + 2
    if properties_at > end:
        return -_BAD_LENGTHS
    properties_len = i16_at(data, properties_at - 2)
    if properties_len < 0 or properties_at + properties_len != end:
        return -_BAD_LENGTHS
    for k in range(topic_at, topic_at + topic_len):
        if u8_at(data, k) == 0:
            return -_BAD_TOPIC
    whole, delay_at, delay_len, due_at, due_len, tags_at, tags_len = _properties(data, properties_at, end, rows, i)
    if not whole:
        return -_BAD_PROPERTIES
    if checks & 1 and body_len > 0:
        if crc32_at(data, body_at, body_len) & 0x7FFF_FFFF != i32_at(data, at + 8):
            return -_BAD_CRC
    store_time = i64_at(data, store_at)
    level = due_ms = 0
    if due_at >= 0 and topic_len == _SCHEDULE_BYTES:
        due_ms = _timer_due_ms(data, topic_at, due_at, due_len)
    if delay_at >= 0 and topic_len == _SCHEDULE_BYTES:
        level = _parked_level(data, topic_at, delay_at, delay_len, len(delay_ms))
    if due_ms > 0:
        tag_code: int = due_ms
    elif level > 0:
        tag_code = store_time + delay_ms[level - 1]
    else:
        tag_code = signed32(hash_text(data, tags_at, tags_len, 0)) if tags_at >= 0 else 0
    set_cell(rows, i, c.C_PHYSICAL, base + at)
    set_cell(rows, i, c.C_SIZE, size)
    set_cell(rows, i, c.C_QUEUE_ID, i32_at(data, at + 12))
    set_cell(rows, i, c.C_QUEUE_OFFSET, i64_at(data, at + 20))
    set_cell(rows, i, c.C_TAG_CODE, tag_code)
    set_cell(rows, i, c.C_STORE_TIME, store_time)
    set_cell(rows, i, c.C_SYS_FLAG, sys_flag)
    set_cell(rows, i, c.C_BODY_AT, body_at)
    set_cell(rows, i, c.C_BODY_LEN, body_len)
    set_cell(rows, i, c.C_TOPIC_AT, topic_at)
    set_cell(rows, i, c.C_TOPIC_LEN, topic_len)
    set_cell(rows, i, c.C_PROPS_AT, properties_at)
    set_cell(rows, i, c.C_PROPS_LEN, properties_len)
    set_cell(rows, i, c.C_BORN_TIME, i64_at(data, at + 40))
    set_cell(rows, i, c.C_FLAG, i32_at(data, at + 16))
    set_cell(rows, i, c.C_RECONSUME, i32_at(data, after_hosts))
    set_cell(rows, i, c.C_PREPARED, i64_at(data, after_hosts + 4))
    set_cell(rows, i, c.C_STORED_PHYSICAL, stored)
    return size


@inlined
def scan_records(data: Any, base: int, start: int, end: int, rows: Any, delay_ms: Any, checks: int) -> Any:
    """Returns (rows filled, position of the stop, code)."""
    count, at = 0, start
    while at < end:
        if count == len(rows):
            return count, at, _ROWS_FULL
        size = _record(data, base, at, end, rows, count, delay_ms, checks)
        if size < 0:
            return count, at, -size
        at += size
        count += 1
    return count, at, _BUFFER_END


@kernel(f"UniTuple(int64, 3)({READ_BYTES}, int64, int64, int64, {ROWS}, {READ_I64}, int64)")
def _scan(data: Any, base: int, start: int, end: int, rows: Any, delay_ms: Any, checks: int) -> tuple[int, int, int]:
    count, at, stop = scan_records(data, base, start, end, rows, delay_ms, checks)
    return count, at, stop


def scan(
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
    ScanStop or TornReason code). `base` is the physical offset of data[0].

    Twin: format.frame.scan_rows. With checksums this is 35-55 times as fast: 8 M records/s of 100-byte bodies,
    5 M/s of 1 KiB, one core, data in memory. Leaving them out gains little, and at 1 KiB nothing (the
    CPU prefetches a body that is read)."""
    raw = as_bytes_array(data)
    assert 0 <= start <= end <= len(raw), (start, end, len(raw))
    assert rows_out.shape[1] == N_COLUMNS, rows_out.shape
    return _scan(raw, base, start, end, rows_out, delay_ms, bool(check_crc) | bool(check_position) << 1)


@inlined
def _has_magic_start(word: int) -> bool:
    """Whether one of eight bytes is 0xDA, the first of both magics."""
    word ^= _MAGIC_STARTS
    return (word - 0x0101_0101_0101_0101) & ~word & _TOP_BITS != 0


@kernel(f"int64({READ_BYTES}, int64, int64, int64, {ROWS}, {READ_I64})")
def _resync(data: Any, base: int, start: int, end: int, rows: Any, delay_ms: Any) -> int:
    at = start + 4
    while end - at >= 4:
        if end - at >= 8 and not _has_magic_start(i64_at(data, at)):
            at += 8
            continue
        magic = i32_at(data, at)
        if magic == MESSAGE_MAGIC or magic == MESSAGE_MAGIC_V2:
            if _record(data, base, at - 4, end, rows, 0, delay_ms, 3) > 0:
                return at - 4
        at += 1
    return -1


def resync(data: Any, base: int, start: int, end: int) -> int:
    """The first position >= start of a record that passes every check, checksum and place included, or -1.

    Twin: format.frame.resync. 6 times as fast: 4.7 GB/s over noise, 6 GB/s over zeros."""
    raw = as_bytes_array(data)
    assert 0 <= start <= end <= len(raw), (start, end, len(raw))
    return _resync(raw, base, start, end, new_rows(1), _NO_DELAYS)
