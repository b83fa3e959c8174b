"""From rows to columns of text and bytes, in the layout of Arrow. Twins: the functions of the same names in
format.gather, which says what the columns look like.

Every position is compared with the data before it is used. Texts made here are bounded beforehand (an address
has at most 53 letters), copies by the sum of their lengths.
"""

from ipaddress import IPv6Address
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns import rows as c
from embermq.columns.compiled.parts.compiling import BYTES, I64, READ_BYTES, READ_I64, READ_ROWS, ROWS, inlined, kernel
from embermq.columns.compiled.parts.memory import cell, copy_bytes, i32_at, i64_at, put_i8, put_i64, set_cell, u8_at
from embermq.columns.plain.gather import (
    BODY_CRC_AT,
    BORN_HOST_AT,
    COLUMN_BYTES_MAX,
    FOREIGN_ROWS,
    NOTHING,
    TOO_MUCH,
    HostKind,
    Keep,
    Pairs,
    Parts,
)
from embermq.columns.rows import RecordColumns
from embermq.format.frame import HOST_V6_EXTRA
from embermq.model.flags import BORN_HOST_V6, STORE_HOST_V6

_I32 = "int32[::1]"
_FOREIGN, _TOO_MUCH = -1, -2
_BORN = int(HostKind.BORN)

_TOP_BITS = 0x8080_8080_8080_8080 - (1 << 64)
_ID_BYTES_MAX = 56
_HOST_V4_TEXT_MAX = 15 + 1 + 11  # 255.255.255.255:-2147483648
_HOST_V6_TEXT_MAX = 1 + 39 + 2 + 11
# From CPython 3.13 on, an IPv4 address inside an IPv6 one is written with dots.
_MAPPED_WITH_DOTS = "." in str(IPv6Address("::ffff:1.2.3.4"))
_DOT, _COLON, _MINUS, _ZERO, _OPEN, _CLOSE = (ord(letter) for letter in ".:-0[]")

# A pair of properties takes at least four bytes: name, 0x01, value, 0x02 (the last one is missing at the end).
_PAIRS_MAX = (32767 + 1) // 4
_SEEN_SLOTS = 1 << (2 * _PAIRS_MAX - 1).bit_length()


@inlined
def _is_inside(at: int, length: int, size: int) -> bool:
    return 0 <= at <= size and 0 <= length <= size - at


@kernel(f"UniTuple(int64, 2)({READ_ROWS}, {READ_I64}, int64, int64, {_I32}, {BYTES})")
def _measure(rows: Any, keep: Any, at_column: int, size: int, offsets: Any, validity: Any) -> tuple[int, int]:
    """Fills offsets and, from zeros, validity. Returns (bytes, nulls), or a negative code for the bytes.
    `size`: how far positions may go."""
    total = nulls = 0
    offsets[np.uint64(0)] = 0
    for i in range(len(keep)):
        row = keep[np.uint64(i)]
        if row < 0 or row >= len(rows):
            return _FOREIGN, 0
        at, length = cell(rows, row, at_column), cell(rows, row, at_column + 1)
        if length < 0:
            nulls += 1
        else:
            if not _is_inside(at, length, size):
                return _FOREIGN, 0
            total += length
            if total > COLUMN_BYTES_MAX:
                return _TOO_MUCH, 0
            validity[np.uint64(i >> 3)] |= np.uint8(1 << (i & 7))
        offsets[np.uint64(i + 1)] = total
    return total, nulls


@kernel(f"int64({READ_BYTES}, {READ_BYTES}, {READ_ROWS}, {READ_I64}, int64, {BYTES})")
def _copy(data: Any, more: Any, rows: Any, keep: Any, at_column: int, values: Any) -> int:
    """Copies what _measure has measured. Returns the end, or a negative code."""
    end, size = 0, len(data)
    for i in range(len(keep)):
        row = keep[np.uint64(i)]
        at, length = cell(rows, row, at_column), cell(rows, row, at_column + 1)
        if length <= 0:
            continue
        if at + length <= size:
            copy_bytes(values, end, data, at, length)
        elif at >= size:
            copy_bytes(values, end, more, at - size, length)
        else:
            return _FOREIGN  # Begins in one and ends in the other.
        end += length
    return end


