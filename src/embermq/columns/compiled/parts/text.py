"""Java's String.hashCode over UTF-8 bytes, for use inside kernels. Twin: format.java.string_hash_utf8."""

from typing import Any

from embermq.columns.compiled.parts.compiling import inlined
from embermq.columns.compiled.parts.memory import i64_at, u8_at

_REPLACEMENT = 0xFFFD
_TOP_BITS = 0x8080_8080_8080_8080 - (1 << 64)
_POWER_4, _POWER_5, _POWER_6, _POWER_7, _POWER_8 = (31**k % (1 << 32) for k in (4, 5, 6, 7, 8))


@inlined
def _hash_beyond_ascii(data: Any, at: int, end: int, code: int) -> int:
    """Goes on with `code` from data[at], decoding as Python's errors="replace" does: what is no UTF-8 becomes
    one U+FFFD per longest beginning of a character; characters above U+FFFF count as two entries."""
    while at < end:
        first = u8_at(data, at)
        at += 1
        if first < 0x80:
            code = (31 * code + first) & 0xFFFF_FFFF
            continue
        missing, low, high = 0, 0x80, 0xBF
        point = _REPLACEMENT
        if 0xC2 <= first < 0xE0:
            missing, point = 1, first & 0x1F
        elif 0xE0 <= first < 0xF0:
            missing, point = 2, first & 0x0F
            low = 0xA0 if first == 0xE0 else 0x80
            high = 0x9F if first == 0xED else 0xBF
        elif 0xF0 <= first <= 0xF4:
            missing, point = 3, first & 0x07
            low = 0x90 if first == 0xF0 else 0x80
            high = 0x8F if first == 0xF4 else 0xBF
        while missing > 0 and at < end and low <= u8_at(data, at) <= high:
            point = point << 6 | (u8_at(data, at) & 0x3F)
            at += 1
            missing -= 1
            low, high = 0x80, 0xBF
        if missing > 0:
            point = _REPLACEMENT
        if point >= 0x1_0000:
            code = (31 * code + 0xD7C0 + (point >> 10)) & 0xFFFF_FFFF
            point = 0xDC00 + (point & 0x3FF)
        code = (31 * code + point) & 0xFFFF_FFFF
    return code


@inlined
def hash_text(data: Any, at: int, length: int, code: int) -> int:
    """The hash of the text so far (`code`) continued with data[at:at + length]; both unsigned."""
    end = at + length
    while end - at >= 8 and i64_at(data, at) & _TOP_BITS == 0:  # Eight letters in one step: no long chain.
        head = u8_at(data, at) * _POWER_7 + u8_at(data, at + 1) * _POWER_6 + u8_at(data, at + 2) * _POWER_5
        middle = u8_at(data, at + 3) * _POWER_4 + u8_at(data, at + 4) * 29791 + u8_at(data, at + 5) * 961
        tail = u8_at(data, at + 6) * 31 + u8_at(data, at + 7)
        code = (code * _POWER_8 + head + middle + tail) & 0xFFFF_FFFF
        at += 8
    while at < end:
        byte = u8_at(data, at)
        if byte >= 0x80:
            return _hash_beyond_ascii(data, at, end, code)
        code = (31 * code + byte) & 0xFFFF_FFFF
        at += 1
    return code


@inlined
def signed32(code: int) -> int:
    """An unsigned 32-bit number as Java's int."""
    return code - ((code & 0x8000_0000) << 1)
