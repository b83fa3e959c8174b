"""Values as JSON, written into a byte array: for use inside kernels. Twin: what format.message_json makes of them.

Each `put_` writes at a position and returns the one behind what it wrote. The caller has made sure that there is
room. Texts must be UTF-8 (`is_utf8`).
"""

from typing import Any

import numpy as np

from embermq.columns.compiled.parts.compiling import inlined
from embermq.columns.compiled.parts.memory import i32_at, i64_at, put_i8, put_i16, put_i64, u8_at

_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
# Two letters for every twelve bits.
_LETTERS = np.array([_DIGITS[n >> 6] << 8 | _DIGITS[n & 63] for n in range(4096)], np.int16)
_SHORT_ESCAPES = np.zeros(32, np.uint8)
for _code, _letter in ((8, "b"), (9, "t"), (10, "n"), (12, "f"), (13, "r")):
    _SHORT_ESCAPES[_code] = ord(_letter)
_HEX_UPPER = np.frombuffer(b"0123456789ABCDEF", np.uint8)
QUOTE, COMMA, COLON, OPEN, CLOSE = b'",:{}'
_BACKSLASH, _MINUS, _ZERO, _DOT, _PAD, _OPEN_HOST, _CLOSE_HOST = b"\\-0.=[]"
_TOP_BITS = 0x8080_8080_8080_8080 - (1 << 64)
_GROUPS = 8  # of 16 bits, in an IPv6 address


@inlined
def _has_byte_below(word: int, bound: int) -> bool:
    """Whether one of eight bytes is below `bound / 0x0101...`; all of them below 0x80."""
    return (word - bound) & ~word & _TOP_BITS != 0


@inlined
def _is_plain(word: int) -> bool:
    """Eight bytes that stand for themselves inside quotes."""
    if _has_byte_below(word, 0x2020_2020_2020_2020):
        return False
    return not (
        _has_byte_below(word ^ 0x2222_2222_2222_2222, 0x0101_0101_0101_0101)
        or _has_byte_below(word ^ 0x5C5C_5C5C_5C5C_5C5C, 0x0101_0101_0101_0101)
    )


@inlined
def is_utf8(data: Any, at: int, end: int) -> bool:
    while at < end:
        if end - at >= 8 and i64_at(data, at) & _TOP_BITS == 0:
            at += 8
            continue
        first = u8_at(data, at)
        at += 1
        if first < 0x80:
            continue
        more, low, high = 0, 0x80, 0xBF
        if 0xC2 <= first < 0xE0:
            more = 1
        elif 0xE0 <= first < 0xF0:
            more = 2
            low = 0xA0 if first == 0xE0 else 0x80
            high = 0x9F if first == 0xED else 0xBF
        elif 0xF0 <= first <= 0xF4:
            more = 3
            low = 0x90 if first == 0xF0 else 0x80
            high = 0x8F if first == 0xF4 else 0xBF
        if more == 0 or end - at < more:
            return False
        for _ in range(more):
            if not low <= u8_at(data, at) <= high:
                return False
            at += 1
            low, high = 0x80, 0xBF
    return True


@inlined
def _put_escaped(out: Any, to: int, byte: int) -> int:
    """A byte that does not stand for itself."""
    put_i8(out, to, _BACKSLASH)
    if byte >= 0x20:
        put_i8(out, to + 1, byte)
        return to + 2
    letter = int(_SHORT_ESCAPES[np.uint64(byte)])
    if letter:
        put_i8(out, to + 1, letter)
        return to + 2
    put_i8(out, to + 1, 0x75)
    put_i16(out, to + 2, 0x3030)
    put_i8(out, to + 4, _ZERO + (byte >> 4))
    low = byte & 15
    put_i8(out, to + 5, _ZERO + low if low < 10 else 0x57 + low)
    return to + 6


@inlined
def put_text(out: Any, to: int, data: Any, at: int, end: int) -> int:
    """data[at:end], which is UTF-8, between quotes."""
    put_i8(out, to, QUOTE)
    to += 1
    while at < end:
        if end - at >= 8:
            word = i64_at(data, at)
            if _is_plain(word):
                put_i64(out, to, word)
                at += 8
                to += 8
                continue
        byte = u8_at(data, at)
        at += 1
        if byte < 0x20 or byte == QUOTE or byte == _BACKSLASH:
            to = _put_escaped(out, to, byte)
        else:
            put_i8(out, to, byte)
            to += 1
    put_i8(out, to, QUOTE)
    return to + 1