def gather_parts(
    records: RecordColumns, keep: Keep, at_column: int, more: NDArray[np.uint8] = NOTHING, rows: c.Rows | None = None
) -> Parts:
    """The bytes behind a position column (its length is the next column); null where the length is negative.

    Positions past the end of the data go on in `more`; `rows`, when given, takes the place of the records' own.

    100-300 times as fast as the twin: 150 M short texts/s, bodies of 1 KiB at 30 GB/s, data in the cache."""
    rows = records.rows if rows is None else rows
    offsets = np.empty(len(keep) + 1, np.int32)
    validity = np.zeros((len(keep) + 7) // 8, np.uint8)
    total, nulls = _measure(rows, keep, at_column, len(records.data) + len(more), offsets, validity)
    assert total != _TOO_MUCH, TOO_MUCH
    assert total >= 0, FOREIGN_ROWS
    values = np.empty(total, np.uint8)
    assert _copy(records.data, more, rows, keep, at_column, values) == total, FOREIGN_ROWS
    return Parts(offsets, values, validity if nulls else None, nulls)


@inlined
def _host_place(rows: Any, row: int, base: int, kind: int, size: int) -> Any:
    """(position, is IPv6) of a record's host; position -1 when it lies outside the data."""
    sys_flag = cell(rows, row, c.C_SYS_FLAG)
    at = cell(rows, row, c.C_PHYSICAL) - base
    if at < 0 or at > size:
        return -1, False
    at += BORN_HOST_AT
    is_v6 = sys_flag & BORN_HOST_V6 != 0
    if kind != _BORN:
        at += 16 + HOST_V6_EXTRA * is_v6
        is_v6 = sys_flag & STORE_HOST_V6 != 0
    return at if _is_inside(at, 8 + HOST_V6_EXTRA * is_v6, size) else -1, is_v6


@inlined
def _put_hex(values: Any, at: int, number: int) -> None:
    """The low 32 bits of `number` as eight upper-case digits, all at once: a nibble to each byte of a word."""
    word = number & 0xFFFF_FFFF
    word = (word << 16 | word) & 0x0000_FFFF_0000_FFFF
    word = (word << 8 | word) & 0x00FF_00FF_00FF_00FF
    word = (word << 4 | word) & 0x0F0F_0F0F_0F0F_0F0F
    letters = (word + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101
    put_i64(values, at, word + 0x3030_3030_3030_3030 + 7 * letters)


@kernel(f"int64({READ_BYTES}, int64, {READ_ROWS}, {READ_I64}, {_I32}, {BYTES})")
def _ids(data: Any, base: int, rows: Any, keep: Any, offsets: Any, values: Any) -> int:
    end = 0
    offsets[np.uint64(0)] = 0
    for i in range(len(keep)):
        row = keep[np.uint64(i)]
        if row < 0 or row >= len(rows):
            return _FOREIGN
        host_at, is_v6 = _host_place(rows, row, base, 1, len(data))
        if host_at < 0:
            return _FOREIGN
        for k in range(0, 8 + HOST_V6_EXTRA * is_v6, 4):
            _put_hex(values, end, i32_at(data, host_at + k))
            end += 8
        physical = cell(rows, row, c.C_STORED_PHYSICAL)
        _put_hex(values, end, physical >> 32)
        _put_hex(values, end + 8, physical)
        end += 16
        offsets[np.uint64(i + 1)] = end
    return end


def gather_ids(records: RecordColumns, keep: Keep) -> Parts:
    """Message ids: store host and position in hexadecimal digits. 200 times as fast as the twin: 90 M/s."""
    assert len(keep) <= COLUMN_BYTES_MAX // _ID_BYTES_MAX, TOO_MUCH
    offsets = np.empty(len(keep) + 1, np.int32)
    values = np.empty(len(keep) * _ID_BYTES_MAX, np.uint8)
    end = _ids(records.data, records.base, records.rows, keep, offsets, values)
    assert end >= 0, FOREIGN_ROWS
    return Parts(offsets, values[:end], None, 0)


@inlined
def _put_decimal(values: Any, at: int, number: int) -> int:
    """Writes a 32-bit number; returns the position after it."""
    if number < 0:
        put_i8(values, at, _MINUS)
        at += 1
        number = -number
    digits = 1
    bound = 10
    while number >= bound:
        digits += 1
        bound *= 10
    for k in range(at + digits - 1, at - 1, -1):
        put_i8(values, k, _ZERO + number % 10)
        number //= 10
    return at + digits


@inlined
def _put_v4(values: Any, at: int, data: Any, host_at: int) -> int:
    for k in range(4):
        if k > 0:
            put_i8(values, at, _DOT)
            at += 1
        at = _put_decimal(values, at, u8_at(data, host_at + k))
    return at


@inlined
def _put_hextet(values: Any, at: int, number: int) -> int:
    """Up to four lower-case digits, no zeros in front."""
    shift = 12
    while shift > 0 and number >> shift == 0:
        shift -= 4
    while shift >= 0:
        digit = number >> shift & 15
        put_i8(values, at, digit + (_ZERO if digit < 10 else 0x57))
        at += 1
        shift -= 4
    return at


@inlined
def _hextet(data: Any, host_at: int, number: int) -> Any:
    return u8_at(data, host_at + 2 * number) << 8 | u8_at(data, host_at + 2 * number + 1)


@inlined
def _put_v6(values: Any, at: int, data: Any, host_at: int) -> int:
    """The short form: the first longest run of two or more zeros becomes `::`."""
    is_mapped = i64_at(data, host_at) == 0 and i32_at(data, host_at + 8) == 0xFFFF
    with_dots = _MAPPED_WITH_DOTS and is_mapped
    count = 6 if with_dots else 8
    best_at, best_len = 8, 1
    run_at, run_len = 0, 0
    for k in range(count):
        if _hextet(data, host_at, k) == 0:
            run_at = k if run_len == 0 else run_at
            run_len += 1
            if run_len > best_len:
                best_at, best_len = run_at, run_len
        else:
            run_len = 0
    k = 0
    while k < count:
        if k == best_at:
            put_i8(values, at, _COLON)
            put_i8(values, at + 1, _COLON)
            at += 2
            k += best_len
            continue
        if k > 0 and k != best_at + best_len:
            put_i8(values, at, _COLON)
            at += 1
        at = _put_hextet(values, at, _hextet(data, host_at, k))
        k += 1
    if with_dots:
        put_i8(values, at, _COLON)
        at = _put_v4(values, at + 1, data, host_at + 12)
    return at


@inlined
def _is_same_host(data: Any, at: int, other: int, is_v6: bool) -> bool:
    if i64_at(data, at) != i64_at(data, other):
        return False
    return not is_v6 or (
        i64_at(data, at + 8) == i64_at(data, other + 8) and i32_at(data, at + 16) == i32_at(data, other + 16)
    )


@kernel(f"int64({READ_BYTES}, int64, {READ_ROWS}, {READ_I64}, int64, int64, {_I32}, {BYTES})")
def _hosts(data: Any, base: int, rows: Any, keep: Any, kind: int, text_max: int, offsets: Any, values: Any) -> int:
    end = 0
    last_at, last_v6, last_text, last_len = -1, False, 0, 0
    offsets[np.uint64(0)] = 0
    for i in range(len(keep)):
        row = keep[np.uint64(i)]
        if row < 0 or row >= len(rows):
            return _FOREIGN
        host_at, is_v6 = _host_place(rows, row, base, kind, len(data))
        if host_at < 0 or (is_v6 and text_max < _HOST_V6_TEXT_MAX):
            return _FOREIGN
        if last_at >= 0 and is_v6 == last_v6 and _is_same_host(data, host_at, last_at, is_v6):
            copy_bytes(values, end, values, last_text, last_len)
            end += last_len
        else:
            last_at, last_v6, last_text = host_at, is_v6, end
            if is_v6:
                put_i8(values, end, _OPEN)
                end = _put_v6(values, end + 1, data, host_at)
                put_i8(values, end, _CLOSE)
                end += 1
                host_at += 16
            else:
                end = _put_v4(values, end, data, host_at)
                host_at += 4
            put_i8(values, end, _COLON)
            end = _put_decimal(values, end + 1, i32_at(data, host_at))
            last_len = end - last_text
        offsets[np.uint64(i + 1)] = end
    return end


def gather_hosts(records: RecordColumns, keep: Keep, kind: HostKind) -> Parts:
    """Addresses as `ip:port` or `[ip]:port`. 200 times as fast as the twin: 100 M/s when they repeat."""
    flag = BORN_HOST_V6 if kind == HostKind.BORN else STORE_HOST_V6
    some_v6 = bool(np.any(records.column(c.C_SYS_FLAG) & flag))
    text_max = _HOST_V6_TEXT_MAX if some_v6 else _HOST_V4_TEXT_MAX
    assert len(keep) <= COLUMN_BYTES_MAX // text_max, TOO_MUCH
    offsets = np.empty(len(keep) + 1, np.int32)
    values = np.empty(len(keep) * text_max, np.uint8)
    end = _hosts(records.data, records.base, records.rows, keep, int(kind), text_max, offsets, values)
    assert end >= 0, FOREIGN_ROWS
    return Parts(offsets, values[:end], None, 0)


@kernel(f"int64({READ_BYTES}, int64, {READ_ROWS}, {READ_I64}, int64, {_I32})")
def _heads(data: Any, base: int, rows: Any, keep: Any, place: int, numbers: Any) -> int:
    """The 32-bit number at a fixed place of each record."""
    for i in range(len(keep)):
        row = keep[np.uint64(i)]
        if row < 0 or row >= len(rows):
            return _FOREIGN
        at = cell(rows, row, c.C_PHYSICAL) - base
        if at < 0 or at > len(data) or not _is_inside(at + place, 4, len(data)):
            return _FOREIGN
        numbers[np.uint64(i)] = i32_at(data, at + place)
    return len(keep)


def gather_crcs(records: RecordColumns, keep: Keep) -> NDArray[np.int32]:
    """The checksums of the bodies, as stored. 250 times as fast as the twin: 350 M/s."""
    crcs = np.empty(len(keep), np.int32)
    assert _heads(records.data, records.base, records.rows, keep, BODY_CRC_AT, crcs) >= 0, FOREIGN_ROWS
    return crcs


@inlined
def _has_byte_below_3(word: int) -> bool:
    """Whether one of eight bytes is 0, 1 or 2: subtracting 3 from it borrows into its top bit."""
    return (word - 0x0303_0303_0303_0303) & ~word & _TOP_BITS != 0


# Columns of `pairs`, one row per pair of the record at hand.
_NAME_AT, _NAME_LEN, _VALUE_AT, _VALUE_LEN = range(4)


@inlined
def _is_same(data: Any, at: int, other: int, length: int) -> bool:
    k = 0
    while length - k >= 8:
        if i64_at(data, at + k) != i64_at(data, other + k):
            return False
        k += 8
    while k < length:
        if u8_at(data, at + k) != u8_at(data, other + k):
            return False
        k += 1
    return True


@inlined
def _name_hash(data: Any, at: int, length: int) -> int:
    code = length
    while length >= 8:
        code = (code ^ i64_at(data, at)) * 0x1E37_79B9_7F4A_7C15
        code ^= code >> 29
        at += 8
        length -= 8
    while length > 0:
        code = (code ^ u8_at(data, at)) * 0x1000_0000_01B3
        at += 1
        length -= 1
    return code ^ code >> 32


@inlined
def _note_pair(data: Any, pairs: Any, count: int, seen: Any, mask: int, stamp: int, at: int, name_len: int) -> Any:
    """Number of the pair with the name at `at`: `count` when the name is new. `seen` holds stamp << 32 | number;
    what has another stamp is of an earlier record."""
    slot = _name_hash(data, at, name_len) & mask
    while True:
        entry = seen[np.uint64(slot)]
        if entry >> 32 != stamp:
            seen[np.uint64(slot)] = stamp << 32 | count
            return count
        number = entry & 0xFFFF_FFFF
        if cell(pairs, number, _NAME_LEN) == name_len and _is_same(data, cell(pairs, number, _NAME_AT), at, name_len):
            return number
        slot = (slot + 1) & mask


@inlined
def _split_pairs(data: Any, at: int, end: int, pairs: Any, seen: Any, mask: int, stamp: int) -> int:
    """Fills `pairs` with those of data[at:end]; returns how many."""
    count = 0
    start = at
    separator = -1
    while at <= end:
        if end - at >= 8 and not _has_byte_below_3(i64_at(data, at)):
            at += 8
            continue
        byte = 2 if at == end else u8_at(data, at)
        if byte == 1:
            separator = at if separator < 0 else separator
        elif byte == 2:
            if start < separator < at - 1:
                number = _note_pair(data, pairs, count, seen, mask, stamp, start, separator - start)
                if number == count:
                    set_cell(pairs, number, _NAME_AT, start)
                    set_cell(pairs, number, _NAME_LEN, separator - start)
                    count += 1
                set_cell(pairs, number, _VALUE_AT, separator + 1)
                set_cell(pairs, number, _VALUE_LEN, at - separator - 1)
            start = at + 1
            separator = -1
        at += 1
    return count


@kernel(
    f"UniTuple(int64, 3)({READ_BYTES}, {READ_ROWS}, {READ_I64}, {ROWS}, {I64},"
    f" {_I32}, {_I32}, {BYTES}, {_I32}, {BYTES})"
)
def _pairs(
    data: Any,
    rows: Any,
    keep: Any,
    pairs: Any,
    seen: Any,
    offsets: Any,
    name_offsets: Any,
    names: Any,
    value_offsets: Any,
    values: Any,
) -> tuple[int, int, int]:
    """Returns (pairs, bytes of names, bytes of values), or a negative code for the pairs."""
    total = name_end = value_end = 0
    offsets[np.uint64(0)] = name_offsets[np.uint64(0)] = value_offsets[np.uint64(0)] = 0
    for i in range(len(keep)):
        row = keep[np.uint64(i)]
        at, length = cell(rows, row, c.C_PROPS_AT), cell(rows, row, c.C_PROPS_LEN)
        mask = 15
        while mask < length >> 1:
            mask = mask << 1 | 1
        count = _split_pairs(data, at, at + length, pairs, seen, mask, i + 1)
        for k in range(count):
            name_len, value_len = cell(pairs, k, _NAME_LEN), cell(pairs, k, _VALUE_LEN)
            copy_bytes(names, name_end, data, cell(pairs, k, _NAME_AT), name_len)
            copy_bytes(values, value_end, data, cell(pairs, k, _VALUE_AT), value_len)
            name_end += name_len
            value_end += value_len
            total += 1
            name_offsets[np.uint64(total)] = name_end
            value_offsets[np.uint64(total)] = value_end
        offsets[np.uint64(i + 1)] = total
    return total, name_end, value_end


@kernel(f"UniTuple(int64, 2)({READ_ROWS}, {READ_I64}, int64)")
def _bound_pairs(rows: Any, keep: Any, size: int) -> tuple[int, int]:
    """(pairs, bytes) the properties may have at most, or a negative code for the pairs."""
    pairs = total = 0
    for i in range(len(keep)):
        row = keep[np.uint64(i)]
        if row < 0 or row >= len(rows):
            return _FOREIGN, 0
        at, length = cell(rows, row, c.C_PROPS_AT), cell(rows, row, c.C_PROPS_LEN)
        if not _is_inside(at, length, size) or length > 32767:
            return _FOREIGN, 0
        pairs += (length + 1) >> 2
        total += length
        if total > COLUMN_BYTES_MAX:
            return _TOO_MUCH, 0
    return pairs, total


def gather_pairs(records: RecordColumns, keep: Keep) -> Pairs:
    """Properties: no name twice in a row; it keeps its first place and has its last value.

    30 times as fast as the twin: 9 M/s with three properties each."""
    bound, size = _bound_pairs(records.rows, keep, len(records.data))
    assert bound != _TOO_MUCH, TOO_MUCH
    assert bound >= 0, FOREIGN_ROWS
    offsets = np.empty(len(keep) + 1, np.int32)
    name_offsets, value_offsets = np.empty(bound + 1, np.int32), np.empty(bound + 1, np.int32)
    names, values = np.empty(size, np.uint8), np.empty(size, np.uint8)
    total, name_end, value_end = _pairs(
        records.data,
        records.rows,
        keep,
        np.empty((_PAIRS_MAX, 4), np.int64),
        np.zeros(_SEEN_SLOTS, np.int64),
        offsets,
        name_offsets,
        names,
        value_offsets,
        values,
    )
    return Pairs(
        offsets,
        Parts(name_offsets[: total + 1], names[:name_end], None, 0),
        Parts(value_offsets[: total + 1], values[:value_end], None, 0),
    )