@inlined
def put_base64(out: Any, to: int, data: Any, at: int, end: int) -> int:
    """data[at:end] in base64 between quotes."""
    put_i8(out, to, QUOTE)
    to += 1
    while end - at >= 3:
        bits = u8_at(data, at) << 16 | u8_at(data, at + 1) << 8 | u8_at(data, at + 2)
        put_i16(out, to, _LETTERS[np.uint64(bits >> 12)])
        put_i16(out, to + 2, _LETTERS[np.uint64(bits & 0xFFF)])
        at += 3
        to += 4
    if at < end:
        bits = u8_at(data, at) << 16
        if end - at == 2:
            bits |= u8_at(data, at + 1) << 8
        put_i16(out, to, _LETTERS[np.uint64(bits >> 12)])
        put_i16(out, to + 2, _LETTERS[np.uint64(bits & 0xFFF)])
        put_i8(out, to + 3, _PAD)
        if end - at == 1:
            put_i8(out, to + 2, _PAD)
        to += 4
    put_i8(out, to, QUOTE)
    return to + 1


@inlined
def put_number(out: Any, to: int, value: int) -> int:
    """Decimal digits; not for the smallest of all numbers, which has no positive."""
    if value < 0:
        put_i8(out, to, _MINUS)
        to += 1
        value = -value
    length, bound = 1, 10
    while length < 19 and value >= bound:
        length += 1
        bound = bound * 10 if length < 19 else bound
    at = to + length
    while at > to:
        at -= 1
        rest = value // 10
        put_i8(out, at, _ZERO + value - rest * 10)
        value = rest
    return to + length


@inlined
def put_host_v4(out: Any, to: int, data: Any, at: int) -> int:
    """An IPv4 host between quotes."""
    put_i8(out, to, QUOTE)
    to += 1
    for k in range(4):
        to = put_number(out, to, u8_at(data, at + k))
        put_i8(out, to, _DOT if k < 3 else COLON)
        to += 1
    to = put_number(out, to, i32_at(data, at + 4))
    put_i8(out, to, QUOTE)
    return to + 1


@inlined
def put_hex(out: Any, to: int, number: int, digits: int) -> int:
    """The last so many hexadecimal digits of a number, in capitals."""
    for k in range(digits):
        put_i8(out, to + k, _HEX_UPPER[np.uint64(number >> (4 * (digits - 1 - k)) & 15)])
    return to + digits


@inlined
def _longest_zeros(data: Any, at: int) -> tuple[int, int]:
    """Where the longest row of zero groups of an IPv6 address begins and ends; a single one does not count."""
    best_start = best_end = start = -1
    for k in range(_GROUPS + 1):
        is_zero = k < _GROUPS and u8_at(data, at + 2 * k) == 0 and u8_at(data, at + 2 * k + 1) == 0
        if is_zero:
            start = k if start < 0 else start
        elif start >= 0:
            if k - start > max(best_end - best_start, 1):
                best_start, best_end = start, k
            start = -1
    return best_start, best_end


@inlined
def _put_group(out: Any, to: int, group: int) -> int:
    """16 bits in hexadecimal, without leading zeros."""
    shift = 12
    while shift > 0 and group >> shift == 0:
        shift -= 4
    while shift >= 0:
        digit = group >> shift & 15
        put_i8(out, to, _ZERO + digit if digit < 10 else 0x57 + digit)
        to += 1
        shift -= 4
    return to


@inlined
def put_host_v6(out: Any, to: int, data: Any, at: int) -> int:
    """An IPv6 host between quotes; -1 for an IPv4 address in disguise, which is written in more than one way."""
    if i64_at(data, at) == 0 and i32_at(data, at + 8) == 0xFFFF:
        return -1
    zeros_start, zeros_end = _longest_zeros(data, at)
    put_i8(out, to, QUOTE)
    put_i8(out, to + 1, _OPEN_HOST)
    to += 2
    k = 0
    while k < _GROUPS:
        if k == zeros_start:
            put_i16(out, to, 0x3A3A)
            to += 2
            k = zeros_end
            continue
        if k > 0 and k != zeros_end:
            put_i8(out, to, COLON)
            to += 1
        to = _put_group(out, to, u8_at(data, at + 2 * k) << 8 | u8_at(data, at + 2 * k + 1))
        k += 1
    put_i8(out, to, _CLOSE_HOST)
    put_i8(out, to + 1, COLON)
    to = put_number(out, to + 2, i32_at(data, at + 16))
    put_i8(out, to, QUOTE)
    return to + 1
